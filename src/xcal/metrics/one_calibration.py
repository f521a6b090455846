"""One-calibration: predicted against observed event probability at one time, in risk groups."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, xlogy

from xcal._checks import MANY, BoolArray, FloatArray, as_choice, as_count, as_probability, check_same_length, fail
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.calibration.histogram import cumulative_hazard
from xcal.data.surv import Outcome, as_outcome
from xcal.metrics.calibration_curve import group_labels
from xcal.metrics.cells import CellCounts, PairAccumulator, as_grid, sums_as_floats, unit_sums_by_bin
from xcal.metrics.inputs import Integers, Vector, as_row_probability, as_time_point, is_followed
from xcal.metrics.kaplan_meier_streaming import LIMIT, BoundedCurve, bounded_curve

# --- The tests behind one-calibration: which risk groups stand alone, and what is compared in each.

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


@dataclass(frozen=True, eq=False)
class Rows:
    """Predictions and outcomes, looked at until time `at`."""

    probability: Vector
    hazard: Vector | None  # cumulative, lived through until the observed time or `at`
    outcome: Outcome
    at: float


@dataclass(frozen=True, eq=False)
class RiskGroups:
    """What the tests need of each risk group: counts and sums over its rows, each of shape (k,).

    Attributes
    ----------
    sizes, events, followed
        Rows; rows with an event by `at`; and rows followed until `at` or longer.
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
    probability: Vector
    hazard: Vector | None
    known: Vector
    known_probability: Vector
    curve: Vector | None = None
    variance: Vector | None = None


