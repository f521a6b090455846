"""The Kaplan-Meier curve of the events or of the censorings, shared by every metric of this package."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from xcal._checks import BoolArray, FloatArray, fail
from xcal.metrics.inputs import Vector, as_choice, as_outcome
from xcal.metrics.ordering import is_event_key, sortable_time, stable_sort, starts_run

Of = Literal["event", "censoring"]


@dataclass(frozen=True, eq=False)
class KaplanMeier:
    """A Kaplan-Meier curve: right-continuous, constant between the observed times.

    Attributes
    ----------
    times : array, shape (m,)
        The distinct observed times, ascending.
    survival : array, shape (m,)
        Probability of lasting beyond each of them.
    at_risk, counts : arrays, shape (m,)
        Rows at risk at each time, and how many of them had the event (`of` "event") or were censored ("censoring").
    of : str
        Whether the curve is that of the event times or that of the censoring times.
    """

    times: Vector = field(repr=False)
    survival: Vector = field(repr=False)
    at_risk: Vector = field(repr=False)
    counts: Vector = field(repr=False)
    of: Of

    def at(self, t: FloatArray | float) -> Vector:
        """Probability of lasting beyond t; beyond the last observed time, the last value."""
        return self._step(t, "right")

    def before(self, t: FloatArray | float) -> Vector:
        """Probability of lasting until t or longer, the limit from the left."""
        return self._step(t, "left")

    def variance(self, t: FloatArray | float) -> Vector:
        """Greenwood's variance of the curve at t; zero where the curve is zero."""
        left = self.at_risk - self.counts
        terms = np.divide(self.counts, self.at_risk * left, out=np.zeros_like(left), where=left > 0)
        total = np.concatenate([[0.0], np.cumsum(terms)])
        index = np.searchsorted(self.times, np.asarray(t, dtype=np.float64), side="right")
        return np.asarray(self.at(t) ** 2 * total[index])

    def _step(self, t: Any, side: Literal["left", "right"]) -> Vector:
        passed = np.searchsorted(self.times, np.asarray(t, dtype=np.float64), side=side)
        return np.asarray(np.where(passed > 0, self.survival[passed - 1], 1.0))


def kaplan_meier(*, time: Any, event: Any, of: Of = "event") -> KaplanMeier:
    """Kaplan-Meier estimate from right-censored data.

    Parameters
    ----------
    time : array-like, shape (n,)
        Observed times, finite and not negative.
    event : array-like, shape (n,)
        True where the event happened, False where the row was censored.
    of : {"event", "censoring"}
        Estimate P(T > t), the survival curve, or G(t) = P(C > t), the curve that inverse probability of censoring
        weights need. At a time with both, the events count as coming first: the rows with an event at t are no
        longer at risk of being censored at t.

    Returns
    -------
    KaplanMeier
        With only censored rows the survival curve is 1 everywhere, with only events the censoring curve is.

    Examples
    --------
    >>> curve = kaplan_meier(time=[1, 2, 2, 3], event=[1, 1, 0, 1])
    >>> curve.at([0.5, 1, 2, 3])
    array([1.  , 0.75, 0.5 , 0.  ])
    >>> kaplan_meier(time=[1, 2, 2, 3], event=[1, 1, 0, 1], of="censoring").at([2, 3])
    array([0.5, 0.5])
    """
    time, event = as_outcome(time, event)
    return fit_kaplan_meier(time, event, as_choice("of", of, ("event", "censoring")))


def fit_kaplan_meier(time: FloatArray, event: BoolArray, of: Of = "event") -> KaplanMeier:
    """Kaplan-Meier curve of checked data."""
    keys, order = stable_sort(sortable_time(time, event))
    sorted_time = time[order].astype(np.float64, copy=False)
    starts = np.flatnonzero(starts_run(sorted_time))
    at_risk = (time.size - starts).astype(np.float64)
    events = np.add.reduceat(is_event_key(keys).astype(np.float64), starts)
    if of == "event":
        counts = events
    else:
        counts = np.diff(np.append(starts, time.size)) - events
        at_risk -= events
    # A time at which all rows at risk had an event leaves nobody at risk of being censored, and censors nobody.
    lost = np.divide(counts, at_risk, out=np.zeros_like(counts), where=counts > 0)
    survival = np.cumprod(1.0 - lost, dtype=np.float64)
    return KaplanMeier(sorted_time[starts], survival, at_risk, counts, of)


def as_censoring(censoring: KaplanMeier | None, time: FloatArray, event: BoolArray) -> KaplanMeier:
    """Use the given censoring curve, or estimate one from the data at hand."""
    if censoring is None:
        return fit_kaplan_meier(time, event, "censoring")
    if not isinstance(censoring, KaplanMeier) or censoring.of != "censoring":
        got = f"a curve of {censoring.of!r}" if isinstance(censoring, KaplanMeier) else type(censoring).__name__
        fail("censoring", 'None or kaplan_meier(time=..., event=..., of="censoring")', got)
    return censoring
