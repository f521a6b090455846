"""The tests behind one-calibration: which risk groups stand alone, and what is compared in each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, xlogy

from xcal._checks import BoolArray, FloatArray
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.metrics.inputs import Vector

Method = Literal[
    "likelihood-ratio",
    "effective-size",
    "hosmer-lemeshow",
    "gronnesby-borgan",
    "dagostino-nam",
    "greenwood-nam-dagostino",
]
# Fewer rows under observation at the end of a Kaplan-Meier curve than this, and its error is far from normal.
_MIN_AT_RISK = 10
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Predictions and outcomes, looked at until time `at`."""

    probability: Vector
    hazard: Vector | None  # cumulative, lived through until the own time or `at`
    time: FloatArray
    event: BoolArray
    at: float

    @property
    def had_event(self) -> BoolArray:
        """Rows whose event came by `at`."""
        return np.asarray(self.event & (self.time <= self.at))


@dataclass(frozen=True, eq=False)
class Compared:
    """Of each risk group: predicted and observed value, its term of the statistic, and its rows."""

    predicted: Vector
    observed: Vector
    terms: Vector
    sizes: npt.NDArray[np.int64]


def group_labels(predicted: Vector, n_groups: int) -> Labels:
    """Risk group of each row by the rank of its prediction, equal predictions together, numbered without gaps."""
    ordered = np.sort(predicted)
    edges = ordered[np.arange(1, n_groups) * predicted.size // n_groups]
    _, label = np.unique(np.searchsorted(edges, predicted, side="right"), return_inverse=True)
    return np.asarray(label, dtype=np.int64)


def joined(label: Labels, counts: list[Vector | BoolArray], wanted: list[float]) -> Labels:
    """Join risk groups from low to high until each has enough of every count; what is left joins the last of them."""
    of_group = np.array([np.bincount(label, weights=count) for count in counts])
    new, current, so_far = np.empty(label.max() + 1, dtype=np.int64), 0, np.zeros(len(counts))
    for group in range(new.size):
        new[group] = current
        so_far = so_far + of_group[:, group]
        if (so_far >= wanted).all() and group < new.size - 1:
            current, so_far = current + 1, np.zeros(len(counts))
    if (so_far < wanted).any() and current > 0:
        new[new == current] = current - 1
    return new[label]


_Joining = tuple[list[Vector | BoolArray], list[float]]


def _by_observed(rows: Rows, min_events: int) -> _Joining:
    return [rows.had_event], [min_events]


def _by_expected(rows: Rows, min_events: int) -> _Joining:
    assert rows.hazard is not None
    return [rows.hazard], [min_events]


def _by_expected_and_at_risk(rows: Rows, min_events: int) -> _Joining:
    return [rows.probability, rows.time >= rows.at], [min_events, _MIN_AT_RISK if min_events else 0]


def _group_means(label: Labels, values: npt.NDArray[Any]) -> tuple[Vector, npt.NDArray[np.int64]]:
    sizes = np.bincount(label)
    return np.bincount(label, weights=values) / sizes, sizes


def _over_variance(predicted: Vector, observed: Vector, variance: Vector, sizes: npt.NDArray[np.int64]) -> Compared:
    """Squared distance over variance; a group without variance adds nothing if it agrees exactly, else infinity."""
    squared = np.square(observed - predicted)
    missing = np.where(squared == 0, 0.0, np.inf)
    terms = np.divide(squared, variance, out=missing, where=variance > 0)
    return Compared(predicted, observed, terms, sizes)


def _hosmer_lemeshow(rows: Rows, label: Labels) -> Compared:
    """Rows censored before `at` say nothing about it and are dropped; one censored exactly then had no event yet."""
    known = rows.event | (rows.time >= rows.at)
    if not known.any():
        return Compared(np.empty(0), np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))
    _, label = np.unique(label[known], return_inverse=True)
    predicted, sizes = _group_means(label, rows.probability[known])
    observed, _ = _group_means(label, rows.had_event[known])
    return _over_variance(predicted, observed, predicted * (1 - predicted) / sizes, sizes)


def _kaplan_meier_groups(rows: Rows, label: Labels) -> tuple[Vector, Vector, Vector, npt.NDArray[np.int64]]:
    """Mean prediction, one minus Kaplan-Meier, Greenwood's variance and size of each group."""
    predicted, sizes = _group_means(label, rows.probability)
    observed, variance = np.empty_like(predicted), np.empty_like(predicted)
    for k in range(sizes.size):
        own = label == k
        curve = fit_kaplan_meier(rows.time[own], rows.event[own])
        observed[k] = 1 - curve.at(rows.at)
        variance[k] = curve.variance(rows.at)
    return predicted, observed, variance, sizes


