"""CSD (Qi, Yu and Greiner, ICML 2024): every predicted quantile moved in time by what the held-out rows ask for."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import MANY, BoolArray, as_count, as_event, as_numpy, as_time, check_rows, fail
from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier
from xcal.recalibration.base import Floats

DEFAULT_PIECES = 10
# Event times that stand for a censored row, at evenly spaced levels of what Kaplan-Meier says of its future.
SAMPLES = 100
# Sums of weights differ from a level by rounding where they meet it exactly.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class ConformalQuantiles:
    """Shifts in time, one for each level: the new quantile at a level is the model's own plus the shift.

    The conformity score of a row at a level p is the predicted quantile less the row's time, and the shift is that
    which leaves a share p of the held-out rows below. A censored row is replaced by event times from the Kaplan-Meier
    curve of the held-out rows, given that the row is event-free until its censoring; here at `SAMPLES` evenly spaced
    levels of that curve, not drawn at random. Where the curve ends above 0, the rest lies evenly between its end and
    the time at which a line from (0, 1) through its end reaches 0. The new quantiles of one row are put into increasing
    order. Nobody has the event before time 0: F' is a straight line from time 0 to a row's first new quantile after it,
    and a row whose quantiles would all be moved to before 0 has its last one where the model's first one was.

    A shift is the same for every row, in units of time: unlike a map of F, it changes the order of risks, and moves a
    short curve as far as a long one.

    Attributes
    ----------
    levels : ndarray of shape (k,)
        Increasing, between 0 and 1.
    shifts : ndarray of shape (k,)
        In the unit of the times.
    n, n_events : int
        Rows and events that the shifts were fitted to.

    Examples
    --------
    >>> time = np.arange(1.0, 100.0)
    >>> csd = ConformalQuantiles.fit(np.zeros((99, 9)), time, np.ones(99))
    >>> csd.shifts
    array([10., 20., 30., 40., 50., 60., 70., 80., 90.])
    """

    levels: Floats
    shifts: Floats
    n: int
    n_events: int

    def __post_init__(self) -> None:
        levels, shifts = np.asarray(self.levels), np.asarray(self.shifts)
        inside = levels.ndim == 1 and levels.size > 0 and levels[0] > 0 and levels[-1] < 1
        if not inside or (np.diff(levels) <= 0).any():
            fail("levels", "increasing numbers between 0 and 1", f"an array of shape {levels.shape} that is not")
        if shifts.shape != levels.shape or not np.isfinite(shifts).all():
            fail("shifts", f"{levels.size} finite numbers, as many as levels", f"shape {shifts.shape}, or others")

    @classmethod
    def fit(cls, quantiles: Any, time: Any, event: Any, *, n_samples: int = SAMPLES) -> Self:
        """Fit the shifts to rows that did not train the model.

        Parameters
        ----------
        quantiles : array-like of shape (n, k)
            The model's quantiles of each row at k evenly spaced levels, 1 / (k + 1) to k / (k + 1); see `even_levels`.
        time, event : array-like of shape (n,)
            Outcomes.
        n_samples : int
            Event times that stand for one censored row.
        """
        check_rows({"quantiles": quantiles, "time": time, "event": event})
        table = as_numpy("quantiles", quantiles).astype(np.float64)
        if table.ndim != 2 or table.size == 0:
            fail("quantiles", "an array of shape (rows, levels)", f"shape {table.shape}")
        if not np.isfinite(table).all():
            row = int(np.argmax(~np.isfinite(table).all(axis=1)))
            fail("quantiles", "finite times", table[row][~np.isfinite(table[row])][0], row)
        seen = as_time(time, table.shape[0], reference="quantiles").astype(np.float64)
        happened = as_event(event, seen.size, reference="quantiles")
        if not happened.any():
            fail("event", "at least one event", "none: every row is censored")
        levels = even_levels(table.shape[1] + 1)
        times, rows, weights = _completed(seen, happened, as_count("n_samples", n_samples, at_least=1, at_most=MANY))
        shifts = [_shift(table[rows, k] - times, weights, p, seen.size) for k, p in enumerate(levels)]
        return cls(levels, np.array(shifts), seen.size, int(happened.sum()))

    def quantiles(self, own: Floats) -> Floats:
        """Return the new quantiles at `levels`, ``(n, k)``: the model's own moved, increasing, after time 0."""
        moved = np.sort(own + self.shifts, axis=1)
        first = np.where(own > 0, own, np.inf).min(axis=1)
        # A model that has everything happen at time 0 stays there.
        first = np.where(np.isfinite(first), first, 0.0)
        moved[:, -1] = np.where(moved[:, -1] > 0, moved[:, -1], first)
        rows, after = np.arange(len(moved)), np.argmax(moved > 0, axis=1)
        line = (moved[rows, after] / self.levels[after])[:, None] * self.levels
        return np.where(moved > 0, moved, np.maximum(line, 0.0))

    def content(self) -> dict[str, Any]:
        """Everything that is kept in a file, as numbers and lists."""
        lists = {"levels": self.levels.tolist(), "shifts": self.shifts.tolist()}
        return lists | {"n": self.n, "n_events": self.n_events}

    @classmethod
    def of_content(cls, content: dict[str, Any]) -> Self:
        """Make it again from what `content` gave; anything else is refused."""
        if not isinstance(content, dict) or set(content) != {"levels", "shifts", "n", "n_events"}:
            fail("map", "levels, shifts, n and n_events", type(content).__name__)
        lists = [np.asarray(content[name], dtype=np.float64) for name in ("levels", "shifts")]
        counts = [as_count(name, content[name], at_least=1) for name in ("n", "n_events")]
        return cls(lists[0], lists[1], counts[0], counts[1])

    def __repr__(self) -> str:
        levels = f"{self.levels.size} levels"
        return f"{type(self).__name__}({levels}, from {self.n} rows with {self.n_events} events)"


