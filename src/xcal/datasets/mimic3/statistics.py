"""Six statistics over seven sub-periods, for every instance at once.

An instance sees the values of a stay until its hour. Two instances between which a variable was not measured see the
same values, so the statistics are computed once for every number of values seen and looked up by the instances.

Times are whole microseconds and borders are compared as integers: whether a value on the border of a sub-period counts
does not depend on rounding.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcal.datasets.mimic3.timeseries import SLACK
from xcal.datasets.mimic3.variables import FUNCTIONS, SUB_PERIODS

MICROSECONDS = 3_600_000_000  # of one hour
_SLACK = round(SLACK * MICROSECONDS)
# Values that are looked at together; bounds the memory, some 40 bytes for each.
_TOGETHER = 1 << 21
N_STATISTICS = len(SUB_PERIODS) * len(FUNCTIONS)

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Lookup:
    """Statistics of one variable: `table` has a row for each thing that can be seen, `row` says which one each sees.

    The first row of the table is that of an instance that sees no value: NaN throughout.
    """

    table: npt.NDArray[np.float32]
    row: npt.NDArray[np.int32]


def statistics_of(
    stay: Integers, time: Integers, value: Floats, instance_stay: Integers, instance_time: Integers
) -> Lookup:
    """Statistics of one variable.

    Parameters
    ----------
    stay, time, value : (n,)
        Measured values, sorted by stay and time. Stays are numbered from 0; times are microseconds since their start.
    instance_stay, instance_time : (m,)
        Stay and time of each instance, which sees values until then (the slack included).

    Returns
    -------
    Lookup
        Statistics in the order sub-period, function; `row` has one entry per instance.
    """
    if not len(time):
        return Lookup(np.full((1, N_STATISTICS), np.nan, np.float32), np.zeros(len(instance_stay), np.int32))
    clock = _Clock(stay, time, instance_time)
    seen_until = clock.after(instance_stay, instance_time + _SLACK)
    first = np.searchsorted(stay, instance_stay)
    nothing = seen_until <= first
    ends, row = np.unique(np.where(nothing, 0, seen_until), return_inverse=True)
    # The end 0 stands for nothing; it must be there, so that the first row of the table is that one.
    if ends[0] != 0:
        ends, row = np.concatenate([[0], ends]), row + 1
    begins = np.searchsorted(stay, stay[ends[1:] - 1])
    table = np.full((len(ends), N_STATISTICS), np.nan, np.float32)
    start, stop = _sub_periods(clock, stay, time, begins, ends[1:])
    table[1:] = _moments(value, start.ravel(), stop.ravel()).reshape(len(ends) - 1, N_STATISTICS)
    return Lookup(table, row.astype(np.int32))


class _Clock:
    """One increasing axis for the values of all stays, so that one search finds places in all of them."""

    def __init__(self, stay: Integers, time: Integers, other: Integers) -> None:
        self._origin = min(int(time.min()), int(other.min(initial=0))) - 2 * _SLACK
        self._span = max(int(time.max()), int(other.max(initial=0))) + 2 * _SLACK - self._origin
        self._axis = stay * self._span + (time - self._origin)

    def after(self, stay: Integers, time: Integers) -> Integers:
        """Place after the last value of the stay that is not later than `time`."""
        return np.searchsorted(self._axis, stay * self._span + (time - self._origin), side="right")


def _sub_periods(
    clock: _Clock, stay: Integers, time: Integers, begin: Integers, end: Integers
) -> tuple[Integers, Integers]:
    """First and behind-last place of the values in each sub-period, shape (n, 7)."""
    numbers = stay[begin]
    first, last = time[begin], time[end - 1]
    span = last - first
    start, stop = [], []
    for _, side, percent in SUB_PERIODS:
        # A value counts if L - slack < t < R + slack. All is multiplied by 100, so that it stays whole.
        if side == "first":
            border = 100 * first + span * percent + 100 * _SLACK
            start.append(begin)
            stop.append(np.minimum(clock.after(numbers, (border - 1) // 100), end))
        else:
            border = 100 * last - span * percent - 100 * _SLACK
            start.append(np.maximum(clock.after(numbers, border // 100), begin))
            stop.append(end)
    return np.stack(start, axis=1), np.stack(stop, axis=1)


def _moments(value: Floats, start: Integers, stop: Integers) -> npt.NDArray[np.float32]:
    """Compute minimum, maximum, mean, standard deviation, skewness and count of ``value[start:stop]``, row by row."""
    result = np.empty((len(start), len(FUNCTIONS)), np.float32)
    total = np.cumsum(stop - start)
    done = 0
    while done < len(start):
        before = total[done - 1] if done else 0
        until = max(int(np.searchsorted(total, before + _TOGETHER, side="right")), done + 1)
        result[done:until] = _moments_together(value, start[done:until], stop[done:until])
        done = until
    return result


def _moments_together(value: Floats, start: Integers, stop: Integers) -> Floats:
    count = stop - start
    places = np.cumsum(count) - count
    chosen = value[np.repeat(start - places, count) + np.arange(int(count.sum()))]
    lowest = np.minimum.reduceat(chosen, places)
    highest = np.maximum.reduceat(chosen, places)
    mean = np.add.reduceat(chosen, places) / count
    # Two passes: the deviations are taken from the mean of their own sub-period, so nothing cancels.
    chosen -= np.repeat(mean, count)
    power = chosen * chosen
    variance = np.add.reduceat(power, places) / count
    power *= chosen
    third = np.add.reduceat(power, places) / count
    constant = lowest == highest
    variance[constant] = 0.0
    # As scipy.stats.skew: undefined where the spread is no more than rounding.
    spread = variance > (np.finfo(np.float64).eps * mean) ** 2
    skew = np.full(len(count), np.nan)
    np.divide(third, variance**1.5, out=skew, where=spread)
    return np.stack([lowest, highest, np.where(constant, lowest, mean), np.sqrt(variance), skew, count], axis=1)
