"""Table 1 of a paper: what the rows of a validation are like, beside those that the model was trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import MIN_CELL, BoolArray, as_weights, check_rows, effective_units, fail
from xcal.calibration.subgroups import Column
from xcal.data.features import column_kind
from xcal.data.surv import Outcome
from xcal.data.survival import SurvivalData
from xcal.metrics.inputs import Vector, as_min_cell, is_small, mean_of, rounded_time, told
from xcal.metrics.observed import follow_up
from xcal.validation.arguments import (
    ID,
    MOST_COLUMNS,
    MOST_GROUPS,
    Reasons,
    are_names,
    as_text,
    lengths_of,
    looks_like_id,
    named_columns,
    outcome_again,
    read_outcome,
    read_training,
)

NAN = float("nan")
# Different values up to which numbers are labels: no and yes, grade 1 to 3, stage 1 to 4.
_LABELS = 5


@dataclass(frozen=True)
class Described:
    """What a characteristic is like in one set of rows.

    Attributes
    ----------
    n : int or None
        Rows that have the label; of a number, rows that have one. None where few do, or all but few.
    value : float
        Share of the rows that have a value; of a number, its mean.
    sd, median, lower_quartile, upper_quartile : float
        Of a number; NaN for a label. Quartiles are rounded, so that no row's value can be read off.
    """

    n: int | None
    value: float
    sd: float = NAN
    median: float = NAN
    lower_quartile: float = NAN
    upper_quartile: float = NAN


@dataclass(frozen=True)
class Characteristic:
    """One line of the table: a number, a label of a category, or how many values of a column are missing.

    Attributes
    ----------
    name, label : str
        The column, and the label; "" for a number, "missing" for the rows without a value.
    rows, training : Described
        What is known of it; `training` is None where the training rows, or their column, were not given.
    difference : float
        Standardised difference between the two sets of rows, that of the column in all of its lines; NaN without
        training rows.
    """

    name: str
    label: str
    rows: Described
    training: Described | None = None
    difference: float = NAN


@dataclass(frozen=True)
class Followed:
    """For how long rows were followed.

    Attributes
    ----------
    n, n_events : int
        Rows and events.
    n_competing : int
        Events of other causes, which end the observation of a row.
    person_time : float
        Sum of the times for which the rows are known to have been under observation without the event.
    median, lower_quartile, upper_quartile : float
        Of the follow-up, by reverse Kaplan-Meier; NaN where that does not come down so far.
    """

    n: int
    n_events: int
    n_competing: int
    person_time: float
    median: float
    lower_quartile: float
    upper_quartile: float


@dataclass(frozen=True)
class TableOne:
    """Characteristics and follow-up of the rows, and of the training rows where these are known.

    Attributes
    ----------
    lines : tuple of Characteristic
    follow_up, training_follow_up : Followed or None
    left_out : tuple of (name, reason)
        Columns that are not described.
    min_cell : int
        Rows below which a label was merged with others or its count not told.
    """

    lines: tuple[Characteristic, ...]
    follow_up: Followed
    training_follow_up: Followed | None = None
    left_out: Reasons = ()
    min_cell: int = MIN_CELL

    def to_frame(self) -> Any:
        """Return the lines as a pandas DataFrame: name, label, difference, and what is known of both sets of rows."""
        import pandas as pd

        empty, lines = Described(None, NAN), []
        for one in self.lines:
            both = {"": one.rows, "training_": one.training or empty}
            parts = {f"{which}{key}": value for which, own in both.items() for key, value in vars(own).items()}
            lines.append({"name": one.name, "label": one.label, **parts, "difference": one.difference})
        frame = pd.DataFrame(lines).astype({"n": "Int64", "training_n": "Int64"} if lines else {})
        return frame if self.training_follow_up else frame.loc[:, [c for c in frame if not c.startswith("training_")]]


def table_one(X: Any, y: Any, *, training: Any = None, weights: Any = None, min_cell: int = MIN_CELL) -> TableOne:
    r"""Return the characteristics of rows and their follow-up, beside those of the training rows.

    The standardised difference of a number and of a category are

    .. math:: \frac{|m_1 - m_2|}{\sqrt{(s_1^2 + s_2^2) / 2}}, \qquad \sqrt{(p_1 - p_2)^T S^{-1} (p_1 - p_2)}

    with means m, standard deviations s, shares p of all labels but one, and S the mean of the two covariance matrices
    of the labels. Unlike a p-value they do not grow with the number of rows. Below 0.1 a difference is usually called
    small.

    Parameters
    ----------
    X : table
        A data frame, a mapping of names to values, or an array, one row per row of `y`. Numbers of up to five different
        values are taken for labels. Dates, ids, and texts with more than 30 labels are named in `left_out`.
    y : outcomes
        As in `xcal.audit`.
    training : optional
        The rows that the model was trained on, as in `xcal.audit`: outcomes, or a pair (X, y).
    weights : array-like of shape (n,), optional
        Sampling weights of the rows, of means, shares and quartiles. Counts are those of the rows.
    min_cell : int
        Rows below which nothing is told of a label: it is merged with others. Means, quartiles and times are then
        rounded. 0 shows everything.

    Returns
    -------
    TableOne

    References
    ----------
    Yang, Dalton (2012), SAS Global Forum, paper 335; Schemper, Smith (1996), Controlled Clinical Trials 17(4):343-346.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"age": np.linspace(50.5, 69.5, 20), "sex": ["f", "m"] * 10})
    >>> found = table_one(X, (range(1, 21), [1, 0] * 10))
    >>> found.lines[0].rows.value, [(one.label, one.rows.n) for one in found.lines[1:]]
    (60.0, [('f', 10), ('m', 10)])
    >>> found.follow_up.n_events, found.follow_up.person_time
    (10, 210.0)
    """
    if isinstance(X, SurvivalData) or X is None:
        fail("X", "a table with one row per row of y", type(X).__name__)
    outcome = read_outcome(y, X=X)
    check_rows({"X": X, "weights": weights})
    own = None if weights is None else effective_units(as_weights("weights", weights, outcome.n, reference="y"))
    train_x, train_y = read_training(training)
    columns = named_columns(X)
    if columns is None:
        fail("X", "a table with one column per characteristic", type(X).__name__)
    for length in lengths_of("X", columns, outcome.n) - {outcome.n}:
        fail("X", f"{outcome.n} rows, one per outcome", length)
    return describe(columns, outcome, named_columns(train_x), train_y, own, as_min_cell(min_cell))


def describe(
    columns: Mapping[str, Any],
    outcome: Outcome,
    training_columns: Mapping[str, Any] | None,
    training: Outcome | None,
    weights: Vector | None,
    min_cell: int,
) -> TableOne:
    """Describe checked rows, as `table_one` does; columns that the training rows do not have stand alone."""
    lines: list[Characteristic] = []
    left_out: list[tuple[str, str]] = []
    for name, values in columns.items():
        before = None if training_columns is None else training_columns.get(name)
        kind = _kind(values, before)
        if kind == "label":
            found = _labels(name, values, before, weights, min_cell)
        elif kind == "number":
            found = _number(name, values, before, weights, min_cell)
        else:
            found = kind
        if isinstance(found, str):
            left_out.append((name, found))
        else:
            lines += found
    return TableOne(
        tuple(lines),
        _followed(outcome, weights, min_cell),
        None if training is None else _followed(training, None, min_cell),
        tuple(left_out),
        min_cell,
    )


def of_audit(
    X: Any,
    covariates: Any,
    outcome: Outcome,
    training_X: Any,
    training: Outcome | None,
    asked: tuple[Column, ...],
    weights: Vector | None,
    min_cell: int,
) -> TableOne:
    """Describe the rows of an audit: by the columns of X or the covariates; of too many, by those that are asked about.

    Columns that tell the outcome are no characteristics.
    """
    columns = named_columns(X if are_names(covariates, MOST_COLUMNS) or covariates is None else covariates) or {}
    if any(np.ndim(values) != 1 or len(values) != outcome.n for values in columns.values()):
        columns = {}
    left_out: list[tuple[str, str]] = []
    if len(columns) > MOST_COLUMNS:
        names = {one.name for one in asked}
        left_out.append((f"{len(columns) - len(names):,} other columns", "the others are those that were asked about"))
        columns = {name: values for name, values in columns.items() if name in names}
    tells = {name: why for name, values in columns.items() if (why := outcome_again(name, values, outcome))}
    kept = {name: values for name, values in columns.items() if name not in tells}
    found = describe(kept, outcome, named_columns(training_X), training, weights, min_cell)
    return replace(found, left_out=(*found.left_out, *tells.items(), *left_out))


def _kind(values: Any, before: Any) -> str:
    """Return "number", "label", or why a column is not described."""
    import pandas as pd

    both = [values] if before is None else [values, before]
    kinds = {column_kind(one if hasattr(one, "dtype") else _series(one)) for one in both}
    if kinds & {"date", "duration"}:
        return "it holds dates"
    known = pd.concat([_series(one) for one in both]).dropna()
    if kinds == {"number"}:
        if looks_like_id(_series(values)):
            return ID
        return "label" if 0 < known.nunique() <= _LABELS else "number"
    return f"it has {known.nunique():,} different labels" if known.nunique() > MOST_GROUPS else "label"


def _series(values: Any) -> Any:
    import pandas as pd

    return pd.Series(values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values))


# --- A number: mean and standard deviation, quartiles, and how many values are missing.


def _number(name: str, values: Any, before: Any, weights: Vector | None, min_cell: int) -> list[Characteristic] | str:
    now, then = _finite(values), None if before is None else _finite(before)
    rows = _of_number(now, weights, min_cell)
    if rows is None:
        return "no value is known" if min_cell < 2 else f"fewer than {min_cell} values are known"
    training, difference = (
        (None, NAN) if then is None else (_of_number(then, None, min_cell) or Described(None, NAN), NAN)
    )
    if then is not None and training is not None and not np.isnan(training.value):
        difference = _distance(_moments(now, weights), _moments(then, None))
    lines = [Characteristic(name, "", rows, training, difference)]
    if np.isnan(now).any() or (then is not None and np.isnan(then).any()):
        missing = _missing(now, weights, min_cell), None if then is None else _missing(then, None, min_cell)
        lines.append(Characteristic(name, "missing", *missing, difference))
    return lines


def _finite(values: Any) -> Vector:
    """Return numbers, NaN where there is none."""
    found: Vector = _series(values).to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(found), found, np.nan)


def _moments(values: Vector, weights: Vector | None) -> tuple[float, float]:
    """Return mean and standard deviation of the known values, with the divisor n - 1."""
    there = ~np.isnan(values)
    known, own = values[there], None if weights is None else weights[there]
    mean = mean_of(known, own)
    return mean, float(np.sqrt(mean_of(np.square(known - mean), own) * known.size / max(1, known.size - 1)))


def _distance(first: tuple[float, float], second: tuple[float, float]) -> float:
    apart, spread = abs(first[0] - second[0]), float(np.sqrt((first[1] ** 2 + second[1] ** 2) / 2))
    return 0.0 if apart == 0 else apart / spread if spread > 0 else float("inf")


def _of_number(values: Vector, weights: Vector | None, min_cell: int) -> Described | None:
    """Describe the known values; None where they are too few to be told."""
    there = ~np.isnan(values)
    if not there.any() or is_small(int(there.sum()), min_cell):
        return None
    mean, sd = _moments(values, weights)
    low, middle, high = _quartiles(values[there], None if weights is None else weights[there])
    if min_cell > 1:
        mean, sd = (float(f"{one:.4g}") for one in (mean, sd))
        low, middle, high = (rounded_time(one) for one in (low, middle, high))
    return Described(told(int(there.sum()), values.size, min_cell), mean, sd, middle, low, high)


def _quartiles(values: Vector, weights: Vector | None) -> list[float]:
    """Return the quartiles; of weighted rows, the first value that the share of the weights reaches."""
    levels = [0.25, 0.5, 0.75]
    if weights is None:
        return [float(one) for one in np.quantile(values, levels)]
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    return [float(values[order][np.searchsorted(share, level)]) for level in levels]


def _missing(values: Vector, weights: Vector | None, min_cell: int) -> Described:
    missing = np.isnan(values)
    count = told(int(missing.sum()), missing.size, min_cell)
    return Described(count, NAN if count is None else mean_of(missing.astype(np.float64), weights))


# --- A category: the share of each label. Labels of few rows are merged, so that no person can be told by them.


def _labels(name: str, values: Any, before: Any, weights: Vector | None, min_cell: int) -> list[Characteristic] | str:
    now, then = _text(values), None if before is None else _text(before)
    order = _in_order(values, now if then is None else np.concatenate([now, then]))
    difference = NAN if then is None else _distance_of_shares(now, then, weights, [one for one in order if one])
    joined = _merged(order, now, then, min_cell)
    if joined is None:
        return f"all its labels but one have fewer than {min_cell} rows"
    lines = []
    for label, parts in joined.items():
        rows = _share(np.isin(now, parts), now, weights, min_cell)
        training = None if then is None else _share(np.isin(then, parts), then, None, min_cell)
        lines.append(Characteristic(name, label, rows, training, difference))
    return lines


def _text(values: Any) -> npt.NDArray[np.str_]:
    """Return labels, "" where there is none."""
    series = _series(values)
    missing = series.isna().to_numpy()
    return np.asarray(["" if gone else as_text(one) for one, gone in zip(series, missing, strict=True)], dtype=np.str_)


def _in_order(values: Any, labels: npt.NDArray[np.str_]) -> list[str]:
    """Return the labels in the order of a categorical column, as numbers, or as texts; those without one last."""
    known = [str(one) for one in np.unique(labels) if one]
    categories = getattr(getattr(values, "dtype", None), "categories", None)
    if categories is not None:
        place = {as_text(one): k for k, one in enumerate(categories)}
        known.sort(key=lambda one: place.get(one, len(place)))
    else:
        try:
            known.sort(key=float)
        except ValueError:
            known.sort()
    return known + ([""] if (labels == "").any() else [])


def _merged(
    order: list[str], now: npt.NDArray[np.str_], then: npt.NDArray[np.str_] | None, min_cell: int
) -> dict[str, list[str]] | None:
    """Return the labels of each line: those that few rows have, in either set, share one; None if all would."""
    counts = {label: [int((one == label).sum()) for one in (now, then) if one is not None] for label in order}
    few = [label for label in order if any(is_small(count, min_cell) for count in counts[label])]
    rest = sorted((label for label in order if label not in few), key=lambda label: min(counts[label]))
    while few and rest and any(is_small(sum(own), min_cell) for own in zip(*(counts[one] for one in few), strict=True)):
        few.append(rest.pop(0))
    if few and not rest:
        return None
    lines = {label or "missing": [label] for label in order if label in rest}
    if few:
        named = [label or "missing" for label in order if label in few]
        lines[" or ".join(named) if len(few) == 2 and "" in few else f"{len(few)} other labels"] = few
    return lines


def _share(members: BoolArray, labels: npt.NDArray[np.str_], weights: Vector | None, min_cell: int) -> Described:
    """Return count and share, of the rows that have a label; of missing ones and those merged with them, of all."""
    known = labels != ""
    of = np.ones(labels.size, dtype=np.bool_) if (members & ~known).any() else known
    if not of.any():
        return Described(0, NAN)
    share = mean_of(members[of].astype(np.float64), None if weights is None else weights[of])
    count = told(int(members.sum()), labels.size, min_cell)
    return Described(count, NAN if count is None else share)


def _distance_of_shares(
    now: npt.NDArray[np.str_], then: npt.NDArray[np.str_], weights: Vector | None, labels: list[str]
) -> float:
    known = [(now[now != ""], None if weights is None else weights[now != ""]), (then[then != ""], None)]
    if len(labels) < 2 or any(one.size == 0 for one, _ in known):
        return NAN if any(one.size == 0 for one, _ in known) else 0.0
    shares = [np.array([mean_of((one == label) * 1.0, w) for label in labels[1:]]) for one, w in known]
    apart = shares[0] - shares[1]
    spread = sum(np.diag(share) - np.outer(share, share) for share in shares) / 2
    if not apart.any():
        return 0.0
    if np.linalg.matrix_rank(spread) < apart.size:  # each set has one label, another one
        return float("inf")
    return float(np.sqrt(apart @ np.linalg.solve(spread, apart)))


# --- Follow-up.


def _followed(outcome: Outcome, weights: Vector | None, min_cell: int) -> Followed:
    found = follow_up(time=outcome.time, event=outcome.ended, weights=weights, entry=outcome.entry)
    until = outcome.time if outcome.lower is None else outcome.lower
    total = float((until if outcome.entry is None else until - outcome.entry).sum())
    times = [found.median, found.lower_quartile, found.upper_quartile]
    if min_cell > 1:
        total, times = float(f"{total:.4g}"), [rounded_time(one) for one in times]
    competing = 0 if outcome.competing is None else int(outcome.competing.sum())
    return Followed(outcome.n, int(outcome.event.sum()), competing, total, *times)
