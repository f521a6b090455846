"""What recalibration asks of a model of any library: F at observed and given times, quantiles, a copy on other rows."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import BoolArray, Floats, as_count, fail
from xcal.data.surv import Outcome
from xcal.data.survival import SurvivalData, folds_by_event
from xcal.interop.predictions import ModelPredictions, WholeLaw, count_rows, named_as, take_rows
from xcal.interop.reading import read_model
from xcal.metrics.inputs import at_own_time, at_point
from xcal.recalibration.maps import count_of_pieces

Column = str | int

# Doublings of the last time seen in search of a quantile; a model that is not there by then never gets there.
_DOUBLINGS = 60

# Steps in search of a quantile within its bracket, and how close in time (relative) or in F is close enough.
_STEPS = 200
_CLOSE = 1e-14


@dataclass(frozen=True, eq=False)
class OwnValues:
    """F of each row at its observed time."""

    cdf: Floats  # (n,)
    # (n,): whether the event happened at that F. A row whose time lies past the end of the model's curves counts as
    # censored at their end, and F is the one there: the model says no more.
    event: BoolArray
    nll: Floats | None  # (n,): negative log-likelihood of each row, where the model has a density
    time: Floats  # (n,): the time that F belongs to: the row's own, or the end of the curves


def n_rows(X: Any) -> int:
    """Count the rows of what a model is asked about."""
    held = count_rows(X)
    if held is None:
        fail("X", "a table, an array or a tensor with rows", type(X).__name__)
    return held


def read_own(model: Any, X: Any, time: Floats, event: BoolArray) -> OwnValues:
    """F and, where there is a density, the likelihood of each row at its observed time."""
    return own_values(read_model(model, X, time=time, event=event), time, event)


def own_values(found: ModelPredictions, time: Floats, event: BoolArray) -> OwnValues:
    """F at the observed times from what was read of a model; see `OwnValues` for rows past the end of its curves."""
    if found.survival is None or found.times is None:
        fail("model", "a model with survival curves", f"{found.model}, which gives none")
    if _has_law(found):
        return OwnValues(np.asarray(found.cdf), event, found.nll, time)
    end = float(found.times[-1])
    cdf = np.clip(1 - at_own_time(found.survival, found.times, time, found.interpolation), 0.0, 1.0)
    if found.cdf is not None:
        cdf = np.where(time > end, cdf, found.cdf)
    return OwnValues(cdf, event & (time <= end), None, np.minimum(time, end))


def last_time(model: Any, X: Any, time: Floats) -> float:
    """Return the last time that a model knows of; of one that does not say, the last of these rows' times."""
    latest = np.array([int(np.argmax(time))])
    found = read_model(model, take_rows(X, latest), time=time[latest], event=np.zeros(1, dtype=bool))
    if found.end is not None:
        return found.end
    return float(time[latest[0]] if _has_law(found) or found.times is None else found.times[-1])


def _has_law(found: ModelPredictions) -> bool:
    """Return whether a model gives F and a density at every time, so that its curves have no end."""
    return found.cdf is not None and found.nll is not None


def survival_at(model: Any, X: Any, times: Floats) -> Floats:
    """S of each row at each time, ``(n, m)``; past the end of the model's curves, their last value."""
    asked, place = np.unique(times, return_inverse=True)
    n = n_rows(X)
    found = read_model(model, X, time=np.full(n, asked[-1]), event=np.zeros(n, dtype=bool), horizons=asked)
    if found.survival is None or found.times is None:
        fail("model", "a model with survival curves", f"{found.model}, which gives none")
    columns = [at_point(found.survival, found.times, float(t), found.interpolation) for t in asked]
    return np.stack(columns, axis=1)[:, place]


def incidence_at(model: Any, X: Any, times: Floats, causes: tuple[str, ...]) -> tuple[Floats, Floats]:
    """Incidence of each cause, ``(n, causes, m)``, at a model's own times with others among them, and these times."""
    n = n_rows(X)
    last, nobody = np.full(n, times[-1]), np.zeros(n, dtype=bool)
    found = _by_cause(read_model(model, X, time=last, event=nobody, horizons=times, causes=causes), causes)
    assert found.incidence is not None
    assert found.times is not None
    grid = np.union1d(found.times, times)
    each = [
        np.stack([1 - at_point(1 - own, found.times, float(t), found.interpolation) for t in grid], axis=1)
        for own in found.incidence.swapaxes(0, 1)
    ]
    return grid, np.stack(each, axis=1)


