"""`tune`: an outer search over settings, a path of weights inside."""

import hashlib
import platform
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, get_args

import numpy as np
from sklearn.base import BaseEstimator, clone

from xcal._checks import as_choice, as_count, fail
from xcal._engines import Engine, as_engine, cluster, has_gpus, results
from xcal._locks import sole_user
from xcal.data import SurvivalData
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.estimators.features import read_features
from xcal.tuning.result import TuningResult, frame_of
from xcal.tuning.scoring import Scored, ScoreName, Table, scored
from xcal.tuning.space import Space, checked_space, suggested
from xcal.tuning.trials import Trial, TrialFile, same_params


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
        Settings to try. A larger number later goes on with the same search.
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
    file = TrialFile(_path(records))
    file.check_place()
    with nullcontext() if file.path is None else sole_user("records", file.path):
        search = _Search(table, wanted, batch, seed, engine, file)
        trials, corrupt = search.run(n_trials)
    best = _best(trials)
    params = {name: _as_set(wanted, name, value) for name, value in best.params.items()}
    fitted = clone(chosen).set_params(**params).fit(X, y)
    return TuningResult(
        params, float(np.mean(best.scores)), fitted, frame_of(trials), score, file.path, tuple(map(str, corrupt))
    )


class _Search:
    """One call of `tune`: trials are chosen in batches, run wherever, and told to the sampler in their order."""

    def __init__(self, table: Table, space: Space, batch: int, seed: int, engine: Engine, file: TrialFile) -> None:
        self.table, self.space, self.batch, self.seed = table, space, batch, seed
        self.engine, self.file = engine, file
        estimator = table.estimator
        settings = {k: v for k, v in estimator.get_params().items() if k not in ("progress", "device")}
        decides = (type(estimator).__name__, sorted(settings.items()), list(space.items()), table.digest())
        named = repr((*decides, table.score, len(table.folds), seed, batch))
        self.hash = hashlib.sha256(named.encode()).hexdigest()[:16]

    def run(self, n_trials: int) -> tuple[list[Trial], list[Any]]:
        """Make the trials that have no record yet, and return all of them."""
        done, corrupt = self.file.read(self.hash)
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
            if not same_params(trial.params, params[number - first]):
                expected = "trials that the sampler chooses again"
                fail("records", expected, f"others: trial {number} was made with Optuna {trial.versions.get('optuna')}")
        missing = [number for number in numbers if number not in found]
        gpus = int(self.engine == "ray" and getattr(self.table.estimator, "device", "cpu") != "cpu" and has_gpus())
        tasks = [params[number - first] for number in missing]
        for place, outcome in results(self.engine, scored, self.table, tasks, gpus=gpus):
            trial = self._trial(missing[place], tasks[place], outcome)
            self.file.add(trial)
            found[trial.number] = trial
        return found

    def _trial(self, number: int, params: dict[str, Any], outcome: Scored) -> Trial:
        return Trial(
            self.hash,
            number,
            params,
            float(np.mean(outcome.scores)) if outcome.scores else None,
            outcome.scores,
            outcome.lambdas,
            round(outcome.seconds, 3),
            outcome.failure,
            _versions(),
            datetime.now(UTC).isoformat(timespec="seconds"),
        )


def _path(records: Any) -> Path | None:
    if records is not None and not isinstance(records, str | PathLike):
        fail("records", "the name of a file", repr(records))
    return None if records is None else Path(records)


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
