"""What depends on the covariates: censoring, and calibration ("for whom?")."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import spearmanr

from xcal._checks import BoolArray, FloatArray
from xcal.calibration import conditional_calibration
from xcal.calibration.bins import N_BINS, bin_edges
from xcal.calibration.histogram import edges_like, locate, residuals
from xcal.calibration.subgroups import Column, Subgroup, masses
from xcal.metrics.estimates import Estimates
from xcal.metrics.inputs import Vector, mean_of, merged, merged_edges
from xcal.metrics.of_rows import DEPENDENT, WEIGHTED
from xcal.metrics.pseudo_values import (
    FEWEST_CENSORED,
    CensoringModel,
    asked_terms,
    dependent,
    model_of_terms,
    normal_scores,
    terms_of,
)
from xcal.metrics.rows import Rows
from xcal.metrics.spec import Key, Role, Skipped, beside
from xcal.validation.arguments import Censoring
from xcal.validation.result import CensoringTest, CovariatePart, ForWhom, WorstSubgroup
from xcal.validation.sample import Sample, group_name

# --- Whether censoring depends on what is known of the rows: then Kaplan-Meier is biased, and values are corrected.


def dependent_censoring(
    rows: Rows, covariates: tuple[Column, ...], treatment: Censoring
) -> tuple[CensoringTest | None, CensoringModel | None]:
    """Test whether censoring before the last horizon depends on risks or covariates, and model it if so or if asked.

    Returns
    -------
    CensoringTest or None
        None where there is nothing to test.
    CensoringModel or None
        The model by which values at horizons are to be corrected; None if they are not.
    """
    horizons = [h for h in rows.risk if h <= rows.last]
    if not horizons or rows.lower is not None:  # nobody knows who was still at risk of leaving
        return None, None
    time, last = rows.time, horizons[-1]
    censored = ~rows.outcome.ended & (time < last)
    asked = treatment == "covariates"
    if np.count_nonzero(censored) < FEWEST_CENSORED:
        return None, None
    terms = asked_terms(_variables(rows, covariates, horizons), rows.outcome, censored, last, rows.weights)
    if not terms:
        return None, None
    # One test for each horizon's risk and each column, or for each label of a column.
    smallest = min(term.p_value for term in terms)
    found = dependent(terms)
    p_value = min(1.0, smallest * len(terms))
    names = tuple(dict.fromkeys(term.name for term in sorted(found, key=lambda term: term.p_value)))
    model = None
    # Values of weighted rows are not corrected: the test tells, and the result says so.
    if rows.weights is None and (asked or (found and treatment == "auto")):
        model = model_of_terms(terms, found, rows.outcome, int(np.count_nonzero(censored)))
    return CensoringTest(p_value, names, model is not None), model


def _variables(rows: Rows, covariates: tuple[Column, ...], horizons: list[float]) -> Iterator[tuple[str, Vector, bool]]:
    """Return what censoring may depend on: the risks, and every column, numbers as normal scores of their ranks."""
    for horizon in horizons:
        if np.ptp(rows.risk[horizon]) > 0:
            yield "the predicted risk", normal_scores(rows.risk[horizon]), True
    if rows.entry is not None:
        yield "the time of entry", normal_scores(rows.entry), False
    yield from terms_of(covariates)


# --- For whom? Calibration given the covariates, as an audit measures it.


METRIC = "conditional_calibration"

# Parts of a numeric covariate, and the fewest rows of a part that is shown.
_PARTS, _FEWEST = 4, 20

# Rank correlation with F at the observed time from which a column is no covariate: of a covariate that is known at the
# start and F of a right model it is near zero without censoring.
_SAME_ORDER = 0.9


def measure_for_whom(
    sample: Sample,
    rows: Rows,
    columns: tuple[Column, ...],
    left_out: tuple[tuple[str, str], ...],
    found: Estimates,
    *,
    level: float,
    seed: int,
) -> ForWhom | None:
    """Measure and test calibration given the covariates, and add the numbers to those of all rows.

    `columns` and `left_out` are those of `usable_columns`. Where it cannot be measured the reason is among what was
    skipped.
    """
    if rows.cdf is None or not sample.covariates:
        found.skipped.append(Skipped(METRIC, sample.no_covariates if rows.cdf is not None else rows.no_cdf))
        return None
    if rows.clusters is not None:
        found.skipped.append(Skipped(METRIC, DEPENDENT))
        return None
    if not columns:
        found.skipped.append(Skipped(METRIC, "all covariates follow from F at the observed time"))
        return None
    # Where it is not known how long censored rows were seen, an error counts if it shows whichever it was.
    # F is that of a row that has come to its entry.
    cdfs, given = rows.cdfs_since_entry, {**_conditional_arguments(rows), "seed": seed}
    if rows.lower is not None:
        found.skipped.append(Skipped("subgroup_p", rows.seen_in_part))
    found_all = [conditional_calibration(cdf, rows.cdf_event, columns, **given) for cdf in cdfs]
    result = found_all[0]
    p_value = max(float("nan") if one.p_value is None else one.p_value for one in found_all)
    subgroups = [(one.where, cdf) for one, cdf in zip(found_all, cdfs, strict=True) if one.where is not None]
    everywhere = len(subgroups) == len(found_all)
    where, own = max(subgroups, key=lambda one: one[0].p_value) if everywhere else (None, cdfs[0])
    found.put(Key(METRIC), result.value)
    found.put(Key("conditional_calibration_floor"), result.floor)
    beside_it: dict[Role, float] = {"noise": result.noise, "p": p_value}
    for role, value in beside_it.items():
        found.put(Key(beside(METRIC, role)), value)
    lower = given.get("cdf_lower")
    if where is not None:
        found.put(Key("subgroup_p"), where.p_value)
    elif rows.weights is not None:
        found.skipped.append(Skipped("subgroup_p", WEIGHTED))
    fewest = max(_FEWEST, rows.min_cell)
    return ForWhom(
        value=result.value,
        noise=result.noise,
        floor=result.floor,
        p_value=p_value,
        columns=tuple(column.name for column in columns),
        left_out=left_out,
        parts=tuple(_parts(columns, cdfs[0].astype(np.float64), rows.cdf_event, level, rows.weights, fewest, lower)),
        subgroup=None if where is None else _worst(where, own[where.tested], rows),
    )


def _conditional_arguments(rows: Rows) -> dict[str, Any]:
    given: dict[str, Any] = {"n_bins": N_BINS, "weights": rows.weights}
    if rows.lower is not None:
        given["cdf_lower"] = np.minimum(-np.expm1(-rows.hazards.lower), rows.cdfs_since_entry[0])
    return given


def conditional_value(sample: Sample) -> float:
    """Return conditional calibration alone, as `measure_for_whom` has it; NaN where it cannot be measured."""
    rows = sample.rows
    columns = () if rows.cdf is None or rows.clusters is not None else usable_columns(sample)[0]
    if not columns:
        return float("nan")
    given = _conditional_arguments(rows)
    return conditional_calibration(
        rows.cdfs_since_entry[0], rows.cdf_event, columns, n_draws=0, where=False, **given
    ).value


def _worst(where: Subgroup, cdf: FloatArray, rows: Rows) -> WorstSubgroup:
    """Return the subgroup that is most off, with the F of its rows that were not searched."""
    edges, event = bin_edges(N_BINS), rows.cdf_event[where.tested]
    value, floor = (float((part**2).sum()) for part in (where.mass - np.diff(edges), where.mass_error))
    events = np.bincount(locate(cdf.astype(np.float64), edges_like(edges, cdf))[event], minlength=N_BINS)
    cells = merged(events, rows.min_cell)
    together = np.asarray(cells[:, None] == np.arange(cells[-1] + 1), dtype=np.float64)
    mass, error = masses(cdf, residuals(cdf, event, edges), edges, together)
    return WorstSubgroup(
        rule=where.rule,
        finding=where.finding,
        n=where.n,
        n_tested=where.n_tested,
        p_value=where.p_value,
        error=max(0.0, (value - floor) * N_BINS) ** 0.5,
        edges=merged_edges(edges, cells),
        mass=mass,
        mass_error=error,
    )


def usable_columns(sample: Sample) -> tuple[tuple[Column, ...], tuple[tuple[str, str], ...]]:
    """Return the covariates that can be used, and those that cannot with the reason.

    A column that follows from F at the observed time knows the outcome.
    """
    rows, columns = sample.rows, sample.covariates
    if rows.cdf is None:
        return columns, sample.left_out
    # Of rows past the end of the curves F is that of the end, which a column need not be.
    reached = np.full(rows.n, True) if rows.times is None else rows.time <= rows.times[-1]
    follow = [column.name for column in columns if _follows(column, rows.cdf, reached)]
    left_out = tuple((name, "it follows from F at the observed time") for name in follow)
    return tuple(column for column in columns if column.name not in follow), (*sample.left_out, *left_out)


def covariate_parts(columns: tuple[Column, ...], min_cell: int) -> Iterator[tuple[str, BoolArray]]:
    """Return the rows of every part of every covariate that is large enough."""
    for column in columns:
        for name, members in _members(column):
            if np.count_nonzero(members) >= max(_FEWEST, min_cell):
                yield name, members


def _follows(column: Column, cdf: FloatArray, reached: BoolArray) -> bool:
    """Return whether a column is a prediction at the row's observed time, which knows the outcome."""
    if column.labels is not None or np.count_nonzero(reached) < _FEWEST:
        return False
    values, own = column.values[reached], cdf[reached]
    if np.ptp(values) == 0 or np.ptp(own) == 0:
        return False
    return bool(abs(spearmanr(values, own).statistic) > _SAME_ORDER)


