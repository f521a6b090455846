"""Rows in clusters: coverage of the interval of D-calibration, size of its p-value, and its floor.

Claim: with clusters the 95 % interval holds the true D-calibration in about 95 % of data sets or more, and the test
rejects a perfect model in about 5 %, however alike the rows of a cluster are. Without them, beside it, neither holds.
With few clusters, fifteen say, the test rejects somewhat too often.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from scipy.stats import norm

from xcal import d_calibration
from xcal.metrics import evaluate

TOO_FAST = 1.5


def draw(n_clusters: int, alike: float, censored: bool, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """F of a perfect model at the event or the censoring, which came first, and the cluster of each row.

    Sizes of clusters are log-normal, 20 rows in the middle: stays have very different lengths too.
    """
    size = np.maximum(1, rng.lognormal(np.log(20), 0.8, n_clusters).astype(int))
    cluster = np.repeat(np.arange(n_clusters), size)

    def uniforms() -> np.ndarray:
        own = np.sqrt(1 - alike) * rng.normal(size=cluster.size)
        return norm.cdf(np.sqrt(alike) * rng.normal(size=n_clusters)[cluster] + own)

    happens = uniforms()
    censors = uniforms() * 1.3 if censored else np.full(cluster.size, np.inf)
    return np.minimum(happens, censors), happens <= censors, cluster


def truth(too_fast: float, censored: bool) -> float:
    """D-calibration that the estimator tends to, from many independent rows, less what noise adds."""
    if too_fast == 1:
        return 0.0
    rng = np.random.default_rng(10**6)
    happens = rng.random(10**6)
    censors = rng.random(10**6) * 1.3 if censored else np.full(happens.size, np.inf)
    u = np.minimum(happens, censors)
    result = d_calibration(1 - (1 - u) ** too_fast, happens <= censors, p_value=None)
    return result.value - result.floor


def measured(task: tuple[int, int, float, bool, float, int, float]) -> list[float]:
    """Whether the interval holds the truth and the test rejects, by clusters and naively; value and both floors."""
    seed, n_clusters, alike, censored, too_fast, resamples, true_value = task
    u, event, cluster = draw(n_clusters, alike, censored, np.random.default_rng(seed))
    u = 1 - (1 - u) ** too_fast
    out: list[float] = []
    for clusters in (cluster, None):
        result = evaluate(
            time=u,
            event=event,
            cdf=u,
            metrics=["d_calibration", "d_calibration_p"],
            n_bootstrap=resamples,
            generator=np.random.default_rng(seed),
            clusters=clusters,
        )
        score = result["d_calibration"]
        out += [score.lower <= true_value <= score.upper, result["d_calibration_p"].value <= 0.05]
        out += [result["d_calibration_floor"].value]
    return [*out, result["d_calibration"].value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=300)
    parser.add_argument("--resamples", type=int, default=99)
    parser.add_argument("--clusters", type=int, nargs="*", default=[15, 50, 200])
    parser.add_argument("--alike", type=float, nargs="*", default=[0.0, 0.5, 0.95])
    options, _ = parser.parse_known_args()
    print(f"{options.datasets} data sets per line; alike: correlation within a cluster on the scale of a normal")
    print("coverage: share of 95 % intervals of D-calibration that hold the truth; rejected: share with p <= 0.05")
    print(
        f"{'model':>8}  {'censored':>8}  {'clusters':>8}  {'alike':>5}  {'coverage':>8}  {'naive':>6}  "
        f"{'rejected':>8}  {'naive':>6}  {'mean value':>10}  {'mean floor':>10}  {'naive':>8}"
    )
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name, too_fast in (("perfect", 1.0), ("1.5 x", TOO_FAST)):
            for censored in (False, True):
                true_value = truth(too_fast, censored)
                for n_clusters in options.clusters:
                    for alike in options.alike:
                        rest = (n_clusters, alike, censored, too_fast, options.resamples, true_value)
                        tasks = [(seed, *rest) for seed in range(options.datasets)]
                        mean = np.mean(list(pool.map(measured, tasks, chunksize=5)), axis=0)
                        print(
                            f"{name:>8}  {'39 %' if censored else '0 %':>8}  {n_clusters:>8}  {alike:>5}  "
                            f"{mean[0]:>8.3f}  {mean[3]:>6.3f}  {mean[1]:>8.3f}  {mean[4]:>6.3f}  "
                            f"{mean[6]:>10.2e}  {mean[2]:>10.2e}  {mean[5]:>8.1e}",
                            flush=True,
                        )
    print(f"standard error of .95 or .05: {(0.05 * 0.95 / options.datasets) ** 0.5:.3f}")


if __name__ == "__main__":
    main()
