"""Conditional calibration: how often its test rejects a right model, what it finds, and what it costs.

Claims: a model that is right for every x is rejected at the nominal 5 %, whatever the size, the censoring (also where
it depends on x) and the number, correlation and skewness of the columns; a model that is right on average and wrong for
every row is rejected where D-calibration sees nothing; a hidden subgroup is found and named; a million rows take
seconds.
"""

import argparse
import os
import resource
import time as clock
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from scipy.stats import norm

from xcal import conditional_calibration, d_calibration

# Rate of an exponential censoring time beside an event time of rate one that gives about this share of censored rows.
RATES = {0.0: 0.0, 0.3: 0.43, 0.6: 1.5, 0.8: 4.0}


def covariates(n: int, p: int, kind: str, rng: np.random.Generator) -> np.ndarray:
    x = rng.standard_normal((n, p))
    if kind == "skewed":  # correlated by a common factor, then log-normal
        x = np.exp(0.7 * x + 0.7 * rng.standard_normal((n, 1)))
    return x


def right_model(n: int, p: int, kind: str, censored: float, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """F at the observed time under the true proportional hazards; censoring depends on x, too."""
    x = covariates(n, p, kind, rng)
    z = norm.ppf((x.argsort(axis=0).argsort(axis=0) + 0.5) / n)
    hazard = np.exp(0.5 * z[:, 0] - 0.3 * z[:, 1])
    time = rng.exponential(1 / hazard)
    end = rng.exponential(np.exp(0.5 * z[:, 2] - 0.3 * z[:, 0]) / RATES[censored]) if censored else np.full(n, np.inf)
    return 1 - np.exp(-np.minimum(time, end) * hazard), time <= end, x


def size_of(task: tuple[int, int, int, str, float]) -> tuple[bool, float]:
    seed, n, p, kind, censored = task
    u, event, x = right_model(n, p, kind, censored, np.random.default_rng(seed))
    found = conditional_calibration(u, event, x, n_draws=199, where=False, seed=seed)
    return (found.p_value or 1.0) <= 0.05, 1 - float(event.mean())


def power_of(task: tuple[int, int, float]) -> tuple[bool, bool, bool]:
    """One scale for all where the truth has many; F is mapped so that it is uniform over all rows without censoring."""
    seed, n, censored = task
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 5))
    sigma = np.exp(0.5 * x[:, 0])
    z = sigma * rng.standard_normal(n)
    draws = np.exp(0.5 * np.random.default_rng(0).standard_normal(200_000))
    draws = np.sort(draws * np.random.default_rng(1).standard_normal(200_000))
    cut = {0.0: np.inf, 0.3: 0.9, 0.6: 0.2, 0.8: -0.3}[censored]
    end = cut + rng.standard_normal(n) if np.isfinite(cut) else np.full(n, np.inf)
    event = z <= end
    u = np.searchsorted(draws, np.minimum(z, end)) / draws.size
    whole = d_calibration(u, event, n_bins=20)
    groups = (x[:, 0] > 0) * 2 + (x[:, 1] > 0)
    corrected = d_calibration(u, event, n_bins=20, groups=groups).adjusted_p_values
    assert corrected is not None
    found = conditional_calibration(u, event, x, n_draws=199, where=False, seed=seed)
    return (found.p_value or 1) <= 0.05, (whole.p_value or 1) <= 0.05, min(corrected.values()) <= 0.05


def planted(task: tuple[int, float]) -> tuple[bool, bool, bool]:
    """Half censored, 10 columns; in a tenth of the rows (x0 above its 68 %, x1 above its 68 %) the hazard is higher."""
    seed, ratio = task
    rng = np.random.default_rng(seed)
    n = 10_000
    x = rng.standard_normal((n, 10))
    inside = (x[:, 0] > norm.ppf(0.684)) & (x[:, 1] > norm.ppf(0.684))
    time, end = rng.exponential(np.where(inside, 1 / ratio, 1.0)), rng.exponential(size=n)
    event = time <= end
    found = conditional_calibration(1 - np.exp(-np.minimum(time, end)), event, x, n_draws=199, seed=seed)
    where = found.where
    assert where is not None
    named = "x0 >" in where.rule or "x1 >" in where.rule
    return (found.p_value or 1) <= 0.05, where.p_value <= 0.05, named and where.p_value <= 0.05


def rejections(pool: ProcessPoolExecutor, job: Callable[..., tuple[float, ...]], tasks: list[tuple]) -> np.ndarray:
    return np.mean(list(pool.map(job, tasks, chunksize=10)), axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=200)
    parser.add_argument("--n", type=int, nargs="*", default=[300, 1000, 5000])
    parser.add_argument("--parts", nargs="*", default=["size", "power", "planted", "speed"])
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options, _ = parser.parse_known_args()
    error = (0.05 * 0.95 / options.datasets) ** 0.5
    with ProcessPoolExecutor(options.processes) as pool:
        if "size" in options.parts:
            print(f"right model, share of {options.datasets:,} data sets with p <= .05 (standard error {error:.3f})")
            for n in options.n:
                for p, kind in ((5, "normal"), (50, "normal"), (5, "skewed"), (50, "skewed")):
                    shown = [
                        rejections(pool, size_of, [(k, n, p, kind, c) for k in range(options.datasets)]) for c in RATES
                    ]
                    cells = "  ".join(f"{rate:.3f} ({share:.0%} censored)" for rate, share in shown)
                    print(f"n = {n:>5}, {p:>2} {kind} columns: {cells}", flush=True)
        if "power" in options.parts:
            print("one scale for all where the truth has many, right on average: share rejected")
            for n in options.n:
                for censored in RATES:
                    k, d, g = rejections(pool, power_of, [(s, n, censored) for s in range(options.datasets)])
                    print(
                        f"n = {n:>5}, about {censored:.0%} censored: conditional {k:.2f}, D-calibration (Akritas) "
                        f"{d:.2f}, quadrants of two columns (Holm) {g:.2f}",
                        flush=True,
                    )
        if "planted" in options.parts:
            for ratio in (1.0, 1.5):
                k, w, named = rejections(pool, planted, [(s, ratio) for s in range(options.datasets)])
                print(
                    f"10,000 rows, half censored, hazard ratio {ratio} in a tenth: test rejects {k:.3f}, subgroup "
                    f"confirmed {w:.3f}, confirmed and by its own columns {named:.3f}",
                    flush=True,
                )
    if "speed" in options.parts:
        rng = np.random.default_rng(0)
        u, event, x = right_model(1_000_000, 10, "normal", 0.3, rng)
        start = clock.perf_counter()
        conditional_calibration(u, event, x)
        took = clock.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"1,000,000 rows, 10 columns, 128 features, 20 bins, 999 draws: {took:.1f} s, {peak:,.0f} MB in all")


if __name__ == "__main__":
    main()
