"""The referee's table: every published remedy on the same folds, over five base models; with the truth, if known.

Claim: none in advance. Each remedy may use the training rows of a fold as it likes and is judged on the others.

- Data: METABRIC, SUPPORT, Rotterdam (folder ``XCAL_DATA``), FLCHAIN, GBSG2 and WHAS500 (scikit-survival's copies), and
  the seven laws of `studies._laws` with half of the rows censored, of which the true F is known.
- Sizes: 200, 1,000 and 5,000 training rows, as far as a fold has them, or all where these are 300 to 1,000.
- Base models: a Weibull network of ours, without and with X-CAL ("path"), a Cox model and a random survival forest of
  scikit-survival, XGBoost AFT, and a discrete-time network of ours ("network").
- Remedies: ``Recalibrated(model, method, cv=5)`` with every method, so that nobody gives rows away; of the path also
  X-CAL with weights 10 and 100, S-cal (random edges) with weight 100, and ``select()``. "groups" are thirds of one
  column (age, where there is one) by the training rows, which every model has as a further column.
- Values on the rows of the fold that is left out (of a simulated law 2,000 new ones): D-calibration less its floor,
  censored rows counted by "uniform" and by "km", in 1e-3; ICI less its floor, mean over the quartiles of the event
  times, in 1e-3; conditional calibration K in 1e-3; likelihood of 20 time bins ("bins", as curves have no density), of
  which one hundredth is spread evenly because curves with steps leave bins empty; negative log-likelihood by density
  where there is one; integrated Brier score; Harrell's C; the mean distance to the true F.

Each cell is one line of JSON; the same command again adds what is missing, also a method that is new.
Repetitions (fold and seed) come one after the other over all cells, so that ``--minutes`` cuts repetitions, not kinds.
``--markdown`` prints the tables of the page from the records, and what has not been run.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from studies import _laws
from studies._records import append_line, read_lines, side_by_side
from xcal import Recalibrated, Surv, conditional_calibration, d_calibration
from xcal.calibration import SoftBins
from xcal.data import SurvivalData
from xcal.datasets import data_directory, load_metabric, load_support
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.metrics import concordance_index, integrated_brier_score, integrated_calibration_index, kaplan_meier
from xcal.objectives import nll
from xcal.recalibration import KaplanMeierRecalibration
from xcal.recalibration.registry import METHODS, MapOfF

N_TIMES, N_BINS, N_FOLDS, N_SEEDS = 50, 10, 5, 3
SIZES, MOST_TESTED = (200, 1000, 5000), 2000
FITTING = {"epochs": 100, "patience": 10, "progress": False}
HERE = Path(__file__).parent


# --- The data.


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


def rotterdam() -> SurvivalData:
    """Time until recurrence or death, and the covariates of the Rotterdam breast cancer data."""
    import pandas as pd

    rows = pd.read_csv(data_directory() / "rotterdam_gbsg" / "rotterdam.csv")
    time, event = np.minimum(rows["rtime"], rows["dtime"]), (rows["recur"] == 1) | (rows["death"] == 1)
    covariates = pd.get_dummies(rows.drop(columns=["pid", "year", "rtime", "recur", "dtime", "death"]), drop_first=True)
    return SurvivalData(covariates.to_numpy(float), time.to_numpy(float) / 365.25, event.to_numpy())


LOAD: dict[str, partial[tuple[SurvivalData, int]]] = {
    "whas500": partial(of_sksurv, "whas500", "lenfol", "fstat"),
    "gbsg2": partial(of_sksurv, "gbsg2", "time", "cens"),
    "metabric": partial(of_table, load_metabric, 8),
    "rotterdam": partial(of_table, rotterdam, 0),
    "flchain": partial(of_sksurv, "flchain", "futime", "death"),
    "support": partial(of_table, load_support, 0),
}
DATA = (*LOAD, *_laws.LAWS)


@cache
def loaded(data: str) -> tuple[SurvivalData, int]:
    return LOAD[data]()


def thirds(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    cuts = np.quantile(values[train], [1 / 3, 2 / 3])
    return np.searchsorted(cuts, values, side="right")


def sizes(data: str) -> list[int]:
    """Training rows of a data set; of a simulated law there are as many as are asked for."""
    if data in _laws.LAWS:
        return list(SIZES)
    available = int(loaded(data)[0].n * (1 - 1 / N_FOLDS))
    found = [size for size in SIZES if size <= available]
    return found if available >= SIZES[1] or available < 300 else [*found, available]


def split(data: str, size: int, fold: int, seed: int) -> tuple[SurvivalData, SurvivalData]:
    """Rows to train and to test on; the last column says in which third of the ages a row is."""
    if data in _laws.LAWS:
        drawn = [_laws.draw(data, n, 0.5, False, [number, size, fold, seed]) for number, n in enumerate((size, 2000))]
        x, time, event = (np.concatenate(values) for values in zip(*drawn, strict=True))
        rows, column = table(x, time, event), 0
        train, test = np.arange(size), np.arange(size, size + 2000)
    else:
        rows, column = loaded(data)
        picked, rng = rows.folds(N_FOLDS, seed=seed)[fold], np.random.default_rng([seed, fold])
        train = np.sort(rng.permutation(picked.train)[:size])
        test = np.sort(rng.permutation(picked.test)[:MOST_TESTED])
    third = thirds(rows.x[:, column], train)
    rows = rows.replaced(x=np.column_stack([rows.x, third]), feature_names=())
    return rows[train], rows[test]


# --- The base models: functions of X and y that return a fitted one.


def cox(x: np.ndarray, y: Surv) -> Any:
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    centre, spread = x.mean(axis=0), np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    return _Scaled(
        CoxPHSurvivalAnalysis(alpha=0.1).fit((x - centre) / spread, _structured(y["time"], y)), centre, spread
    )


def forest(x: np.ndarray, y: Surv) -> Any:
    """Train on at most 100 distinct times, ends of intervals with equally many rows: more make long curves."""
    from sksurv.ensemble import RandomSurvivalForest

    ends = np.unique(np.quantile(y["time"], np.linspace(0, 1, 101)[1:]))
    time = ends[np.searchsorted(ends, y["time"])]
    model = RandomSurvivalForest(n_estimators=50, min_samples_leaf=15, random_state=0)
    return _Scaled(model.fit(x, _structured(time, y)), 0.0, 1.0)


def _structured(time: np.ndarray, y: Surv) -> Any:
    return np.array(list(zip(np.asarray(y["event"]) > 0, time, strict=True)), dtype=[("event", bool), ("time", float)])


class _Scaled:
    """A model of scikit-survival whose curves are read on its own times."""

    def __init__(self, model: Any, centre: Any, spread: Any) -> None:
        self.model, self.centre, self.spread = model, centre, spread
        self.times_ = np.asarray(getattr(model, "unique_times_", getattr(model, "event_times_", None)), dtype=float)

    def predict_survival_function(self, x: Any) -> np.ndarray:
        return np.asarray(self.model.predict_survival_function((x - self.centre) / self.spread, return_array=True))


def boosted(x: np.ndarray, y: Surv) -> Any:
    import xgboost

    rows = xgboost.DMatrix(x)
    rows.set_float_info("label_lower_bound", y["time"])
    rows.set_float_info("label_upper_bound", np.where(y["event"], y["time"], np.inf))
    settings = {"objective": "survival:aft", "aft_loss_distribution": "normal", "aft_loss_distribution_scale": 1.0}
    settings |= {"max_depth": 3, "eta": 0.1, "nthread": 1, "seed": 0}
    model = xgboost.XGBRegressor(objective="survival:aft")
    model._Booster = xgboost.train(settings, rows, num_boost_round=60)
    return model


def network(family: str, seed: int, x: np.ndarray, y: Surv) -> SurvivalModel:
    return SurvivalModel(family, random_state=seed, **FITTING).fit(x, y)


def bases(seed: int) -> dict[str, Callable[[np.ndarray, Surv], Any]]:
    return {
        "path": partial(network, "weibull", seed),
        "cox": cox,
        "forest": forest,
        "xgboost": boosted,
        "network": partial(network, "mtlr", seed),
    }


# --- The remedies.


PENALISED = ("select()", "X-CAL 10", "X-CAL 100", "S-cal 100")


def remedies(base: str) -> list[str]:
    maps = [name for name in METHODS if name != "temperature" or base == "network"]
    return ["none", *maps, *(PENALISED if base == "path" else ())]


def treated(base: str, seed: int, train: SurvivalData, wanted: list[str]) -> Iterator[tuple[str, Any]]:
    """Each remedy's name and what predicts with it; all maps of a base model share its six trainings."""
    fitted: dict[bytes, Any] = {}
    fit = bases(seed)[base]

    def once(x: np.ndarray, y: Surv) -> Any:
        key = np.asarray(x).tobytes() + np.asarray(y["time"]).tobytes()
        if key not in fitted:
            fitted[key] = fit(x, y)
        return fitted[key]

    y = Surv(time=train.time, event=train.event)
    for name in wanted:
        if name in PENALISED:
            continue
        more = {"group_column": train.x.shape[1] - 1} if name == "groups" else {}
        method = "km" if name == "none" else name
        found = Recalibrated(None, method, cv=N_FOLDS, fit_model=once, random_state=seed, **more).fit(train.x, y)
        if name == "none":
            ends, counts = np.array([0.0, 1.0]), found.adjustment_.counts
            found.adjustment_ = MapOfF(KaplanMeierRecalibration(ends, ends, *counts))
        yield name, found
    if not set(wanted) & set(PENALISED):
        return
    path = SurvivalPath((0, 10, 100, 1000), seeds=1, distribution="weibull", random_state=seed, **FITTING).fit(train)
    yield from [("select()", path.select()), ("X-CAL 10", path.model(10)), ("X-CAL 100", path.model(100))]
    with mock.patch("xcal.estimators.fitting.usual_penalty", return_value=SoftBins(random_edges=True)):
        random = SurvivalPath((100,), seeds=1, distribution="weibull", random_state=seed, **FITTING).fit(train)
    yield "S-cal 100", random.model(100)