def read_shares(model: Any, X: Any, time: Floats, causes: tuple[str, ...]) -> Floats:
    """Shares that a model gives the causes in the events at the time of each row, ``(n, causes)``."""
    if isinstance(model, WholeLaw):
        with torch.no_grad():
            law, at = model.predict_distribution(X), torch.from_numpy(time)
            each = [law.log_share(at, torch.full(at.shape, k, dtype=torch.int64)) for k in range(1, law.n_causes + 1)]
            if law.n_causes != len(causes):
                fail("model", f"a model of the causes {', '.join(causes)}", f"one of {law.n_causes}")
            return torch.stack(each, dim=-1).exp().numpy()
    found = _by_cause(read_model(model, X, time=time, event=np.ones(time.size, dtype=bool), causes=causes), causes)
    assert found.incidence is not None
    assert found.times is not None
    steps = np.diff(found.incidence, axis=2, prepend=0.0)
    place = np.minimum(np.searchsorted(found.times, time), found.times.size - 1)
    shares = np.maximum(steps[np.arange(time.size), :, place], 0.0)
    # Where a curve does not rise, the shares of what it rises by in all.
    whole = np.maximum(found.incidence[:, :, -1], np.finfo(np.float64).tiny)
    shares = np.where(shares.sum(axis=1, keepdims=True) > 0, shares, whole)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _by_cause(found: ModelPredictions, causes: tuple[str, ...]) -> ModelPredictions:
    """Return predictions in the order of the causes, or refuse a model that does not know them all."""
    if found.incidence is None or found.times is None or found.incidence.shape[1] < len(causes):
        known = ", ".join(found.causes) or "none"
        fail("model", f"a model of all causes: {', '.join(causes)}", f"{found.model}, which knows {known}")
    return named_as(found, causes)


def quantile_at(model: Any, X: Any, levels: Floats, last: float, *, extended: bool = False) -> Floats:
    """Find the times at which F of each row reaches its levels, ``(n, m)``.

    Parameters
    ----------
    levels : array of shape (n, m)
    last : float
        Where to begin to look; any time of the size of the data's.
    extended : bool
        What to give where a model's curves end below a level: infinity, or (True) the time at which a line from F = 0
        at time 0 through the end of the curve gets there.
    """
    if isinstance(model, WholeLaw):
        with torch.no_grad():
            inside = torch.from_numpy(np.array(levels.T))
            return np.asarray(model.predict_distribution(X).quantile(inside).T.numpy())
    n = levels.shape[0]
    start = np.full(n, last if last > 0 else 1.0)
    none = np.zeros(n, dtype=bool)
    found = read_model(model, X, time=start, event=none)
    if not _has_law(found):
        return _of_curves(found, levels, extended)

    # All levels of all rows at once: what a library does once for many rows costs little more than for one.
    n_levels = levels.shape[1]
    table = take_rows(X, np.repeat(np.arange(n), n_levels))
    wanted = levels.ravel()

    def cdf(time: Floats) -> Floats:
        nobody = np.zeros(time.size, dtype=bool)
        values = read_model(model, table, time=time, event=nobody, times=[float(time.max())]).cdf
        if values is None:
            fail("model", "a model with a distribution", found.model)
        return values

    if found.survival is None or found.times is None:
        fail("model", "a model with survival curves", f"{found.model}, which gives none")
    grid, curves = np.append(0.0, found.times), 1 - found.survival
    at = np.concatenate([np.searchsorted(curve, row) for curve, row in zip(curves, levels, strict=True)])
    low = grid[at]
    high = np.where(at < found.times.size, found.times[np.minimum(at, found.times.size - 1)], 2 * low)
    return _inverted(cdf, wanted, low, high).reshape(n, n_levels)


# Quantiles of the event times at which a curve is asked for its level of risk.
_GRID = 30


def event_times(model: Any, X: Any, time: Floats, event: BoolArray) -> Floats:
    """Choose times that tell rows apart: quantiles of the event times, within what the model knows."""
    return _quantiles_of_events(time, event, _GRID)


def few_event_times(model: Any, X: Any, time: Floats, event: BoolArray) -> Floats:
    """Choose times between which enough events lie for a density: as many as a histogram of them has bins."""
    return _quantiles_of_events(time, event, count_of_pieces(int(event.sum())))


