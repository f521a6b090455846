"""Exact D-calibration of many rows: ours against SurvivalEVAL's on the same F values.

Claim: at n = 1e7 at least five times faster, with extra memory that does not grow with n. Both give Pearson's p-value.
"""

import argparse
import warnings
from collections.abc import Callable

import numpy as np
from SurvivalEVAL.evaluations.calibration import d_calibration as survival_eval

from benchmarks.measure import extra_bytes, side_by_side
from xcal import DCalibration, d_calibration


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random(n), rng.random(n) < 0.5


def runs(n: int) -> dict[str, Callable[[], object]]:
    # That Pearson's p-value means little here is known; the peer's is the same.
    warnings.simplefilter("ignore", UserWarning)
    cdf, event = rows(n)
    survival = 1 - cdf

    def chunked() -> object:
        meter = DCalibration(p_value="pearson")
        for start in range(0, n, 1_000_000):
            meter.update(cdf[start : start + 1_000_000], event[start : start + 1_000_000])
        return meter.compute()

    return {
        "SurvivalEVAL": lambda: survival_eval(survival, event),
        "d_calibration": lambda: d_calibration(cdf, event, p_value="pearson"),
        "  with akritas": lambda: d_calibration(cdf, event),
        "DCalibration": chunked,
    }


def one_run(n: int, name: str) -> Callable[[], object]:
    return runs(n)[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, nargs="*", default=[1_000_000, 10_000_000])
    options, _ = parser.parse_known_args()
    print(f"{'n':>11}  {'':>15}  {'s':>8}  {'times faster':>12}  {'extra MB':>9}")
    for n in options.n:
        memory = {name: extra_bytes(one_run, n, name) for name in runs(10)}
        taken = side_by_side(runs(n))
        for name, seconds in taken.items():
            ratio = taken["SurvivalEVAL"] / seconds
            print(f"{n:>11,}  {name:>15}  {seconds:>8.4f}  {ratio:>12.1f}  {memory[name] / 1e6:>9.1f}")


if __name__ == "__main__":
    main()