# --- The values.


def own_values(estimator: Any, test: SurvivalData) -> tuple[np.ndarray, np.ndarray | None]:
    """F at the observed times, and the negative log-likelihood of a model with a density."""
    if isinstance(estimator, Recalibrated):
        y = Surv(time=test.time, event=test.event)
        try:
            loss = estimator.nll(test.x, y)
        except ValueError:  # curves with steps or lines
            loss = None
        return estimator.predict_own_cdf(test.x, test.time), loss
    distribution = estimator.predict_distribution(test)
    time, event = torch.from_numpy(test.time), torch.from_numpy(test.event)
    with torch.no_grad():
        return distribution.cdf(time).numpy(), nll(distribution, time, event, density=True).numpy()


def likelihood_of_bins(survival: Callable[[np.ndarray], np.ndarray], train: SurvivalData, test: SurvivalData) -> float:
    """Mean negative log-likelihood of the bin of an event, and of outliving the bin of a censoring."""
    inner = np.unique(np.quantile(train.time[train.event], np.arange(1, 20) / 20))
    left = np.hstack([np.ones((test.n, 1)), survival(inner), np.zeros((test.n, 1))])
    masses = -np.diff(left, axis=1)
    masses = 0.99 * masses + 0.01 / masses.shape[1]
    place, rows = np.searchsorted(inner, test.time), np.arange(test.n)
    after = np.cumsum(masses[:, ::-1], axis=1)[:, ::-1][rows, place] - masses[rows, place] / 2
    return float(-np.log(np.where(test.event, masses[rows, place], after)).mean())


