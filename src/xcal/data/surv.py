"""The target of a survival model: a time and an event for each row, in one array that travels through scikit-learn.

The form is that of scikit-survival, a structured array with a boolean and a numeric field, so that either library takes
the other's targets.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from xcal._checks import (
    BoolArray,
    FloatArray,
    IntArray,
    as_cause_names,
    as_causes,
    as_event,
    as_floats,
    as_labels,
    as_time,
    check_rows,
    check_same_length,
    counts_rows,
    fail,
    first_row,
    index_of,
)
from xcal._kaplan_meier import sortable_time, stable_sort

SurvivalTarget = npt.NDArray[np.void]
_TYPES = {
    "event": np.bool_,
    "time": np.float64,
    "cause": np.int64,
    "entry": np.float64,
    "lower": np.float64,
    "id": np.int64,
}

# Significant digits of a difference of two times: beyond them a float holds rounding.
_DIGITS = 13


def Surv(
    *,
    time: Any = None,
    event: Any = None,
    cause: Any = None,
    causes: Sequence[str] | None = None,
    entry: Any = None,
    lower: Any = None,
    upper: Any = None,
    id: Any = None,
) -> SurvivalTarget:
    """Put times and events together, by name, as the `y` of an estimator.

    The rows of the result are those of `X` by position. Made of pandas columns, it remembers their index, so that rows
    in another order than those of `X` are refused.

    Parameters
    ----------
    time : array-like of shape (n,)
        Time of the event or of censoring: finite and not negative.
    event : array-like of shape (n,), optional
        True or 1 where the event happened, False or 0 where the row is censored.
    cause : array-like of shape (n,), optional
        In place of `event`, where an event has one of several causes and the first one ends the row: 0 for a censored
        row, 1, 2, ... for the cause of its event, or the name of its cause.
    causes : sequence of str, optional
        Names of causes 1, 2, ...; also tells how many there are, where some may have no event.
    entry : array-like of shape (n,), optional
        Time from which a row was under observation, before its `time`: a patient who died before entry would not be
        among the rows. 0 for rows observed from the start.
    lower, upper : array-like of shape (n,), optional
        In place of `time` and `event`, where the event is only known to lie in (lower, upper]: after one visit and by
        the next. Equal ends are a time known exactly; an infinite or missing `upper` is a row censored at `lower`.
    id : array-like of shape (n,), optional
        Where covariates change: the label of the person that a row is of, who has one row for each stretch of time
        from `entry` to `time` on which the covariates keep their values. Stretches of one person do not overlap, and
        only the last may end with the event. Between two of them there may be a gap, in which nobody looked.

    Returns
    -------
    structured array of shape (n,) with fields ``event`` and ``time``, and ``cause``, ``entry``, ``lower``, ``id`` where
    given

    Examples
    --------
    >>> y = Surv(time=[5.0, 3.0], event=[1, 0])
    >>> y["time"], y["event"]
    (array([5., 3.]), array([ True, False]))
    >>> y = Surv(time=[5, 3, 4], cause=["death", 0, "recurrence"], causes=("recurrence", "death"))
    >>> y["cause"], y["event"]
    (array([2, 0, 1]), array([ True, False,  True]))
    >>> y = Surv(lower=[2, 3, 4], upper=[5, 3, np.inf])
    >>> y["lower"], y["time"], y["event"]
    (array([2., 3., 4.]), array([5., 3., 4.]), array([ True,  True, False]))
    >>> y = Surv(entry=[0, 2, 0], time=[2, 5, 4], event=[0, 1, 0], id=["ann", "ann", "bob"])
    >>> y["id"]
    array([0, 0, 1])
    """
    given = {"time": time, "event": event, "cause": cause, "entry": entry, "lower": lower, "upper": upper, "id": id}
    target = outcome_given(given, causes).target()
    indexes = [index for values in given.values() if (index := index_of(values)) is not None]
    telling = [index for index in indexes if not counts_rows(index)] or indexes
    return _Indexed.of(target, telling[0]) if telling else target


class _Indexed(np.ndarray[Any, np.dtype[np.void]]):
    """A target whose rows have labels, those of the pandas objects that it was made of.

    They say whether its rows are those of `X`. Rows that are picked keep theirs; anything else made of it has none.
    """

    index: Any = None

    @classmethod
    def of(cls, target: SurvivalTarget, index: Any) -> "_Indexed":
        found = target.view(cls)
        found.index = index
        return found

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()  # files hold what every numpy can read

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:  # as scikit-learn picks rows
            key = key[0]
        if not isinstance(found, _Indexed):
            return found
        if self.index is None or isinstance(key, str | tuple) or found.ndim != 1 or found.dtype != self.dtype:
            return found.view(np.ndarray)
        return _Indexed.of(found, self.index[key])


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was observed of some rows, checked once and passed whole."""

    time: FloatArray  # (n,): observed times, finite and not negative
    event: BoolArray  # (n,): True where the event happened; of several causes, where any of them did
    # (n,): 0 for a censored row, or the number of the cause of its event; None where events have no causes
    cause: IntArray | None = None
    causes: tuple[str, ...] = ()  # names of the causes; "1", "2", ... where they have none. Empty without `cause`.
    # (n,): time from which each row was under observation, below its `time`; None where all were from 0 on
    entry: FloatArray | None = None
    # (n,): of interval-censored rows: an event lies in (lower, time], or at `time` where the two are equal. None where
    # all times of events are known.
    lower: FloatArray | None = None
    # (n,): where `event` is that of one cause of several: True where an event of another cause came first, after which
    # this one cannot come. None where nothing competes.
    competing: BoolArray | None = None
    # (n,): number of the person that a row is of, where some have several rows: one for each stretch of time, from
    # `entry` to `time`, on which their covariates keep their values. None where every row is a person.
    id: IntArray | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.time.size

    @property
    def ended(self) -> BoolArray:
        """Rows that an event ended, this one or a competing one; the others are censored."""
        return self.event if self.competing is None else self.event | self.competing

    @property
    def last(self) -> float:
        """Largest time."""
        return float(self.time.max())

    def take(self, rows: Any) -> "Outcome":
        """Keep the chosen rows, by a mask, a slice or their places."""
        beside = (self.cause, self.entry, self.lower, self.competing, self.id)
        cause, entry, lower, competing, person = (None if one is None else one[rows] for one in beside)
        return Outcome(self.time[rows], self.event[rows], cause, self.causes, entry, lower, competing, person)

    def joined(self, other: "Outcome") -> "Outcome":
        """Put other rows of the same kinds after these; what one part need not say is written out."""

        def both(name: str, otherwise: Callable[["Outcome"], Any]) -> Any:
            given = [(one, getattr(one, name)) for one in (self, other)]
            if all(values is None for _, values in given):
                return None
            return np.concatenate([otherwise(one) if values is None else values for one, values in given])

        return Outcome(
            np.concatenate([self.time, other.time]),
            np.concatenate([self.event, other.event]),
            both("cause", lambda one: one.event.astype(np.int64)),
            self.causes,
            both("entry", lambda one: np.zeros(one.n)),
            both("lower", lambda one: one.time),
            both("competing", lambda one: np.zeros(one.n, dtype=np.bool_)),
            both("id", lambda one: np.arange(one.n)),
        )

    def entered(self, entry: Any, name: str = "entry", of_time: str = "time") -> "Outcome":
        """Add checked times of entry; 0 in every row says nothing, as does None."""
        if entry is None:
            return self
        check_rows({of_time: self.time, name: entry})
        found = as_time(entry, self.n, reference=of_time, name=name)
        late = found >= self.time
        if late.any():
            row = first_row(late)
            fail(name, f"an entry before the time of the row, {self.time[row]:g}", found[row], row)
        if self.lower is not None and (inside := found > self.lower).any():
            row = first_row(inside)
            fail(name, f"an entry by the lower end of the row, {self.lower[row]:g}", found[row], row)
        return replace(self, entry=found) if found.any() else self

    def of_people(self, person: Any, name: Callable[[str], str] = str) -> "Outcome":
        """Add the label of each row's person, checked; labels that are all different say nothing, as does None."""
        if person is None:
            return self
        kept, codes = np.unique(as_labels(name("id"), person, self.n, reference=name("time")), return_inverse=True)
        if kept.size == self.n:
            return self
        found = replace(self, id=codes.astype(np.int64))
        before, after = found.next_rows()
        start = self.starts()
        overlap = start[after] < self.time[before]
        if overlap.any():
            one, other = (int(rows[first_row(overlap)]) for rows in (before, after))
            expected = (
                f"rows of one id that do not overlap: {self.time[one]:g} or later, where row {one} of its id ends"
            )
            fail(name("entry"), expected, f"{start[other]:g}", other)
        if (ended := self.event[before]).any():
            one, other = (int(rows[first_row(ended)]) for rows in (before, after))
            expected = "an event in the last row of an id alone"
            fail(name("event"), expected, f"one before row {other} of the same id", one)
        return found

    def limited(
        self, name: str, *, entry: bool = False, intervals: bool = False, people: bool = False, causes: bool = False
    ) -> "Outcome":
        """Return the same, or refuse what its reader does not know.

        Without their entry, at the ends of their intervals, each for itself, or with all causes as one, rows say
        something else.
        """
        refused = {
            "one row for each person, which is all that is known here": (people, self.id, "several rows of one id"),
            "rows under observation from the start, which is all that is known here": (
                entry,
                self.entry,
                "times of entry",
            ),
            "times of events that are known, which is all that is known here": (intervals, self.lower, "intervals"),
        }
        for expected, (known, values, got) in refused.items():
            if values is not None and not known:
                fail(name, expected, got)
        if len(self.causes) > 1 and not causes:
            expected = "events of one kind, which is all that is known here (event=cause > 0 for any of them)"
            fail(name, expected, f"the causes {', '.join(map(repr, self.causes))}")
        return self

    def next_rows(self) -> tuple[IntArray, IntArray]:
        """Return rows of people that are not their last ones, and the next row of each; both empty without `id`."""
        if self.id is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        order = np.lexsort((self.time, self.id))
        same = np.flatnonzero(self.id[order][1:] == self.id[order][:-1])
        return order[same], order[same + 1]

    def starts(self) -> FloatArray:
        """Return the time from which each row was under observation, 0 where none is known."""
        return np.zeros(self.n) if self.entry is None else self.entry

    def of_cause(self, k: int) -> "Outcome":
        """Keep the events of one cause as events, as the others were censored when theirs came."""
        assert self.cause is not None
        return replace(self, event=self.cause == k, cause=None, causes=())

    def among(self, k: int) -> "Outcome":
        """Keep the events of one cause as events, with those of the others as competing ones."""
        assert self.cause is not None
        of, others = self.cause == k, (self.cause > 0) & (self.cause != k)
        return replace(self, event=of, cause=None, causes=(), competing=others if len(self.causes) > 1 else None)

    def after(self, landmark: float, kept: BoolArray) -> "Outcome":
        """Return what happened from a time on to rows that all lasted longer, with times that count from there.

        Rows that entered later are among them, from their entry on.
        """
        entry = None if self.entry is None else np.maximum(clock(self.entry[kept], landmark), 0.0)
        found = replace(self.take(kept), time=clock(self.time[kept], landmark), entry=entry)
        return found if entry is None or entry.any() else replace(found, entry=None)

    def target(self) -> SurvivalTarget:
        """Return the outcome as `Surv` makes it."""
        given: dict[str, Any] = {"event": self.event, "time": self.time}
        beside = {name: getattr(self, name) for name in ("cause", "entry", "lower", "id")}
        given |= {name: values for name, values in beside.items() if values is not None}
        fields: dict[str, Any] = {"names": list(given), "formats": [_TYPES[name] for name in given]}
        if self.cause is not None:
            # The names of the causes are the title of their field, which slices, copies and pickles keep.
            fields["titles"] = [self.causes if name == "cause" else None for name in given]
        y: SurvivalTarget = np.empty(self.n, dtype=np.dtype(cast(Any, fields)))
        for name, values in given.items():
            y[name] = values
        return y

    def happened_by(self, t: float) -> BoolArray:
        """Return the rows whose event came by a time."""
        return np.asarray(self.event & (self.time <= t))

    def order(self) -> npt.NDArray[np.int64]:
        """Return the order of the rows in time, events before censored rows of the same time."""
        _, order = stable_sort(sortable_time(self.time, self.ended))
        return np.asarray(order)


