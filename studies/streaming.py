"""How far D-calibration by "km" from a grid is from that of the rows, and how far its bound says it can be.

Claim: the error is within `error_bound` in every data set, and for rows spread over [0, 1] the bound is a small part of
the value or of the floor. Up to `grid_cells` distinct values both are zero, so the smallest n here is above that.
"""

import argparse

import numpy as np

from xcal import DCalibration, d_calibration

CENSORING_SCALES = (np.inf, 2.0, 0.6, 0.25)


def rows(n: int, censoring_scale: float, too_fast: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    effect = np.exp(0.5 * rng.normal(size=n))
    happens = rng.exponential(size=n) * effect
    censors = rng.exponential(size=n) * censoring_scale if np.isfinite(censoring_scale) else np.full(n, np.inf)
    return -np.expm1(-too_fast * np.minimum(happens, censors) / effect), happens <= censors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=8)
    parser.add_argument("--n", type=int, nargs="*", default=[20_000, 200_000, 1_000_000])
    options, _ = parser.parse_known_args()
    print(f"largest over {options.datasets} data sets, 10,000 cells, 10 bins")
    print(
        f"{'n':>10}  {'censored':>8}  {'model':>9}  {'value':>8}  {'floor':>8}  {'error':>8}  {'bound':>8}  beyond it"
    )
    for n in options.n:
        for scale in CENSORING_SCALES:
            for name, too_fast in (("perfect", 1.0), ("1.5 x", 1.5)):
                found = []
                for seed in range(options.datasets):
                    u, event = rows(n, scale, too_fast, np.random.default_rng(seed))
                    exact = d_calibration(u, event, method="km", p_value=None)
                    grid = DCalibration(method="km", p_value=None).update(u, event).compute()
                    found.append((exact.value, exact.floor, abs(grid.value - exact.value), grid.error_bound))
                    share = exact.n_censored / n
                largest = np.max(found, axis=0)
                beyond = sum(error > bound + 1e-12 for _, _, error, bound in found)
                cells = "  ".join(f"{x:>8.1e}" for x in largest)
                print(f"{n:>10,}  {share:>8.0%}  {name:>9}  {cells}  {beyond:>6}", flush=True)


if __name__ == "__main__":
    main()
