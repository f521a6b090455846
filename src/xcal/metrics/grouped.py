"""One-calibration: predicted against observed event probability at one time, in groups of similar prediction."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from xcal._checks import BoolArray, FloatArray, fail
from xcal.metrics.inputs import Vector, as_choice, as_count, as_outcome, as_row_probability, as_time_point
from xcal.metrics.nonparametric import fit_kaplan_meier

Method = Literal["hosmer-lemeshow", "gronnesby-borgan", "dagostino-nam", "greenwood-nam-dagostino"]


@dataclass(frozen=True, eq=False)
class OneCalibration:
    """A goodness-of-fit test at one time and the groups behind it.

    Attributes
    ----------
    p_value, statistic : float
        Chi-square test of predicted against observed; a small p-value speaks against calibration. NaN where nothing
        can be observed, see `one_calibration`.
    degrees_of_freedom : int
        Groups less `ddof`.
    predicted, observed : arrays, shape (k,)
        Per group, from low to high risk: mean predicted and observed event probability by time `at`; for
        "gronnesby-borgan" expected and observed events divided by the group's rows.
    sizes : int array, shape (k,)
        Rows of each group that took part.
    at : float
        The time.
    method : str
        The test.
    """

    p_value: float
    statistic: float
    degrees_of_freedom: int
    predicted: Vector
    observed: Vector
    sizes: npt.NDArray[np.int64]
    at: float
    method: Method


def one_calibration(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    method: Method = "greenwood-nam-dagostino",
    cdf: Any = None,
    n_groups: int = 10,
    min_events: int = 5,
    ddof: int = 0,
    outside: Literal["nan", "raise", "clip"] = "nan",
) -> OneCalibration:
    r"""Test whether the predicted probabilities of an event by one time agree with what was observed.

    The rows are put into groups of about equal size by their prediction; equal predictions stay together. For every
    group with n rows, mean prediction p and observed value o the statistic adds :math:`(o - p)^2 / v`.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`, F(at).
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    method : str
        * "hosmer-lemeshow": rows censored before `at` are dropped and o is the share with an event among the rest,
          v = p (1 - p) / n. Dropping rows makes o too large under censoring.
        * "dagostino-nam": o is one minus the group's Kaplan-Meier curve, v = p (1 - p) / n, which is too small under
          censoring; the form given in the X-CAL paper.
        * "greenwood-nam-dagostino": the same with Greenwood's variance of the Kaplan-Meier curve as v, or p (1 - p) / n
          for a group in which all or none had their event, where Greenwood's variance is zero.
        * "gronnesby-borgan": o and p are the observed and expected number of events until `at`, the latter the sum of
          the cumulative hazards each row was exposed to, and v the expected number. Needs `cdf`.
    cdf : array-like, shape (n,), optional
        F at each row's own time, for "gronnesby-borgan".
    n_groups : int
        Groups asked for; fewer when many predictions are equal.
    min_events : int
        Groups with fewer events than this by time `at` are joined with their neighbour of higher risk, as Demler et al.
        advise: with a handful of events Greenwood's variance is too uncertain for a chi-square. 0 joins none.
    ddof : int
        Degrees of freedom lost. 0 is right for predictions fixed before seeing these rows. On the rows a model was
        fitted on, the customary values are 2 for Hosmer-Lemeshow and 1 for the others.
    outside : {"nan", "raise", "clip"}
        When `at` is after the largest of `time`: give NaN, refuse, or test at the largest time instead. A group whose
        own last row is earlier keeps its last Kaplan-Meier value.

    Returns
    -------
    OneCalibration
        The p-value is NaN when no degree of freedom is left, and 0 when a group of certain predictions, all 0 or all
        1, was contradicted. Groups with few expected events make the chi-square approximation poor.

    References
    ----------
    Hosmer, Lemeshow (1980); Grønnesby, Borgan (1996), Lifetime Data Analysis 2:315-328; D'Agostino, Nam (2003),
    Handbook of Statistics 23:1-25; Demler, Paynter, Cook (2015), Statistics in Medicine 34(10):1659-1680.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=1000)
    >>> time = rng.exponential(1 / rate)
    >>> right = one_calibration(1 - np.exp(-rate), at=1.0, time=time, event=np.ones(1000))
    >>> wrong = one_calibration(1 - np.exp(-2 * rate), at=1.0, time=time, event=np.ones(1000))
    >>> right.p_value > 0.01, wrong.p_value < 1e-6
    (True, True)
    """
    times_seen, happened = as_outcome(time, event)
    predicted = as_row_probability("probability", probability, times_seen.size)
    moment = as_time_point("at", at)
    as_choice("method", method, tuple(_METHODS))
    as_choice("outside", outside, ("nan", "raise", "clip"))
    as_count("n_groups", n_groups, at_least=1)
    as_count("min_events", min_events, at_least=0)
    as_count("ddof", ddof, at_least=0)
    own = None if cdf is None else as_row_probability("cdf", cdf, times_seen.size)
    if method == "gronnesby-borgan" and own is None:
        fail("cdf", "F at each row's own time, which this method needs", None)
    last = float(times_seen.max())
    if moment > last and outside == "raise":
        fail("at", f"a time within the follow-up, at most {last}", moment)
    end = min(moment, last)
    label = _joined(_labels(predicted, n_groups), happened & (times_seen <= end), min_events)
    groups = _Groups(predicted, own, times_seen, happened, end, label)
    means, observed, variance, sizes = _METHODS[method](groups)
    if moment > last and outside == "nan":
        observed = np.full_like(observed, np.nan)
    statistic, p_value, dof = _chi_square(means, observed, variance, ddof)
    return OneCalibration(p_value, statistic, dof, means, observed, sizes, groups.at, method)


@dataclass(frozen=True, eq=False)
class _Groups:
    probability: Vector
    cdf: Vector | None
    time: FloatArray
    event: BoolArray
    at: float
    label: npt.NDArray[np.int64]


_Compared = tuple[Vector, Vector, Vector, npt.NDArray[np.int64]]


def _labels(predicted: Vector, n_groups: int) -> npt.NDArray[np.int64]:
    """Group of each row by the rank of its prediction, equal predictions together, numbered without gaps."""
    ordered = np.sort(predicted)
    edges = ordered[np.arange(1, n_groups) * predicted.size // n_groups]
    _, label = np.unique(np.searchsorted(edges, predicted, side="right"), return_inverse=True)
    return np.asarray(label, dtype=np.int64)


def _joined(label: npt.NDArray[np.int64], happened: BoolArray, min_events: int) -> npt.NDArray[np.int64]:
    """Join groups from low to high risk until each has enough events; what is left joins the last of them."""
    new, current, events = np.empty(label.max() + 1, dtype=np.int64), 0, 0
    counts = np.bincount(label, weights=happened)
    for group, count in enumerate(counts):
        new[group] = current
        events += int(count)
        if events >= min_events and group < counts.size - 1:
            current, events = current + 1, 0
    if events < min_events and current > 0:
        new[new == current] = current - 1
    return new[label]


def _group_means(label: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> tuple[Vector, npt.NDArray[np.int64]]:
    sizes = np.bincount(label)
    return np.bincount(label, weights=values) / sizes, sizes


def _hosmer_lemeshow(groups: _Groups) -> _Compared:
    """Rows censored before `at` say nothing about it and are dropped; one censored exactly then had no event yet."""
    known = groups.event | (groups.time >= groups.at)
    if not known.any():
        return np.empty(0), np.empty(0), np.empty(0), np.empty(0, dtype=np.int64)
    _, label = np.unique(groups.label[known], return_inverse=True)
    happened = (groups.event & (groups.time <= groups.at))[known]
    predicted, sizes = _group_means(label, groups.probability[known])
    observed, _ = _group_means(label, happened)
    return predicted, observed, predicted * (1 - predicted) / sizes, sizes


def _kaplan_meier_groups(groups: _Groups) -> tuple[Vector, Vector, Vector, npt.NDArray[np.int64]]:
    """Mean prediction, one minus Kaplan-Meier, Greenwood's variance and size of each group."""
    predicted, sizes = _group_means(groups.label, groups.probability)
    observed, variance = np.empty_like(predicted), np.empty_like(predicted)
    for k in range(sizes.size):
        rows = groups.label == k
        curve = fit_kaplan_meier(groups.time[rows], groups.event[rows])
        observed[k] = 1 - curve.at(groups.at)
        variance[k] = curve.variance(groups.at)
    return predicted, observed, variance, sizes


def _dagostino_nam(groups: _Groups) -> _Compared:
    predicted, observed, _, sizes = _kaplan_meier_groups(groups)
    return predicted, observed, predicted * (1 - predicted) / sizes, sizes


def _greenwood_nam_dagostino(groups: _Groups) -> _Compared:
    predicted, observed, variance, sizes = _kaplan_meier_groups(groups)
    return predicted, observed, np.where(variance > 0, variance, predicted * (1 - predicted) / sizes), sizes


def _gronnesby_borgan(groups: _Groups) -> _Compared:
    """Count events against the hazard lived through.

    A row followed until u = min(T, at) was expected to have H(u) = -log(1 - F(u)) events; observed less expected is
    a martingale whose variance is the expectation of H(u), whatever the censoring.
    """
    assert groups.cdf is not None
    reached = np.where(groups.time <= groups.at, groups.cdf, groups.probability)
    with np.errstate(divide="ignore"):  # F = 1 says that the row cannot have lasted: an infinite expectation
        hazard = -np.log1p(-reached)
    expected, sizes = _group_means(groups.label, hazard)
    observed, _ = _group_means(groups.label, groups.event & (groups.time <= groups.at))
    return expected, observed, expected / sizes, sizes


_METHODS: dict[Method, Callable[[_Groups], _Compared]] = {
    "hosmer-lemeshow": _hosmer_lemeshow,
    "gronnesby-borgan": _gronnesby_borgan,
    "dagostino-nam": _dagostino_nam,
    "greenwood-nam-dagostino": _greenwood_nam_dagostino,
}


def _chi_square(predicted: Vector, observed: Vector, variance: Vector, ddof: int) -> tuple[float, float, int]:
    """Statistic, p-value and degrees of freedom; a group without variance adds nothing if it agrees exactly."""
    dof = predicted.size - ddof
    squared = np.square(observed - predicted)
    if predicted.size == 0 or np.isnan(squared).any():
        return float("nan"), float("nan"), dof
    missing = np.where(squared == 0, 0.0, np.inf)
    terms = np.divide(squared, variance, out=missing, where=variance > 0)
    statistic = float(terms.sum())
    return statistic, float(chdtrc(dof, statistic)) if dof > 0 else float("nan"), dof
