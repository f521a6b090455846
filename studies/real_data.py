"""METABRIC and SUPPORT in five folds: our estimators with their defaults against lifelines and pycox.

Claims: a plain `SurvivalModel` and the model that `SurvivalPath` selects are no worse than the best peer by more than
that peer's standard error over folds, in concordance and in the integrated Brier score; the selected one has the lowest
D-calibration, as far as chance allows to tell.

Folds, metrics and headlines were fixed before any result was seen; the seeds to average over and the measure of chance
were added after the first run. The defaults of the estimators were chosen on these folds; ``--fold-seed 1`` gives
others.

- The folds are ``table.folds(5, seed=0)``. Features are standardised with the training rows of the fold. What needs
  early stopping holds out a fifth of the training rows, with its share of events; our estimators do so themselves.
- Networks are trained with three seeds and their metrics averaged; a path has three seeds of its own.
- Every metric is computed from survival curves, for all methods by the same code of `xcal.metrics`. C is Harrell's
  concordance of the restricted mean, the area under the curve; C(t) is Antolini's, of the curves themselves. C is the
  headline, because it is what `score` gives. The Brier score is integrated over 100 times from 0 to the 90 % quantile
  of all observed times, which is also where the area ends; its weights come from the training rows.
- D-calibration has 10 bins. On one test fold it is mostly noise, so the headline is the value of all rows together,
  each with the F of the model that has not seen it. Beside it stands its floor, what a perfect model scores on average
  at this n and censoring. Chance moves the value of a perfect model by about ``floor * sqrt(2 / 9)``, chi-squared with
  9 degrees of freedom: values no further apart than twice that cannot be told apart. "excess" is the mean over folds of
  value less floor.

The data are read from the folder that ``XCAL_DATA`` names; see `xcal.datasets.data_directory`.
"""

import argparse
import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np
import torch

from studies.peers import PEERS, Curves, Fit, Floats, Task
from xcal import Surv, d_calibration
from xcal.data import SurvivalData
from xcal.datasets import load_metabric, load_support
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.metrics import concordance_index, integrated_brier_score, kaplan_meier

LOAD: dict[str, Callable[[], SurvivalData]] = {"metabric": load_metabric, "support": load_support}
N_TIMES, N_BINS = 100, 10


def ours_plain(task: Task) -> Curves:
    model = SurvivalModel(random_state=task.seed, progress=False)
    model.fit(task.x, Surv(time=task.time, event=task.event))
    return partial(model.predict_survival_function, task.new_x)


def ours_selected(rule: str, task: Task) -> Curves:
    path = SurvivalPath(random_state=task.seed, progress=False)
    model = path.fit(task.x, Surv(time=task.time, event=task.event)).select(rule=rule)
    print(f"{rule}: a path selected lambda {model.xcal_lambda:g}", flush=True)
    return partial(model.predict_survival_function, task.new_x)


OURS: dict[str, Fit] = {
    "xcal, lambda 0": ours_plain,
    "xcal, when_needed": partial(ours_selected, "when_needed"),  # what select() does
    "xcal, one_std_error": partial(ours_selected, "one_standard_error"),
}
METHODS = OURS | PEERS


@dataclass(frozen=True, eq=False)
class Measured:
    """Metrics of one method on one test fold with one seed, and F at each row's observed time."""

    concordance: float
    antolini: float
    brier: float
    excess: float
    cdf: Floats
    event: np.ndarray


def held_out(event: np.ndarray, seed: int) -> np.ndarray:
    """Mark a fifth of the events and a fifth of the censored rows."""
    rng = np.random.default_rng(seed)
    marked = np.zeros(event.size, dtype=bool)
    for kind in (event, ~event):
        rows = rng.permutation(np.flatnonzero(kind))
        marked[rows[: round(rows.size / 5)]] = True
    return marked


def measure(table: SurvivalData, train: np.ndarray, test: np.ndarray, curves: Curves) -> Measured:
    time, event = table.time[test], table.event[test]
    grid = np.linspace(0.0, float(np.quantile(table.time, 0.9)), N_TIMES)
    own_times, place = np.unique(time, return_inverse=True)
    survival, at_own = curves(grid), curves(own_times)
    cdf = 1 - at_own[np.arange(time.size), place]
    censoring = kaplan_meier(time=table.time[train], event=table.event[train], of="censoring")
    outcome = {"time": time, "event": event}
    calibration = d_calibration(cdf, event, n_bins=N_BINS, p_value=None)
    return Measured(
        concordance_index(**outcome, predicted_time=np.trapezoid(survival, grid, axis=1)).value,
        concordance_index(**outcome, survival=at_own, times=own_times, interpolation="previous").value,
        integrated_brier_score(survival, grid, **outcome, censoring=censoring).value,
        calibration.value - calibration.floor,
        cdf,
        event,
    )


def run_one(data: str, n_folds: int, fold_seed: int, fold: int, method: str, seed: int) -> Measured:
    warnings.simplefilter("ignore")  # the peers' own, on stderr between the lines of the table
    torch.set_num_threads(1)
    table = LOAD[data]()
    rows = table.folds(n_folds, seed=fold_seed)[fold]
    mean, spread = table.x[rows.train].mean(axis=0), table.x[rows.train].std(axis=0)
    x = (table.x - mean) / np.where(spread > 0, spread, 1)
    event = table.event[rows.train]
    task = Task(x[rows.train], table.time[rows.train], event, held_out(event, fold), x[rows.test], seed)
    return measure(table, rows.train, rows.test, METHODS[method](task))


