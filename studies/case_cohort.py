"""Case-cohort samples: a right model, judged with the sampling weights and without.

Claim: with the weights D-calibration, audits and the choice of a path call a right model off in about 5 % of samples or
fewer. Without them nearly always: a sample of all cases and a tenth of the others has many more events than the model
expects.

The cohort has 20,000 rows and rare events. All rows with an event are kept, with weight 1, and each other row with a
probability of .1, with weight 10.
"""

import argparse
import warnings
from typing import Any

import numpy as np

import xcal
from xcal import Surv, SurvivalPath

COHORT, SHARE, SHAPE = 20_000, 0.1, 1.5
TIMES = np.linspace(0.1, 3.0, 30)


def drawn(seed: int) -> dict[str, Any]:
    """Weibull times that depend on one of two covariates, some 8 % events, and the rows that are sampled."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(COHORT, 2))
    scale = np.exp(2.5 + 0.5 * x[:, 0])
    happens, leaves = scale * rng.weibull(SHAPE, COHORT), rng.uniform(1.0, 3.0, COHORT)
    time, event = np.minimum(happens, leaves), happens <= leaves
    kept = event | (rng.random(COHORT) < SHARE)
    sampled = {"x": x, "scale": scale, "time": time, "event": event, "weights": np.where(event, 1.0, 1 / SHARE)}
    return {name: values[kept] for name, values in sampled.items()}


def tested(seed: int) -> list[bool]:
    """Whether the test of D-calibration rejects the true F, with weights and without, and O/E's intervals hold 1."""
    rows = drawn(seed)
    time, event, weights = rows["time"], rows["event"], rows["weights"]
    f = -np.expm1(-((time / rows["scale"]) ** SHAPE))
    risk = -np.expm1(-((2.0 / rows["scale"]) ** SHAPE))
    rejected = [xcal.d_calibration(f, event, n_bins=20, weights=w).p_value < 0.05 for w in (weights, None)]
    ratios = [xcal.metrics.observed_expected(risk, at=2.0, time=time, event=event, weights=w) for w in (weights, None)]
    return [*rejected, *(one.lower < 1 < one.upper for one in ratios)]


def alarmed(seed: int) -> list[bool]:
    """Whether an audit of the true curves asks for caution or distrusts them, with weights and without."""
    rows = drawn(seed)
    given: dict[str, Any] = {
        "survival": np.exp(-((TIMES / rows["scale"][:, None]) ** SHAPE)),
        "times": TIMES,
        "y": (rows["time"], rows["event"]),
        "horizons": [1.0, 2.0],
        "covariates": {"a": rows["x"][:, 0], "b": rows["x"][:, 1]},
        "groups": {"half": np.where(rows["x"][:, 1] > 0, "upper", "lower")},
        "n_bootstrap": 0,
    }
    levels = [xcal.audit(**given, weights=w).verdict.level for w in (rows["weights"], None)]
    return [level in ("caution", "distrust") for level in levels]


def chosen(seed: int) -> list[bool]:
    """Whether a path of the right family calls its smallest weight off, and whether it would without the weights."""
    rows = drawn(seed)
    y = Surv(time=rows["time"], event=rows["event"])
    path = SurvivalPath(
        (0,),
        1,
        distribution="weibull",
        hidden=(),
        epochs=200,
        learning_rate=0.01,
        patience=None,
        random_state=seed,
        progress=False,
    ).fit(rows["x"], y, sample_weight=rows["weights"])
    table = path.candidates_ if path.cross_fitted_ is None else path.cross_fitted_
    plain = path.model(0.0).d_calibration(rows["x"], y)
    return [bool(table["dcal_p"].iloc[0] < 0.05), plain.p_value < 0.05]


def main() -> None:
    """Print shares of samples with their standard errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=1000, help="Samples for D-calibration and O/E.")
    parser.add_argument("--audits", type=int, default=20)
    parser.add_argument("--fits", type=int, default=4)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of rows at the ends of curves, which is not the point here
    print(f"A right model, case-cohort samples of {COHORT:,} rows; shares of samples     with weights     without")
    for name, shares in _measured(given):
        share, plain = shares.mean(axis=0)
        error = np.sqrt(max(share * (1 - share), 1e-4) / len(shares))
        print(f"{name:<66}{share:>8.3f} ± {error:.3f}{plain:>12.3f}")


def _measured(given: argparse.Namespace) -> list[tuple[str, Any]]:
    found = np.array([tested(seed) for seed in range(given.datasets)])
    lines: list[tuple[str, Any]] = [
        (f"D-calibration's test rejects the true F, {given.datasets} samples", found[:, :2]),
        (f"the 95 % interval of O/E holds 1, {given.datasets} samples", found[:, 2:]),
    ]
    if given.audits:
        audits = np.array([alarmed(seed) for seed in range(given.audits)])
        lines.append((f"an audit asks for caution or distrusts, {given.audits} audits", audits))
    if given.fits:
        lines.append(
            (f"a path calls lambda 0 off, {given.fits} fits", np.array([chosen(s) for s in range(given.fits)]))
        )
    return lines


if __name__ == "__main__":
    main()
