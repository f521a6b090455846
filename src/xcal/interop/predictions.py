"""What a survival model of any library says about rows: the one form that everything here reads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from xcal._checks import BoolArray, FloatArray, as_flag, fail, first_row
from xcal.calibration.causes import as_incidence
from xcal.distributions.base import SurvivalDistribution
from xcal.distributions.discrete import DiscreteDistribution
from xcal.metrics.inputs import Interpolation, Vector, at_own_time, at_point, fraction, left_column, rounded_time
from xcal.objectives import nll

# --- The rows that a model is asked about, and at which times its curves are kept.

# Rows times columns that are kept of a model's curves, and the fewest columns however many rows there are.
MOST_CELLS = 2_000_000
FEWEST_COLUMNS = 50

# Columns of a curve that has a value at every time.
SMOOTH_COLUMNS = 200

# Rows times columns that are asked of a library at once.
_AT_ONCE = 10_000_000


@dataclass(frozen=True, eq=False)
class Rows:
    """Outcomes of the rows, and the times that matter; checked before.

    Attributes
    ----------
    time, event : arrays of shape (n,)
    times : array of shape (m,), optional
        Times that the user asked for; by default the reader of the library chooses.
    horizons : array of shape (h,)
        Times at which single risks will be read: the curves are exact there.
    causes : tuple of str
        Names of the causes that the events of these rows may have; empty where they have none.
    entry : array of shape (n,), optional
        Time from which each row was under observation.
    """

    time: FloatArray
    event: BoolArray
    times: Vector | None = None
    horizons: Vector = field(default_factory=lambda: np.empty(0))
    causes: tuple[str, ...] = ()
    entry: FloatArray | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.time.size)

    @property
    def most_columns(self) -> int:
        """Number of times that a curve of each row may have without filling the memory."""
        return max(FEWEST_COLUMNS, MOST_CELLS // self.n)

    def grid(self) -> Vector:
        """Choose times at which to ask a model that knows every time: those of the user, or where the outcomes lie.

        Half of them are quantiles of the event times, half are spread evenly up to the last time of the rows.
        """
        if self.times is not None:
            return self.times
        half = min(SMOOTH_COLUMNS, self.most_columns) // 2
        last = float(self.time.max())
        seen = self.time[self.event] if self.event.any() else self.time
        quantiles = np.quantile(seen, (np.arange(half) + 0.5) / half)
        spread = np.linspace(0.0, last, half + 1)[1:]
        grid: Vector = np.unique(np.concatenate([quantiles, spread, self.horizons]).astype(np.float64))
        return grid[grid > 0] if last > 0 else grid

    def kept_columns(self, own: Vector) -> npt.NDArray[np.int64]:
        """Which of a model's own times to keep: all, or evenly many with the last and those beside a horizon."""
        if own.size <= self.most_columns:
            return np.arange(own.size)
        evenly = np.linspace(0, own.size - 1, self.most_columns).round().astype(np.int64)
        left = np.searchsorted(own, self.horizons, side="right") - 1
        beside = np.clip(np.concatenate([left, left + 1]), 0, own.size - 1)
        return np.unique(np.concatenate([evenly, beside]))

    def parts(self, columns: int) -> Iterator[slice]:
        """Rows in pieces, so that no more than a bounded number of values is held at once."""
        step = max(1, _AT_ONCE // max(1, columns))
        return (slice(start, min(start + step, self.n)) for start in range(0, self.n, step))

    def take(self, part: slice, times: Vector | None) -> "Rows":
        """Keep neighbouring rows, with other times to be asked for."""
        entry = None if self.entry is None else self.entry[part]
        return Rows(self.time[part], self.event[part], times, self.horizons, self.causes, entry)


def count_rows(X: Any) -> int | None:
    """Return the number of rows of a table, array, tensor or tuple of them; None for what does not say."""
    if isinstance(X, tuple):
        return count_rows(X[0]) if X else 0
    if hasattr(X, "num_row"):  # XGBoost's DMatrix
        return int(X.num_row())
    shape = getattr(X, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(X) if hasattr(X, "__len__") else None


def take_rows(X: Any, rows: Any) -> Any:
    """Pick rows, by a slice or their numbers, of a table, array, tensor, list or tuple of them."""
    if isinstance(X, tuple):
        return tuple(take_rows(values, rows) for values in X)
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "tocsr"):  # of scipy's sparse forms, the one that has rows
        return X.tocsr()[rows]
    if hasattr(X, "num_row"):  # XGBoost's DMatrix
        return X.slice(np.arange(X.num_row())[rows])
    try:
        return np.asarray(X)[rows] if isinstance(X, list) else X[rows]
    except (TypeError, IndexError, KeyError):
        fail("X", "rows of features: a table or an array", type(X).__name__)


# A million curves at once would take their memory twice over.
_ROWS_AT_ONCE = 50_000

# Survival curves may rise by this much from one time to the next: rounding, in float32 too.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class ModelPredictions:
    """Predictions for n rows, checked; what the model does not give is None.

    Attributes
    ----------
    model, library : str
        Names for people, as in "CoxPHFitter" and "lifelines"; "survival curves" and "none" for plain numbers.
    n : int
        Rows.
    survival, times : arrays of shape (n, m) and (m,), or None
        Survival probabilities on increasing times.
    interpolation : {"linear", "previous"}
        How the curves are read between two of `times`: as in `xcal.metrics`.
    risk, risk_horizon : array of shape (n,) and float, or None
        Probability of an event by the one time `risk_horizon`, for a model that gives no more than this.
    cdf : array of shape (n,), or None
        F at each row's observed time, where the model gives it exactly; else it is read off the curves. Where there are
        curves too, a row whose time lies past the last of `times` counts as censored there: the model says no more.
    nll : array of shape (n,), or None
        Negative log-likelihood of each row (density at an event, survival at a censoring), where there is a density.
    risk_score : array of shape (n,), or None
        Order of the rows by the model itself, larger for an earlier event: what its `score` goes by. None for a model
        that has none; rows are then ordered by the area under their curves.
    reading : tuple of str
        Sentences for the report: how the curves were obtained, how they are read between the times, and what happens
        past the last of them.
    incidence : array of shape (n, causes, m), or None
        Of a model of several causes, the cumulative incidence of each at `times`; `survival` is one less their sum.
        Of a model that knows one cause of several, that of this one, and `survival` is None.
    causes : tuple of str
        Names of the causes of `incidence`, in its order, as the model has them: "1", "2", ... where it has none.
    cdf_entry, cdf_lower : arrays of shape (n,), or None
        F at the time from which each row was under observation, where rows have such times; and at the lower end of the
        interval in which the event lies, where events do, `cdf` being that at its upper end.
    hazard : array of shape (n,), or None
        Cumulative hazard of each row from its entry to its time, where the model gives it so: of covariates that the
        row has from its entry on, F at the entry says nothing.
    end : float, or None
        Last time that the model knows of: the last one of its training rows, or of its own curves. None for a model
        that gives a law for all times and does not say how long its training rows were followed.
    """

    model: str
    library: str
    n: int
    survival: FloatArray | None = None
    times: Vector | None = None
    interpolation: Interpolation = "linear"
    risk: Vector | None = None
    risk_horizon: float | None = None
    cdf: Vector | None = None
    nll: Vector | None = None
    risk_score: Vector | None = None
    reading: tuple[str, ...] = ()
    end: float | None = None
    incidence: FloatArray | None = None
    causes: tuple[str, ...] = ()
    cdf_entry: Vector | None = None
    cdf_lower: Vector | None = None
    hazard: Vector | None = None

    def take(self, rows: Any) -> "ModelPredictions":
        """Keep some of the rows, by a mask or their places."""
        names = ("survival", "risk", "cdf", "nll", "risk_score", "incidence", "cdf_entry", "cdf_lower", "hazard")
        own = {name: getattr(self, name) for name in names}
        kept: dict[str, Any] = {name: None if values is None else values[rows] for name, values in own.items()}
        return replace(self, n=int(np.arange(self.n)[rows].size), **kept)


def check_predictions(found: ModelPredictions, n: int) -> ModelPredictions:
    """Refuse predictions that cannot be of these `n` rows, or are no probabilities; give them back otherwise."""
    who = f"predictions of {found.model}"
    if found.n != n:
        fail(who, f"one for each of the {n} rows of y", f"{found.n} rows")
    if found.survival is not None and found.times is not None:
        advice = "for risks pass 1 - risk"
        if found.library != "none":
            advice = "if the model allows that, pass curves: numpy.minimum.accumulate(curves, axis=1) with times="
        _check_curves(who, found.survival, found.times, advice)
    for name, values in (("cdf", found.cdf), ("risk", found.risk)):
        if values is not None:
            bad = ~((values >= 0) & (values <= 1))
            if bad.any():
                fail(f"{name}, {who}", "probabilities in [0, 1]", values[first_row(bad)], first_row(bad))
    if found.nll is not None and np.isnan(found.nll).any():
        fail(f"nll, {who}", "a likelihood of each row", "nan", first_row(np.isnan(found.nll)))
    return found


def _check_curves(who: str, survival: FloatArray, times: Vector, advice: str) -> None:
    # NaN makes both comparisons false, so one pass over extrema catches everything.
    if not (survival.min() >= 0 and survival.max() <= 1):
        flat = first_row((~((survival >= 0) & (survival <= 1))).ravel())
        row, column = divmod(flat, times.size)
        got = f"{survival[row, column]} at time {times[column]:g}"
        fail(who, "survival probabilities in [0, 1]", got, row)
    for start in range(0, len(survival), _ROWS_AT_ONCE):
        rises = np.diff(survival[start : start + _ROWS_AT_ONCE], axis=1) > ROUNDING
        if not rises.any():
            continue
        row, column = (int(i) for i in np.argwhere(rises)[0])
        row += start
        got = f"{survival[row, column + 1]:g} at time {times[column + 1]:g} after {survival[row, column]:g}"
        fail(who, f"survival curves, which never rise ({advice})", got, row)


# --- From what a library predicts to `ModelPredictions`: a distribution per row, or curves on the model's own times.

BETWEEN: dict[Interpolation, str] = {
    "linear": "Between two of these times a curve is read along a straight line.",
    "previous": "Between two of these times a curve keeps the value of the earlier one, as a step function does.",
}


def past_the_end(last: float, time: FloatArray) -> str:
    """Return what happens after the last time of the curves."""
    rule = f"The curves end at time {rounded_time(last):g}; past it they keep their last value"
    if not (time > last).any():
        return f"{rule}, which no row needs."
    return f"{rule}. Rows past it count as censored there in D-calibration."


def from_distribution(
    model: str,
    library: str,
    distribution_of: Callable[[slice], SurvivalDistribution],
    rows: Rows,
    causes: tuple[str, ...] = (),
) -> ModelPredictions:
    """Read a model that gives a distribution for each row: exact curves, exact F, and the likelihood.

    Parameters
    ----------
    model, library
        Names.
    distribution_of
        From a slice of the rows to their distribution, in the unit of the times.
    rows
        What is asked.
    causes
        Names of the causes that the distributions tell apart, if they do; F and the likelihood are those of any event.
    """
    grid = rows.grid()
    survival, cdf, loss = np.empty((rows.n, grid.size)), np.empty(rows.n), np.empty(rows.n)
    incidence = np.empty((rows.n, len(causes), grid.size)) if causes else None
    points = torch.from_numpy(np.ascontiguousarray(grid)).unsqueeze(1)
    discrete = False
    for part in rows.parts(grid.size):
        distribution = distribution_of(part)
        discrete = discrete or isinstance(distribution, DiscreteDistribution)
        time = torch.from_numpy(rows.time[part].astype(np.float64))
        event = torch.from_numpy(np.ascontiguousarray(rows.event[part]))
        with torch.no_grad():
            survival[part] = distribution.survival(points.expand(-1, time.numel())).T.numpy()
            cdf[part] = distribution.cdf(time).numpy()
            loss[part] = nll(distribution, time, event, density=True).numpy()
            if incidence is not None:
                curves = distribution.cumulative_incidence(points.expand(-1, time.numel()))
                incidence[part] = curves.movedim(0, -1).numpy()
    density = "the mass of its time bin over the bin's width" if discrete else "the density"
    reading = (
        f"{model} gives a whole distribution for each row: F at the observed time is exact, and so is the likelihood "
        f"({density} at an event, survival at a censoring).",
        f"Survival curves are kept at {grid.size} times, the horizons among them, and are exact there.",
        BETWEEN["linear"],
        *of_causes(causes, rows),
    )
    return ModelPredictions(
        model,
        library,
        rows.n,
        survival=survival,
        times=grid,
        cdf=cdf,
        nll=loss,
        reading=reading,
        incidence=incidence,
        causes=causes,
    )


def from_own_times(
    model: str,
    library: str,
    predict: Callable[[slice], FloatArray],
    own: Vector,
    rows: Rows,
    interpolation: Interpolation,
    origin: str,
    causes: tuple[str, ...] = (),
) -> ModelPredictions:
    """Read a model whose curves have values at times of its own, `own`.

    Where that is too much to hold, or the user asked for other times, rows are read in parts: F at the observed time
    comes from the whole curve, and fewer columns are kept.

    Parameters
    ----------
    predict
        From a slice of the rows to S of shape (rows, own times); of a model with `causes`, to their incidences of shape
        (rows, causes, own times).
    origin
        The first sentence of `reading`: how the curves were obtained.
    causes
        Names of the causes that the model knows.
    """
    asked, kept = rows.times, rows.kept_columns(own)
    sentences, cdf = [origin], None
    times = own if asked is None and kept.size == own.size else own[kept] if asked is None else asked
    if times is not own and (not causes or knows_all(causes, rows)):
        cdf = np.empty(rows.n)
    curves = []
    for part in rows.parts(own.size * max(1, len(causes))):
        found = checked_incidence(f"predictions of {model}", predict(part), own)[0] if causes else predict(part)
        if cdf is not None:
            of_any = 1 - found.sum(axis=1) if causes else found
            cdf[part] = np.clip(1 - at_own_time(of_any, own, rows.time[part], interpolation), 0.0, 1.0)
        if asked is not None:
            each = [1 - _at_each(1 - one, own, times, interpolation) for one in found.swapaxes(0, 1)] if causes else []
            curves.append(np.stack(each, axis=1) if causes else _at_each(found, own, times, interpolation))
        else:
            curves.append(found if times is own else found[..., kept].astype(np.float64))
    whole = np.concatenate(curves)
    if times is not own:
        which = "of these" if asked is None else "that were asked for"
        sentences.append(
            f"{times.size:,} times {which} are kept; F at a row's observed time is read from the whole curve."
        )
    survival = event_free(whole, causes, rows) if causes else whole
    reading = (*sentences, *of_causes(causes, rows), BETWEEN[interpolation], past_the_end(float(times[-1]), rows.time))
    return ModelPredictions(
        model,
        library,
        rows.n,
        survival=survival,
        times=times,
        interpolation=interpolation,
        cdf=cdf,
        reading=reading,
        end=float(own[-1]),
        incidence=whole if causes else None,
        causes=causes,
    )


def event_free(incidence: FloatArray, causes: tuple[str, ...], rows: Rows) -> FloatArray | None:
    """Return the probability of no event at each time; None where the model does not know all causes."""
    return np.maximum(1 - incidence.sum(axis=1), 0.0) if knows_all(causes, rows) else None


def knows_all(causes: tuple[str, ...], rows: Rows) -> bool:
    """Return whether a model of these causes knows all that the rows have: one less their sum is then a survival."""
    return len(causes) >= len(rows.causes)


def checked_incidence(name: str, incidence: Any, times: Any) -> tuple[FloatArray, Vector]:
    """Return checked incidences of shape (rows, causes, times) and their times."""
    values, grid = as_incidence(incidence, times, name=name)
    added = grid.size - np.size(times)
    return values[:, :, added:], grid[added:]


def names_of(values: FloatArray) -> tuple[str, ...]:
    """Return the names of causes that have none, of incidences of shape (rows, causes, times)."""
    return tuple(str(k) for k in range(1, values.shape[1] + 1))


def of_causes(causes: tuple[str, ...], rows: Rows) -> tuple[str, ...]:
    """Return what is said of the causes of a model."""
    if not causes:
        return ()
    if knows_all(causes, rows):
        return ("The probability of no event is one less the sum of the incidences.",)
    return (f"The model gives the incidence of {', '.join(causes)} alone, and says nothing of other causes.",)


def _at_each(whole: FloatArray, own: Vector, times: Vector, interpolation: Interpolation) -> FloatArray:
    return np.stack([at_point(whole, own, float(t), interpolation) for t in times], axis=1)


@runtime_checkable
class WholeLaw(Protocol):
    """What the estimators of xcal have, which are built on this package: a distribution of each row."""

    def predict_distribution(self, X: Any) -> SurvivalDistribution:
        """Return the distribution of each row's time."""
        ...


@runtime_checkable
class SeveralLaws(Protocol):
    """What a model that averages several networks has: the distribution of each row by each of them."""

    def predict_members(self, X: Any) -> Sequence[SurvivalDistribution]:
        """Return the distributions, one for each network."""
        ...


@runtime_checkable
class ReadsItself(Protocol):
    """What a recalibrated model has: it reads the model inside, and changes what that says."""

    def predictions(self, X: Any, rows: Rows) -> ModelPredictions:
        """Return what the model says about rows."""
        ...


@dataclass(frozen=True, eq=False)
class HazardFunction:
    """A hazard function as a model: of rows as they are, or of people whose covariates change from row to row.

    Parameters
    ----------
    function : callable
        ``function(X, t)``: the hazard of every row of X at a time of its own, `t` of shape (n,), as an array of shape
        (n,), zero or more. It is integrated from the entry to the time of each row.
    cumulative : bool
        Whether the function gives the cumulative hazard, from 0 to `t`, instead: nothing is integrated then, and there
        is no likelihood. Of several rows of a person only its difference between entry and time of each row counts.

    Examples
    --------
    >>> model = HazardFunction(lambda X, t: 0.1 * np.exp(0.5 * X[:, 0]) * t)
    """

    function: Callable[[Any, Vector], Any]
    cumulative: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            fail("function", "a function of X and of a time for each of its rows", type(self.function).__name__)
        as_flag("cumulative", self.cumulative)


def class_name(model: Any) -> str:
    """Name of a model's class, for people."""
    return type(model).__name__


def check_fitted(model: Any) -> None:
    """Refuse a scikit-learn estimator that was not fitted."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError:
        refuse_unfitted(model)


def refuse_unfitted(model: Any, what: str = "call its fit method on the training rows first") -> NoReturn:
    """Raise the error of a model that was not fitted, with what to do."""
    fail("model", f"a fitted {class_name(model)} ({what})", "one that was not fitted")


# --- Models of one cause each, put together into one of several causes.

Read = Callable[[Any, Any, Rows], ModelPredictions]

_LEAST = float(np.finfo(np.float64).tiny)


# Rows that are read together: of so few every model gives all of its times.
_FEW_ROWS = 1000

# Pieces of a step between two times, in which hazards keep their ratio.
_PIECES = 8


def models_by_cause(model: Any, is_model: Callable[[Any], bool]) -> dict[str, Any] | None:
    """Return models of one cause each by the names or numbers of their causes; None for anything else."""
    if isinstance(model, Mapping):
        if not model:
            fail("model", "a model for each cause", "an empty mapping")
        return {str(name): one for name, one in model.items()}
    if isinstance(model, list | tuple) and len(model) > 0 and all(map(is_model, model)):
        return {str(k): one for k, one in enumerate(model, 1)}
    return None


def put_together(models: dict[str, Any], X: Any, rows: Rows, read: Read) -> ModelPredictions:
    r"""Read models of one cause each as one of all of these causes.

    A model that gives the incidence of its cause is taken as it is. One that gives a survival curve was fitted with the
    other causes as censored, and tells the hazard of its cause, :math:`d\Lambda_k = -d \log S_k`. With these

    .. math:: F_k(t) = \int_0^t S(u-) \, d\Lambda_k(u), \qquad S(t) = \prod_{u \le t} (1 - \sum_k d\Lambda_k(u)).
    """
    names = tuple(models)
    first = slice(0, 1)

    def each(part: slice, times: Vector | None) -> list[ModelPredictions]:
        few, features = rows.take(part, times), None if X is None else take_rows(X, part)
        return [read(model, features, few) for model in models.values()]

    own_first = each(first, None)
    kinds = {found.incidence is None for found in own_first}
    for name, found in zip(names, own_first, strict=True):
        if found.times is None or (found.incidence is not None and found.incidence.shape[1] != 1):
            expected = "a model of one cause: its incidence, or survival with the other causes as censored"
            fail(f"model[{name!r}]", expected, found.model)
    if len(kinds) > 1:
        fail("model", "models that all give incidences, or all survival with other causes as censored", "both kinds")
    steps = all(found.interpolation == "previous" for found in own_first)
    # Hazards that run on are divided in small steps, of which the last of each few is kept.
    asked, last = (None, 1) if steps else (_divided(rows.grid()), _PIECES)
    own = np.unique(np.concatenate([found.times for found in own_first])) if asked is None else asked[last - 1 :: last]

    def predict(part: slice) -> FloatArray:
        pieces = []
        for start in range(part.start, part.stop, _FEW_ROWS):
            few = slice(start, min(start + _FEW_ROWS, part.stop))
            curves = np.stack([_curves_at(one, own if asked is None else asked) for one in each(few, asked)], axis=1)
            found = curves if kinds == {False} else _incidences(curves, steps=steps)
            pieces.append(found[:, :, last - 1 :: last])
        return np.concatenate(pieces)

    libraries = tuple(dict.fromkeys(found.library for found in own_first))
    kind = " and ".join(dict.fromkeys(found.model for found in own_first))
    name = f"{kind} by cause"
    origin = f"The incidences are those of one model for each cause ({kind}), at {own.size:,} times."
    if kinds == {True}:
        origin = (
            f"The incidences are put together from one model for each cause ({kind}), fitted with the other causes as "
            f"censored: their hazards give the probability of no event and the incidence of each cause at "
            f"{own.size:,} times."
        )
    how: Interpolation = "previous" if steps else "linear"
    found = from_own_times(name, " and ".join(libraries), predict, own, rows, how, origin, names)
    ends = [one.end for one in own_first if one.end is not None]
    return replace(found, end=min(ends) if ends else None)


def _curves_at(found: ModelPredictions, own: Vector) -> FloatArray:
    """Return incidences, or survival curves where there are none, at times of all models."""
    assert found.times is not None
    curves = found.survival if found.incidence is None else 1 - found.incidence[:, 0]
    assert curves is not None
    left = left_column(found.times, own)
    whole = np.concatenate([np.ones((found.n, 1)), curves], axis=1)
    value = whole[:, left + 1].astype(np.float64)
    if found.interpolation == "linear":
        share = fraction(found.times, own, left)
        value = (1 - share) * value + share * whole[:, np.minimum(left + 2, found.times.size)]
    return value if found.incidence is None else 1 - value


def _divided(grid: Vector) -> Vector:
    """Return the times that divide each step of a grid, from 0 on, into pieces of the same length."""
    ends = np.append(0.0, grid) if grid[0] > 0 else grid
    parts = np.arange(1, _PIECES + 1) / _PIECES
    inner = (ends[:-1, None] + np.diff(ends)[:, None] * parts).ravel()
    inner[_PIECES - 1 :: _PIECES] = ends[1:]
    return inner


def _incidences(curves: FloatArray, *, steps: bool) -> FloatArray:
    """Put hazards together, from curves of each cause, shape (n, causes, m): incidences of the same shape."""
    before = np.concatenate([np.ones((*curves.shape[:2], 1)), curves[..., :-1]], axis=2)
    # A survival of zero has no hazard after it: what is left there comes at once.
    hazards = -np.log(np.maximum(np.divide(curves, before, out=np.ones_like(curves), where=before > 0), _LEAST))
    of_any = hazards.sum(axis=1)
    # Of step functions the part of those at risk that has an event is the sum of the hazards, no more than 1; of
    # hazards that run on between the times it is 1 - exp(-sum), divided as they are.
    lost = np.minimum(of_any, 1.0) if steps else -np.expm1(-of_any)
    left = np.cumprod(1 - lost, axis=1)
    comes = np.concatenate([np.ones((len(left), 1)), left[:, :-1]], axis=1) * lost
    share = np.divide(hazards, of_any[:, None], out=np.zeros_like(hazards), where=of_any[:, None] > 0)
    return np.cumsum(share * comes[:, None], axis=2)


def named_as(found: ModelPredictions, causes: tuple[str, ...]) -> ModelPredictions:
    """Return predictions whose causes have the names, and the order, of those of the rows.

    A model knows its causes by these names or by the numbers 1, 2, ... of them.
    """
    if found.incidence is None or found.causes == causes:
        return found
    numbers = {str(k): name for k, name in enumerate(causes, 1)}
    own = [one if one in causes else numbers.get(one, "") for one in found.causes]
    if "" in own or len(set(own)) < len(own):
        named = "" if causes == tuple(numbers) else f", or their numbers 1 to {len(causes)}"
        fail("model", f"causes among those of y: {', '.join(causes)}{named}", ", ".join(found.causes))
    order = sorted(range(len(own)), key=lambda k: causes.index(own[k]))
    return replace(found, incidence=found.incidence[:, order], causes=tuple(own[k] for k in order))
