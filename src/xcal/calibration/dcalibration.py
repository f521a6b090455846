"""D-calibration of a model, measured: one number, its noise floor and a p-value."""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, get_args, overload

import numpy as np

from xcal._checks import (
    MANY,
    BoolArray,
    Floats,
    as_choice,
    as_count,
    as_event,
    as_labels,
    as_probability,
    as_time,
    as_weights,
    check_rows,
    check_same_length,
    effective_units,
    fail,
    first_row,
)
from xcal.calibration.bins import N_BINS, Clusters, Edges, as_clusters, bin_edges, sum_of_squares
from xcal.calibration.histogram import Array, as_censoring_survival, lost_mass_caution
from xcal.calibration.significance import DCalibrationResult, GroupedDCalibration, Method, PValue, Rows, measured

# Times are on a grid if all are multiples of the smallest distance to within this share of it.
_ON_GRID = 1e-6
# Times in units of which the follow-up has at most so many, or with fewer different times per event, are coarse.
_MOST_UNITS, _DISTINCT_SHARE = 200, 0.2


def unit_starts(time: Array) -> Array:
    """Return the start of the interval that each row's time ends.

    Where times are multiples of a unit, an interval is one unit long, whether or not the time before happens to be
    among these rows; elsewhere it starts at the time before.
    """
    distinct = np.unique(np.append(time, 0.0))
    unit = _unit(distinct)
    if unit is not None:
        return np.asarray(np.maximum(time - unit, 0.0))
    return np.asarray(np.append(0.0, distinct)[np.searchsorted(distinct, time)])


def are_coarse(time: Array, event: BoolArray) -> bool:
    """Return whether times stand for intervals, such as whole months, that are long beside the follow-up.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> time, event = rng.exponential(20, 300), np.full(300, True)
    >>> are_coarse(time, event), are_coarse(np.ceil(time), event)
    (False, True)
    """
    distinct = np.unique(np.append(time, 0.0))
    unit = _unit(distinct)
    if unit is not None and distinct[-1] <= _MOST_UNITS * unit:
        return True
    return bool(np.unique(time[event]).size < _DISTINCT_SHARE * np.count_nonzero(event))


def _unit(distinct: Array) -> float | None:
    """Return the unit of which increasing times are multiples; None if there is none, or one time alone."""
    if distinct.size < 3:
        return None
    unit = float(np.diff(distinct).min())
    multiples = distinct / unit
    return unit if np.abs(multiples - multiples.round()).max() < _ON_GRID else None


def within_interval(u: Array, before: Array, event: BoolArray, seed: int) -> Array:
    """Draw the F of each event evenly from the interval that its time stands for; censored rows keep its end."""
    check_same_length("cdf_before", before, "cdf", u.size)
    wrong = before > u
    if wrong.any():
        row = first_row(wrong)
        fail("cdf_before", f"at most cdf, {u[row]}", before[row], row)
    # From one source for all rows, whatever else is drawn later: "simulated" starts its own from the same seed.
    share = np.random.default_rng([seed, 1]).random(u.size)
    return np.where(event, before + share * (u - before), u)


def ties_caution(time: Array, event: BoolArray, edges: Edges) -> str | None:
    """Return what to tell a user whose times take so few values that even a true model looks uneven; None if not.

    So it is if most events share their time with another one, and the most common time holds the mass of half a bin.
    """
    distinct, counts = np.unique(time[event], return_counts=True)
    if counts.size == 0 or 2 * counts[counts > 1].sum() < counts.sum():
        return None
    if counts.max() / time.size < np.diff(edges).min() / 2:
        return None
    return (
        f"the {counts.sum()} events have {distinct.size} distinct times only: tied events share one value of F, so "
        "that even a true model looks uneven and is rejected. Give cdf_before, F at the start of the interval that "
        "each time stands for (F at the month before, say)"
    )


@overload
def d_calibration(
    cdf: Any,
    event: Any,
    *,
    n_bins: int = ...,
    edges: Any = ...,
    method: Method = ...,
    p_value: PValue | Literal["auto"] | None = ...,
    time: Any = ...,
    censoring_survival: Any = ...,
    cdf_before: Any = ...,
    cdf_entry: Any = ...,
    cdf_lower: Any = ...,
    groups: None = ...,
    clusters: Any = ...,
    weights: Any = ...,
    n_simulations: int = ...,
    seed: int = ...,
) -> DCalibrationResult: ...


