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
    hazard: Vector | None  # cumulative, lived through until the observed time or `at`
    time: FloatArray
    event: BoolArray
    at: float

    @property
    def had_event(self) -> BoolArray:
        """Rows whose event came by `at`."""
        return np.asarray(self.event & (self.time <= self.at))


@dataclass(frozen=True, eq=False)
class RiskGroups:
    """What the tests need of each risk group: counts and sums over its rows, each of shape (k,).

    Attributes
    ----------
    sizes, events, followed, ended
        Rows; rows with an event by `at`; rows followed until `at` or longer; and those or rows with an event.
    probability, hazard
        Sums of the predictions, and of the cumulative hazards lived through where they are known.
    known, known_probability
        Rows that were not censored before `at`, and the sum of their predictions.
    curve, variance
        One minus Kaplan-Meier at `at` and Greenwood's variance, where a test needs them.
    """

    sizes: Vector
    events: Vector
    followed: Vector
    ended: Vector
    probability: Vector
    hazard: Vector | None
    known: Vector
    known_probability: Vector
    curve: Vector | None = None
    variance: Vector | None = None


def sums_of(rows: Rows, label: Labels, *, curves: bool = False) -> RiskGroups:
    """Add up the rows of each risk group."""
    count = int(label.max()) + 1

    def total(values: npt.NDArray[Any]) -> Vector:
        return np.bincount(label, weights=values, minlength=count).astype(np.float64, copy=False)

    known = rows.event | (rows.time >= rows.at)
    own = [fit_kaplan_meier(rows.time[label == k], rows.event[label == k]) for k in range(count)] if curves else None
    return RiskGroups(
        sizes=np.bincount(label, minlength=count).astype(np.float64),
        events=total(rows.had_event),
        followed=total(rows.time >= rows.at),
        ended=total((rows.time >= rows.at) | rows.event),
        probability=total(rows.probability),
        hazard=None if rows.hazard is None else total(rows.hazard),
        known=total(known),
        known_probability=total(rows.probability * known),
        curve=None if own is None else np.array([1 - float(curve.at(rows.at)) for curve in own]),
        variance=None if own is None else np.array([float(curve.variance(rows.at)) for curve in own]),
    )


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


def joined(counts: list[Vector], wanted: list[float]) -> Labels:
    """Join risk groups from low to high until each has enough of every count; gives the new number of each.

    What is left joins the last of them.
    """
    of_group = np.array(counts)
    new, current, so_far = np.empty(of_group.shape[1], dtype=np.int64), 0, np.zeros(len(counts))
    for group in range(new.size):
        new[group] = current
        so_far = so_far + of_group[:, group]
        if (so_far >= wanted).all() and group < new.size - 1:
            current, so_far = current + 1, np.zeros(len(counts))
    if (so_far < wanted).any() and current > 0:
        new[new == current] = current - 1
    return new


_Joining = tuple[list[Vector], list[float]]


def _by_observed(groups: RiskGroups, min_events: int) -> _Joining:
    return [groups.events], [min_events]


def _by_expected(groups: RiskGroups, min_events: int) -> _Joining:
    assert groups.hazard is not None
    return [groups.hazard], [min_events]


def _by_expected_and_at_risk(groups: RiskGroups, min_events: int) -> _Joining:
    return [groups.probability, groups.followed], [min_events, _MIN_AT_RISK if min_events else 0]


def _over_variance(predicted: Vector, observed: Vector, variance: Vector, sizes: Vector) -> Compared:
    """Squared distance over variance; a group without variance adds nothing if it agrees exactly, else infinity."""
    squared = np.square(observed - predicted)
    missing = np.where(squared == 0, 0.0, np.inf)
    terms = np.divide(squared, variance, out=missing, where=variance > 0)
    return Compared(predicted, observed, terms, sizes.astype(np.int64))


def _hosmer_lemeshow(groups: RiskGroups) -> Compared:
    """Rows censored before `at` say nothing about it and are dropped; one censored exactly then had no event yet."""
    some = groups.known > 0
    sizes = groups.known[some]
    predicted, observed = groups.known_probability[some] / sizes, groups.events[some] / sizes
    return _over_variance(predicted, observed, predicted * (1 - predicted) / sizes, sizes)


