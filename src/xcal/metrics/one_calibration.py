"""One-calibration: predicted against observed event probability at one time, in risk groups.

A risk group is a set of rows with similar predictions. It is made here, from the predictions; a subgroup, such as
women, is given by the user.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xcal._checks import MANY, BoolArray, FloatArray, as_probability, check_same_length, fail
from xcal.calibration.histogram import cumulative_hazard
from xcal.metrics.inputs import Vector, as_choice, as_count, as_outcome, as_time_point
from xcal.metrics.risk_group_tests import TESTS, Method, Rows, chi_square, group_labels, joined, sums_of


@dataclass(frozen=True, eq=False)
class OneCalibration:
    """A goodness-of-fit test at one time and the risk groups behind it.

    Attributes
    ----------
    p_value, statistic : float
        Chi-square test of predicted against observed; a small p-value speaks against calibration. NaN where nothing
        can be observed, see `one_calibration`.
    degrees_of_freedom : int
        Risk groups less `ddof`.
    predicted, observed : arrays, shape (k,)
        Per risk group, from low to high: mean predicted and observed event probability by time `at`; for
        "likelihood-ratio" and "gronnesby-borgan" expected and observed events divided by the group's rows.
    sizes : int array, shape (k,)
        Rows of each risk group that took part.
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
    method: Method | None = None,
    cdf: Any = None,
    n_risk_groups: int = 10,
    min_events: int = 5,
    ddof: int = 0,
    outside: Literal["nan", "raise", "clip"] = "nan",
) -> OneCalibration:
    r"""Test whether the predicted probabilities of an event by one time agree with what was observed.

    The rows are put into risk groups of about equal size by their prediction; equal predictions stay together. For
    every group with n rows, mean prediction p and observed value o the statistic adds :math:`(o - p)^2 / v`.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`, F(at).
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    method : str, optional
        By default one of the first two, which hold their size: "likelihood-ratio" if `cdf` is given, else
        "effective-size". The others are kept for comparison with what is published; see the table of sizes in the
        documentation.

        * "likelihood-ratio": o and e are the observed and expected number of events until `at`, the latter the sum of
          the cumulative hazards each row was exposed to. The statistic adds 2 (o log(o / e) - (o - e)), the likelihood
          ratio of a factor on the group's hazard. Needs `cdf`.
        * "effective-size": o is one minus the group's Kaplan-Meier curve and v = p (1 - p) / m, with m the number of
          uncensored rows that would know o as well, o (1 - o) over Greenwood's variance.
        * "gronnesby-borgan": o and p are observed and expected events as in "likelihood-ratio", v the expected number.
          Needs `cdf`.
        * "greenwood-nam-dagostino": o is one minus the group's Kaplan-Meier curve and v Greenwood's variance, or
          p (1 - p) / n for a group in which all or none had their event, where Greenwood's variance is zero. Rejects a
          perfect model too often unless groups have many events.
        * "dagostino-nam": the same with v = p (1 - p) / n, which is too small under censoring; the form given in the
          X-CAL paper.
        * "hosmer-lemeshow": rows censored before `at` are dropped and o is the share with an event among the rest,
          v = p (1 - p) / n. Dropping rows makes o too large under censoring.
    cdf : array-like, shape (n,), optional
        F at each row's observed time, for "likelihood-ratio" and "gronnesby-borgan".
    n_risk_groups : int
        Risk groups asked for; fewer when many predictions are equal.
    min_events : int
        Groups with fewer events than this by time `at` are joined with their neighbour of higher risk, as Demler et al.
        advise; 0 joins none. The first two methods count the events that the model expects, as a choice of groups by
        what happened would favour what happened; "effective-size" also joins groups with fewer than ten rows still
        under observation at `at`.
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
        1, was contradicted. Where hazards are compared, a row with F = 1 counts with the largest hazard that its type
        can write. Groups with few expected events make the chi-square approximation poor.

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
    times_seen, happened = as_outcome(time, event, probability=probability, cdf=cdf)
    predicted = _as_rows("probability", probability, times_seen.size)
    moment = as_time_point("at", at)
    own = None if cdf is None else _as_rows("cdf", cdf, times_seen.size)
    method = checked_method(method, own is not None)
    as_choice("outside", outside, ("nan", "raise", "clip"))
    as_count("n_risk_groups", n_risk_groups, at_least=1, at_most=MANY)
    as_count("min_events", min_events, at_least=0, at_most=MANY)
    as_count("ddof", ddof, at_least=0, at_most=MANY)
    last = float(times_seen.max())
    if moment > last and outside == "raise":
        fail("at", f"a time within the follow-up, at most {last}", moment)
    rows = _followed(predicted, own, times_seen, happened, min(moment, last))
    test, label = TESTS[method], group_labels(rows.probability, n_risk_groups)
    label = joined(*test.joined_by(sums_of(rows, label), min_events))[label]
    compared = test.compare(sums_of(rows, label, curves=test.needs_curves))
    if moment > last and outside == "nan":
        unknown = np.full_like(compared.observed, np.nan)
        compared = replace(compared, observed=unknown, terms=unknown)
    statistic, p_value, dof = chi_square(compared.terms, ddof)
    return OneCalibration(
        p_value, statistic, dof, compared.predicted, compared.observed, compared.sizes, rows.at, method
    )


def checked_method(method: Method | None, has_cdf: bool) -> Method:
    """Test to use: the default depends on whether F at the observed times is given."""
    if method is None:
        return "likelihood-ratio" if has_cdf else "effective-size"
    as_choice("method", method, tuple(TESTS))
    if TESTS[method].needs_cdf and not has_cdf:
        fail("cdf", "F at each row's observed time, which this method needs", None)
    return method


def _followed(
    predicted: FloatArray, own_cdf: FloatArray | None, time: FloatArray, event: BoolArray, end: float
) -> Rows:
    """Rows as followed until `end`: with the hazard up to their observed time or, if that is later, up to `end`."""
    hazard = None if own_cdf is None else lived_hazard(predicted, own_cdf, time, end)
    return Rows(predicted.astype(np.float64, copy=False), hazard, time, event, end)


def lived_hazard(predicted: FloatArray, own_cdf: FloatArray, time: FloatArray, end: float) -> Vector:
    """Cumulative hazard up to the observed time or, if that is later, up to `end`."""
    return np.where(time <= end, cumulative_hazard(own_cdf), cumulative_hazard(predicted))


def _as_rows(name: str, values: Any, n: int) -> FloatArray:
    """One probability for each of the n rows, in its own type."""
    array = as_probability(name, values)
    check_same_length(name, array, "time", n)
    return array