def _quantiles_of_events(time: Floats, event: BoolArray, number: int) -> Floats:
    seen = time[event & (time > 0)]
    if seen.size == 0:
        fail("time", "an event after time 0", "none")
    return np.unique(np.quantile(seen, np.linspace(0, 1, number + 1)[1:]))


def bin_ends(model: Any, X: Any, time: Floats, event: BoolArray) -> Floats:
    """Find where the time bins of a model end: those of its distribution, or the times of its curves."""
    if isinstance(model, WholeLaw):
        with torch.no_grad():
            bins = model.predict_distribution(take_rows(X, np.array([0]))).bins
        edges = None if bins is None else bins.edges.numpy()
    else:
        found = read_model(model, take_rows(X, np.array([0])), time=time[:1], event=event[:1])
        edges = None if _has_law(found) else found.times
    if edges is None:
        fail("model", "a model with time bins, for the method 'temperature'", f"{type(model).__name__}, which has none")
    return np.asarray(edges[edges > 0], dtype=np.float64)


def _of_curves(found: ModelPredictions, levels: Floats, extended: bool) -> Floats:
    """Read quantiles off curves on a grid, each along its lines or at its steps."""
    if found.survival is None or found.times is None:
        fail("model", "a model with survival curves", f"{found.model}, which gives none")
    result = np.empty(levels.shape)
    for row, (curve, wanted) in enumerate(zip(1 - found.survival, levels, strict=True)):
        times, cdf = np.append(0.0, found.times), np.append(0.0, np.maximum.accumulate(curve))
        at = np.searchsorted(cdf, wanted)
        ended = at == times.size
        right = np.minimum(at, times.size - 1)
        left = np.maximum(right - 1, 0)
        reached = times[right]
        if found.interpolation == "linear":
            rise = cdf[right] - cdf[left]
            share = np.divide(wanted - cdf[left], rise, out=np.ones(wanted.size), where=rise > 0)
            reached = times[left] + share * (times[right] - times[left])
        beyond = np.full(wanted.size, np.inf)
        if extended and cdf[-1] > 0:
            beyond = wanted * times[-1] / cdf[-1]
        result[row] = np.where(ended, beyond, reached)
    return result


def _inverted(cdf: Callable[[Floats], Floats], level: Floats, low: Floats, high: Floats) -> Floats:
    """Find the smallest times at which F reaches its level, from brackets; infinity where it never does.

    Steps are taken along the line through both ends, the Illinois way, and every third one halves the bracket, which
    also finds the place of a jump.
    """
    for _ in range(_DOUBLINGS):
        short = cdf(high) < level
        if not short.any():
            break
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    below, above = cdf(low) - level, cdf(high) - level
    never = above < 0
    last = np.zeros(level.size, dtype=np.int8)
    for step in range(_STEPS):
        rise = above - below
        share = np.divide(-below, rise, out=np.full(level.size, 0.5), where=rise > 0)
        middle = low + np.clip(share if step % 3 < 2 else 0.5, 0.0, 1.0) * (high - low)
        gap = cdf(middle) - level
        up = gap >= 0
        # The end that stays twice pulls half as hard.
        below = np.where(up, np.where(last == 1, below / 2, below), gap)
        above = np.where(up, gap, np.where(last == -1, above / 2, above))
        low, high = np.where(up, low, middle), np.where(up, middle, high)
        last = np.where(up, 1, -1).astype(np.int8)
        if (never | (high - low <= _CLOSE * high) | (np.abs(gap) < _CLOSE)).all():
            break
    return np.where(never, np.inf, np.where(level <= 0, 0.0, np.where(np.abs(gap) < _CLOSE, middle, high)))


RowNumbers = npt.NDArray[np.int64]
FitModel = Callable[[Any, Any], Any]
_TIME, _EVENT, _ENTRY = "_time_of_recalibration", "_event_of_recalibration", "_entry_of_recalibration"


def folds(cv: Any, event: BoolArray, seed: int) -> Iterator[tuple[RowNumbers, RowNumbers]]:
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


def check_each_row_once(test: RowNumbers, n: int) -> None:
    """Refuse folds that leave rows out or test them twice: every row needs one F from a model that did not see it."""
    counts = np.bincount(test, minlength=n)
    if (counts != 1).any():
        row = int(np.argmax(counts != 1))
        fail("cv", "folds that test every row once", f"{counts[row]} times", row)