def _kaplan_meier_groups(groups: RiskGroups) -> tuple[Vector, Vector, Vector, Vector]:
    """Mean prediction, one minus Kaplan-Meier, Greenwood's variance and size of each group."""
    assert groups.curve is not None
    assert groups.variance is not None
    return groups.probability / groups.sizes, groups.curve, groups.variance, groups.sizes


def _dagostino_nam(groups: RiskGroups) -> Compared:
    predicted, observed, _, sizes = _kaplan_meier_groups(groups)
    return _over_variance(predicted, observed, predicted * (1 - predicted) / sizes, sizes)


def _greenwood_nam_dagostino(groups: RiskGroups) -> Compared:
    predicted, observed, variance, sizes = _kaplan_meier_groups(groups)
    variance = np.where(variance > 0, variance, predicted * (1 - predicted) / sizes)
    return _over_variance(predicted, observed, variance, sizes)


def _effective_size(groups: RiskGroups) -> Compared:
    """Variance at the prediction, as under the null, with as many rows as Greenwood's variance says the curve is worth.

    Greenwood's own is that of the observed curve: too small just where the curve happens to be off, which is why a test
    with it rejects too often. Where nobody or everybody had the event it is zero; then only the rows still under
    observation count, or those with the event.
    """
    predicted, observed, variance, sizes = _kaplan_meier_groups(groups)
    known = variance > 0
    worth = np.where(known, observed * (1 - observed) / np.where(known, variance, 1.0), np.maximum(groups.ended, 1.0))
    return _over_variance(predicted, observed, predicted * (1 - predicted) / worth, sizes)


def _hazard_groups(groups: RiskGroups) -> tuple[Vector, Vector, Vector]:
    """Events per row of each group, expected and observed, and its size.

    A row followed until u = min(T, at) was expected to have H(u) = -log(1 - F(u)) events; observed less expected is
    a martingale whose variance is the expectation of H(u), whatever the censoring.
    """
    assert groups.hazard is not None
    return groups.hazard / groups.sizes, groups.events / groups.sizes, groups.sizes


def _gronnesby_borgan(groups: RiskGroups) -> Compared:
    expected, observed, sizes = _hazard_groups(groups)
    return _over_variance(expected, observed, expected / sizes, sizes)


def _likelihood_ratio(groups: RiskGroups) -> Compared:
    """If the group's hazard is c times the predicted one, its likelihood is in proportion to c^o exp(-c e).

    Twice the log of its ratio between c = o / e, the largest, and c = 1 is chi-square with few events already, where
    (o - e)^2 / e is skewed.
    """
    expected, observed, sizes = _hazard_groups(groups)
    # Without any hazard no event is possible: one refutes the model, none agrees with it.
    possible = expected > 0
    ratio = observed / np.where(possible, expected, 1.0)
    terms = 2 * sizes * np.maximum(xlogy(observed, ratio) - (observed - expected), 0.0)
    terms = np.where(possible, terms, np.where(observed > 0, np.inf, 0.0))
    return Compared(expected, observed, terms, sizes.astype(np.int64))


@dataclass(frozen=True)
class _Test:
    """Which risk groups are too small to stand alone, what is compared in the others, and what that needs."""

    joined_by: Callable[[RiskGroups, int], _Joining]
    compare: Callable[[RiskGroups], Compared]
    needs_cdf: bool = False
    needs_curves: bool = False


TESTS: dict[Method, _Test] = {
    "likelihood-ratio": _Test(_by_expected, _likelihood_ratio, needs_cdf=True),
    "effective-size": _Test(_by_expected_and_at_risk, _effective_size, needs_curves=True),
    "hosmer-lemeshow": _Test(_by_observed, _hosmer_lemeshow),
    "gronnesby-borgan": _Test(_by_observed, _gronnesby_borgan, needs_cdf=True),
    "dagostino-nam": _Test(_by_observed, _dagostino_nam, needs_curves=True),
    "greenwood-nam-dagostino": _Test(_by_observed, _greenwood_nam_dagostino, needs_curves=True),
}


def chi_square(terms: Vector, ddof: int) -> tuple[float, float, int]:
    """Statistic, p-value and degrees of freedom."""
    dof = terms.size - ddof
    if terms.size == 0 or np.isnan(terms).any():
        return float("nan"), float("nan"), dof
    statistic = float(terms.sum())
    return statistic, float(chdtrc(dof, statistic)) if dof > 0 else float("nan"), dof
