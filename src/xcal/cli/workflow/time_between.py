"""Pairs of columns that tell the time together: the dates of entry and of the last visit, or two ages.

Neither column says anything alone, and their difference is the outcome: a network finds it, and looks perfect on rows
held out. The later one is what nobody knows at the start.
"""

from typing import Any, NamedTuple

import numpy as np

from xcal._checks import FloatArray
from xcal.cli.table_file import Floats

# Rows and columns of one kind that are looked at: a pair that tells the time does so in every row.
_ROWS, _MOST_COLUMNS = 2_000, 200
# Correlation of a difference with the time from which its ranks are looked at too.
_WORTH_A_LOOK = 0.9


class Pair(NamedTuple):
    """A later column, the earlier one that makes the time of it, and the rank correlation of difference and time."""

    later: str
    earlier: str
    correlation: float


def time_between(features: Any, time: Floats, *, at_least: float, fewest: int) -> list[Pair]:
    """Find the columns that follow the time, in ranks, after another column of their kind is subtracted.

    Parameters
    ----------
    features : DataFrame
        Floats, dates and texts; texts are not looked at.
    time : array of shape (n,)
    at_least : float
        Rank correlation from which a pair counts.
    fewest : int
        Rows in which both columns must be filled.

    Returns
    -------
    list of Pair
        One for each later column: its closest.
    """
    step = -(-len(time) // _ROWS)
    seen, at = features.iloc[::step], time[::step]
    found: list[Pair] = []
    for kind in "fM":
        names = [name for name in seen.columns if seen[name].dtype.kind == kind][:_MOST_COLUMNS]
        if len(names) > 1:
            numbers = np.stack([as_numbers(seen[name]) for name in names], axis=1)
            found += _of_one_kind(names, numbers, at, at_least, fewest)
    return found


def as_numbers(cells: Any) -> FloatArray:
    """Return numbers as they are, dates in days; NaN where a cell is empty."""
    if cells.dtype.kind != "M":
        return np.asarray(cells.to_numpy(dtype=np.float64))
    days = (cells - cells.min()).dt.total_seconds() / 86_400
    return np.asarray(days.to_numpy(dtype=np.float64))


def rank_correlation(first: FloatArray, second: FloatArray) -> float:
    """Correlation of the ranks; 0 where one of the two is constant."""
    from scipy.stats import rankdata

    ranks = rankdata(first), rankdata(second)
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _of_one_kind(names: list[str], numbers: FloatArray, time: Floats, at_least: float, fewest: int) -> list[Pair]:
    found = []
    for later, name in enumerate(names):
        between = numbers[:, later, None] - numbers
        closest = Pair(name, "", 0.0)
        for earlier in np.flatnonzero(_correlations(between, time, fewest) >= _WORTH_A_LOOK):
            both = np.isfinite(between[:, earlier])
            correlation = rank_correlation(between[both, earlier], time[both])
            if correlation > closest.correlation:
                closest = Pair(name, names[earlier], correlation)
        if closest.correlation >= at_least:
            found.append(closest)
    return found


def _correlations(columns: FloatArray, time: Floats, fewest: int) -> FloatArray:
    """Correlate every column with the time, each in the rows where it is filled; 0 where these are too few."""
    filled = np.isfinite(columns)
    rows = np.maximum(filled.sum(axis=0), 1)
    values, times = np.where(filled, columns, 0.0), np.where(filled, time[:, None], 0.0)
    values, times = (np.where(filled, part - part.sum(axis=0) / rows, 0.0) for part in (values, times))
    spread = np.sqrt((values**2).sum(axis=0) * (times**2).sum(axis=0))
    usable = (rows >= fewest) & (spread > 0)
    return np.where(usable, (values * times).sum(axis=0) / np.where(usable, spread, 1.0), 0.0)