@overload
def d_calibration(
    cdf: Any,
    event: Any,
    *,
    n_bins: int = ...,
    edges: Any = ...,
    method: Method = ...,
    p_value: PValue | Literal["auto"] | None = ...,
    time: Any = ...,
    censoring_survival: Any = ...,
    cdf_before: Any = ...,
    cdf_entry: Any = ...,
    cdf_lower: Any = ...,
    groups: Any,
    clusters: Any = ...,
    weights: Any = ...,
    n_simulations: int = ...,
    seed: int = ...,
) -> GroupedDCalibration: ...


def d_calibration(
    cdf: Any,
    event: Any,
    *,
    n_bins: int = N_BINS,
    edges: Any = None,
    method: Method = "uniform",
    p_value: PValue | Literal["auto"] | None = "auto",
    time: Any = None,
    censoring_survival: Any = None,
    cdf_before: Any = None,
    cdf_entry: Any = None,
    cdf_lower: Any = None,
    groups: Any = None,
    clusters: Any = None,
    weights: Any = None,
    n_simulations: int = 999,
    seed: int = 0,
) -> DCalibrationResult | GroupedDCalibration:
    r"""Measure exact D-calibration: how evenly F at the observed times spreads over [0, 1].

    .. math:: \sum_k \Big( \frac1n \sum_i m_{ik} - (b_k - a_k) \Big)^2

    over the bins :math:`[a_k, b_k)`, with :math:`m_{ik}` the share of row i in bin k: for an event, 1 in the bin of its
    F. A perfect model is zero but for noise; `floor` in the result is what it scores on average.

    Parameters
    ----------
    cdf : array-like of shape (n,)
        The model's F at each row's observed time. numpy or torch.
    event : array-like of shape (n,)
        True or 1 where the event happened, False or 0 where the row is censored.
    n_bins : int, default 10
        Number of equal bins, unless `edges` are given.
    edges : array-like, optional
        Bin edges from 0 to 1.
    method : {"uniform", "ipcw", "km"}
        What a censored row contributes. "uniform", as in the paper: it spreads over [F, 1], so a censored row always
        looks calibrated and heavy censoring hides miscalibration. "km": Kaplan-Meier on the F scale. "ipcw": events
        count the inverse of the probability of being uncensored; needs `time` or `censoring_survival`.
    p_value : {"auto", "akritas", "simulated", "pearson", "residuals"} or None
        Which test; "auto" is "akritas", with `cdf_lower` "residuals". "akritas" and "simulated" hold their size under
        censoring. "pearson" does not; it is for comparison with published values and needs ``method="uniform"``.
        "simulated" is for "uniform" and "km". "akritas" compares observed with expected events, so its p-value is the
        same for every method.
    time : array-like of shape (n,), optional
        Observed times, for "ipcw" with a Kaplan-Meier curve of the censoring. Other methods do not use it.
    censoring_survival : array-like of shape (n,), optional
        For "ipcw": the probability of being uncensored just before each row's time, in (0, 1], by the user's own model.
        Give `time` as well where follow-up ends before everybody has had the event: rows that outlast the last event
        then count too, and what is beyond it is not lost.
    cdf_before : array-like of shape (n,), optional
        For times of few distinct values, whole months say: F at the start of the interval that each row's time stands
        for, such as F(t - 1 month), where `cdf` is F at its end. All events of a month share one value of `cdf`, so
        that without it even a true model looks uneven. With it each event gets a value drawn evenly between the two
        (the randomised probability integral transform), of which those of a true model are uniform: value, floor and
        tests hold as for continuous times. A censored row keeps `cdf`: it has outlived its interval.
    cdf_entry : array-like of shape (n,), optional
        For rows of delayed entry: F at the time from which each row was under observation, 0 for rows observed from the
        start. A row then counts from its entry on: what it has in each bin is compared with what a row that has come
        this far expects there, and "akritas" counts events and hazards from there on. Without it, a perfect model of
        such rows is rejected. For method "uniform". Several rows of one person are put together first, by
        `xcal.metrics.by_person`.
    cdf_lower : array-like of shape (n,), optional
        For events that are known to lie between two times: F at the earlier one, where `cdf` is F at the later one;
        equal to `cdf` where the time is known. Each bin gets its part of the interval. For method "uniform", with the
        test "residuals", which compares the sums over rows with their own covariance. Ignored for censored rows.
    groups : array-like of shape (n,), optional
        One label per row: one result per group and one for the whole.
    clusters : array-like of shape (n,), optional
        One label per row, such as a subject's number, where the rows of one subject depend on each other (subjects
        must not). The floor is then that of cluster sums, and "akritas" compares its statistic with draws in which
        whole clusters change their sign: both hold for any dependence within clusters. The other tests suppose
        independent rows and are refused. For an interval by drawing whole clusters see `xcal.evaluate`.
    weights : array-like of shape (n,), optional
        Sampling weights, one positive number per row: the inverse of the probability that the row was sampled, which
        may depend on its outcome (case-cohort studies, surveys). Only their ratios matter. The histogram is that of
        rows repeated as often as their weights say. Floor and "akritas" are not: they are design-based, from the
        squares of weight times residual of each row, as a row of weight 10 is one observation and not ten. How far a
        censored row's mass is handed on ("km", and "ipcw" with `time`) depends on the effective number of rows, too.
        The other tests have no meaning here and are refused. Equal weights change nothing.
    n_simulations, seed : int
        For "simulated", and for "akritas" with `clusters`; the seed also for `cdf_before`.

    Returns
    -------
    DCalibrationResult, or GroupedDCalibration with `groups`

    References
    ----------
    Haider, Hoehn, Davis, Greiner (2020), JMLR 21(85):1-63, for D-calibration. Goldstein, Han, Puli, Perotte, Ranganath
    (2020), NeurIPS 33, for the sum of squares. Akritas (1988), JASA 83(401):222-230, for the test.

    Examples
    --------
    A model whose hazards are 1.5 times too high:

    >>> even = (np.arange(1000) + 0.5) / 1000
    >>> d_calibration(1 - (1 - even) ** 1.5, np.ones(1000))
    D-calibration 0.0177 (uniform; a perfect model scores 0.0009 on average)
    1,000 rows, 0 censored (0%), p = 1.55e-30 (akritas)
    mass of 10 bins over width  ▃▃▄▄▄▄▄▅▅█  (equal heights: calibrated)
    """
    as_choice("method", method, get_args(Method))
    as_choice("p_value", p_value, ("auto", *get_args(PValue)), or_none=True)
    if p_value == "auto":
        p_value = "akritas" if cdf_lower is None else "residuals"
    edge = bin_edges(n_bins, edges)
    beside = {"time": time, "censoring_survival": censoring_survival, "cdf_before": cdf_before}
    in_part = {"cdf_entry": cdf_entry, "cdf_lower": cdf_lower}
    check_in_part(in_part, method, p_value, {**beside, "weights": weights})
    check_rows(
        {"cdf": cdf, "event": event, **beside, **in_part, "groups": groups, "clusters": clusters, "weights": weights}
    )
    u = as_probability("cdf", cdf)
    happened = as_event(event, u.size)
    check_choices(method, p_value, time is not None, censoring_survival is not None)
    n_simulations = as_count("n_simulations", n_simulations, at_least=1, at_most=MANY)
    seed = as_count("seed", seed, at_least=0)
    t = None if time is None else as_time(time, u.size, reference="cdf")
    g = None
    if censoring_survival is not None:
        g = as_censoring_survival(censoring_survival, happened, every_row=t is not None)
    labels = None if groups is None else as_labels("groups", groups, u.size)
    chosen = None if clusters is None else as_clusters(clusters, u.size)
    check_observations(p_value, chosen, None)
    w = None if weights is None else as_weights("weights", weights, u.size)
    units = None if w is None else effective_units(w)
    check_observations(p_value, None, units)
    if cdf_before is not None:
        u = within_interval(u, as_probability("cdf_before", cdf_before), happened, seed)
    elif t is not None and p_value is not None and (caution := ties_caution(t, happened, edge)):
        warnings.warn(caution, stacklevel=2)
    starts = {name: None if one is None else as_at_most(name, one, u) for name, one in in_part.items()}
    rows = Rows(u, happened, t, g, chosen, w, starts["cdf_entry"], starts["cdf_lower"])
    measure = partial(measured, edges=edge, method=method, p_value=p_value, n_simulations=n_simulations, seed=seed)
    whole = measure(rows)
    if g is not None and t is None:
        inverse = (1.0 if units is None else units[happened]) / g[happened]
        squares = sum_of_squares(inverse, None if chosen is None else chosen.of_rows(happened))
        if caution := lost_mass_caution(inverse.sum(), squares, float(u.size if units is None else units.sum())):
            warnings.warn(caution, stacklevel=2)
    if p_value == "pearson" and (caution := pearson_caution(whole.n, whole.n_censored)):
        warnings.warn(caution, stacklevel=2)
    if labels is None:
        return whole
    return GroupedDCalibration(whole, _by_group(measure, labels, rows))