def _parts(
    columns: tuple[Column, ...],
    cdf: Vector,
    event: BoolArray,
    level: float,
    weights: Vector | None = None,
    fewest: int = _FEWEST,
    lower: Vector | None = None,
) -> Iterator[CovariatePart]:
    """Yield the mean of F for the parts of every column.

    Given its covariates, F at the event of a right model is uniform; of a row censored at F it lies anywhere above, of
    one whose event lies between two times anywhere between. The
    interval is that of the larger variance: the one that was seen, or the one that a right model expects up to the
    observed times. Without any event the first is near zero, however few were expected
    (`subgroup_search.expected_squares` has the same for bins). Of weighted rows it is the design-based one.
    """
    known = cdf if lower is None else (lower + cdf) / 2
    at_event, expected = np.where(event, known, (1 + cdf) / 2), (1 - np.square(1 - cdf)) / 8
    reach = float(ndtri((1 + level) / 2))
    for column in columns:
        for name, own in _members(column):
            n = int(np.count_nonzero(own))
            if n < fewest:
                continue
            w = None if weights is None else weights[own]
            mean = mean_of(at_event[own], w)
            if w is None:
                error = (max(float(at_event[own].var(ddof=1)), float(expected[own].mean())) / n) ** 0.5
            else:
                error = float(np.sqrt(np.square(w * (at_event[own] - mean)).sum()) / w.sum())
            yield CovariatePart(column.name, name, n, mean, mean - reach * error, mean + reach * error)


def _members(column: Column) -> Iterator[tuple[str, BoolArray]]:
    """Yield the categories of a column, its few different numbers, or its quarters."""
    name, values = column.name, column.values
    if column.labels is not None:
        for k, label in enumerate(column.labels):
            yield group_name(name, label), values == k
        return
    distinct = np.unique(values)
    if distinct.size <= _PARTS:
        for value in distinct:
            yield group_name(name, f"{value:.6g}"), values == value
        return
    cuts = column.cuts(_PARTS)
    place = np.searchsorted(cuts, values, side="left")
    for k in range(cuts.size + 1):
        low, high = cuts[k - 1] if k else None, cuts[k] if k < cuts.size else None
        if low is None:
            words = f"{name} ≤ {high:.6g}"
        elif high is None:
            words = f"{name} > {low:.6g}"
        else:
            words = f"{name} {low:.6g} to {high:.6g}"
        yield words, place == k
