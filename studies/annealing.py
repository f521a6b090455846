"""A rising weight with a falling temperature (`penalty_schedule="anneal"`) against a constant penalty, same lambdas.

Claim: at every D-calibration level that the constant penalty reaches, the annealed one is matched or better in NLL and
concordance (`xcal_paper.comparison`: NLL at most .05 higher, concordance at most .02 lower), and lambda 0
is the same model.

- Each repetition splits the rows anew, two thirds to fit on and one third new, and fits two `SurvivalPath` with the
  defaults of the estimators, one seed each: they differ in the schedule alone. Values are of the new rows, means over
  repetitions. D-calibration has 20 bins, in 1e-4, beside its floor.
- "mtlr" assumes no shape of the distribution, "weibull" does, and is wrong on most of these data: there the penalty has
  something to do.
- "small" has 200 simulated rows, "gamma" 6,000 of the paper's simulation; METABRIC and SUPPORT are read from
  ``XCAL_DATA``, GBSG2 comes with scikit-survival.
- ``--temperature 0.1`` lets the annealed penalty end with sharper bins (`penalty_temperature=`).
- Seconds are of the processor, both paths in one process, one after the other.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from studies.choosing import simulated
from studies.remedies import LOAD, of_table, own_values
from xcal.calibration import d_calibration
from xcal.data import SurvivalData
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal_paper import load_gamma
from xcal_paper.comparison import Point, level_at

LAMBDAS = (0.0, 1.0, 10.0, 100.0, 1000.0)
SCHEDULES = ("constant", "anneal")
NAMES = ("dcal", "dcal_floor", "nll", "concordance")


def split(rows: SurvivalData, repetition: int) -> tuple[SurvivalData, SurvivalData]:
    fit, new = rows.split((2 / 3, 1 / 3), seed=repetition)
    return fit, new


def small(repetition: int) -> tuple[SurvivalData, SurvivalData]:
    (x, y), (new_x, new_y) = simulated(200, repetition)
    return SurvivalData(x, y["time"], y["event"]), SurvivalData(new_x, new_y["time"], new_y["event"])


def gamma(n: int, repetition: int) -> tuple[SurvivalData, SurvivalData]:
    return split(of_table(lambda: load_gamma(censored=True, n=(n, 2, 2), seed=10).train, 0)[0], repetition)


def real(name: str, repetition: int) -> tuple[SurvivalData, SurvivalData]:
    return split(LOAD[name]()[0], repetition)


DATA: dict[str, Callable[[int], tuple[SurvivalData, SurvivalData]]] = {
    "small": small,
    "gbsg2": partial(real, "gbsg2"),
    "metabric": partial(real, "metabric"),
    "support": partial(real, "support"),
    "gamma": partial(gamma, 6_000),
}


def measure(model: SurvivalModel, new: SurvivalData) -> Point:
    cdf, loss = own_values(model, new)
    result = d_calibration(cdf, new.event, n_bins=20, p_value=None)
    concordance = model.score(new.x, {"time": new.time, "event": new.event})
    return dict(zip(NAMES, (result.value, result.floor, float(loss.mean()), concordance), strict=True))


def paths(
    data: str, family: str, temperature: float | None, repetition: int
) -> tuple[dict[str, dict[float, Point]], dict[str, float]]:
    """Values by schedule and lambda, and seconds by schedule."""
    fit, new = DATA[data](repetition)
    points, seconds = {}, {}
    for schedule in SCHEDULES:
        start = time.process_time()
        path = SurvivalPath(
            LAMBDAS,
            seeds=(repetition,),
            distribution=family,
            penalty_schedule=schedule,
            penalty_temperature=temperature if schedule == "anneal" else None,
            cross_fit=0,
            random_state=repetition,
            progress=False,
        ).fit(fit)
        seconds[schedule] = time.process_time() - start
        points[schedule] = {lam: measure(path.model(lam), new) for lam in LAMBDAS}
    if points["constant"][0.0] != points["anneal"][0.0]:
        raise AssertionError("lambda 0 is another model under another schedule")
    return points, seconds


def mean(points: list[Point]) -> Point:
    return {name: float(np.mean([point[name] for point in points])) for name in NAMES}


def compare(data: str, family: str, temperature: float | None, repetitions: int) -> tuple[int, int, int]:
    """Print both paths; levels, those at which the annealed one is matched or better, those at which it wins both."""
    found = [paths(data, family, temperature, repetition) for repetition in range(repetitions)]
    means = {s: {lam: mean([points[s][lam] for points, _ in found]) for lam in LAMBDAS} for s in SCHEDULES}
    spread = {
        lam: {
            name: np.std(
                [p["anneal"][lam][name] - p["constant"][lam][name] for p, _ in found], ddof=min(1, len(found) - 1)
            )
            / math.sqrt(len(found))
            for name in NAMES
        }
        for lam in LAMBDAS
    }
    seconds = {s: sum(taken[s] for _, taken in found) for s in SCHEDULES}
    floor = 1e4 * means["constant"][0.0]["dcal_floor"]
    print(f"\n{data}, {family}: floor {floor:.1f}; seconds {seconds['constant']:.0f} and {seconds['anneal']:.0f}")
    print("  lambda |  D-cal: constant  anneal        | NLL: constant  anneal         | concordance: constant  anneal")
    for lam in LAMBDAS:
        one, other, error = means["constant"][lam], means["anneal"][lam], spread[lam]
        print(
            f"  {lam:>6g} | {1e4 * one['dcal']:>15.1f} {1e4 * other['dcal']:>7.1f} ± {1e4 * error['dcal']:<5.1f}"
            f"| {one['nll']:>13.4f} {other['nll']:>8.4f} ± {error['nll']:.4f}"
            f" | {one['concordance']:>20.4f} {other['concordance']:>7.4f} ± {error['concordance']:.4f}"
        )
    theirs, own = ({lam: p for lam, p in means[s].items() if lam > 0} for s in SCHEDULES)
    levels = [level_at(family, lam, point, theirs, own) for lam, point in theirs.items()]
    matched, both = sum(level.matched for level in levels), sum(level.both for level in levels)
    print(
        f"  levels of the constant penalty: {len(levels)}; matched or better {matched}, both better {both}", flush=True
    )
    return len(levels), matched, both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=list(DATA), nargs="*", default=list(DATA))
    parser.add_argument("--families", nargs="*", default=["mtlr", "weibull"])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--temperature", type=float, help="at the end of the annealed penalty; by default 0.5")
    parser.add_argument("--fast", action="store_true", help="200 rows, one family, one repetition")
    options, _ = parser.parse_known_args()
    warnings.simplefilter("ignore")  # of few rows, again and again
    torch.set_num_threads(1)
    data, families, n = (
        (["small"], ["mtlr"], 1) if options.fast else (options.data, options.families, options.repetitions)
    )
    counts = np.array([compare(name, family, options.temperature, n) for name in data for family in families])
    levels, matched, both = counts.sum(0)
    print(f"\ntogether: {levels} levels, matched or better at {matched}, both better at {both}")


if __name__ == "__main__":
    main()