def _by_group(
    measure: Callable[[Rows], DCalibrationResult], labels: Array, rows: Rows
) -> dict[Any, DCalibrationResult]:
    """One result for each label, in the order of the labels."""
    results = {}
    for label in np.unique(labels):
        own = rows.only(labels == label)
        if own.censoring_survival is not None and not own.event.any():
            fail("groups", "an event in every group, as method='ipcw' uses events only", f"none in group {label}")
        if own.clusters is not None and own.clusters.count < 2:
            fail("clusters", "at least two clusters in every group", f"one in group {label}")
        results[label.item() if labels.dtype.kind in "biufU" else label] = measure(own)
    return results


def as_at_most(name: str, values: Any, u: Array) -> Array:
    """Check F at an earlier time of each row: at most F at its observed time."""
    early = as_probability(name, values)
    check_same_length(name, early, "cdf", u.size)
    if (early > u).any():
        row = first_row(early > u)
        fail(name, f"at most cdf, {u[row]}", early[row], row)
    return early


def check_in_part(
    in_part: Mapping[str, Any], method: Method, p_value: PValue | None, beside: Mapping[str, Any]
) -> None:
    """Refuse what has no meaning, or is not there, for rows that are seen from an entry on or between two times."""
    given = [name for name, values in in_part.items() if values is not None]
    if not given:
        if p_value == "residuals":
            fail("p_value", "'akritas', which needs no estimated covariance, where times are known", repr(p_value))
        return
    allowed = ("residuals",) if in_part["cdf_lower"] is not None else ("akritas", "residuals")
    if method != "uniform":
        fail("method", f"'uniform' with {given[0]}", repr(method))
    if p_value not in (*allowed, None):
        fail("p_value", f"{' or '.join(map(repr, allowed))} or None with {given[0]}", repr(p_value))
    for name, values in beside.items():
        if values is not None:
            fail(name, f"None with {given[0]}", "a value")