def _dagostino_nam(rows: Rows, label: Labels) -> Compared:
    predicted, observed, _, sizes = _kaplan_meier_groups(rows, label)
    return _over_variance(predicted, observed, predicted * (1 - predicted) / sizes, sizes)


def _greenwood_nam_dagostino(rows: Rows, label: Labels) -> Compared:
    predicted, observed, variance, sizes = _kaplan_meier_groups(rows, label)
    variance = np.where(variance > 0, variance, predicted * (1 - predicted) / sizes)
    return _over_variance(predicted, observed, variance, sizes)


def _effective_size(rows: Rows, label: Labels) -> Compared:
    """Variance at the prediction, as under the null, with as many rows as Greenwood's variance says the curve is worth.

    Greenwood's own is that of the observed curve: too small just where the curve happens to be off, which is why a test
    with it rejects too often. Where nobody or everybody had the event it is zero; then only the rows still under
    observation count, or those with the event.
    """
    predicted, observed, variance, sizes = _kaplan_meier_groups(rows, label)
    at_end = np.bincount(label, weights=(rows.time >= rows.at) | rows.event)
    known = variance > 0
    worth = np.where(known, observed * (1 - observed) / np.where(known, variance, 1.0), np.maximum(at_end, 1.0))
    return _over_variance(predicted, observed, predicted * (1 - predicted) / worth, sizes)


def _hazard_groups(rows: Rows, label: Labels) -> tuple[Vector, Vector, npt.NDArray[np.int64]]:
    """Events per row of each group, expected and observed, and its size.

    A row followed until u = min(T, at) was expected to have H(u) = -log(1 - F(u)) events; observed less expected is
    a martingale whose variance is the expectation of H(u), whatever the censoring.
    """
    assert rows.hazard is not None
    expected, sizes = _group_means(label, rows.hazard)
    observed, _ = _group_means(label, rows.had_event)
    return expected, observed, sizes


def _gronnesby_borgan(rows: Rows, label: Labels) -> Compared:
    expected, observed, sizes = _hazard_groups(rows, label)
    return _over_variance(expected, observed, expected / sizes, sizes)


def _likelihood_ratio(rows: Rows, label: Labels) -> Compared:
    """If the group's hazard is c times the predicted one, its likelihood is in proportion to c^o exp(-c e).

    Twice the log of its ratio between c = o / e, the largest, and c = 1 is chi-square with few events already, where
    (o - e)^2 / e is skewed.
    """
    expected, observed, sizes = _hazard_groups(rows, label)
    # Without any hazard no event is possible: one refutes the model, none agrees with it.
    possible = expected > 0
    ratio = observed / np.where(possible, expected, 1.0)
    terms = 2 * sizes * np.maximum(xlogy(observed, ratio) - (observed - expected), 0.0)
    terms = np.where(possible, terms, np.where(observed > 0, np.inf, 0.0))
    return Compared(expected, observed, terms, sizes)


@dataclass(frozen=True)
class _Test:
    """Which risk groups are too small to stand alone, what is compared in the others, and whether that needs F."""

    joined_by: Callable[[Rows, int], _Joining]
    compare: Callable[[Rows, Labels], Compared]
    needs_cdf: bool = False


TESTS: dict[Method, _Test] = {
    "likelihood-ratio": _Test(_by_expected, _likelihood_ratio, needs_cdf=True),
    "effective-size": _Test(_by_expected_and_at_risk, _effective_size),
    "hosmer-lemeshow": _Test(_by_observed, _hosmer_lemeshow),
    "gronnesby-borgan": _Test(_by_observed, _gronnesby_borgan, needs_cdf=True),
    "dagostino-nam": _Test(_by_observed, _dagostino_nam),
    "greenwood-nam-dagostino": _Test(_by_observed, _greenwood_nam_dagostino),
}


def chi_square(terms: Vector, ddof: int) -> tuple[float, float, int]:
    """Statistic, p-value and degrees of freedom."""
    dof = terms.size - ddof
    if terms.size == 0 or np.isnan(terms).any():
        return float("nan"), float("nan"), dof
    statistic = float(terms.sum())
    return statistic, float(chdtrc(dof, statistic)) if dof > 0 else float("nan"), dof
