"""What `SurvivalPath.select()` chooses, and what it costs or gives on new rows, against lambda 0 and other rules.

Claims: the default ("when_needed") does no harm. On no data set is its concordance or its integrated Brier score worse
than that of lambda 0 by more than one standard error, and where the family is wrong and enough rows show it, the
D-calibration of new rows is lower. The mixture of the seeds of a weight is better than its best seed. The rule
"one_standard_error" chooses large weights on few rows and loses concordance by it.

- Each repetition fits one `SurvivalPath` with its defaults (6 lambdas, 3 seeds, averaged; a fifth of the rows to
  validate on) and measures four of its models on the same new rows: lambda 0, the best of its seeds alone, and the
  choices of the two rules. Differences to lambda 0 are within a repetition; ± is the standard error over repetitions.
- Simulated: log-times with heavy tails (Student, 3 degrees of freedom), two of five features matter, 38 % censored;
  every repetition draws its rows anew, and 3,000 new ones. "mtlr" assumes no shape, so that it is well specified;
  "weibull" is not.
- Real: two thirds of the rows to fit on, one third new, split anew in every repetition. As the splits overlap, the
  standard error is too small rather than too large.
- ``--calibration conditional`` trains for calibration given the covariates, by which the default rule then judges.
- C is Harrell's concordance; IBS the Brier score integrated to the 90 % quantile of the times, in 1e-3; D-cal has 10
  bins, in 1e-3, with its floor; K is conditional calibration with as many bins, in 1e-3.
- "chosen" lists the weights that a rule took, and how often; "r" marks recalibrated ones.

Data of scikit-survival and lifelines come with these packages, METABRIC and SUPPORT from the folder XCAL_DATA.
"""

import argparse
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np
import pandas as pd
import torch

from xcal import Surv, conditional_calibration
from xcal.datasets import load_metabric, load_support
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.metrics import integrated_brier_score

FAMILIES = ("mtlr", "weibull")
# Repetitions by the number of rows: small data sets are noisy and quick.
SIMULATED = {60: 20, 200: 10, 1_000: 6, 5_000: 3}
N_NEW, N_TIMES, N_BINS = 3_000, 50, 10
KEYS = {"concordance": 4, "brier": 1, "dcal": 2, "conditional": 2}  # with digits
Rows = tuple[np.ndarray, np.ndarray]


def simulated(n: int, repetition: int) -> tuple[Rows, Rows]:
    rng = np.random.default_rng([n, repetition])
    x = rng.normal(size=(n + N_NEW, 5))
    happens = np.exp(0.8 * x[:, 0] - 0.5 * x[:, 1] + 0.6 * rng.standard_t(3, size=len(x)))
    leaves = np.exp(0.5 + rng.normal(size=len(x)))
    y = Surv(time=np.minimum(happens, leaves), event=happens <= leaves)
    return (x[:n], y[:n]), (x[n:], y[n:])


