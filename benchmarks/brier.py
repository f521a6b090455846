"""Integrated Brier score of many rows: ours against scikit-survival and SurvivalEVAL.

Claim: on 1e5 rows x 100 times at least as fast as scikit-survival. Times are taken in turns in this process on one
thread; extra memory is the largest resident size above that before the call, watched from a thread in a process of its
own.
"""

import argparse
import ctypes
import gc
import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.integrate import trapezoid

from benchmarks.measure import extra_bytes, side_by_side
from xcal.metrics import integrated_brier_score


@dataclass(frozen=True)
class Data:
    """Outcomes, and survival probabilities at common times."""

    time: np.ndarray
    event: np.ndarray
    survival: np.ndarray
    times: np.ndarray


Run = Callable[[Data], float]


def rows(n: int, m: int) -> Data:
    rng = np.random.default_rng(0)
    rate = rng.uniform(0.3, 2.0, size=n)
    happens, censors = rng.exponential(1 / rate), rng.exponential(2.0, size=n)
    time = np.minimum(happens, censors)
    times = np.linspace(time.min(), np.quantile(time, 0.95), m)
    return Data(time, happens <= censors, np.exp(-times * rate[:, None]), times)


def ours(data: Data) -> float:
    return integrated_brier_score(data.survival, data.times, time=data.time, event=data.event).value


def scikit_survival() -> Run:
    from sksurv.metrics import integrated_brier_score as score
    from sksurv.util import Surv

    def run(data: Data) -> float:
        outcome = Surv.from_arrays(data.event, data.time)
        return score(outcome, outcome, data.survival, data.times)

    return run


def survivaleval() -> Run:
    module = importlib.import_module("SurvivalEVAL.evaluations.prediction_error.brier_score")

    def run(data: Data) -> float:
        outcome = (data.time, data.event)
        scores = module.brier_multiple_points(data.survival, *outcome, *outcome, data.times)
        return float(trapezoid(scores, data.times) / (data.times[-1] - data.times[0]))

    return run


PEERS: dict[str, Callable[[], Run]] = {
    "scikit-survival": scikit_survival,
    "SurvivalEVAL": survivaleval,
}


def prepare(name: str, n: int, m: int) -> Callable[[], float]:
    """Load one of them in a fresh process, warm up, and give freed memory back so that using it again counts."""
    run = ours if name == "ours" else PEERS[name]()
    run(rows(100, 3))
    data = rows(n, m)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return lambda: run(data)


def table(data: Data, runs: dict[str, Run]) -> None:
    values = {name: run(data) for name, run in runs.items()}
    taken = side_by_side({name: lambda run=run: run(data) for name, run in runs.items()})
    print(f"\n{data.time.size:,} rows x {data.times.size} times, IBS = {values['ours']:.12f}")
    print(f"{'':>16}  {'s':>9}  {'ours is faster by':>17}  {'extra MB':>9}  {'off by':>8}")
    for name, seconds in taken.items():
        extra = extra_bytes(partial(prepare, name, data.time.size, data.times.size)) / 1e6
        off = abs(values[name] - values["ours"])
        print(f"{name:>16}  {seconds:>9.4f}  {seconds / taken['ours']:>16.1f}x  {extra:>9.1f}  {off:>8.0e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, nargs="*", default=[1_000, 100_000])
    parser.add_argument("--times", type=int, default=100)
    options, _ = parser.parse_known_args()
    warnings.simplefilter("ignore")  # the peers' own, on stderr between the lines of the table
    torch.set_num_threads(1)
    runs: dict[str, Run] = {"ours": ours}
    for name, load in PEERS.items():
        try:
            runs[name] = load()
        except ImportError as error:
            print(f"{name}: not installed ({error}), skipped")
    for n in options.n:
        table(rows(n, options.times), runs)


if __name__ == "__main__":
    main()