def measure(estimator: Any, train: SurvivalData, test: SurvivalData, law: str | None) -> dict[str, float | None]:
    end = float(np.quantile(train.time, 0.9))
    grid = np.linspace(0.0, end, N_TIMES)
    rows = test.x if isinstance(estimator, Recalibrated) else test

    def survival(times: np.ndarray) -> np.ndarray:
        return np.asarray(estimator.predict_survival_function(rows, times, extrapolate=True))

    cdf, loss = own_values(estimator, test)
    curves, outcome = survival(grid), {"time": test.time, "event": test.event}
    censoring = kaplan_meier(time=train.time, event=train.event, of="censoring")

    def excess(method: str) -> float:
        result = d_calibration(cdf, test.event, n_bins=N_BINS, method=method, p_value=None)
        return 1e3 * (result.value - result.floor)

    horizons = np.quantile(train.time[train.event], [0.25, 0.5, 0.75])
    risks = 1 - survival(horizons)
    off = [integrated_calibration_index(risks[:, k], at=at, **outcome) for k, at in enumerate(horizons)]
    found = {
        "dcal": excess("uniform"),
        "dcal_km": excess("km"),
        "ici": 1e3 * float(np.mean([one.value - one.floor for one in off])),
        "k": 1e3 * conditional_calibration(cdf, test.event, test.x[:, :-1], n_draws=0, where=False).value,
        "bins": likelihood_of_bins(survival, train, test),
        "nll": None if loss is None else float(loss.mean()),
        "ibs": integrated_brier_score(curves, grid, **outcome, censoring=censoring).value,
        "c": concordance_index(**outcome, predicted_time=np.trapezoid(curves, grid, axis=1)).value,
        "error": None,
    }
    if law is not None:
        found["error"] = float(np.abs(curves[:, 1:] - _laws.survival(law, test.x, grid[1:])).mean())
    return found


