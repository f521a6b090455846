"""D-calibration of a model, measured: one number, its noise floor and a p-value."""

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, get_args, overload

import numpy as np
import numpy.typing as npt

from xcal._checks import (
    as_choice,
    as_count,
    as_event,
    as_floats,
    as_probability,
    as_time,
    check_same_length,
    fail,
    first_row,
    refuse_masked,
)
from xcal.calibration.bins import Edges, bin_edges
from xcal.calibration.censored import rest, share_of_bin
from xcal.calibration.histogram import (
    Array,
    BinSums,
    Floats,
    Masses,
    edges_like,
    locate,
    redistributed,
    weighted,
)
from xcal.calibration.results import DCalibrationResult, GroupedDCalibration, Method, PValue
from xcal.calibration.significance import Test, akritas, pearson, simulated


@overload
def d_calibration(
    cdf: Any,
    event: Any,
    *,
    n_bins: int = ...,
    edges: Any = ...,
    method: Method = ...,
    p_value: PValue | None = ...,
    time: Any = ...,
    censoring_survival: Any = ...,
    cdf_before: Any = ...,
    groups: None = ...,
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
    p_value: PValue | None = ...,
    time: Any = ...,
    censoring_survival: Any = ...,
    cdf_before: Any = ...,
    groups: Any,
    n_simulations: int = ...,
    seed: int = ...,
) -> GroupedDCalibration: ...


