"""X-CAL or recalibration? Every remedy on six data sets, five folds.

Claim: none in advance. The table says what each remedy does to D-calibration over all rows and within groups, and what
it costs in likelihood, integrated Brier score and concordance.

- Data: METABRIC, SUPPORT (folder ``XCAL_DATA``), FLCHAIN, GBSG2, WHAS500 (scikit-survival's copies) and 4,000 rows of
  the paper's censored gamma data. Folds are ``table.folds(5, seed=0)``. Groups are thirds of age by the training rows
  (of the first feature for gamma): known to the method "groups" and to the measurement, and to nothing else.
- Models: our estimators with a Weibull distribution, which is wrong for most data, and with MTLR, free in form. Weights
  0, 10, 100, 1000 of X-CAL, one seed, 100 epochs at most and a patience of 10 (the defaults have six weights, three
  seeds, 500 epochs and a patience of 20).
- Rows: a remedy may use the training rows of a fold as it likes. "none" and "select()" train on all of them, a fifth of
  which chooses epochs; the path then chooses a weight, or recalibrates, by ``select()`` or ("one s.e.") chooses a
  weight by ``select(rule="one_standard_error")``; "X-CAL,
  lambda 100" has that weight whatever the rows say. A recalibration by split trains on three quarters and fits its map
  to the rest, to a model of lambda 0; "select(), then km" does the same with the weight that `select()` chooses there.
  "km, cross-fitted" is ``Recalibrated(model, "km", cv=5)``: it trains on all rows, and six times. "none, 3/4 of rows"
  is the model that the recalibrations by split start from.
- D-cal is in excess of its floor, what a perfect model has on average, with 10 bins, in 1e-3: "uniform" and "km" are
  the two ways of counting censored rows; "groups" is the mean over the three groups, by rows, counted by "uniform".
  Values are means over folds, plus or minus the standard error over folds of the difference to "none".
- NLL is the mean negative log-likelihood of a test row by density, the Brier score is integrated over 50 times to the
  90 % quantile of all observed times, C is Harrell's.

Each result is one line of JSON in ``--out`` as soon as it is there; the same command again resumes. ``--show`` prints
what is there. ``studies/remedies.jsonl`` holds the run of the documentation, with ``--rows 1500``.
"""

import argparse
import json
import time as clock
import warnings
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from xcal import Recalibrated, d_calibration
from xcal._files import write_whole
from xcal.data import SurvivalData
from xcal.datasets import data_directory, load_metabric, load_support
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.metrics import concordance_index, integrated_brier_score, kaplan_meier
from xcal.objectives import nll
from xcal.recalibration.registry import METHODS
from xcal_paper import load_gamma

N_TIMES, N_BINS, N_FOLDS = 50, 10, 5
FAMILIES = ("weibull", "mtlr")
LAMBDAS = (0, 10, 100, 1000)
FITTING = {"epochs": 100, "patience": 10, "progress": False}
FOLDER = Path("runs/remedies")


def of_sksurv(name: str, time: str, event: str) -> tuple[SurvivalData, int]:
    """Rows of a data set that comes with scikit-survival, from `export`'s file in ``XCAL_DATA`` if there is one."""
    file = exported_file(name, data_directory())
    if file.exists():
        names = file.read_text().split("\n", 1)[0].split(",")
        values = np.loadtxt(file, delimiter=",", skiprows=1)
    else:
        names, values = numbers_of(name, time, event)
    return table(values[:, 2:], values[:, 0], values[:, 1] == 1), names[2:].index("age")


def numbers_of(name: str, time: str, event: str) -> tuple[list[str], np.ndarray]:
    """Return times, events and covariates as numbers, categories as indicators, with the names of these columns."""
    import pandas as pd
    from sksurv import datasets

    frame, y = getattr(datasets, f"load_{name}")()
    # FLCHAIN: the cause of death, known of the dead alone.
    frame = frame.drop(columns=[column for column in frame if column == "chapter"])
    numbers = pd.get_dummies(frame, drop_first=True).astype(float)
    numbers = numbers.fillna(numbers.median())
    return ["time", "event", *numbers], np.column_stack([y[time].astype(float), y[event], numbers.to_numpy()])


