"""Search for the settings of an estimator: outside the settings, inside a whole path of weights for each of them."""

import hashlib
import json
import platform
import time as clock
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone

from xcal._checks import BoolArray, Floats, as_choice, as_count, as_flag, as_number, as_numpy, fail
from xcal._files import Corrupt, Limits, add_lines, as_line, check_keys, check_place, read, read_lines, shown, sole_user
from xcal._workers import Engine, as_engine, cluster, has_gpus, results
from xcal.data import Surv, SurvivalData
from xcal.data.features import pieces
from xcal.data.survival import Fold, outcome_of
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.estimators.inputs import read_features
from xcal.interop.predictions import count_rows, take_rows
from xcal.metrics import integrated_brier_score, kaplan_meier, mean_nll
from xcal.objectives import nll
from xcal.validation.arguments import supported_until

__all__ = ["Range", "TuningResult", "tune"]


# --- What a search may try: for each setting of the estimator, a range of numbers or a list of values.

# The weight is chosen by the path itself, and the rest says where and how to train, not what.
_NOT_SEARCHED = {
    "lambdas": "it is what select() chooses for each setting",
    "target_dcal": "it takes the place of the weights, among which select() chooses",
    "device": "it does not decide how good a model is",
    "progress": "it does not decide how good a model is",
}


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole numbers if both ends are.

    Parameters
    ----------
    low, high : int or float
    log : bool
        Whether the search goes by ratios, as for learning rates; `low` is then above zero.

    Examples
    --------
    >>> Range(1e-4, 1e-2, log=True)
    Range(low=0.0001, high=0.01, log=True)
    >>> Range(8, 4)
    Traceback (most recent call last):
    ValueError: high: expected a number above low (8), got 4
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        as_number("low", self.low, above=0 if as_flag("log", self.log) else None)
        as_number("high", self.high)
        if self.high <= self.low:
            fail("high", f"a number above low ({self.low})", self.high)

    @property
    def whole(self) -> bool:
        """Whether the numbers are whole."""
        return isinstance(self.low, int) and isinstance(self.high, int)


Space = dict[str, Range | tuple[Any, ...]]


def checked_space(space: Any, estimator: BaseEstimator) -> Space:
    """Check that every setting is one of the estimator's, and every value one that a record can hold."""
    if not isinstance(space, Mapping) or not space:
        fail(
            "space", "a mapping of settings to ranges or lists, {'dropout': [0.0, 0.3]} for instance", repr(space)[:80]
        )
    known = estimator.get_params()
    found: Space = {}
    for name, values in space.items():
        if name in _NOT_SEARCHED:
            fail("space", f"other settings than {name}: {_NOT_SEARCHED[name]}", repr(name))
        if name not in known:
            fail("space", f"settings of {type(estimator).__name__} ({', '.join(sorted(known))})", repr(name))
        found[name] = values if isinstance(values, Range) else _choices(name, values)
    return found