def d_calibration(
    cdf: Any,
    event: Any,
    *,
    n_bins: int = 10,
    edges: Any = None,
    method: Method = "uniform",
    p_value: PValue | None = "akritas",
    time: Any = None,
    censoring_survival: Any = None,
    cdf_before: Any = None,
    groups: Any = None,
    n_simulations: int = 999,
    seed: int = 0,
) -> DCalibrationResult | GroupedDCalibration:
    """Measure exact D-calibration: how evenly F at the observed times spreads over [0, 1].

    Parameters
    ----------
    cdf : array-like of shape (n,)
        The model's F at each row's own time. numpy or torch.
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
    p_value : {"akritas", "simulated", "pearson"} or None
        Which test. "akritas" and "simulated" hold their size under censoring. "pearson" does not; it is for comparison
        with published values and needs ``method="uniform"``. "simulated" is for "uniform" and "km". "akritas" compares
        observed with expected events, so its p-value is the same for every method.
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
    groups : array-like of shape (n,), optional
        One label per row: one result per group and one for the whole.
    n_simulations, seed : int
        For "simulated"; the seed also for `cdf_before`.

    Returns
    -------
    DCalibrationResult, or GroupedDCalibration with `groups`

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
    as_choice("p_value", p_value, get_args(PValue), or_none=True)
    edge = bin_edges(n_bins, edges)
    u = as_probability("cdf", cdf)
    happened = as_event(event, u.size)
    check_choices(method, p_value, time is not None, censoring_survival is not None)
    n_simulations, seed = as_count("n_simulations", n_simulations, at_least=1), as_count("seed", seed, at_least=0)
    t = None if time is None else as_time(time, u.size, reference="cdf")
    g = None
    if censoring_survival is not None:
        g = as_censoring_survival(censoring_survival, happened, every_row=t is not None)
    labels = None if groups is None else as_labels(groups, u.size)
    if cdf_before is not None:
        u = within_interval(u, as_probability("cdf_before", cdf_before), happened, seed)
    elif t is not None and p_value is not None and (caution := ties_caution(t, happened, edge)):
        warnings.warn(caution, stacklevel=2)
    measure = partial(_measure, edges=edge, method=method, p_value=p_value, n_simulations=n_simulations, seed=seed)
    whole = measure(u, happened, t, g)
    if g is not None and t is None:
        inverse = 1 / g[happened]
        if caution := lost_mass_caution(inverse.sum(), np.square(inverse).sum(), u.size):
            warnings.warn(caution, stacklevel=2)
    if p_value == "pearson" and (caution := pearson_caution(whole.n, whole.n_censored)):
        warnings.warn(caution, stacklevel=2)
    if labels is None:
        return whole
    return GroupedDCalibration(whole, _by_group(measure, labels, u, happened, t, g))


def within_interval(u: Array, before: Array, event: npt.NDArray[np.bool_], seed: int) -> Array:
    """Draw the F of each event evenly from the interval that its time stands for; censored rows keep its end."""
    check_same_length("cdf_before", before, "cdf", u.size)
    wrong = before > u
    if wrong.any():
        row = first_row(wrong)
        fail("cdf_before", f"at most cdf, {u[row]}", before[row], row)
    # From one source for all rows, whatever else is drawn later: "simulated" starts its own from the same seed.
    share = np.random.default_rng([seed, 1]).random(u.size)
    return np.where(event, before + share * (u - before), u)


def ties_caution(time: Array, event: npt.NDArray[np.bool_], edges: Edges) -> str | None:
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


def _by_group(
    measure: Callable[..., DCalibrationResult],
    labels: Array,
    u: Array,
    event: npt.NDArray[np.bool_],
    time: Array | None,
    censoring_survival: Array | None,
) -> dict[Any, DCalibrationResult]:
    """One result for each label, in the order of the labels."""
    results = {}
    for label in np.unique(labels):
        own = labels == label
        if censoring_survival is not None and not event[own].any():
            fail("groups", "an event in every group, as method='ipcw' uses events only", f"none in group {label}")
        t, g = (None if values is None else values[own] for values in (time, censoring_survival))
        results[label.item() if labels.dtype.kind in "biufU" else label] = measure(u[own], event[own], t, g)
    return results


def as_labels(groups: Any, n: int, *, reference: str = "cdf") -> Array:
    """One label per row: numbers, strings or dates, none missing."""
    refuse_masked("groups", groups)
    labels: Any = groups.detach().cpu().numpy() if hasattr(groups, "detach") else groups
    one_each = "a one-dimensional array, one label per row"
    if not (isinstance(labels, np.ndarray) and labels.dtype.kind in "biuU"):
        # Looked at one by one before numpy sees them, which would turn a missing label into the string "nan".
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            fail("groups", one_each, repr(labels))
        listed = list(labels)
        missing = np.array([_is_missing(label) for label in listed], dtype=np.bool_)
        if missing.any():
            row = first_row(missing)
            fail("groups", "a label for every row", listed[row], row)
        if len({type(label) for label in listed}) > 1:
            fail("groups", "labels of one type", f"{type(listed[0]).__name__} and others")
        try:
            labels = np.asarray(labels)
        except ValueError:
            fail("groups", one_each, "rows of different lengths")
    if labels.ndim != 1:
        fail("groups", one_each, f"shape {labels.shape}")
    check_same_length("groups", labels, reference, n)
    return np.asarray(labels)


def _is_missing(label: Any) -> bool:
    """None, NaN, NaT and pandas' NA: what is not equal to itself, or cannot say."""
    try:
        return label is None or bool(label != label)  # noqa: PLR0124 - that is the definition of NaN
    except (TypeError, ValueError):
        return True


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


def as_censoring_survival(values: Any, event: npt.NDArray[np.bool_], *, every_row: bool = False) -> Array:
    """Check the user's G at each row: in (0, 1] for events, and for `every_row` where censored rows use it too."""
    g = as_floats("censoring_survival", values)
    check_same_length("censoring_survival", g, "cdf", event.size)
    bad = ~((g > 0) & (g <= 1)) & (event | every_row)
    if bad.any():
        row = first_row(bad)
        fail("censoring_survival", f"probabilities in (0, 1] for every {'row' if every_row else 'event'}", g[row], row)
    if not event.any():
        fail("event", "at least one event, as method='ipcw' uses events only", "none")
    return g


def pearson_caution(n: int, n_censored: int) -> str | None:
    """Return what to tell a user where Pearson's test has lost its meaning."""
    if n_censored <= n / 2:
        return None
    return (
        f"{n_censored / n:.0%} of the rows are censored: Pearson's p-value is far too large and will hardly ever "
        "reject a miscalibrated model. Use p_value='akritas' or 'simulated'."
    )