def exported_file(name: str, folder: Path) -> Path:
    return folder / "benchmarks" / f"{name}.csv"


def export(name: str, folder: Path) -> Path:
    """Write a data set of scikit-survival as numbers, for a machine without that package."""
    names, values = numbers_of(name, *LOAD[name].args[1:])
    file = exported_file(name, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    # 17 digits: the same numbers again.
    np.savetxt(file, values, fmt="%.17g", delimiter=",", header=",".join(names), comments="")
    return file


def table(x: Any, time: Any, event: Any) -> SurvivalData:
    """Rows with times above zero: a continuous distribution has no likelihood for an event at time zero."""
    least = time[time > 0].min() / 2
    return SurvivalData(np.asarray(x, dtype=np.float64), np.maximum(time, least), event)


def of_table(load: Callable[[], SurvivalData], age: int) -> tuple[SurvivalData, int]:
    rows = load()
    return table(rows.x, np.asarray(rows.time, dtype=float), rows.event), age


LOAD: dict[str, partial[tuple[SurvivalData, int]]] = {
    "whas500": partial(of_sksurv, "whas500", "lenfol", "fstat"),
    "gbsg2": partial(of_sksurv, "gbsg2", "time", "cens"),
    "metabric": partial(of_table, load_metabric, 8),
    "gamma": partial(of_table, lambda: load_gamma(censored=True, n=(4000, 2, 2), seed=0).train, 0),
    "flchain": partial(of_sksurv, "flchain", "futime", "death"),
    "support": partial(of_table, load_support, 0),
}


def thirds(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    cuts = np.quantile(values[train], [1 / 3, 2 / 3])
    return np.searchsorted(cuts, values, side="right")


def treated(family: str, train: SurvivalData, only: Collection[str]) -> Iterator[tuple[str, Any, float]]:
    """Each remedy's name, its fitted estimator, and the weight of X-CAL in it; `only` some, or all."""
    makers = {
        _whole_path: ("none", "select()", "X-CAL, one s.e.", "X-CAL, lambda 100"),
        _by_split: ("none, 3/4 of rows", *METHODS, "select(), then km"),
        _cross_fitted: ("km, cross-fitted",),
    }
    for make, names in makers.items():
        if not only or set(names) & set(only):
            yield from (one for one in make(family, train) if not only or one[0] in only)


def _whole_path(family: str, train: SurvivalData) -> Iterator[tuple[str, Any, float]]:
    whole = SurvivalPath(LAMBDAS, seeds=1, distribution=family, **FITTING).fit(train)
    chosen = whole.select()
    yield "none", whole.model(0), 0.0
    yield "select()", chosen, chosen.xcal_lambda
    largest = whole.select(rule="one_standard_error")
    yield "X-CAL, one s.e.", largest, largest.xcal_lambda
    yield "X-CAL, lambda 100", whole.model(100), 100.0


def _by_split(family: str, train: SurvivalData) -> Iterator[tuple[str, Any, float]]:
    part, rest = train.split((0.75, 0.25), seed=1)
    of_part = SurvivalPath(LAMBDAS, seeds=1, distribution=family, **FITTING).fit(part)
    plain, chosen = of_part.model(0), of_part.select()
    yield "none, 3/4 of rows", plain, 0.0
    for method in METHODS:
        yield method, Recalibrated(plain, method).fit(rest), 0.0
    yield "select(), then km", Recalibrated(chosen, "km").fit(rest), chosen.xcal_lambda


def _cross_fitted(family: str, train: SurvivalData) -> Iterator[tuple[str, Any, float]]:
    single = SurvivalModel(family, **FITTING)
    yield "km, cross-fitted", Recalibrated(single, "km", cv=5).fit(train), 0.0


def own_values(estimator: Any, test: SurvivalData) -> tuple[np.ndarray, np.ndarray]:
    """F at the observed times, and the negative log-likelihood."""
    if isinstance(estimator, Recalibrated):
        return estimator.predict_own_cdf(test), estimator.nll(test)
    distribution = estimator.predict_distribution(test)
    time, event = torch.from_numpy(test.time), torch.from_numpy(test.event)
    with torch.no_grad():
        return distribution.cdf(time).numpy(), nll(distribution, time, event, density=True).numpy()


def measure(estimator: Any, train: SurvivalData, test: SurvivalData, end: float) -> dict[str, float]:
    grid = np.linspace(0.0, end, N_TIMES)
    cdf, loss = own_values(estimator, test)
    survival = estimator.predict_survival_function(test, grid, extrapolate=True)
    outcome = {"time": test.time, "event": test.event}
    censoring = kaplan_meier(time=train.time, event=train.event, of="censoring")

    def excess(rows: Any, method: str) -> float:
        result = d_calibration(cdf[rows], test.event[rows], n_bins=N_BINS, method=method, p_value=None)
        return 1e3 * (result.value - result.floor)

    every = np.ones(test.n, dtype=bool)
    labels, sizes = np.unique(test.groups, return_counts=True)
    within = [excess(test.groups == label, "uniform") for label in labels]
    return {
        "dcal": excess(every, "uniform"),
        "dcal_km": excess(every, "km"),
        "dcal_groups": float(np.average(within, weights=sizes)),
        "nll": float(loss.mean()),
        "ibs": integrated_brier_score(survival, grid, **outcome, censoring=censoring).value,
        "c": concordance_index(**outcome, predicted_time=np.trapezoid(survival, grid, axis=1)).value,
    }


def run_fold(data: str, family: str, fold: int, most_rows: int | None, only: Collection[str]) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")  # of few rows, again and again
    torch.set_num_threads(1)
    rows, column = LOAD[data]()
    if most_rows is not None and rows.n > most_rows:
        rows = rows[np.sort(np.random.default_rng(0).permutation(rows.n)[:most_rows])]
    picked = rows.folds(N_FOLDS, seed=0)[fold]
    rows = rows.replaced(groups=thirds(rows.x[:, column], picked.train))
    train, test = rows[picked.train], rows[picked.test]
    end = float(np.quantile(rows.time, 0.9))
    lines = []
    for name, estimator, lam in treated(family, train, only):
        values = measure(estimator, train, test, end)
        lines.append(
            {"data": data, "family": family, "rows": rows.n, "fold": fold, "remedy": name, "lam": float(lam)} | values
        )
    return lines


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def show(lines: list[dict[str, Any]]) -> None:
    names = ("dcal", "dcal_km", "dcal_groups", "nll", "ibs", "c")
    heads = ("D-cal", "D-cal km", "D-cal groups", "NLL", "IBS", "C")
    digits = (2, 2, 2, 3, 4, 4)
    for data in LOAD:
        for family in FAMILIES:
            own = [line for line in lines if (line["data"], line["family"]) == (data, family)]
            folds = sorted({line["fold"] for line in own})
            if not folds:
                continue
            sizes = ", ".join(f"{size:,}" for size in sorted({line["rows"] for line in own}))
            print(f"\n{data}, {family}, {len(folds)} folds of {sizes} rows")
            print(f"{'':<18}" + "".join(f"{head:>17}" for head in heads) + "  lambda")
            by = {(line["remedy"], line["fold"]): line for line in own}
            for remedy in dict.fromkeys(line["remedy"] for line in own):
                cells = []
                for name, places in zip(names, digits, strict=True):
                    values = np.array([by[remedy, fold][name] for fold in folds])
                    gap = values - np.array([by["none", fold][name] for fold in folds])
                    error = gap.std(ddof=1) / np.sqrt(len(folds)) if len(folds) > 1 else np.nan
                    cells.append(f"{values.mean():.{places}f} ± {error:.{places}f}")
                lams = ", ".join(f"{by[remedy, fold]['lam']:g}" for fold in folds)
                print(f"{remedy:<18}" + "".join(f"{cell:>17}" for cell in cells) + f"  {lams}")


REMEDIES = (
    "select()",
    "X-CAL, one s.e.",
    "X-CAL, lambda 100",
    "km, cross-fitted",
    "none, 3/4 of rows",
    *METHODS,
    "select(), then km",
)
TABLES = {
    "dcal": ("D-calibration over all rows, less its floor, in 1e-3", 1, 1),
    "dcal_km": ('The same, censored rows counted by "km"', 1, 1),
    "dcal_groups": ("D-calibration within thirds of age, less its floor, in 1e-3", 1, 1),
    "nll": ("NLL, less that of none, in 1e-3", 0, 1e3),
    "ibs": ("Integrated Brier score, less that of none, in 1e-4", 0, 1e4),
    "c": ("Concordance, less that of none, in 1e-4", 0, 1e4),
}


def markdown(lines: list[dict[str, Any]], measures: list[str]) -> None:
    """Print a table for each measure and family: remedies as lines, data sets with all folds as columns."""
    by = {(line["data"], line["family"], line["remedy"], line["fold"]): line for line in lines}
    for name in measures:
        title, places, unit = TABLES[name]
        absolute = name.startswith("dcal")
        for family in FAMILIES:
            whole = [data for data in LOAD if all((data, family, REMEDIES[-1], fold) in by for fold in range(N_FOLDS))]
            print(f"\n**{title}: {family}**\n\n| | {' | '.join(whole)} |\n|---|" + "---|" * len(whole))
            for remedy in ("none", *REMEDIES) if absolute else REMEDIES:
                cells = []
                for data in whole:
                    values, none = (
                        np.array([by[data, family, which, fold][name] for fold in range(N_FOLDS)])
                        for which in (remedy, "none")
                    )
                    gap = values - none
                    mean = f"{values.mean():.{places}f}" if absolute else f"{unit * gap.mean():+.{places}f}"
                    error = f" ± {unit * gap.std(ddof=1) / np.sqrt(N_FOLDS):.{places}f}"
                    cells.append(mean + ("" if remedy == "none" else error))
                print(f"| {remedy} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=list(LOAD), nargs="*", default=list(LOAD))
    parser.add_argument("--family", choices=FAMILIES, nargs="*", default=list(FAMILIES))
    parser.add_argument("--out", type=Path, default=FOLDER / "remedies.jsonl")
    parser.add_argument("--rows", type=int, help="at most so many rows of a data set, picked at random")
    parser.add_argument(
        "--only", nargs="*", default=(), help="these remedies alone; they replace what is there of them"
    )
    parser.add_argument("--show", action="store_true", help="print what is there, and run nothing")
    parser.add_argument("--fast", action="store_true", help="WHAS500 alone, two folds")
    parser.add_argument("--markdown", choices=list(TABLES), nargs="*", help="print tables of these, and run nothing")
    options, _ = parser.parse_known_args()
    lines = read(options.out)
    done = set() if options.only else {(line["data"], line["family"], line["fold"]) for line in lines}
    wanted = [(data, family, fold) for data in options.data for fold in range(N_FOLDS) for family in options.family]
    if options.fast:
        wanted = [("whas500", family, fold) for fold in range(2) for family in FAMILIES]
    todo = [] if options.show or options.markdown is not None else [one for one in wanted if one not in done]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(todo, start=1):
        start = clock.perf_counter()
        new = run_fold(*one, options.rows, options.only)
        replaced = {(*one, line["remedy"]) for line in new}
        lines = [l for l in lines if (l["data"], l["family"], l["fold"], l["remedy"]) not in replaced] + new
        write_whole(options.out, "".join(json.dumps(line) + "\n" for line in lines).encode())
        seconds = clock.perf_counter() - start
        print(f"{number} of {len(todo)}: {one[0]}, {one[1]}, fold {one[2]}: {seconds:.0f} s", flush=True)
    if options.markdown is not None:
        markdown(lines, options.markdown or list(TABLES))
    else:
        show(lines)


if __name__ == "__main__":
    main()