def sums_of(rows: Rows, label: Integers, *, curves: bool = False) -> RiskGroups:
    """Add up the rows of each risk group."""
    count = int(label.max()) + 1

    def total(values: npt.NDArray[Any]) -> Vector:
        return np.bincount(label, weights=values, minlength=count).astype(np.float64, copy=False)

    time, event = rows.outcome.time, rows.outcome.event
    known = event | (time >= rows.at)
    own = [fit_kaplan_meier(time[label == k], event[label == k]) for k in range(count)] if curves else None
    return RiskGroups(
        sizes=np.bincount(label, minlength=count).astype(np.float64),
        events=total(rows.outcome.happened_by(rows.at)),
        followed=total(time >= rows.at),
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
    sizes: Integers


def joined(counts: list[Vector], wanted: list[float]) -> Integers:
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
    worth = np.where(known, observed * (1 - observed) / np.where(known, variance, 1.0), np.maximum(groups.known, 1.0))
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


# --- One-calibration: predicted against observed event probability at one time, in risk groups.
# A risk group is a set of rows with similar predictions. It is made here, from the predictions; a subgroup, such as
# women, is given by the user.


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
    sizes: Integers
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
    outcome = as_outcome(time, event, beside={"probability": probability, "cdf": cdf})
    predicted = _as_rows("probability", probability, outcome.n)
    moment = as_time_point("at", at)
    own = None if cdf is None else _as_rows("cdf", cdf, outcome.n)
    method = checked_method(method, own is not None)
    as_choice("outside", outside, ("nan", "raise", "clip"))
    as_count("n_risk_groups", n_risk_groups, at_least=1, at_most=MANY)
    as_count("min_events", min_events, at_least=0, at_most=MANY)
    as_count("ddof", ddof, at_least=0, at_most=MANY)
    known, end = is_followed(moment, outcome, outside), min(moment, outcome.last)
    # Rows as followed until then: with the hazard up to their observed time or, if that is later, up to the end.
    hazard = None if own is None else lived_hazard(predicted, own, outcome.time, end)
    rows = Rows(predicted.astype(np.float64, copy=False), hazard, outcome, end)
    test, label = TESTS[method], group_labels(rows.probability, n_risk_groups)
    label = joined(*test.joined_by(sums_of(rows, label), min_events))[label]
    compared = test.compare(sums_of(rows, label, curves=test.needs_curves))
    if not known:
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


def lived_hazard(predicted: FloatArray, own_cdf: FloatArray, time: FloatArray, end: float) -> Vector:
    """Cumulative hazard up to the observed time or, if that is later, up to `end`."""
    return np.where(time <= end, cumulative_hazard(own_cdf), cumulative_hazard(predicted))


def _as_rows(name: str, values: Any, n: int) -> FloatArray:
    """One probability for each of the n rows, in its own type."""
    array = as_probability(name, values)
    check_same_length(name, array, "time", n)
    return array


# --- One-calibration with fixed cuts over chunks, processes or files.

# No cumulative hazard is larger: that of the number just below one is 36.7.
_LARGEST_HAZARD = 64.0
_COUNTS = ("sizes", "events", "followed", "known")


@dataclass(frozen=True, eq=False)
class BoundedOneCalibration:
    """One-calibration, and the range of what was observed.

    Attributes
    ----------
    result : OneCalibration
    lower, upper : arrays, shape (k,)
        Range of the observed probability of each risk group; both equal to it where the times of all rows are known.
    exact : bool
        Whether `result` is that of the rows themselves.
    """

    result: OneCalibration
    lower: Vector = field(repr=False)
    upper: Vector = field(repr=False)
    exact: bool


class StreamingOneCalibration(PairAccumulator):
    """Accumulate one-calibration in risk groups with fixed cuts, without holding the rows; see `one_calibration`.

    Parameters
    ----------
    at : float
        The time.
    cuts : array-like, shape (k - 1,)
        Increasing probabilities between the risk groups; a prediction on a cut belongs to the group above. With the
        quantiles of the rows this is `one_calibration`.
    method : str, optional
        As there; "likelihood-ratio" if `uses_cdf`, else "effective-size". Tests that need no Kaplan-Meier curve
        ("likelihood-ratio", "gronnesby-borgan", "hosmer-lemeshow") are always exact.
    uses_cdf : bool
        Whether `update` is given F at the observed times.
    min_events, ddof : int
        As in `one_calibration`.
    grid : array-like, optional
        Fixed times of the cells up to `at`, which must be one of them.
    limit : int
        Distinct times kept without a grid, over all groups.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=1000)
    >>> time = rng.exponential(1 / rate)
    >>> meter = StreamingOneCalibration(at=1.0, cuts=[0.5, 0.7])
    >>> _ = meter.update(1 - np.exp(-rate), time=time, event=np.ones(1000))
    >>> meter.compute().result.p_value > 0.01
    True
    """

    def __init__(
        self,
        *,
        at: float,
        cuts: Any,
        method: Method | None = None,
        uses_cdf: bool = False,
        min_events: int = 5,
        ddof: int = 0,
        grid: Any = None,
        limit: int = LIMIT,
    ) -> None:
        self.at = as_time_point("at", at)
        self.cuts = as_grid("cuts", cuts) if np.size(cuts) else np.empty(0)
        k = self.cuts.size + 1
        if grid is not None and self.at not in (points := as_grid("grid", grid)):
            fail("grid", f"a grid with the time {self.at:g}", f"{points.size} other times")
        grids = None if grid is None else (grid, np.arange(k, dtype=np.float64))
        super().__init__(grids, limit, [self.at], labels=k)
        self.method = checked_method(method, uses_cdf)
        self.uses_cdf = uses_cdf
        self.min_events = as_count("min_events", min_events, at_least=0)
        self.ddof = as_count("ddof", ddof, at_least=0)
        if not TESTS[self.method].needs_curves:  # no times are kept
            self._cells.clear()
            self._sums = {"n": self._sums["n"]}
        self._sums |= {name: np.zeros(k, np.int64) for name in _COUNTS}
        self._sums |= {name: np.zeros((2, k), np.int64) for name in ("probability", "known_probability", "hazard")}

    def _settings(self) -> tuple[Any, ...]:
        return *super()._settings(), self.at, self.cuts, self.method, self.uses_cdf, self.min_events, self.ddof

    def update(self, probability: Any, *, time: Any, event: Any, cdf: Any = None) -> Self:
        """Add rows: probability of an event by `at`, the outcome, and with `uses_cdf` F at the observed times."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        outcome = as_outcome(time, event, beside={"probability": probability, "cdf": cdf})
        p = as_row_probability("probability", probability, outcome.n)
        if (cdf is None) == self.uses_cdf:
            fail("cdf", "F at the observed times with uses_cdf=True, else None", "None" if cdf is None else "an array")
        # In its own type: F = 1 counts with the largest hazard that the type can write.
        own = None if cdf is None else _as_rows("cdf", cdf, outcome.n)
        self.add(p, outcome.time, outcome.event, own)
        return self

    def add(self, p: FloatArray, time: FloatArray, event: BoolArray, cdf: FloatArray | None) -> None:
        """Add rows that were checked."""
        group = np.searchsorted(self.cuts, p, side="right")
        k = self.cuts.size + 1
        early, followed = event & (time <= self.at), time >= self.at
        marks = np.ones(time.size, np.bool_), early, followed, followed | event
        for name, mark in zip(_COUNTS, marks, strict=True):
            self._sums[name] += np.bincount(group[mark], minlength=k)
        self._sums["probability"] += unit_sums_by_bin(group, p, k)
        self._sums["known_probability"] += unit_sums_by_bin(group, p * marks[-1], k)
        if cdf is not None:
            hazard = lived_hazard(p, cdf, time, self.at)
            self._sums["hazard"] += unit_sums_by_bin(group, hazard / _LARGEST_HAZARD, k)
        if TESTS[self.method].needs_curves:
            # What comes after `at` is one cell: the curve is read at `at`.
            until = np.where(time > self.at, np.nextafter(self.at, np.inf), time)
            self._count(until, group.astype(np.float64), early)
        else:
            self._sums["n"] += time.size

    def compute(self) -> BoundedOneCalibration:
        """Return the test on all rows seen so far; NaN where no row was followed until `at`."""
        self._need_rows()
        test = TESTS[self.method]
        label = np.cumsum(self._sums["sizes"] > 0) - 1  # empty groups are no groups
        label = np.maximum(label, 0)
        label = joined(*test.joined_by(self._groups(label), self.min_events))[label]
        groups, curves = self._groups(label), None
        if test.needs_curves:
            curves = self._curves(label)
            observed = np.array([1 - float(c.curve.at(self.at)) for c in curves])
            variance = np.array([float(c.curve.variance(self.at)) for c in curves])
            groups = replace(groups, curve=observed, variance=variance)
        compared = test.compare(groups)
        if not self._sums["followed"].any():
            unknown = np.full_like(compared.observed, np.nan)
            compared = replace(compared, observed=unknown, terms=unknown)
        statistic, p_value, dof = chi_square(compared.terms, self.ddof)
        values = compared.predicted, compared.observed, compared.sizes
        result = OneCalibration(p_value, statistic, dof, *values, self.at, self.method)
        if curves is None:
            return BoundedOneCalibration(result, compared.observed, compared.observed, True)
        ends = [curve.bounds(self.at) for curve in curves]
        lower, upper = (np.array([1 - float(end[side]) for end in ends]) for side in (1, 0))
        return BoundedOneCalibration(result, lower, upper, all(curve.exact for curve in curves))

    def _groups(self, label: Integers) -> RiskGroups:
        """Add up the groups that share a label."""
        size = int(label.max()) + 1

        def total(name: str) -> Vector:
            return np.bincount(label, self._sums[name].astype(np.float64), minlength=size).astype(np.float64)

        def exact(name: str, scale: float = 1.0) -> Vector:
            found: Integers = np.zeros((2, size), np.int64)
            for limb in (0, 1):
                np.add.at(found[limb], label, self._sums[name][limb])
            return sums_as_floats(found, scale)

        hazard = exact("hazard", _LARGEST_HAZARD) if self.uses_cdf else None
        counts = {name: total(name) for name in _COUNTS}
        return RiskGroups(
            **counts, probability=exact("probability"), hazard=hazard, known_probability=exact("known_probability")
        )

    def _curves(self, label: Integers) -> list[BoundedCurve]:
        """Kaplan-Meier curve of each group."""
        cells = self._pair_cells()
        times, groups = cells.place
        of_group = label[cells.high[1][groups].astype(np.int64)]
        curves = []
        for k in range(int(label.max()) + 1):
            own = of_group == k
            events, censored = (
                np.bincount(times[own], counts[own], minlength=cells.low[0].size)
                for counts in (cells.events, cells.censored)
            )
            filled = (events + censored) > 0
            low, high = cells.low[0][filled], cells.high[0][filled]
            curves.append(bounded_curve(CellCounts(low, high, events[filled], censored[filled])))
        return curves