def _choices(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence) or len(values) == 0:
        fail(f"space[{name!r}]", "a Range, or a list of at least one value", repr(values)[:80])
    try:
        json.dumps(list(values), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        fail(f"space[{name!r}]", "finite numbers, text, True, False, None or lists of these", repr(values)[:80])
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def suggested(trial: Any, space: Space) -> dict[str, Any]:
    """Let Optuna choose the settings of one trial.

    Values of a list are chosen by their place: a value may be a tuple, which Optuna would not keep.
    """
    chosen: dict[str, Any] = {}
    for name, values in space.items():
        if not isinstance(values, Range):
            chosen[name] = values[trial.suggest_categorical(name, list(range(len(values))))]
        elif values.whole:
            chosen[name] = trial.suggest_int(name, int(values.low), int(values.high), log=values.log)
        else:
            chosen[name] = trial.suggest_float(name, float(values.low), float(values.high), log=values.log)
    return chosen


# --- The record of each trial: one line of JSON with a checksum, written once.


@dataclass(frozen=True)
class Trial:
    """What one setting gave."""

    # Hash of everything that decides the trials of a search: estimator, space, rows, score, folds, seed, batch
    search: str
    number: Annotated[int, Limits(at_least=0, below=2**31)]  # from 0, in the order in which they were chosen
    params: dict[str, Any]  # the settings that were tried
    score: float | None  # mean over the folds; None if it failed
    # scores, lambdas: score of each fold, and the weight that ``select()`` chose there
    scores: tuple[float, ...] = ()
    lambdas: tuple[float, ...] = ()
    seconds: float = 0.0
    failure: str = ""  # why there is no score; empty if there is one
    versions: dict[str, str] = field(default_factory=dict)
    written: str = ""  # date and time, UTC

    @property
    def key(self) -> tuple[str, int]:
        """What tells the trials of one file apart."""
        return (self.search, self.number)

    def line(self) -> str:
        """Return the trial as one line that carries its own checksum."""
        return as_line(asdict(self))


def _trial(content: dict[str, Any]) -> Trial:
    """Read a trial; the checksum of a forged line can be right, so that every value is looked at."""
    names = [one.name for one in fields(Trial)]
    check_keys("trial", content, names, names)
    trial = read(Trial, content)
    if bool(trial.failure) != (trial.score is None):
        fail("failure", "a reason where there is no score, and only there", shown(trial.failure))
    return trial


def read_trials(path: Path | None, search: str) -> tuple[dict[int, Trial], list[Corrupt]]:
    """Return the trials of a search by number, and the lines of the file that cannot be read; without a file, none."""
    found, corrupt = ({}, []) if path is None else read_lines(path, _trial, lambda trial: trial.key)
    return {trial.number: trial for trial in found.values() if trial.search == search}, corrupt


# --- How good a setting is: a path fitted on some of the rows, and its choice scored on the others.

ScoreName = Literal["ibs", "nll"]
_GRID = 100


@dataclass(frozen=True, eq=False)
class Table:
    """Rows to search on, and what is the same for every setting."""

    X: Any
    time: Floats
    event: BoolArray
    folds: tuple[Fold, ...]
    score: ScoreName
    estimator: BaseEstimator

    @classmethod
    def of(cls, X: Any, y: Any, folds: int, score: ScoreName, seed: int, estimator: BaseEstimator) -> "Table":
        """Read the outcomes and divide the rows: each fold has its share of the events; groups stay together."""
        X = np.asarray(X) if isinstance(X, list | tuple) else X
        outcome = outcome_of(X, y, count_rows(X))
        time, event = outcome.time.astype(np.float64), outcome.event
        if isinstance(X, SurvivalData):
            rows = X.replaced(time=time, event=event)
        else:
            rows = SurvivalData.trusted(np.empty((time.size, 0)), time, event)
        if int(event.sum()) < 2:
            fail("y", "at least two events, one for each fold", int(event.sum()))
        if int(event.sum()) < folds:
            fail("folds", f"at most {int(event.sum())}, the number of events", folds)
        divided = rows.folds(folds, seed, whole_groups=rows.groups is not None)
        return cls(X, time, event, divided, score, estimator)

    def part(self, rows: npt.NDArray[np.int64]) -> tuple[Any, Any]:
        """Return features and outcomes of some rows."""
        if isinstance(self.X, SurvivalData):
            return self.X[rows], None
        return take_rows(self.X, rows), Surv(time=self.time[rows], event=self.event[rows])

    def digest(self) -> str:
        """Hash the rows."""
        seen = hashlib.sha256()
        for piece in (*_pieces(self.X), self.time, self.event):
            array = np.ascontiguousarray(piece)
            text = array.dtype.kind in "OUST"
            seen.update(repr(array.tolist()).encode() if text else str(array.dtype).encode() + array.tobytes())
        return seen.hexdigest()[:16]


def _pieces(X: Any) -> list[Any]:
    """Return all numbers and words of a table, one array after another."""
    if isinstance(X, SurvivalData):
        weights = [] if X.weights is None else [np.asarray(X.to("cpu").weights)]
        return [*pieces(X.x), *weights]
    if hasattr(X, "columns"):
        return [np.array(list(map(str, X.columns))), *(np.asarray(X[name]) for name in X.columns)]
    if issparse(X):
        rows = X.tocsr()
        return [rows.data, rows.indices, rows.indptr]
    return [as_numpy("X", X)]


def scored(table: Table, params: dict[str, Any]) -> dict[str, Any]:
    """Fit and score one setting on every fold, and return the outcome as fields of a `Trial`.

    What cannot be trained is a failure, not the end of the search.
    """
    start, failure = clock.perf_counter(), ""
    scores: list[float] = []
    lambdas: list[float] = []
    try:
        for fold in table.folds:
            estimator = clone(table.estimator).set_params(**params, progress=False)
            # What a fit says about its rows is said again when the best setting is fitted to all of them.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                estimator.fit(*table.part(fold.train))
                model = estimator.select() if isinstance(estimator, SurvivalPath) else estimator
                value = _SCORES[table.score](table, model, fold)
            if not np.isfinite(value):
                raise ValueError(f"the score is {value}")
            scores.append(value)
            lambdas.append(float(model.xcal_lambda))
    except (ValueError, RuntimeError, ArithmeticError) as error:
        scores, lambdas, failure = [], [], f"{type(error).__name__}: {error}"[:500]
    seconds = round(clock.perf_counter() - start, 3)
    mean = float(np.mean(scores)) if scores else None
    found = {"score": mean, "scores": tuple(scores), "lambdas": tuple(lambdas)}
    return found | {"seconds": seconds, "failure": failure}


def _ibs(table: Table, model: Any, fold: Fold) -> float:
    """Return the integrated Brier score of a fold, over times that enough rows of the table support."""
    last = supported_until(table.time, table.event)
    times = np.linspace(0.0, last, _GRID + 1)[1:]
    curves = model.predict_survival_function(table.part(fold.test)[0], times, extrapolate=True)
    # The censoring of all rows: it has nothing to do with the model, and is known better than that of a fold.
    censoring = kaplan_meier(time=table.time, event=table.event, of="censoring")
    time, event = table.time[fold.test], table.event[fold.test]
    return integrated_brier_score(curves, times, time=time, event=event, censoring=censoring).value


def _nll(table: Table, model: Any, fold: Fold) -> float:
    """Return the mean negative log-likelihood of a fold, in the unit of the times."""
    distribution = model.predict_distribution(table.part(fold.test)[0])
    time, event = torch.from_numpy(table.time[fold.test]), torch.from_numpy(table.event[fold.test])
    return mean_nll(nll(distribution, time, event)).value


_SCORES = {"ibs": _ibs, "nll": _nll}


@dataclass(frozen=True, eq=False, repr=False)
class TuningResult:
    """The result of `tune`.

    Attributes
    ----------
    best_params : dict
        Settings with the lowest score.
    best_score : float
        Their score, the mean over the folds. As it is the lowest of many it is a little too good: judge the estimator
        on fresh rows.
    best_estimator : estimator
        Fitted with these settings on all rows; of a path, ``select()`` gives the model.
    trials : DataFrame
        One line per trial: number, the settings, score, score_sd (standard deviation over the folds), seconds, failure.
    score : {"ibs", "nll"}
        What was minimised.
    records : Path or None
        File of the trials.
    corrupt : tuple of str
        Lines of that file that could not be read, and whose trials were made again.
    """

    best_params: dict[str, Any]
    best_score: float
    best_estimator: Any
    trials: pd.DataFrame
    score: ScoreName
    records: Path | None
    corrupt: tuple[str, ...] = ()

    def __repr__(self) -> str:
        failed = int((self.trials["failure"] != "").sum())
        settings = ", ".join(f"{name}={_short(value)}" for name, value in self.best_params.items())
        told = f"{len(self.trials)} trials" + (f", {failed} of them failed" if failed else "")
        return f"TuningResult(best {self.score} {self.best_score:.4g} with {settings}; {told})"


def frame_of(trials: list[Trial]) -> pd.DataFrame:
    """Put the trials into a table, one line each."""
    return pd.DataFrame(
        [
            {
                "number": trial.number,
                **trial.params,
                "score": np.nan if trial.score is None else trial.score,
                "score_sd": float(np.std(trial.scores, ddof=1)) if len(trial.scores) > 1 else np.nan,
                "seconds": trial.seconds,
                "failure": trial.failure,
            }
            for trial in trials
        ]
    )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else repr(value)


def tune(
    estimator: Any,
    space: Any,
    X: Any,
    y: Any = None,
    *,
    n_trials: int = 20,
    score: ScoreName = "ibs",
    folds: int = 3,
    batch: int = 4,
    seed: int = 0,
    engine: Engine = "local",
    records: str | PathLike[str] | None = None,
) -> TuningResult:
    """Search for the settings of a path, and fit the best to all rows.

    Each trial fits the estimator with other settings on all folds but one, lets ``select()`` choose the weight as
    usual, and scores the choice on the fold that is left, for each fold in turn. Optuna's TPE sampler learns from the
    scores which settings to try next.

    Parameters
    ----------
    estimator : SurvivalPath or SurvivalModel
        The class, or an estimator whose other settings are kept.
    space : mapping of str to Range or list
        For each setting to search, a `xcal.tuning.Range` of numbers or a list of values.
    X, y
        As in `SurvivalPath.fit`. Rows of `SurvivalData` with groups stay together in a fold.
    n_trials : int
        Settings to try. A larger number later continues the same search.
    score : {"ibs", "nll"}
        What to minimise; both are proper scores. "ibs", the integrated Brier score, compares all distributions, up to
        the time that 5 % of the rows reach. "nll" is the mean negative log-likelihood; compare only settings of one
        distribution by it.
    folds : int
    batch : int
        Trials that are chosen at once, from what all batches before have given. With Ray they run at the same time.
        The same `batch` and `seed` give the same trials, on either engine and however often the search was stopped.
    seed : int
        Of folds and sampler.
    engine : {"local", "ray"}
        Run the trials here one after another, or on a Ray cluster: this machine, or that of ``RAY_ADDRESS``.
    records : path, optional
        File for the trials, a line for each. If it has trials of the same search, these are not made again: call
        `tune` again to resume. One process at a time can use it.

    Returns
    -------
    TuningResult

    Examples
    --------
    >>> from xcal import Surv, SurvivalPath
    >>> from xcal.tuning import Range
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = Surv(time=rng.exponential(np.exp(X[:, 0])), event=np.ones(200, dtype=bool))
    >>> path = SurvivalPath(lambdas=(0, 10), seeds=1, epochs=3, cross_fit=0)
    >>> space = {"learning_rate": Range(1e-4, 1e-1, log=True), "hidden": [(8,), (16, 16)]}
    >>> found = tune(path, space, X, y, n_trials=3, folds=2)
    >>> found.trials["number"].tolist(), sorted(found.best_params)
    ([0, 1, 2], ['hidden', 'learning_rate'])
    >>> found.best_estimator.select().predict(X).shape
    (200,)
    """
    chosen = _estimator(estimator)
    wanted = checked_space(space, chosen)
    as_choice("score", score, get_args(ScoreName))
    n_trials = as_count("n_trials", n_trials, at_least=1)
    batch = as_count("batch", batch, at_least=1)
    seed = as_count("seed", seed, at_least=0, below=2**32)
    as_engine(engine)
    _optuna()
    if not isinstance(X, SurvivalData) and "encode" not in wanted:
        # Once, of all rows: an error within a fold would name the row of the fold.
        read_features(clone(chosen), X, reset=True)
    table = Table.of(X, y, as_count("folds", folds, at_least=2), score, seed, chosen)
    file = _checked_place(records)
    with nullcontext() if file is None else sole_user("records", file):
        search = _Search(table, wanted, batch, seed, engine, file)
        trials, corrupt = search.run(n_trials)
    best = _best(trials)
    params = {name: _as_set(wanted, name, value) for name, value in best.params.items()}
    fitted = clone(chosen).set_params(**params).fit(X, y)
    return TuningResult(
        params, float(np.mean(best.scores)), fitted, frame_of(trials), score, file, tuple(map(str, corrupt))
    )


class _Search:
    """One call of `tune`: trials are chosen in batches, run wherever, and told to the sampler in their order."""

    def __init__(self, table: Table, space: Space, batch: int, seed: int, engine: Engine, file: Path | None) -> None:
        self.table, self.space, self.batch, self.seed = table, space, batch, seed
        self.engine, self.file = engine, file
        estimator = table.estimator
        settings = {k: v for k, v in estimator.get_params().items() if k not in ("progress", "device")}
        decides = (type(estimator).__name__, sorted(settings.items()), list(space.items()), table.digest())
        named = repr((*decides, table.score, len(table.folds), seed, batch))
        self.hash = hashlib.sha256(named.encode()).hexdigest()[:16]

    def run(self, n_trials: int) -> tuple[list[Trial], list[Any]]:
        """Make the trials that have no record yet, and return all of them."""
        done, corrupt = read_trials(self.file, self.hash)
        optuna = _optuna()
        trials: list[Trial] = []
        with _quiet(optuna), cluster() if self.engine == "ray" else nullcontext():
            study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=self.seed))
            for first in range(0, n_trials, self.batch):
                asked = [study.ask() for _ in range(min(self.batch, n_trials - first))]
                params = [suggested(trial, self.space) for trial in asked]
                made = self._made(first, params, done)
                for number, trial in enumerate(asked, start=first):
                    # A failed trial has no score, and the sampler leaves it out.
                    failed = optuna.trial.TrialState.FAIL if made[number].score is None else None
                    study.tell(trial, made[number].score, state=failed)
                trials += [made[number] for number in sorted(made)]
        return trials, corrupt

    def _made(self, first: int, params: list[dict[str, Any]], done: dict[int, Trial]) -> dict[int, Trial]:
        """Return the trials of one batch: from the file, or made now and written as they are finished."""
        numbers = range(first, first + len(params))
        found = {number: done[number] for number in numbers if number in done}
        for number, trial in found.items():
            # Of a trial that was read from a file, tuples are lists.
            if json.dumps(trial.params, sort_keys=True) != json.dumps(params[number - first], sort_keys=True):
                expected = "trials that the sampler chooses again"
                fail("records", expected, f"others: trial {number} was made with Optuna {trial.versions.get('optuna')}")
        missing = [number for number in numbers if number not in found]
        gpus = int(self.engine == "ray" and getattr(self.table.estimator, "device", "cpu") != "cpu" and has_gpus())
        tasks = [params[number - first] for number in missing]
        for place, outcome in results(self.engine, scored, self.table, tasks, gpus=gpus):
            written = datetime.now(UTC).isoformat(timespec="seconds")
            made = Trial(self.hash, missing[place], tasks[place], versions=_versions(), written=written, **outcome)
            if self.file is not None:
                add_lines(self.file, _trial, [made], "records")
            found[made.number] = made
        return found