def real(name: str, repetition: int) -> tuple[Rows, Rows]:
    x, y = REAL[name][0]()
    order = np.random.default_rng(repetition).permutation(len(y))
    fit, new = order[: 2 * len(y) // 3], order[2 * len(y) // 3 :]
    return (x[fit], y[fit]), (x[new], y[new])


def of_frame(frame: pd.DataFrame, time: Iterable[float], event: Iterable[bool]) -> Rows:
    """Categories as indicators, missing values as the median; an event at time zero half a unit later."""
    numbers = pd.get_dummies(frame, drop_first=True).astype(float)
    times = np.asarray(time, dtype=float)
    return numbers.fillna(numbers.median()).to_numpy(), Surv(time=np.maximum(times, 0.5), event=np.asarray(event, bool))


def of_lifelines(name: str, time: str, event: str) -> Rows:
    from lifelines import datasets

    frame = getattr(datasets, f"load_{name}")()
    happened = frame[event] == frame[event].max()  # coded 0 and 1, or 1 and 2
    return of_frame(frame.drop(columns=[time, event]), frame[time], happened)


def of_sksurv(name: str) -> Rows:
    from sksurv import datasets

    frame, y = getattr(datasets, f"load_{name}")()
    event, time = y.dtype.names
    return of_frame(frame, y[time], y[event])


def of_table(load: Callable[[], object]) -> Rows:
    table = load()
    return table.x, Surv(time=table.time, event=table.event)


REAL: dict[str, tuple[Callable[[], Rows], int]] = {
    "veterans_lung_cancer": (partial(of_sksurv, "veterans_lung_cancer"), 6),
    "breast_cancer": (partial(of_sksurv, "breast_cancer"), 4),
    "lung": (partial(of_lifelines, "lung", "time", "status"), 4),
    "rossi": (partial(of_lifelines, "rossi", "week", "arrest"), 4),
    "whas500": (partial(of_sksurv, "whas500"), 4),
    "gbsg2": (partial(of_sksurv, "gbsg2"), 4),
    "metabric": (partial(of_table, load_metabric), 3),
    "support": (partial(of_table, load_support), 2),
}


@dataclass(frozen=True)
class Chosen:
    """One model on the new rows."""

    name: str
    concordance: float
    brier: float
    dcal: float
    floor: float
    conditional: float


def measure(model: SurvivalModel, new: Rows) -> Chosen:
    x, y = new
    grid = np.linspace(0.0, float(np.quantile(y["time"], 0.9)), N_TIMES)
    brier = integrated_brier_score(_curves(model, x, grid), grid, time=y["time"], event=y["event"])
    calibration = model.d_calibration(x, y, n_bins=N_BINS)
    dcal, floor = 1e3 * calibration.value, 1e3 * calibration.floor
    name = f"{model.xcal_lambda:g}" + "r" * (model.fitted_.recalibration is not None)
    cdf = model.fitted_.cdf_at_own(np.asarray(x, dtype=float), np.array(y["time"]))
    given = conditional_calibration(cdf, y["event"], x, n_bins=N_BINS, n_draws=0, where=False)
    return Chosen(name, model.score(x, y), 1e3 * brier.value, dcal, floor, 1e3 * given.value)


def _curves(model: SurvivalModel, x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    # A few new rows may outlast all those of a small fit.
    return model.predict_survival_function(x, grid, extrapolate=True)


def repeat(
    draw: Callable[[int], tuple[Rows, Rows]], family: str, calibration: str, repetition: int
) -> dict[str, Chosen]:
    warnings.simplefilter("ignore")  # of few rows, again and again
    torch.set_num_threads(1)
    rows, new = draw(repetition)
    path = SurvivalPath(distribution=family, calibration=calibration, progress=False).fit(*rows)
    first = path.frontier_[path.frontier_["lambda"] == 0]
    models = {
        "lambda 0": path.model(0),
        "its best seed": path.model(0, int(first.loc[first["total"].idxmin(), "seed"])),
        "one_standard_error": path.select(rule="one_standard_error"),
        "when_needed": path.select(),
    }
    return {name: measure(model, new) for name, model in models.items()}


def cell(values: np.ndarray, digits: int) -> str:
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1) / np.sqrt(values.size):.{digits}f}"


def show(name: str, family: str, runs: list[dict[str, Chosen]]) -> None:
    """One line for lambda 0, and one for what each rule adds to it."""
    for rule in runs[0]:
        own = [run[rule] for run in runs]
        measured = {key: np.array([getattr(one, key) for one in own]) for key in KEYS}
        label, last = "", ", ".join(f"{which} x {k}" for which, k in sorted(Counter(one.name for one in own).items()))
        if rule == "lambda 0":
            base = measured
            label, last = f"{name}, {family} ({len(runs)} runs)", f"floor {np.mean([one.floor for one in own]):.2f}"
        else:
            measured = {key: values - base[key] for key, values in measured.items()}
        cells = [cell(measured[key], digits) for key, digits in KEYS.items()]
        print(
            f"{label:<38}  {rule:<18}  {cells[0]:>16}" + "".join(f"  {c:>14}" for c in cells[1:]),
            f" {last}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="these tasks alone, such as 'n = 200' or metabric")
    parser.add_argument("--families", nargs="*", default=FAMILIES)
    parser.add_argument("--calibration", default="marginal", choices=["marginal", "conditional"])
    parser.add_argument("--runs", type=int, help="so many repetitions of every task")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--fast", action="store_true", help="60 and 200 simulated rows and veterans_lung_cancer alone")
    options, _ = parser.parse_known_args()
    tasks: dict[str, tuple[Callable[[int], tuple[Rows, Rows]], int]] = {
        f"n = {n:,}": (partial(simulated, n), runs) for n, runs in SIMULATED.items() if n <= 200 or not options.fast
    }
    names = list(REAL)[:1] if options.fast else list(REAL)
    tasks |= {name: (partial(real, name), REAL[name][1]) for name in names}
    if options.only:
        tasks = {name: task for name, task in tasks.items() if name in options.only}
    if options.runs:
        tasks = {name: (draw, options.runs) for name, (draw, _) in tasks.items()}
    heads = f"{'C':>16}  {'IBS x 1,000':>14}  {'D-cal x 1,000':>14}  {'K x 1,000':>14}  chosen"
    print("lambda 0 on new rows, and what each rule adds to it\n" + f"{'':<38}  {'':<18}  {heads}")
    # Fresh processes with one thread each: forked ones may hang where threads have been used.
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        jobs = {
            (name, family): [
                pool.submit(repeat, draw, family, options.calibration, repetition) for repetition in range(runs)
            ]
            for name, (draw, runs) in tasks.items()
            for family in options.families
        }
        for key, running in jobs.items():
            show(*key, [job.result() for job in running])


if __name__ == "__main__":
    main()