def refit(model: Any, X: Any, outcome: Outcome, fit_model: FitModel | None) -> Any:
    """Train a fresh copy of a model on these rows; the model itself stays as it is."""
    y = None if isinstance(X, SurvivalData) else outcome.target()
    if fit_model is not None:
        return fit_model(X, y)
    library = type(model).__module__.split(".")[0]
    if library == "lifelines":
        return _refit_lifelines(model, X, outcome)
    if library == "xgboost" and hasattr(model, "get_xgb_params"):
        return _refit_xgboost(model, X, outcome)
    from sklearn.base import BaseEstimator, clone

    own_target = library in {"xgboost", "pycox", "torchsurv"}
    if own_target or not isinstance(model, BaseEstimator) or type(model).__name__ == "FrozenEstimator":
        advice = "cv=None with a fitted model, or fit_model=, a function of X and y that returns a fitted model"
        name = f"{type(model).__module__}.{type(model).__name__}"
        fail("model", f"a model that can be trained again by fit(X, y) ({advice})", name)
    fresh = clone(model)
    return fresh.fit(X) if y is None else fresh.fit(X, y)


def _refit_lifelines(model: Any, X: Any, outcome: Outcome) -> Any:
    if not hasattr(X, "assign"):
        fail("X", "a pandas data frame with the columns of the lifelines model", type(X).__name__)
    if outcome.cause is not None or outcome.lower is not None:
        expected = "rows without causes and intervals, or fit_model=, a function of X and y that returns a fitted model"
        fail("y", expected, "causes" if outcome.lower is None else "intervals")
    fresh, more = copy.deepcopy(model), {}
    frame = X.assign(**{_TIME: outcome.time, _EVENT: outcome.event})
    if outcome.entry is not None:
        frame, more = frame.assign(**{_ENTRY: outcome.entry}), {"entry_col": _ENTRY}
    fresh.fit(frame, duration_col=_TIME, event_col=_EVENT, **more)
    return fresh


def _refit_xgboost(model: Any, X: Any, outcome: Outcome) -> Any:
    """Train an accelerated failure time model on the bounds between which each event lies."""
    import xgboost

    outcome = outcome.limited("y", intervals=True)
    lower = outcome.time if outcome.lower is None else outcome.lower
    rows = xgboost.DMatrix(X.x if isinstance(X, SurvivalData) else X)
    rows.set_float_info("label_lower_bound", lower)
    rows.set_float_info("label_upper_bound", np.where(outcome.event, outcome.time, np.inf))
    fresh = type(model)(**model.get_params())
    fresh._Booster = xgboost.train(model.get_xgb_params(), rows, num_boost_round=model.get_num_boosting_rounds())
    return fresh


def model_quantiles(model: Any, X: Any, levels: Floats, last: float) -> Floats:
    """Quantiles at the same levels for every row; past the end of a curve, along a line from the origin."""
    wanted = np.ascontiguousarray(np.broadcast_to(levels, (n_rows(X), levels.size)))
    found = quantile_at(model, X, wanted, last, extended=True)
    endless = ~np.isfinite(found).all(axis=1)
    if endless.any():
        row = int(np.argmax(endless))
        fail("model", f"quantiles up to the level {levels[-1]:g}", "a curve that never falls", row)
    return found


def labels_of(X: Any, column: Column | None) -> Any:
    """Read the groups of rows from a column of X, or from the groups that `SurvivalData` has."""
    if isinstance(X, SurvivalData):
        if column is None and X.groups is not None:
            return X.groups
        if isinstance(column, str) and column in X.feature_names:
            column = list(X.feature_names).index(column)
        X = X.x
    if column is None:
        fail("group_column", "the column of X that holds the groups, by name or number", "None")
    if hasattr(X, "columns"):
        names: list[Any] = list(X.columns)
        if isinstance(column, int) and column not in names and 0 <= column < len(names):
            column = names[column]
        if column not in names:
            fail("group_column", f"one of the columns {', '.join(map(str, names[:20]))}", repr(column))
        return np.asarray(X[column])
    array = np.asarray(X)
    if not isinstance(column, int) or array.ndim != 2 or not 0 <= column < array.shape[1]:
        fail("group_column", "the number of a column of X, which has no names", repr(column))
    return array[:, column]