def _checked_place(records: Any) -> Path | None:
    """Find out before the first trial whether they can be written."""
    if records is None:
        return None
    if not isinstance(records, str | PathLike):
        fail("records", "the name of a file", repr(records))
    if Path(records).is_dir():
        fail("records", "the name of a file", f"the folder {records}")
    check_place(Path(records), "records")
    return Path(records)


def _versions() -> dict[str, str]:
    named = {name: str(import_module(name).__version__) for name in ("xcal", "torch", "optuna")}
    return named | {"python": platform.python_version()}


def _estimator(estimator: Any) -> BaseEstimator:
    """Check that it is an estimator of ours, or its class."""
    kinds = (SurvivalPath, SurvivalModel)
    made = estimator() if isinstance(estimator, type) and issubclass(estimator, kinds) else estimator
    if not isinstance(made, kinds):
        fail("estimator", "SurvivalPath or SurvivalModel, the class or an estimator", repr(estimator)[:80])
    return made


def _best(trials: list[Trial]) -> Trial:
    scored_ones = [trial for trial in trials if trial.score is not None]
    if not scored_ones:
        fail("space", "at least one setting that can be trained and scored", f"none: {trials[0].failure}")
    return min(scored_ones, key=lambda trial: (float(np.mean(trial.scores)), trial.number))


def _as_set(space: Space, name: str, value: Any) -> Any:
    """Return a value as the space has it; read from a file, a tuple is a list."""
    return tuple(value) if isinstance(value, list) and isinstance(space[name], tuple) else value


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Let Optuna speak of problems only; its level of logging is the user's."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError('tune needs Optuna: pip install "xcal[tune]"') from error
    return optuna
