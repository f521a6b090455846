"""The target of a survival model: a time and an event for each row, in one array that travels through scikit-learn.

The form is that of scikit-survival, a structured array with a boolean and a numeric field, so that either library takes
the other's targets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray, as_event, as_time, check_rows, fail
from xcal._kaplan_meier import sortable_time, stable_sort

_DTYPE = np.dtype([("event", np.bool_), ("time", np.float64)])


def Surv(*, time: Any, event: Any) -> npt.NDArray[np.void]:
    """Put times and events together, by name, as the `y` of an estimator.

    The result is an array without an index: its rows are those of `X` by position.

    Parameters
    ----------
    time : array-like of shape (n,)
        Time of the event or of censoring: finite and not negative.
    event : array-like of shape (n,)
        True or 1 where the event happened, False or 0 where the row is censored.

    Returns
    -------
    structured array of shape (n,) with fields ``event`` and ``time``

    Examples
    --------
    >>> y = Surv(time=[5.0, 3.0], event=[1, 0])
    >>> y["time"], y["event"]
    (array([5., 3.]), array([ True, False]))
    """
    outcome = as_outcome(time, event)
    y = np.empty(outcome.n, dtype=_DTYPE)
    y["time"], y["event"] = outcome.time, outcome.event
    return y


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was observed of some rows, checked once and passed whole.

    What else belongs to the outcome of a row, such as a time of entry or a cause, has its place here.

    Attributes
    ----------
    time : array, shape (n,)
        Observed times, finite and not negative.
    event : bool array, shape (n,)
        True where the event happened.
    """

    time: FloatArray
    event: BoolArray

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.time.size

    @property
    def last(self) -> float:
        """Largest time."""
        return float(self.time.max())

    def take(self, rows: Any) -> "Outcome":
        """Keep the chosen rows, by a mask, a slice or their places."""
        return Outcome(self.time[rows], self.event[rows])

    def happened_by(self, t: float) -> BoolArray:
        """Return the rows whose event came by a time."""
        return np.asarray(self.event & (self.time <= t))

    def order(self) -> npt.NDArray[np.int64]:
        """Return the order of the rows in time, events before censored rows of the same time."""
        _, order = stable_sort(sortable_time(self.time, self.event))
        return np.asarray(order)


def as_outcome(
    time: Any, event: Any, *, names: tuple[str, str] = ("time", "event"), beside: Mapping[str, Any] | None = None
) -> Outcome:
    """Check observed times and event indicators of the same rows, which are those of what is `beside` them, too.

    Parameters
    ----------
    time, event : array-like, shape (n,)
    names : tuple of two str
        What to call them in an error.
    beside : mapping, optional
        What else is known of the rows, by the names of the arguments. Rows are taken by position; where any of these
        are pandas objects whose indexes say otherwise, that is an error.
    """
    check_rows({names[0]: time, names[1]: event, **(beside or {})})
    times = as_time(time, name=names[0])
    return Outcome(times, as_event(event, times.size, reference=names[0], name=names[1]))


def time_and_event(
    y: Any, *, name: str = "y", X: Any = None, beside: Mapping[str, Any] | None = None
) -> tuple[FloatArray, BoolArray]:
    """Read times and events from any form of target.

    Parameters
    ----------
    y : structured array, data frame, mapping or tuple
        A structured array with one boolean and one numeric field, in either order and under any names, as
        scikit-survival makes it; a pandas or polars data frame, or a dict, with the columns ``time`` and ``event``; or
        ``(time, event)``.
    name : str
        What to call it in an error.
    X : optional
        The features of the rows.
    beside : mapping, optional
        What else is known of the rows, by the names of the arguments. Rows are taken by position; where `X`, time,
        event or these are pandas objects whose indexes say otherwise, that is an error.

    Returns
    -------
    time : float64 array of shape (n,)
    event : bool array of shape (n,)

    Examples
    --------
    >>> time_and_event({"time": [1.0, 2.0], "event": [True, False]})
    (array([1., 2.]), array([ True, False]))
    """
    time, event = _columns(y, name)
    names = f"{name}['time']", f"{name}['event']"
    check_rows({"X": X, names[0]: time, names[1]: event, **(beside or {})})
    found = as_outcome(time, event, names=names)
    return found.time.astype(np.float64, copy=False), found.event


def _columns(y: Any, name: str) -> tuple[Any, Any]:
    names = getattr(getattr(y, "dtype", None), "names", None)
    if names is not None:
        return _fields(y, names, name)
    if isinstance(y, tuple) and len(y) == 2:
        return y
    if type(y).__name__ == "LazyFrame":
        fail(name, "data that is in memory: .collect()", "a LazyFrame")
    columns = y if isinstance(y, dict) else getattr(y, "columns", None)
    if columns is None:
        fail(name, "Surv(time=..., event=...) or a data frame with columns time and event", _describe(y))
    missing = [column for column in ("time", "event") if column not in list(columns)]
    if missing:
        fail(name, "columns time and event", f"columns {', '.join(map(str, columns))}")
    return y["time"], y["event"]


def _fields(y: npt.NDArray[np.void], names: tuple[str, ...], name: str) -> tuple[Any, Any]:
    """Boolean field and numeric field of a structured array, whatever they are called."""
    if y.ndim != 1:
        fail(name, "a one-dimensional structured array", f"shape {y.shape}")
    flags = [field for field in names if y.dtype[field].kind == "b"]
    numbers = [field for field in names if y.dtype[field].kind in "iuf"]
    if len(names) != 2 or len(flags) != 1 or len(numbers) != 1:
        fields = ", ".join(f"{field} ({y.dtype[field]})" for field in names)
        fail(name, "one boolean field (the event) and one numeric field (the time)", fields)
    return y[numbers[0]], y[flags[0]]


def _describe(y: Any) -> str:
    shape = getattr(y, "shape", None)
    return type(y).__name__ if shape is None else f"{type(y).__name__} of shape {tuple(shape)}"
