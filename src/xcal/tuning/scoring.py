"""How good a setting is: a path fitted on some of the rows, and its choice scored on the others."""

import hashlib
import time as clock
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone

from xcal._checks import BoolArray, as_numpy, fail
from xcal.data import Surv, SurvivalData, time_and_event
from xcal.data._arguments import check_nothing_beside
from xcal.data.features import pieces
from xcal.data.partition import Fold
from xcal.estimators import SurvivalPath
from xcal.metrics import integrated_brier_score, kaplan_meier, mean_nll
from xcal.metrics.horizons import supported_until
from xcal.objectives import nll

Floats = npt.NDArray[np.float64]
ScoreName = Literal["ibs", "nll"]
_GRID = 100


@dataclass(frozen=True)
class Scored:
    """The outcome of one setting; `failure` says why there is none."""

    scores: tuple[float, ...]
    lambdas: tuple[float, ...]
    seconds: float
    failure: str = ""


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
        if isinstance(X, SurvivalData):
            check_nothing_beside({"y": y})
            outcome = X.to("cpu")
            time, event = np.asarray(outcome.time, dtype=np.float64), np.asarray(outcome.event)
            rows = X.replaced(time=time, event=event)
        else:
            if y is None:
                fail("y", "Surv(time=..., event=...)", None)
            read = time_and_event(y, X=X)
            time, event = np.array(read[0], dtype=np.float64), np.array(read[1])
            if np.shape(X)[:1] != (time.size,):
                fail("X", f"{time.size} rows, as many as y has", f"shape {np.shape(X)}")
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
        x = self.X.iloc[rows] if hasattr(self.X, "iloc") else _indexable(self.X)[rows]
        return x, Surv(time=self.time[rows], event=self.event[rows])

    def digest(self) -> str:
        """Hash the rows."""
        seen = hashlib.sha256()
        for piece in (*_pieces(self.X), self.time, self.event):
            array = np.ascontiguousarray(piece)
            text = array.dtype.kind in "OUST"
            seen.update(repr(array.tolist()).encode() if text else str(array.dtype).encode() + array.tobytes())
        return seen.hexdigest()[:16]


def _indexable(X: Any) -> Any:
    return X.tocsr() if issparse(X) else np.asarray(X) if isinstance(X, list | tuple) else X


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


def scored(table: Table, params: dict[str, Any]) -> Scored:
    """Fit and score one setting on every fold. What cannot be trained is a failure, not the end of the search."""
    start = clock.perf_counter()
    scores, lambdas = [], []
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
        return Scored((), (), clock.perf_counter() - start, f"{type(error).__name__}: {error}"[:500])
    return Scored(tuple(scores), tuple(lambdas), clock.perf_counter() - start)


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
