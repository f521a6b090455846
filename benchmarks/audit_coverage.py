"""Coverage of the 95 % intervals of an audit for O/E, Cox slope, ICI, AUC and IPA.

Claim: they hold the true value in 92 % of data sets or more. O/E and slope have intervals by formula, AUC and IPA
percentiles of resamples. ICI is zero at best: its interval is the observed value plus and minus what the noise allows,
cut at zero.

Truth: exponential times whose log-rate is half a standard normal number z; exponential censoring. The perfect model
knows z. The wrong one takes 1.3 times the effect of z and hazards 1.2 times too high. Observed over expected, AUC and
IPA are those of the population, ICI that over the rows at hand.

With `--rows-per-cluster 5` five rows share their z, and their times are alike (a normal copula with correlation 0.5).
The intervals are then by drawing whole clusters, and with `--naive` by drawing rows all the same.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from scipy.special import log_ndtr

from xcal.calibration.clusters import as_clusters
from xcal.interop.predictions import ModelPredictions
from xcal.validation.measure import measure
from xcal.validation.sample import Sample

NAMES = ("oe", "cox_slope", "ici", "auc", "ipa")
CENSORING = {0.3: 2.4, 0.6: 0.67}
AT = 0.7
MODELS = {"wrong": (1.2, 1.3), "perfect": (1.0, 1.0)}
ALIKE = 0.5


def risks(z: np.ndarray, too_fast: float, too_steep: float) -> np.ndarray:
    return -np.expm1(-too_fast * AT * np.exp(0.5 * too_steep * z))


def population(too_fast: float, too_steep: float) -> dict[str, float]:
    """Give the true values, from very many rows whose outcomes are known as probabilities."""
    z = np.random.default_rng(10**6).normal(size=400_000)
    truth, said = risks(z, 1.0, 1.0), risks(z, too_fast, too_steep)
    order = np.argsort(said)
    case, control = truth[order], (1 - truth)[order]
    below = np.cumsum(control) - control / 2
    error = (truth * (1 - said) ** 2 + (1 - truth) * said**2).mean()
    return {
        "oe": float(truth.mean() / said.mean()),
        "cox_slope": 1 / too_steep,
        "auc": float(case @ below / (case.sum() * control.sum())),
        "ipa": float(1 - error / (truth.mean() * (1 - truth.mean()))),
    }


def drawn(rng: np.random.Generator, n: int, rows_per_cluster: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw z and the time of the event; rows of a cluster share z, and have times that are alike."""
    if rows_per_cluster == 1:
        z = rng.normal(size=n)
        return z, rng.exponential(np.exp(-0.5 * z))
    cluster = np.arange(n) // rows_per_cluster
    z, common = rng.normal(size=(2, n))[:, cluster]
    latent = ALIKE**0.5 * common + (1 - ALIKE) ** 0.5 * rng.normal(size=n)
    return z, -log_ndtr(-latent) * np.exp(-0.5 * z)


def covered(task: tuple[int, int, float, str, int, int, bool, dict[str, float]]) -> list[float]:
    """For each metric, whether its interval holds the truth."""
    seed, n, share, model, resamples, rows_per_cluster, naive, truth = task
    rng = np.random.default_rng(seed)
    z, happens = drawn(rng, n, rows_per_cluster)
    censors = rng.exponential(size=n) * CENSORING[share]
    said = risks(z, *MODELS[model])
    sample = Sample(
        time=np.minimum(happens, censors),
        event=happens <= censors,
        predictions=ModelPredictions(model=model, library="none", n=n, risk=said, risk_horizon=AT),
        horizons=np.array([AT]),
        thresholds=np.empty(0),
        clusters=None if naive or rows_per_cluster == 1 else as_clusters(np.arange(n) // rows_per_cluster, n),
    )
    found = {value.metric: value for value in measure(sample, n_bootstrap=resamples, seed=seed).values}
    truth = truth | {"ici": float(np.abs(said - risks(z, 1.0, 1.0)).mean())}
    return [float(found[name].lower <= truth[name] <= found[name].upper) for name in NAMES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=40)
    parser.add_argument("--resamples", type=int, default=100)
    parser.add_argument("--n", type=int, nargs="*", default=[300, 1000])
    parser.add_argument("--model", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rows-per-cluster", type=int, default=1)
    parser.add_argument("--naive", action="store_true", help="draw rows although they are in clusters")
    options, _ = parser.parse_known_args()
    error = (0.05 * 0.95 / options.datasets) ** 0.5
    print(
        f"share of {options.datasets} data sets whose 95 % interval holds the true value, {options.resamples} "
        f"resamples each; standard error of 0.95: {error:.3f}"
    )
    print(f"{'model':>8}  {'n':>6}  {'censored':>8}  " + "  ".join(f"{name:>9}" for name in NAMES), flush=True)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for model in options.model:
            truth = population(*MODELS[model])
            for n in options.n:
                for share in CENSORING:
                    asked = (n, share, model, options.resamples, options.rows_per_cluster, options.naive, truth)
                    tasks = [(k, *asked) for k in range(options.datasets)]
                    means = np.mean(list(pool.map(covered, tasks, chunksize=5)), axis=0)
                    figures = "  ".join(f"{mean:>9.3f}" for mean in means)
                    print(f"{model:>8}  {n:>6,}  {share:>8.0%}  {figures}", flush=True)


if __name__ == "__main__":
    main()
