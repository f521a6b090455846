"""The covariates of an audit: which columns can be asked "for whom?", and why the others cannot."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from xcal._checks import BoolArray, FloatArray, fail
from xcal.calibration.covariates import Column, is_category
from xcal.validation.checks import MOST_GROUPS, Outcome, are_names, column_of

# The size of the test was measured up to so many columns.
MOST_COLUMNS = 50
# With fewer rows a subgroup of one half has hardly the 30 rows that the search asks for.
FEWEST_ROWS = 100
# Share of missing numbers up to which the median stands for them: right for every row means right for these rows, too.
# Of a column that is mostly empty, such as the day of a relapse, the gaps themselves are often known only later.
MOST_MISSING = 0.2
NO_COVARIATES = "no covariates were given: covariates= takes a table of them"

Reasons = tuple[tuple[str, str], ...]


def read_covariates(
    covariates: Any, X: Any, outcome: Outcome, risk: FloatArray | None = None
) -> tuple[tuple[Column, ...], Reasons, str]:
    """Read the columns that calibration is asked about: those given, or those of X.

    Of too many columns of X those that go most with the predicted `risk`, shape (n,), are taken, where it is known.

    Returns
    -------
    columns : tuple of Column
        Empty if there are none.
    left_out : tuple of (name, reason)
        Columns that cannot be used.
    reason : str
        Why there are no columns; "" if there are.
    """
    n, given = outcome[0].size, covariates is not None
    if given and are_names(covariates, MOST_COLUMNS):
        named: Mapping[str, Any] | None = {name: column_of(X, name, "covariates") for name in covariates}
    else:
        named = _named(covariates if given else X)
    if named is None:
        if given:
            expected = "a table, a mapping of names to values, or names of columns of X"
            fail("covariates", expected, type(covariates).__name__)
        return (), (), NO_COVARIATES if X is None else "X is no table with one column per covariate"
    for name, values in named.items():
        if np.ndim(values) != 1:
            got = "one value" if np.ndim(values) == 0 else f"shape {np.shape(values)}"
            fail(f"covariates[{name!r}]" if given else f"X[{name!r}]", f"a column of {n} values, one per row", got)
    lengths = {len(values) for values in named.values()}
    if given and lengths - {n}:
        fail("covariates", f"{n} rows, one per outcome", f"{(lengths - {n}).pop()}")
    if lengths - {n}:
        return (), (), "X has another number of rows than y"
    if n < FEWEST_ROWS:
        return (), (), f"{n} rows are too few, at least {FEWEST_ROWS} are needed"
    return _usable(named, outcome, risk, given=given)


def _usable(
    named: Mapping[str, Any], outcome: Outcome, risk: FloatArray | None, *, given: bool
) -> tuple[tuple[Column, ...], Reasons, str]:
    many: Reasons = ()
    if len(named) > MOST_COLUMNS:
        if given:
            fail("covariates", f"at most {MOST_COLUMNS} columns", len(named))
        if risk is None:
            advice = f"name at most {MOST_COLUMNS} of them: covariates=[...], --covariates"
            return (), (), f"X has {len(named):,} columns; {advice}"
        chosen = most_associated(named, risk)
        why = f"of {len(named):,} columns the {len(chosen)} that go most with the predicted risk are asked about"
        many = ((f"{len(named) - len(chosen):,} other columns", f"{why} (covariates= or --covariates names others)"),)
        named = {name: named[name] for name in chosen}
    columns, left_out = [], []
    for name, values in named.items():
        found = _read(name, values)
        found = found if isinstance(found, str) else _outcome_again(found, outcome) or found
        if isinstance(found, str):
            left_out.append((name, found))
        else:
            columns.append(found)
    reason = "" if columns else "no column can be used: " + "; ".join(f"{name} ({why})" for name, why in left_out[:3])
    return tuple(columns), (*left_out, *many), reason


def most_associated(table: Any, risk: FloatArray, most: int = MOST_COLUMNS) -> tuple[str, ...]:
    """Return the names of the columns that can be asked about and go most with the predicted risk, in their order.

    The risk is known without the outcome, so that the choice does not change what the test finds where a model is
    right. Columns chosen by the outcome are those that its noise favours: of 300 columns, 50 chosen by the martingale
    residual made the test accuse a true model in 27 % of 120 data sets of 400 rows, chosen by the risk in 2 %.

    Parameters
    ----------
    table : data frame or mapping
    risk : array of shape (n,)
        Predicted risk of each row at one time, or over all times.
    most : int
        How many columns.
    """
    from scipy.stats import rankdata

    ranks = rankdata(risk) - (risk.size + 1) / 2
    strength: dict[str, float] = {}
    for name, values in (_named(table) or {}).items():
        column = _read(name, values)
        if not isinstance(column, str):
            strength[name] = _association(column, ranks)
    chosen = sorted(strength, key=lambda name: -strength[name])[:most]
    return tuple(name for name in strength if name in set(chosen))


def _association(column: Column, ranks: FloatArray) -> float:
    """Share of the variance of the ranks of risk that a column explains: squared rank correlation, or between labels.

    Labels are credited less for being many, as in the adjusted coefficient of determination.
    """
    from scipy.stats import rankdata

    n, total = ranks.size, float(ranks @ ranks)
    own = rankdata(column.values) - (n + 1) / 2
    if total == 0 or not own.any():
        return 0.0
    if column.labels is None:
        return float(own @ ranks) ** 2 / (float(own @ own) * total)
    codes, free = column.values.astype(np.int64), n - len(column.labels)
    between = float((np.bincount(codes, weights=ranks) ** 2 / np.bincount(codes)).sum())
    return 1 - (1 - between / total) * (n - 1) / free if free > 0 else 0.0


def _named(table: Any) -> dict[str, Any] | None:
    """Return the columns by their names; None for what is no table."""
    if isinstance(table, Mapping):
        return {str(name): values for name, values in table.items()} or None
    if hasattr(table, "columns") and not isinstance(table, np.ndarray):
        return {str(name): table[name] for name in table.columns} or None
    if not (hasattr(table, "__array__") or isinstance(table, list)):
        return None
    array = np.asarray(table)
    if array.ndim == 1 and array.dtype != object:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        return None
    return {f"x{k}": array[:, k] for k in range(array.shape[1])}


def _read(name: str, values: Any) -> Column | str:
    """Read one column, or say why it cannot be used."""
    import pandas as pd

    series = pd.Series(values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values))
    if series.nunique(dropna=False) < 2:
        return "all its values are the same"
    if series.dtype.kind == "O":
        series = series.infer_objects()
    if series.dtype.kind in "iuf" and not is_category(values):
        numbers = series.to_numpy(dtype=np.float64)
        missing = ~np.isfinite(numbers)
        if missing.mean() > MOST_MISSING:
            return f"{np.count_nonzero(missing):,} of its values are missing"
        numbers = np.where(missing, np.median(numbers[~missing]), numbers)
        if series.is_unique and bool((numbers == np.round(numbers)).all()):
            return "its whole numbers are all different, as those of an id"
        return Column(name, numbers)
    if series.dtype.kind in "mM":
        return "it holds dates"
    text = np.where(series.isna().to_numpy(), "missing", series.astype(str).to_numpy().astype(np.str_))
    labels, codes = np.unique(text, return_inverse=True)
    if labels.size > MOST_GROUPS:
        return f"it has {labels.size:,} different labels"
    return Column(name, codes.astype(np.float64), tuple(str(label) for label in labels))


def _outcome_again(column: Column, outcome: Outcome) -> str:
    """Return why a column tells the outcome, as no covariate does: the time, a coarser time, the event, its cause."""
    time, event = outcome
    if column.labels is None and _monotone(column.values, time):
        return "it follows from the time"
    if _tells(column.values, event):
        return "it tells whether the event happened"
    return ""


def _monotone(values: FloatArray, time: FloatArray) -> bool:
    """Whether the rows in the order of their times are in the order of the values, upwards or downwards."""
    upwards, downwards = (values[np.lexsort((sign * values, time))] for sign in (1, -1))
    return bool((np.diff(upwards) >= 0).all() or (np.diff(downwards) <= 0).all())


def _tells(values: FloatArray, event: BoolArray) -> bool:
    """Whether rows of the same value all have the event, or none of them has; of few different values only."""
    distinct, place = np.unique(values, return_inverse=True)
    if distinct.size > MOST_GROUPS or event.all():
        return False
    share = np.bincount(place, weights=event) / np.bincount(place)
    return bool(np.isin(share, (0.0, 1.0)).all())