def clock(t: FloatArray, start: float) -> FloatArray:
    """Return times counted from another one, without the last digits, which the difference does not have.

    So 0.4 is 0.1 after 0.3, as a horizon is that somebody asks for.

    Examples
    --------
    >>> clock(np.array([0.4, 1.0]), 0.3)
    array([0.1, 0.7])
    """
    if start == 0 or t.size == 0:
        return t
    digits = _DIGITS - int(np.floor(np.log10(max(float(t.max()), start))))
    return np.asarray(np.round(t - start, digits))


def as_outcome(
    time: Any,
    event: Any,
    *,
    names: tuple[str, str] = ("time", "event"),
    beside: Mapping[str, Any] | None = None,
    competing: Any = None,
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
    competing : array-like, shape (n,), optional
        True where an event of another cause came first.
    """
    check_rows({names[0]: time, names[1]: event, "competing": competing, **(beside or {})})
    times = as_time(time, name=names[0])
    found = Outcome(times, as_event(event, times.size, reference=names[0], name=names[1]))
    if competing is None:
        return found
    others = as_event(competing, times.size, reference=names[0], name="competing")
    both = others & found.event
    if both.any():
        fail("competing", f"False where {names[1]} is True", "True", first_row(both))
    return replace(found, competing=others)


def outcome_by_cause(
    time: Any, cause: Any, causes: Sequence[str] | None = None, *, names: tuple[str, str] = ("time", "cause")
) -> Outcome:
    """Check observed times and causes of the same rows; see `Surv`."""
    check_rows({names[0]: time, names[1]: cause})
    labels = () if causes is None else as_cause_names(causes)
    times = as_time(time, name=names[0])
    found = as_causes(cause, times.size, names=labels, reference=names[0], name=names[1])
    return Outcome(times, found > 0, found, labels or tuple(str(k) for k in range(1, int(found.max(initial=0)) + 1)))


def as_intervals(lower: Any, upper: Any, *, names: tuple[str, str] = ("lower", "upper")) -> Outcome:
    """Check the two ends of the interval in which each event lies; see `Surv`."""
    check_rows({names[0]: lower, names[1]: upper})
    low = as_time(lower, name=names[0]).astype(np.float64)
    high = as_floats(names[1], upper).astype(np.float64)
    check_same_length(names[1], high, names[0], low.size)
    open_end = np.isnan(high) | np.isposinf(high)
    bad = ~open_end & ~(high >= low)
    if bad.any():
        row = first_row(bad)
        fail(names[1], f"the end of an interval that starts at {low[row]:g}, infinite if it is open", high[row], row)
    return Outcome(np.where(open_end, low, high), ~open_end, lower=low)


def outcome_given(
    given: Mapping[str, Any],
    causes: Sequence[str] | None = None,
    *,
    name: Callable[[str], str] = str,
    beside: Mapping[str, Any] | None = None,
) -> Outcome:
    """Check all that is known of some rows together, under the names of the arguments of `Surv`; None is not given.

    `name` says what to call each of them in an error. `beside` are other things known of the same rows.
    """
    known = {key: values for key, values in given.items() if values is not None}
    check_rows({**(beside or {}), **{name(key): values for key, values in known.items()}})
    if "lower" in known or "upper" in known:
        extra = [key for key in ("time", "event", "cause", "causes", "id") if key in known]
        extra += ["causes"] if causes is not None else []
        if extra or not known.keys() >= {"lower", "upper"}:
            got = f"{extra[0]} too" if extra else "one of them"
            ends = f"{name('lower')}, {name('upper')}"
            fail(ends, "both ends of every interval, and nothing beside them but entry", got)
        found = as_intervals(known["lower"], known["upper"], names=(name("lower"), name("upper")))
        return found.entered(known.get("entry"), name("entry"), name("upper"))
    time, event, cause = (known.get(key) for key in ("time", "event", "cause"))
    if time is None:
        fail(name("time"), "the time of the event or of censoring of every row", "None")
    if (event is None) == (cause is None):
        fail(f"{name('event')}, {name('cause')}", "one of them", "neither" if event is None else "both")
    if cause is None and causes is not None:
        fail("causes", "None without cause=", repr(causes))
    if cause is None:
        found = as_outcome(time, event, names=(name("time"), name("event")))
    else:
        found = outcome_by_cause(time, cause, causes, names=(name("time"), name("cause")))
    found = found.entered(known.get("entry"), name("entry"), name("time"))
    if cause is None:
        return found.of_people(known.get("id"), name)
    if "id" in known and np.unique(as_labels(name("id"), known["id"], found.n, reference=name("time"))).size < found.n:
        fail(name("id"), f"None beside {name('cause')}", "several rows of one id")
    return found


def read_outcome(
    y: Any,
    *,
    name: str = "y",
    X: Any = None,
    beside: Mapping[str, Any] | None = None,
    entry: bool = False,
    intervals: bool = False,
    people: bool = False,
    causes: bool = True,
) -> Outcome:
    """Read times, events, causes and what else is known of the rows from any form of target.

    Parameters
    ----------
    y : structured array, data frame, mapping or tuple
        What `Surv` returns; a structured array with one boolean and one numeric field, in either order and under any
        names, as scikit-survival makes it; a pandas or polars data frame, or a dict, with the columns ``time`` and
        ``event`` or ``cause``, or ``lower`` and ``upper``, and with ``entry`` and ``id`` where these are known; or
        ``(time, event)``.
    name : str
        What to call it in an error.
    X : optional
        The features of the rows.
    beside : mapping, optional
        What else is known of the rows, by the names of the arguments. Rows are taken by position; where `X`, time,
        event or these are pandas objects whose indexes say otherwise, that is an error.
    entry, intervals, people, causes : bool
        Whether the caller knows what to do with rows of delayed entry, with interval-censored ones, with several rows
        of one person, and with several causes. Where it does not, they are refused (`Outcome.limited`).

    Returns
    -------
    Outcome
        Times in float64.
    """
    beside = {"X": X, **(beside or {})}
    fields = getattr(getattr(y, "dtype", None), "fields", None) or {}
    check_rows({**beside, **({name: y} if fields else {})})
    there = list(fields or (y if isinstance(y, dict) else getattr(y, "columns", ())))
    labels = happened = None
    if not {"cause", "entry", "lower", "upper", "id"} & set(there):
        given = dict(zip(("time", "event"), _columns(y, name), strict=True))
    else:
        given = {key: y[key] for key in (*_TYPES, "upper") if key in there}
        if "time" not in given and not {"lower", "upper"} & given.keys():
            fail(name, "a column time", f"columns {', '.join(map(str, there))}")
        if fields and "lower" in given:
            # In an array of `Surv` the upper end is the time, infinite where the event was not seen.
            given["upper"] = np.where(given.pop("event"), given.pop("time"), np.inf)
        elif "cause" in given:
            labels = fields["cause"][2] if len(fields.get("cause", ())) == 3 else None
            happened = given.pop("event", None)
    found = outcome_given(given, labels, name=lambda key: f"{name}['{key}']", beside=beside)
    if happened is not None:
        _check_any_cause(found, happened, name)
    found = found.limited(name, entry=entry, intervals=intervals, people=people, causes=causes)
    return replace(found, time=found.time.astype(np.float64, copy=False))


def _check_any_cause(found: Outcome, event: Any, name: str) -> None:
    """Check that events beside causes say the same."""
    told = as_event(event, found.n, reference=f"{name}['cause']", name=f"{name}['event']")
    if (differs := told != found.event).any():
        row = first_row(differs)
        fail(f"{name}['event']", f"{found.event[row]}, as {name}['cause'] says", told[row], row)


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