def _measure(
    u: Array,
    event: npt.NDArray[np.bool_],
    time: Array | None,
    censoring_survival: Array | None,
    *,
    edges: Edges,
    method: Method,
    p_value: PValue | None,
    n_simulations: int,
    seed: int,
) -> DCalibrationResult:
    """Masses and test of one set of rows."""
    sums = None
    if method == "uniform" or p_value == "akritas":
        sums = BinSums(edges)
        sums.add(u, event, hazard=p_value == "akritas")
    if method == "uniform":
        assert sums is not None
        masses = sums.uniform()
    elif method == "km":
        masses = redistributed(u, event, u, edges)
    elif censoring_survival is None:
        assert time is not None
        masses = redistributed(u, event, time, edges)
    else:
        masses = weighted(*inverse_weights(u, event, censoring_survival, edges, time), edges)

    n, n_censored = u.size, int(u.size - np.count_nonzero(event))
    test: Test | None = None
    if p_value == "akritas":
        assert sums is not None
        test = akritas(sums)
    elif p_value == "pearson":
        test = pearson(masses.histogram, n, edges)
    elif p_value == "simulated":
        rng = np.random.default_rng(seed)
        estimate, scale_free = _estimator(method, edges), method == "uniform"
        test = simulated(estimate, masses.histogram, u, event, edges, n_simulations, rng, scale_free=scale_free)
    return result(masses, edges, test, n, n_censored, method, p_value)


def result(
    masses: Masses,
    edges: Edges,
    test: Test | None,
    n: int,
    n_censored: int,
    method: Method,
    p_value: PValue | None,
) -> DCalibrationResult:
    """Put masses and test together."""
    return DCalibrationResult(
        value=masses.value(edges),
        floor=masses.floor,
        histogram=masses.histogram,
        edges=edges,
        statistic=None if test is None else test.statistic,
        p_value=None if test is None else test.p_value,
        df=None if test is None else test.df,
        n=n,
        n_censored=n_censored,
        method=method,
        test=p_value,
    )


def _estimator(method: Method, edges: Edges) -> Any:
    """Masses of one simulated draw by the method in use."""

    def uniform(u: Floats, event: npt.NDArray[np.bool_]) -> Masses:
        sums = BinSums(edges)
        sums.add(u, event, hazard=False)
        return sums.uniform()

    def km(u: Floats, event: npt.NDArray[np.bool_]) -> Masses:
        return redistributed(u, event, u, edges, floor=False)

    return uniform if method == "uniform" else km


def inverse_weights(
    u: Array, event: npt.NDArray[np.bool_], g: Array, edges: Edges, time: Array | None = None
) -> tuple[Floats, Floats]:
    """Sum 1 / G over the events of each bin, and its square.

    With `time`, rows that outlast the last event count 1 / G as well and spread over [F, 1]: what happens after the end
    of the follow-up would otherwise be missing.
    """
    sums, squares = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
    counted = event if time is None else event | (time >= time[event].max())
    edge = edges_like(edges, u)
    f, happened, inverse = u[counted].astype(np.float64), event[counted], 1 / g[counted].astype(np.float64)
    bins, left = locate(f, edge), rest(f, edge)
    for j in range(edge.size - 1):
        spread = share_of_bin(j, bins, left, edge)
        share = inverse * np.where(happened, bins == j, spread)
        sums[j], squares[j] = share.sum(), np.square(share).sum()
    return sums, squares


def lost_mass_caution(total: float, squares: float, n: int) -> str | None:
    """Return what to tell a user whose events do not stand for everybody, given the sums of 1 / G and its square."""
    seen = total / n
    # Three standard errors below all rows, and by enough to matter.
    if seen + 3 * squares**0.5 / n > 0.97:
        return None
    return (
        f"the events, weighted by 1 / censoring_survival, stand for {seen:.0%} of the rows only: follow-up ended "
        "before the others could have theirs, and what they would add is missing. Give time as well, or use "
        "method='km'."
    )