# --- The records.

Cell = tuple[str, int, str, int, int]  # data, training rows, base model, fold, seed


def cells() -> Iterator[Cell]:
    """All cells, repetition by repetition; within one from few rows to many."""
    for repetition in range(N_FOLDS * N_SEEDS):
        for rank in range(len(SIZES)):
            for data in DATA:
                if rank < len(own := sizes(data)):
                    yield from (
                        (data, own[rank], base, repetition % N_FOLDS, repetition // N_FOLDS) for base in bases(0)
                    )


def run(task: tuple[Cell, list[str]]) -> dict[str, list[float | None]]:
    """Values of some remedies of a cell, in the order of `TABLES`."""
    (data, size, base, fold, seed), wanted = task
    warnings.simplefilter("ignore")  # of few rows, again and again
    torch.set_num_threads(1)
    train, test = split(data, size, fold, seed)
    found: dict[str, list[float | None]] = {}
    try:
        for remedy, estimator in treated(base, seed, train, wanted):
            values = measure(estimator, train, test, data if data in _laws.LAWS else None)
            found[remedy] = [_short(values[name], name) for name in TABLES]
    except ValueError as error:  # a model that did not converge in any of its folds, for instance
        print(f"{task[0]}: {error}", flush=True)
    return {remedy: found.get(remedy, [None] * len(TABLES)) for remedy in wanted}


def _short(value: float | None, name: str) -> float | None:
    if value is None or not np.isfinite(value):
        return None
    return float(f"{value:.{6 if name in ('bins', 'nll') else 4}g}")


def read(path: Path) -> dict[Cell, dict[str, list[float | None]]]:
    """Values by cell and remedy; a cell whose remedies were run at different times has several lines."""
    found: dict[Cell, dict[str, list[float | None]]] = {}
    for kept in read_lines(path):
        found.setdefault(tuple(kept["cell"]), {}).update(kept["remedies"])
    return found


def as_lines(found: dict[Cell, dict[str, list[float | None]]]) -> list[dict[str, Any]]:
    names = ("data", "rows", "base", "fold", "seed")
    return [
        dict(zip(names, cell, strict=True)) | {"remedy": remedy} | dict(zip(TABLES, values, strict=True))
        for cell, remedies_ in found.items()
        for remedy, values in remedies_.items()
    ]


def key(line: dict[str, Any]) -> Cell:
    return line["data"], line["rows"], line["base"], line["fold"], line["seed"]


# --- The page.

# What is shown: its name, digits and unit; of all but C less is better.
TABLES = {
    "bins": ("Negative log-likelihood of 20 time bins", 0, 1e3),
    "nll": ("Negative log-likelihood by density, of models that have one", 0, 1e3),
    "dcal": ("D-calibration above its floor, in 1e-3", 1, 1),
    "dcal_km": ('D-calibration above its floor, censored rows counted by "km", in 1e-3', 1, 1),
    "ici": ("ICI at the quartiles of the event times above its floor, in 1e-3", 1, 1),
    "k": ("Conditional calibration K, in 1e-3", 1, 1),
    "ibs": ("Integrated Brier score", 0, 1e4),
    "c": ("Harrell's C", 0, 1e4),
    "error": ("Mean distance to the true F, simulated laws", 1, 1e3),
}
SIZE_CLASSES = {"200 rows": (0, 299), "300 to 1,000": (300, 1000), "1,001 to 5,000": (1001, 10**9)}


def size_class(rows: int) -> str:
    return next(name for name, (low, high) in SIZE_CLASSES.items() if low <= rows <= high)


def differences(lines: list[dict[str, Any]], name: str) -> list[tuple[dict[str, Any], float]]:
    """Return each line with the value of its remedy less that of none."""
    none = {key(line): line[name] for line in lines if line["remedy"] == "none"}
    return [
        (line, line[name] - before)
        for line in lines
        if line["remedy"] != "none" and line[name] is not None and (before := none.get(key(line))) is not None
    ]


def over_data(values: list[tuple[str, float]]) -> tuple[float, float]:
    """Mean over data sets of their means, and its standard error over data sets."""
    means = [np.mean([v for data, v in values if data == one]) for one in dict.fromkeys(data for data, _ in values)]
    error = np.std(means, ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.nan
    return float(np.mean(means)), float(error)


def compare(lines: list[dict[str, Any]], name: str, heads: list[str], head_of: Callable[[dict[str, Any]], str]) -> None:
    """Print a table of remedies by base model, or by number of rows; in bold the best of each column."""
    title, digits, unit = TABLES[name]
    found: dict[tuple[str, str], list[tuple[str, float]]] = {}
    everywhere = heads != list(bases(0))
    for line, value in differences(lines, name):
        if not (everywhere and line["remedy"] in (*PENALISED, "temperature")):  # of one base model alone
            found.setdefault((line["remedy"], head_of(line)), []).append((line["data"], unit * value))
    level: dict[str, list[tuple[str, float]]] = {}
    for line in lines:
        if line["remedy"] == "none" and line[name] is not None:
            level.setdefault(head_of(line), []).append((line["data"], unit * line[name]))
    means = {place: over_data(values) for place, values in found.items()}
    heads = [head for head in heads if any(place[1] == head for place in means)]
    better = -1 if name == "c" else 1
    best = {h: min((better * mean, r) for (r, head), (mean, _) in means.items() if head == h) for h in heads}
    print(f"\n**{title}, less that of none{'' if unit == 1 else f', in {1 / unit:.0e}'.replace('e-0', 'e-')}**\n")
    print("| | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads))
    print("| none: its value | " + " | ".join(f"{over_data(level[head])[0]:.{digits}f}" for head in heads) + " |")
    for remedy in dict.fromkeys(remedy for remedy, _ in means):
        row = []
        for head in heads:
            mean, error = means.get((remedy, head), (np.nan, np.nan))
            cell = "" if np.isnan(mean) else f"{mean:+.{digits}f}" + (f" ± {error:.{digits}f}" if error >= 0 else "")
            row.append(f"**{cell}**" if best[head][0] < 0 and best[head][1] == remedy else cell)
        print(f"| {remedy} | " + " | ".join(row) + " |")


def harm(lines: list[dict[str, Any]], chosen: tuple[str, ...] = ("auto", "km", "beta")) -> None:
    """Print by data set what remedies do to the likelihood, over all its cells, and which does most for it."""
    found: dict[str, dict[str, list[float]]] = {}
    calm = f"{chosen[0]}, without XGBoost"  # which has the largest error, and the largest gain
    for line, value in differences(lines, "bins"):
        if line["remedy"] not in (*PENALISED, "temperature"):  # of one base model alone
            own = found.setdefault(line["data"], {})
            own.setdefault(line["remedy"], []).append(1e3 * value)
            if line["remedy"] == chosen[0] and line["base"] != "xgboost":
                own.setdefault(calm, []).append(1e3 * value)
    chosen = (chosen[0], calm, *chosen[1:])
    print("\n**Negative log-likelihood of time bins less that of none, in 1e-3, by data set: mean over base models,")
    print("numbers of rows and repetitions, ± its standard error; in bold where it is worse by more than that**\n")
    print("| data | cells | " + " | ".join(chosen) + ' | most harm of "auto" in a cell | best remedy |')
    print("|---|---|" + "---|" * (len(chosen) + 2))
    for data in sorted(found, key=DATA.index):
        row = []
        for remedy in chosen:
            values = np.array(found[data][remedy])
            mean, error = values.mean(), values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
            row.append(f"**{mean:+.1f} ± {error:.1f}**" if mean > error else f"{mean:+.1f} ± {error:.1f}")
        best = min((remedy for remedy in found[data] if remedy != calm), key=lambda one: np.mean(found[data][one]))
        gain = float(np.mean(found[data][best]))
        worst = max(found[data][chosen[0]])
        told = f"{best} {gain:+.1f}" if gain < 0 else "none"
        print(f"| {data} | {len(found[data][chosen[0]])} | {' | '.join(row)} | {worst:+.1f} | {told} |")


def not_run(lines: list[dict[str, Any]]) -> None:
    done: dict[tuple[str, int, str], int] = {}
    for line in lines:
        if line["remedy"] == "none":
            place = line["data"], line["rows"], line["base"]
            done[place] = done.get(place, 0) + 1
    wanted = {cell[:3] for cell in cells()}
    counts = sorted({done[place] for place in wanted & set(done)})
    times = " to ".join(map(str, sorted({counts[0], counts[-1]})))
    print(f"\n{len(wanted & set(done))} of {len(wanted)} kinds of cell were run, each on {times} of the")
    print(f"{N_FOLDS * N_SEEDS} folds and seeds. Not run:\n")
    missing: dict[tuple[str, str], list[str]] = {}
    for data, rows, base in sorted(wanted - set(done), key=lambda one: (one[1], DATA.index(one[0]))):
        missing.setdefault((size_class(rows), data), []).append(base)
    for name in SIZE_CLASSES:
        own = {data: bases_ for (size, data), bases_ in missing.items() if size == name}
        whole = [data for data, some in own.items() if len(some) == len(bases(0))]
        parts = [f"{data} with {', '.join(some)}" for data, some in own.items() if len(some) < len(bases(0))]
        if own:
            print(f"- {name}: " + "; ".join([", ".join(whole)] * bool(whole) + parts))


def markdown(lines: list[dict[str, Any]], names: list[str]) -> None:
    for name in names:
        compare(lines, name, list(bases(0)), lambda line: line["base"])
        if name in ("bins", "dcal", "error"):
            compare(lines, name, list(SIZE_CLASSES), lambda line: size_class(line["rows"]))
    if "bins" in names:
        harm(lines)
    not_run(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=DATA, nargs="*", default=DATA)
    parser.add_argument("--base", choices=list(bases(0)), nargs="*", default=list(bases(0)))
    parser.add_argument("--rows", type=int, default=SIZES[-1], help="no more rows to train on")
    parser.add_argument("--out", type=Path, default=HERE / "remedies.jsonl")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no other cell after these")
    parser.add_argument("--markdown", choices=list(TABLES), nargs="*", help="print tables of these, and run nothing")
    parser.add_argument("--fast", action="store_true", help="one cell: WHAS500, 200 rows, Cox")
    options = parser.parse_args()
    done = read(options.out)
    if options.markdown is not None:
        markdown(as_lines(done), options.markdown or list(TABLES))
        return
    needed = {"cox": "sksurv", "forest": "sksurv", "xgboost": "xgboost"}
    base = [name for name in options.base if name not in needed or find_spec(needed[name])]
    tasks = [
        (cell, [remedy for remedy in remedies(cell[2]) if remedy not in done.get(cell, ())])
        for cell in cells()
        if cell[0] in options.data and cell[1] <= options.rows and cell[2] in base
    ]
    tasks = [task for task in tasks if task[1] and (not options.fast or task[0] == ("whas500", 200, "cox", 0, 0))]
    for (cell, _), values in side_by_side(run, tasks, options.workers, options.minutes):
        append_line(options.out, {"cell": cell, "remedies": values})


if __name__ == "__main__":
    main()