def even_levels(pieces: int) -> Floats:
    """Levels between `pieces` pieces of equal mass: the deciles for 10."""
    return np.arange(1, pieces) / pieces


def _shift(scores: Floats, weights: Floats, level: float, n: int) -> float:
    """Shift that leaves a share `level` below: less the smallest score that more than 1 - level of the rows reach."""
    order = np.argsort(scores)
    passed = np.cumsum(weights[order])
    place = np.searchsorted(passed, (1 - level) * n * (1 + ROUNDING), side="right")
    return float(-scores[order[min(int(place), scores.size - 1)]])


def _completed(time: Floats, event: BoolArray, samples: int) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """Event times of all rows, with the row and the weight of each: one for an event, many for a censored row."""
    events, censored = np.flatnonzero(event), np.flatnonzero(~event)
    futures = _futures(fit_kaplan_meier(time, event), time[censored], samples)
    times = np.concatenate([time[events], futures.ravel()])
    row = np.concatenate([events, np.repeat(censored, samples)])
    weights = np.concatenate([np.ones(events.size), np.full(futures.size, 1 / samples)])
    return times, row, weights


def _futures(curve: KaplanMeier, time: Floats, samples: int) -> Floats:
    """Event times after each censoring, ``(rows, samples)``, at evenly spaced levels of the conditional curve."""
    now = curve.at(time)[:, None]
    left = now * (1 - (np.arange(samples) + 0.5) / samples)
    # First time at which the curve is at or below what is left; the curve falls.
    place = np.searchsorted(-curve.survival, -left * (1 + ROUNDING), side="left")
    last, end = float(curve.survival[-1]), float(curve.times[-1])
    found = curve.times[np.minimum(place, curve.times.size - 1)]
    if last > 0:
        zero = end / (1 - last)
        beyond = end + (zero - end) * (last - left) / last
        found = np.where(left < last, beyond, found)
    # A curve that is 0 at the censoring says nothing of what comes: the row stays where it is.
    return np.asarray(np.where(now > 0, np.maximum(found, time[:, None]), time[:, None]))