@dataclass(frozen=True, eq=False)
class Summary:
    """One method on one data set: mean and standard error over folds by name, and D-calibration of all rows."""

    metrics: dict[str, tuple[float, float]]
    dcal: float
    floor: float
    km: float
    p_value: float


def summarise(runs: Sequence[Sequence[Measured]]) -> Summary:
    """Average over seeds; `runs` has one sequence a seed, with one result a fold."""
    metrics = {}
    for name in ("concordance", "antolini", "brier", "excess"):
        by_fold = np.array([[getattr(fold, name) for fold in folds] for folds in runs]).mean(axis=0)
        metrics[name] = float(by_fold.mean()), float(by_fold.std(ddof=1) / np.sqrt(by_fold.size))
    pooled, km = [], []
    for folds in runs:
        cdf, event = (np.concatenate([getattr(fold, name) for fold in folds]) for name in ("cdf", "event"))
        pooled.append(d_calibration(cdf, event, n_bins=N_BINS))
        km.append(d_calibration(cdf, event, n_bins=N_BINS, method="km", p_value=None).value)
    p_value = np.median([result.p_value for result in pooled])
    dcal, floor = (float(np.mean([getattr(result, name) for result in pooled])) for name in ("value", "floor"))
    return Summary(metrics, dcal, floor, float(np.mean(km)), float(p_value))


def table_of(data: str, summaries: dict[str, Summary]) -> None:
    print(f"\n{data.upper()}, mean ± standard error over folds; D-calibration in 1e-3")
    heads = f"{'C':>15}  {'C(t)':>15}  {'IBS':>15}  {'excess':>13}  {'all rows':>8}  {'floor':>5}  {'p':>7}  {'km':>5}"
    print(f"{'':>20}  {heads}")
    for name, s in summaries.items():
        cells = [f"{m:.4f} ± {e:.4f}" for m, e in (s.metrics[k] for k in ("concordance", "antolini", "brier"))]
        excess = "{:5.2f} ± {:.2f}".format(*(1e3 * value for value in s.metrics["excess"]))
        dcal = f"{1e3 * s.dcal:>8.2f}  {1e3 * s.floor:>5.2f}  {s.p_value:>7.0e}  {1e3 * s.km:>5.2f}"
        print(f"{name:>20}  {'  '.join(f'{cell:>15}' for cell in cells)}  {excess:>13}  {dcal}", flush=True)


def verdicts(summaries: dict[str, Summary]) -> None:
    peers = {name: s for name, s in summaries.items() if name in PEERS}
    ours = {name: s for name, s in summaries.items() if name in OURS}
    for label, key, sign in (("C", "concordance", 1), ("C(t)", "antolini", 1), ("IBS", "brier", -1)):
        best = max(peers, key=lambda name: sign * peers[name].metrics[key][0])
        mean, error = peers[best].metrics[key]
        for name, s in ours.items():
            ahead = sign * (s.metrics[key][0] - mean) / error
            word = "better" if ahead >= 0 else "within one" if ahead >= -1 else "WORSE"
            print(f"{name}, {label}: {ahead:+.1f} standard errors of the best peer, {best}: {word}")
    best = min(peers, key=lambda name: peers[name].dcal)
    for name, s in ours.items():
        chance = s.floor * np.sqrt(2 / (N_BINS - 1))
        behind = (s.dcal - peers[best].dcal) / chance
        word = "lowest" if behind < 0 else "chance cannot tell" if behind <= 2 else "HIGHER"
        print(f"{name}, D-calibration: {behind:+.1f} deviations of a perfect model above the best peer, {best}: {word}")


def available() -> list[str]:
    """Names of the methods whose library is installed."""
    for library in ("lifelines", "pycox"):
        try:
            importlib.import_module(library)
        except ImportError as error:
            print(f"{library}: not installed ({error}), skipped")
            for name in [name for name in METHODS if name.startswith(library)]:
                del METHODS[name]
    return list(METHODS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=list(LOAD), nargs="*", default=list(LOAD))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--fold-seed", type=int, default=0)
    parser.add_argument("--fast", action="store_true", help="METABRIC alone, two folds, one seed")
    options, _ = parser.parse_known_args()
    data, n_folds, n_seeds = (["metabric"], 2, 1) if options.fast else (options.data, options.folds, 3)
    methods = available()
    # lifelines has no seed, and a path has three.
    seeds = {name: n_seeds if name.startswith("pycox") or name == "xcal, lambda 0" else 1 for name in methods}
    # Fresh processes with one thread each: forked ones may hang where threads have been used.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for name in data:
            run = partial(run_one, name, n_folds, options.fold_seed)
            jobs = {
                (method, seed): [pool.submit(run, fold, method, seed) for fold in range(n_folds)]
                for method in methods
                for seed in range(seeds[method])
            }
            done = {key: [job.result() for job in folds] for key, folds in jobs.items()}
            summaries = {m: summarise([done[m, seed] for seed in range(seeds[m])]) for m in methods}
            table_of(name, summaries)
            verdicts(summaries)


if __name__ == "__main__":
    main()
