"""The choice of a path on validation rows that belong together: how often a right model is called off, and corrected.

Claim: a path that is told which validation rows belong to one patient calls a right model off in about 5 % of data sets
or fewer. One that is not, beside it, nearly always does if each patient has four rows with the same outcome.
"""

import argparse
import warnings

import numpy as np

from xcal import Surv, SurvivalPath

PATIENTS, ROWS = 150, (1, 2, 4)


def draw(n: int, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weibull times of patients with some rows each: about the same covariates, and one outcome."""
    x = rng.normal(size=(n, 2))
    happens, leaves = rng.weibull(1.5, n) * np.exp(0.5 * x[:, 0]), rng.exponential(3.0, n)
    patient = np.repeat(np.arange(n), rows)
    y = Surv(time=np.minimum(happens, leaves)[patient], event=(happens <= leaves)[patient])
    return x[patient] + 0.01 * rng.normal(size=(patient.size, 2)), y, patient


def chosen(rows: int, seed: int) -> list[float]:
    """Whether the model of lambda 0 is called off and whether it is recalibrated: rows as they come, then patients."""
    rng = np.random.default_rng(seed)
    X, y, _ = draw(1500, 1, rng)
    held_x, held_y, patient = draw(PATIENTS, rows, rng)
    out: list[float] = []
    for clusters in (None, patient):
        path = SurvivalPath((0,), 1, distribution="weibull", hidden=(), epochs=40, cross_fit=0, progress=False)
        path.fit(X, y, validation_data=(held_x, held_y), validation_clusters=clusters)
        out += [path.candidates_["dcal_p"][0] < 0.05, path.selection_.recalibrated]
    return out


def main() -> None:
    """Print a line for each number of rows per patient."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=60)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of few rows, which is the point here
    print(f"A right model, {PATIENTS} patients to validate on, {given.datasets} data sets: shares of them")
    print(f"{'rows per patient':>16}  {'off: rows':>10}{'patients':>10}  {'recalibrated: rows':>18}{'patients':>10}")
    for rows in ROWS:
        off, mapped, off_told, mapped_told = np.mean([chosen(rows, seed) for seed in range(given.datasets)], axis=0)
        print(f"{rows:>16}  {off:>10.2f}{off_told:>10.2f}  {mapped:>18.2f}{mapped_told:>10.2f}")
    print(f"standard error of .05: {np.sqrt(0.05 * 0.95 / given.datasets):.3f}")


if __name__ == "__main__":
    main()