def check_choices(method: Method, p_value: PValue | None, has_time: bool, has_survival: bool) -> None:
    """Refuse combinations that have no meaning, and say which ones have."""
    if method == "ipcw" and not (has_time or has_survival):
        fail("time", "time (for a Kaplan-Meier G) or censoring_survival (your own G) with method='ipcw'", "neither")
    if method != "ipcw" and has_survival:
        fail("method", "'ipcw' where censoring_survival is given", repr(method))
    if p_value == "pearson" and method != "uniform":
        others = "'akritas', 'simulated' or None" if method == "km" else "'akritas' or None"
        fail("p_value", f"{others} with method={method!r}, whose masses are not counts", repr(p_value))
    if p_value == "simulated" and method == "ipcw":
        fail("p_value", "'akritas' or None with method='ipcw', whose noise depends on the times", repr(p_value))


def check_observations(p_value: PValue | None, clusters: Clusters | None, weights: Floats | None) -> None:
    """Refuse tests that take every row for one observation of the same kind, independent of the others."""
    if p_value not in {"pearson", "simulated"}:
        return
    if clusters is not None:
        expected = "'akritas' or None with clusters, whose rows are not independent"
        fail("p_value", expected, f"{p_value!r}, which would count {clusters.codes.size} rows as so many observations")
    if weights is not None:
        expected = "'akritas' or None with weights: how rows were sampled is not known to a count or a simulation"
        fail("p_value", expected, repr(p_value))


def pearson_caution(n: int, n_censored: int) -> str | None:
    """Return what to tell a user where Pearson's test has lost its meaning."""
    if n_censored <= n / 2:
        return None
    return (
        f"{n_censored / n:.0%} of the rows are censored: Pearson's p-value is far too large and will hardly ever "
        "reject a miscalibrated model. Use p_value='akritas' or 'simulated'."
    )
