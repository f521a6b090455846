"""Coverage of the bootstrap intervals of `evaluate`, for metrics that are zero at best.

Claim: the 95 % interval holds the true distance in about 95 % of data sets or more, that of a perfect model (zero) as
well as that of a clearly wrong one. Percentiles of the resampled metric, beside it, never reach zero.

``python -m studies.intervals --accuracy --datasets 400 --resamples 200``: AUC, Brier score and IPA of a true model.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise

import numpy as np

from xcal import d_calibration
from xcal.metrics import evaluate
from xcal.metrics.estimates import estimates
from xcal.metrics.evaluation import read_rows
from xcal.metrics.of_rows import Asked

NAMES = ("d_calibration", "ici", "e50", "e90", "emax", "km_calibration")
ENTRIES = ("d_calibration", "ici", "km_calibration")
ACCURACY = ("auc", "brier", "ipa")
CENSORING = {0.0: np.inf, 0.3: 2.4, 0.6: 0.67}
TIMES = np.linspace(0.05, 3.0, 60)
AT = 0.7


def rates(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.exp(0.5 * rng.normal(size=n))


def rows(rate: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    happens = rng.exponential(1 / rate)
    censors = rng.exponential(size=rate.size) * CENSORING[share] if share else np.full(rate.size, np.inf)
    return np.minimum(happens, censors), happens <= censors


def expected_masses(method: str, share: float, too_fast: float) -> float:
    """D-calibration that the estimator tends to: of many rows, less what noise adds."""
    if too_fast == 1:
        return 0.0
    rng = np.random.default_rng(10**6)
    rate = rates(500_000, rng)
    time, event = rows(rate, share, rng)
    result = d_calibration(-np.expm1(-too_fast * rate * time), event, method=method, p_value=None)
    return result.value - result.floor


def true_distances(rate: np.ndarray, time: np.ndarray, event: np.ndarray, too_fast: float) -> dict[str, float]:
    """ICI and its relatives over these rows, and KM calibration up to their last event, from the true curves."""
    error = np.abs(np.exp(-too_fast * rate * AT) - np.exp(-rate * AT))
    everybody = rates(20_000, np.random.default_rng(10**6))
    points = np.append(0.0, np.unique(time[event & (time <= TIMES[-1])]))
    curve = [np.exp(-np.multiply.outer(TIMES * c, everybody)).mean(axis=1) for c in (too_fast, 1.0)]
    grid = np.append(0.0, TIMES)
    difference = np.interp(points, grid, np.append(0.0, curve[0] - curve[1]))
    squared = np.square(difference)
    area = sum((b - a) * (p + q) / 2 for (a, b), (p, q) in zip(pairwise(points), pairwise(squared), strict=True))
    return {
        "ici": float(error.mean()),
        "e50": float(np.quantile(error, 0.5)),
        "e90": float(np.quantile(error, 0.9)),
        "emax": float(error.max()),
        "km_calibration": float(area / points[-1]),
    }


def covered(task: tuple[int, int, float, float, str, int, float]) -> list[tuple[bool, bool, float]]:
    """For each metric: whether our interval and that of percentiles hold the truth, and our width over theirs."""
    seed, n, share, too_fast, method, resamples, d_truth = task
    rng = np.random.default_rng(seed)
    rate = rates(n, rng)
    time, event = rows(rate, share, rng)
    survival, cdf = np.exp(-too_fast * TIMES * rate[:, None]), -np.expm1(-too_fast * rate * time)
    truth = {"d_calibration": d_truth, **true_distances(rate, time, event, too_fast)}
    given = {"survival": survival, "times": TIMES, "cdf": cdf, "at": AT, "d_calibration_method": method}
    result = evaluate(
        time=time, event=event, **given, metrics=ENTRIES, n_bootstrap=resamples, generator=np.random.default_rng(seed)
    )
    checked, _ = read_rows(time=time, event=event, **given)
    again = np.random.default_rng(seed)
    resampled = (checked.take(np.sort(again.integers(n, size=n))) for _ in range(resamples))
    found = (estimates(rows, ENTRIES, Asked(simulated=False)) for rows in resampled)
    draws = [{key.metric: value for key, value in one.values.items()} for one in found]
    out = []
    for name in NAMES:
        low, high = np.nanquantile([draw.get(name, np.nan) for draw in draws], [0.025, 0.975])
        score = result[name]
        ours, theirs = score.lower <= truth[name] <= score.upper, low <= truth[name] <= high
        out.append((ours, theirs, (score.upper - score.lower) / max(high - low, 1e-300)))
    return out


def true_accuracy() -> dict[str, float]:
    """AUC, Brier score and IPA of the true model in the population, by many rows without censoring."""
    rng = np.random.default_rng(10**6)
    rate = rates(2_000_000, rng)
    risk, dies = -np.expm1(-rate * AT), rng.exponential(1 / rate) <= AT
    places = np.empty(rate.size)
    places[np.argsort(risk)] = np.arange(1, rate.size + 1)
    cases, others = np.count_nonzero(dies), np.count_nonzero(~dies)
    auc = (places[dies].sum() - cases * (cases + 1) / 2) / (cases * others)
    brier, null = np.square(risk - dies).mean(), dies.mean() * (1 - dies.mean())
    return {"auc": float(auc), "brier": float(brier), "ipa": float(1 - brier / null)}


def accuracy_covered(task: tuple[int, int, float, int, dict[str, float]]) -> list[bool]:
    """Return for AUC, Brier score and IPA whether the interval holds the truth."""
    seed, n, share, resamples, truth = task
    rng = np.random.default_rng(seed)
    rate = rates(n, rng)
    time, event = rows(rate, share, rng)
    given = {"survival": np.exp(-TIMES * rate[:, None]), "times": TIMES, "at": AT, "metrics": ACCURACY}
    result = evaluate(time=time, event=event, **given, n_bootstrap=resamples, generator=np.random.default_rng(seed))
    return [result[name].lower <= truth[name] <= result[name].upper for name in ACCURACY]


def show_accuracy(datasets: int, resamples: int, sizes: list[int]) -> None:
    truth = true_accuracy()
    print(f"share of {datasets} data sets whose 95 % interval holds the truth, a true model, {resamples} resamples")
    print(f"{'n':>6}  {'censored':>8}  " + "  ".join(f"{name:>6}" for name in ACCURACY))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for n in sizes:
            for share in CENSORING:
                tasks = [(k, n, share, resamples, truth) for k in range(datasets)]
                means = np.mean(list(pool.map(accuracy_covered, tasks, chunksize=5)), axis=0)
                print(f"{n:>6,}  {share:>8.0%}  " + "  ".join(f"{mean:>6.3f}" for mean in means), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=60)
    parser.add_argument("--resamples", type=int, default=60)
    parser.add_argument("--n", type=int, nargs="*", default=[200])
    parser.add_argument("--method", default="uniform", choices=["uniform", "km"])
    parser.add_argument("--accuracy", action="store_true", help="AUC, Brier score and IPA instead")
    options, _ = parser.parse_known_args()
    if options.accuracy:
        show_accuracy(options.datasets, options.resamples, options.n)
        return
    print(
        f"share of {options.datasets} data sets whose 95 % interval holds the truth: ours / percentiles (our width "
        f"over that of percentiles); D-calibration by {options.method}"
    )
    print(f"{'model':>8}  {'n':>6}  {'censored':>8}  " + "  ".join(f"{name:>19}" for name in NAMES))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name, too_fast in (("perfect", 1.0), ("1.2 x", 1.2), ("1.5 x", 1.5)):
            for n in options.n:
                for share in CENSORING:
                    truth = expected_masses(options.method, share, too_fast)
                    tasks = [
                        (k, n, share, too_fast, options.method, options.resamples, truth)
                        for k in range(options.datasets)
                    ]
                    means = np.mean(list(pool.map(covered, tasks, chunksize=5)), axis=0)
                    cells = "  ".join(f"{a:>5.3f} / {b:>5.3f} ({w:.2f})" for a, b, w in means)
                    print(f"{name:>8}  {n:>6,}  {share:>8.0%}  {cells}", flush=True)
    print(f"standard error of a coverage of .95: {(0.05 * 0.95 / options.datasets) ** 0.5:.3f}")


if __name__ == "__main__":
    main()
