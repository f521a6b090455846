"""What a column of a table holds, and whether it tells the outcome: one rule each, for models, files and audits."""

import datetime
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray

ColumnKind = Literal["number", "flag", "duration", "date", "category"]
_OF_TYPE: dict[str, ColumnKind] = {
    **dict.fromkeys("iufc", "number"),
    "b": "flag",
    "m": "duration",
    "M": "date",
}


def column_kind(values: Any) -> ColumnKind:
    """Return what a column of pandas holds, by its type, and where that says nothing by its cells.

    A column of pandas' type "category" is one, whatever its labels are. What a flag or a duration is used as, the
    caller says: True is 1 for a model, and a label where subgroups are asked about.

    Examples
    --------
    >>> import pandas as pd
    >>> column_kind(pd.Series([1, None, 2.5], dtype=object)), column_kind(pd.Series(["a", "b"]))
    ('number', 'category')
    """
    if values.dtype.name == "category":
        return "category"
    if values.dtype.kind in _OF_TYPE:
        return _OF_TYPE[values.dtype.kind]
    cells = values.dropna()
    if all(isinstance(cell, Real | Decimal | np.number | np.bool_) for cell in cells):
        return "number"
    return "date" if all(isinstance(cell, datetime.date) for cell in cells) else "category"


def tells_event(values: npt.NDArray[Any], event: BoolArray, *, most: int) -> bool:
    """Whether rows of the same value all have the event, or none of them has; of at most so many different values."""
    distinct, place = np.unique(values, return_inverse=True)
    if distinct.size > most or event.all() or not event.any():
        return False
    share = np.bincount(place, weights=event) / np.bincount(place)
    return bool(np.isin(share, (0.0, 1.0)).all())


def follows_time(values: FloatArray, time: FloatArray, *, above: float | None) -> bool:
    """Whether values order the rows as their times do, upwards or downwards.

    Parameters
    ----------
    values, time : arrays of shape (n,)
    above : float or None
        Rank correlation above which they do. None: only if the values never go back as time goes on, so that a coarser
        time does too, and one row out of place is enough for a no.
    """
    if above is not None:
        return abs(rank_correlation(values, time)) > above
    upwards, downwards = (values[np.lexsort((sign * values, time))] for sign in (1, -1))
    return bool((np.diff(upwards) >= 0).all() or (np.diff(downwards) <= 0).all())


def rank_correlation(first: FloatArray, second: FloatArray) -> float:
    """Correlation of the ranks; 0 where one of the two is constant."""
    from scipy.stats import rankdata

    ranks = rankdata(first), rankdata(second)
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])
