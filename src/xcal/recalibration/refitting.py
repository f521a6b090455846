"""Training a model again: a copy of it on other rows, for cross-fitting."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from xcal._checks import BoolArray, FloatArray, as_count, fail
from xcal.data import Surv, SurvivalData
from xcal.data.partition import folds_by_event

Rows = npt.NDArray[np.int64]
FitModel = Callable[[Any, Any], Any]

_TIME, _EVENT = "_time_of_recalibration", "_event_of_recalibration"


def folds(cv: Any, event: BoolArray, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Training and test rows of each fold: a number of folds with equal shares of events, or a splitter's own."""
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        if cv > event.size:
            fail("cv", f"at most {event.size} folds, one for each row (n_samples = {event.size})", cv)
        fold = folds_by_event(event, as_count("cv", cv, at_least=2), np.random.default_rng(seed))
        for number in range(int(cv)):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)
    elif hasattr(cv, "split") and not isinstance(cv, str | bytes | Tensor):
        yield from cv.split(np.zeros((event.size, 1)), event)
    else:
        fail("cv", "None, a number of folds or a splitter of scikit-learn", repr(cv))


def check_each_row_once(test: Rows, n: int) -> None:
    """Refuse folds that leave rows out or test them twice: every row needs one F from a model that did not see it."""
    counts = np.bincount(test, minlength=n)
    if (counts != 1).any():
        row = int(np.argmax(counts != 1))
        fail("cv", "folds that test every row once", f"{counts[row]} times", row)


def refit(model: Any, X: Any, time: FloatArray, event: BoolArray, fit_model: FitModel | None) -> Any:
    """Train a fresh copy of a model on these rows; the model itself stays as it is."""
    y = None if isinstance(X, SurvivalData) else Surv(time=time, event=event)
    if fit_model is not None:
        return fit_model(X, y)
    library = type(model).__module__.split(".")[0]
    if library == "lifelines":
        return _refit_lifelines(model, X, time, event)
    from sklearn.base import BaseEstimator, clone

    own_target = library in {"xgboost", "pycox", "torchsurv"}
    if own_target or not isinstance(model, BaseEstimator) or type(model).__name__ == "FrozenEstimator":
        advice = "cv=None with a fitted model, or fit_model=, a function of X and y that returns a fitted model"
        name = f"{type(model).__module__}.{type(model).__name__}"
        fail("model", f"a model that can be trained again by fit(X, y) ({advice})", name)
    fresh = clone(model)
    return fresh.fit(X) if y is None else fresh.fit(X, y)


def _refit_lifelines(model: Any, X: Any, time: FloatArray, event: BoolArray) -> Any:
    if not hasattr(X, "assign"):
        fail("X", "a pandas data frame with the columns of the lifelines model", type(X).__name__)
    fresh = copy.deepcopy(model)
    fresh.fit(X.assign(**{_TIME: time, _EVENT: event}), duration_col=_TIME, event_col=_EVENT)
    return fresh
