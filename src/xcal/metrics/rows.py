"""Rows with what was predicted of them and what happened to them: the one form that every metric is computed from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from xcal._checks import (
    MIN_CELL,
    BoolArray,
    FloatArray,
    as_floats,
    check_same_length,
    effective_units,
    fail,
    first_row,
)
from xcal._kaplan_meier import KaplanMeier, curve_of_counts, fit_kaplan_meier, product_limit
from xcal.calibration.bins import N_BINS, Clusters
from xcal.calibration.causes import CauseCalibration, cause_calibration
from xcal.calibration.histogram import cumulative_hazard
from xcal.calibration.significance import Method
from xcal.data.surv import Outcome, outcome_given
from xcal.metrics.auc import CountedValues, cumulative_dynamic_auc
from xcal.metrics.calibration_curve import SmoothCalibration, group_labels, smooth_calibration
from xcal.metrics.errors import IntegratedBrierScore, integrated_brier_score, scaled_brier_score
from xcal.metrics.inputs import Integers, Interpolation, Matrix, Vector, at_own_time, mean_of
from xcal.metrics.intervals import Distance
from xcal.metrics.observed import observed_risk
from xcal.metrics.observed_expected import (
    CalibrationSlope,
    ObservedExpected,
    error_of_mean,
    ratio,
    slope_and_intercept,
    slope_of,
)
from xcal.metrics.pairs import CountedPairs
from xcal.metrics.pit import BinShares, bin_shares
from xcal.metrics.pseudo_values import CensoringModel, HazardsSeen, coarsened, doubly_robust, jackknife
from xcal.metrics.resamples import Block, Timeline

NO_CDF = "it needs F at the observed times"
OF_CAUSE = "F of one cause of several is even for no model; D-calibration by cause is a value of all causes together"
ACCURACY = ("auc", "brier", "ipa")
# Risk groups whose Kaplan-Meier curves stand for the curves of a model that gives the risk at one time alone.
_RISK_GROUPS = 10


@dataclass(frozen=True, eq=False)
class Rows:
    """Outcomes and predictions of rows in time order, events before censored rows of the same time.

    What several metrics need is worked out once, when the first of them asks.
    """

    order: Integers  # where each row stood in what was given: what has that order is brought into this one by it
    outcome: Outcome
    risk: Mapping[float, Vector]  # predicted probability of an event by each horizon; of a late row since its entry
    cdf_event: BoolArray  # the events of `cdfs`: where there are curves, rows past their end count as censored there
    cdfs: tuple[FloatArray, ...] = ()  # F at the observed time, for each of `seen`; drawn within coarse times
    survival: FloatArray | None = None  # the curves, (n, m)
    times: Vector | None = None
    interpolation: Interpolation = "linear"
    score: FloatArray | None = None  # larger for a later event
    nll: Vector | None = None
    # Of events of several causes: the incidences, (n, causes, m). Of the events of one of them, `survival` is one less
    # its incidence, and `event_free` the probability of no event of any cause, (n, m), where the model tells it.
    incidence: FloatArray | None = None
    event_free: FloatArray | None = None
    cdf_entry: FloatArray | None = None  # F at the times of entry; `cdfs` is as it was predicted, not since entry
    cdf_lower: FloatArray | None = None  # F at the lower ends of intervals, `cdfs` being that at the upper ends
    seen: tuple[float, ...] = (1.0,)  # parts of its last interval during which a censored row may have been observed
    censoring: KaplanMeier | None = None  # of the training rows; None to estimate it from these
    censoring_model: CensoringModel | None = None  # by which values at horizons are corrected
    clusters: Clusters | None = None
    weights: Vector | None = None  # sampling weights in effective units; None if all are equal
    n_bins: int = N_BINS  # of D-calibration, and risk groups of one-calibration
    method: Method = "uniform"  # of D-calibration
    min_cell: int = MIN_CELL  # rows of a cell that is shown
    no_cdf: str = NO_CDF  # why there is no F at the observed times, where there is none
    stretches: "Stretches | None" = None  # of people whose covariates change; `cdfs` are then along their rows
    _known: Mapping[float, tuple[Vector, ...]] = field(default_factory=dict)  # pseudo-values of more rows, see `part`
    _at: dict[float, "AtHorizon"] = field(default_factory=dict, init=False)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.outcome.n

    @property
    def time(self) -> FloatArray:
        """Observed times, in order."""
        return self.outcome.time

    @property
    def event(self) -> BoolArray:
        """Rows with the event."""
        return self.outcome.event

    @property
    def entry(self) -> FloatArray | None:
        """Times from which rows were under observation; None if all were from 0 on."""
        return self.outcome.entry

    @property
    def lower(self) -> FloatArray | None:
        """Lower ends of the intervals in which events lie, `time` being the upper ones; None if times are known."""
        return self.outcome.lower

    @property
    def last(self) -> float:
        """Largest time; minus infinity without any row."""
        return float(self.time[-1]) if self.n else -np.inf

    @property
    def cdf(self) -> FloatArray | None:
        """F at the observed times, by the first of `seen`."""
        return self.cdfs[0] if self.cdfs else None

    @property
    def by_values(self) -> bool:
        """Whether what happened by a horizon is known by pseudo-values alone, and not by Kaplan-Meier."""
        return self.censoring_model is not None or self.lower is not None

    @property
    def seen_in_part(self) -> str:
        """Why what takes rows as observed from the start, with known times, has no meaning; "" if it has."""
        if self.lower is not None:
            return "it needs times of events that are known, and these lie in intervals"
        if self.stretches is not None:
            return "it takes covariates as known at the start, and these change"
        return "" if self.entry is None else "it takes rows as observed from the start, and these have times of entry"

    @property
    def at_risk(self) -> "Rows":
        """Rows as they are at risk: those of people one by one, each with its covariates."""
        return self if self.stretches is None else self.stretches.rows

    @cached_property
    def line(self) -> Timeline:
        """What resamples are drawn of."""
        return Timeline(self.outcome, self.censoring)

    @cached_property
    def pairs(self) -> CountedPairs:
        """Pairs of rows by their scores."""
        assert self.score is not None
        return CountedPairs(self.outcome, self.score)

    @cached_property
    def bins(self) -> BinShares:
        """Shares of every row in the bins of D-calibration."""
        assert self.cdf is not None
        return bin_shares(self.cdf, self.cdf_event, self.n_bins, entry=self.cdf_entry, lower=self.cdf_lower)

    @cached_property
    def causes(self) -> CauseCalibration:
        """D-calibration by cause."""
        given: dict[str, Any] = {"time": self.time, "cause": self.outcome.cause, "n_bins": self.n_bins}
        return cause_calibration(self.incidence, self.times, **given)

    @cached_property
    def brier_over_time(self) -> IntegratedBrierScore:
        """Brier score at the times of the curves, and its average."""
        given: dict[str, Any] = {"time": self.time, "event": self.event, "weights": self.weights}
        given |= {"competing": self.outcome.competing, "censoring": self.censoring}
        return integrated_brier_score(self.survival, self.times, **given)

    @cached_property
    def hazards(self) -> HazardsSeen:
        """What is known of the events, as cumulative hazards since entry."""
        assert self.cdf_lower is not None
        lower = self.cdf_lower if self.cdf_entry is None else since(self.cdf_lower, self.cdf_entry)
        upper = np.where(self.cdf_event, cumulative_hazard(self.cdfs_since_entry[0]), np.inf)
        return HazardsSeen(np.minimum(cumulative_hazard(lower), upper), upper)

    @property
    def cdfs_since_entry(self) -> tuple[FloatArray, ...]:
        """`cdfs` of rows that have come to their entry: the probability of an event between it and the last time."""
        if self.cdf_entry is None:
            return self.cdfs
        return tuple(since(cdf, self.cdf_entry) for cdf in self.cdfs)

    def at(self, horizon: float) -> "AtHorizon":
        """Return what is known of one horizon."""
        if horizon not in self._at:
            known = None if self.entry is None or (self.entry < horizon).all() else np.flatnonzero(self.entry < horizon)
            rows = self if known is None else self.take(known)
            self._at[horizon] = AtHorizon(rows, horizon, known, self._known.get(horizon))
        return self._at[horizon]

    def take(self, chosen: Any) -> "Rows":
        """Keep some of the rows in the same order, by a mask or by their places, of which one may occur several times.

        `order` then counts within them.
        """
        _, order = np.unique(self.order[chosen], return_inverse=True)
        model = self.censoring_model
        names = ("survival", "score", "nll", "incidence", "event_free", "cdf_entry", "cdf_lower")
        own = {name: getattr(self, name) for name in names}
        of_each: dict[str, Any] = {name: None if one is None else one[chosen] for name, one in own.items()}
        return replace(
            self,
            order=order.astype(np.int64, copy=False),
            outcome=self.outcome.take(chosen),
            risk={horizon: risk[chosen] for horizon, risk in self.risk.items()},
            cdf_event=self.cdf_event[chosen],
            cdfs=tuple(cdf[chosen] for cdf in self.cdfs),
            **of_each,
            clusters=None if self.clusters is None else self.clusters.of_rows(chosen),
            weights=None if self.weights is None else effective_units(self.weights[chosen]),
            censoring_model=None if model is None else model.take(chosen),
            stretches=None if self.stretches is None else self.stretches.take(chosen, self.n),
            _known={},
        )

    def part(self, chosen: BoolArray) -> "Rows":
        """Keep some of the rows, which stand for all: their pseudo-values are those that they have among all rows."""
        own = {
            h: tuple(values[chosen if at.known is None else chosen[at.known]] for values in at.each)
            for h, at in self._at.items()
        }
        return replace(self.take(chosen), _known=own)


@dataclass(frozen=True, eq=False)
class Stretches:
    """Rows of people whose covariates change, in time order, and the place of each one's person among the people."""

    rows: Rows
    person: Integers

    def take(self, chosen: Any, n: int) -> "Stretches":
        """Keep the rows of some of `n` people, of whom one may occur several times."""
        places = np.arange(n)[chosen]
        together, of_each = np.argsort(self.person, kind="stable"), np.bincount(self.person, minlength=n)
        sizes, first = of_each[places], np.cumsum(of_each) - of_each
        person = np.repeat(np.arange(places.size), sizes)
        within = np.arange(person.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        picked = together[first[places[person]] + within]
        in_time = np.argsort(picked, kind="stable")
        return Stretches(self.rows.take(picked[in_time]), person[in_time])


@dataclass(frozen=True, eq=False)
class People:
    """People whose covariates change, each with what a model makes of all of their rows.

    Attributes
    ----------
    cdf : array, shape (people,)
        1 - exp(-H), with H the cumulative hazard summed along the rows of the person.
    event : bool array, shape (people,)
        Whether the last row ended with the event.
    time, entry : arrays, shape (people,)
        The end of the last row, and the start of the first.
    first, last : int arrays, shape (people,)
        Which rows these are.
    person : int array, shape (n,)
        The place of each row's person here.
    n_gaps : int
        People with a time between two of their rows in which nobody looked.
    """

    cdf: Vector
    event: BoolArray
    time: Vector
    entry: Vector
    first: Integers
    last: Integers
    person: Integers
    n_gaps: int

    @property
    def outcome(self) -> Outcome:
        """What was observed of the people."""
        return Outcome(self.time, self.event, entry=self.entry if self.entry.any() else None)


def by_person(hazard: Any, *, id: Any, time: Any, event: Any, entry: Any = None) -> People:
    r"""Return one F for each person of a model whose covariates change, from the hazards along the person's rows.

    .. math:: u = 1 - \exp\Big(-\sum_j \int_{\text{entry}_j}^{\text{time}_j} \lambda(t \mid x_j) \, dt\Big)

    over the rows j of the person. For a true model the sum is exponential, cut off where the observation of the person
    ends, whatever the covariates do and wherever nobody looked. So `cdf` and `event` of the result are what
    `xcal.d_calibration` and all that asks for F and the event take: rows of one person are no observations of their
    own, and D-calibration of rows is far too small.

    Parameters
    ----------
    hazard : array-like, shape (n,)
        The model's cumulative hazard along each row, from its entry to its time: zero or larger.
    id : array-like, shape (n,)
        The label of the person that each row is of, as in `xcal.Surv`.
    time, event : array-like, shape (n,)
        The end of each row; True where it ended with the event, which only the last row of a person may.
    entry : array-like, shape (n,), optional
        The start of each row; 0 by default. Rows of one person do not overlap.

    Returns
    -------
    People
        In the order of the labels.

    Examples
    --------
    >>> rows = {"id": ["ann", "ann", "bob"], "entry": [0, 2, 0], "time": [2, 5, 4], "event": [0, 1, 0]}
    >>> found = by_person([0.2, 0.5, 0.3], **rows)
    >>> found.cdf.round(3), found.event
    (array([0.503, 0.259]), array([ True, False]))
    """
    outcome = outcome_given({"time": time, "event": event, "entry": entry, "id": id}, beside={"hazard": hazard})
    values = as_floats("hazard", hazard).astype(np.float64)
    check_same_length("hazard", values, "time", outcome.n)
    if (bad := ~(values >= 0)).any():
        fail("hazard", "cumulative hazards of zero or more", values[first_row(bad)], first_row(bad))
    return along_rows(values, outcome)


def along_rows(hazard: Vector, outcome: Outcome) -> People:
    """Return the people of checked rows."""
    person = np.arange(outcome.n) if outcome.id is None else np.unique(outcome.id, return_inverse=True)[1]
    order = np.lexsort((outcome.time, person))
    ends = np.append(np.diff(person[order]) > 0, True)
    last, first = order[ends], order[np.append(True, ends[:-1])]
    before, after = outcome.next_rows()
    start = outcome.starts()
    return People(
        cdf=-np.expm1(-np.bincount(person, hazard)),
        event=outcome.event[last],
        time=outcome.time[last].astype(np.float64, copy=False),
        entry=start[first].astype(np.float64, copy=False),
        first=first,
        last=last,
        person=person.astype(np.int64, copy=False),
        n_gaps=np.unique(person[after[start[after] > outcome.time[before]]]).size,
    )


def since(later: FloatArray, earlier: FloatArray) -> Vector:
    """Return the probability of an event between two times, given none by the earlier, from F at both."""
    left = np.maximum(1 - earlier.astype(np.float64), np.finfo(np.float64).tiny)
    return np.clip(1 - (1 - later.astype(np.float64)) / left, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class AtHorizon:
    """Rows that came under observation before a horizon, beside what happened to them by then.

    Where it is not known how long censored rows were seen (`Rows.seen`), values and curve are those of the first
    possibility, and intervals hold those of all.
    """

    rows: Rows
    horizon: float
    known: Integers | None  # their places among all rows; None if they are all
    given: tuple[Vector, ...] | None = None  # their pseudo-values, where they are known

    @property
    def risk(self) -> Vector:
        """Predicted risks."""
        return self.rows.risk[self.horizon]

    @property
    def is_followed(self) -> bool:
        """Whether any row was followed so long."""
        return self.horizon <= self.rows.last

    @property
    def n_events(self) -> int:
        """Events by the horizon."""
        return int(np.count_nonzero(self.rows.outcome.happened_by(self.horizon)))

    @cached_property
    def each(self) -> tuple[Vector, ...]:
        """Pseudo-values of the event by the horizon, for each of `Rows.seen`."""
        return self.given or tuple(pseudo_values_of(self.rows, self.horizon, part) for part in self.rows.seen)

    @property
    def values(self) -> Vector:
        """Pseudo-values by the first possibility."""
        return self.each[0]

    @cached_property
    def smooths(self) -> tuple[SmoothCalibration, ...]:
        """Calibration curves, for each of `Rows.seen`."""
        return tuple(smooth_calibration(self.risk, v, self.rows.clusters, self.rows.weights) for v in self.each)

    @cached_property
    def corrected(self) -> CountedValues:
        """Accuracy from pseudo-values, where what happened is known by them alone."""
        return CountedValues(self.risk, self.values, _null_risk(self.rows, self.horizon))

    @cached_property
    def accuracy(self) -> Mapping[str, float]:
        """AUC, Brier score and IPA; NaN where they are not determined."""
        rows = self.rows
        if rows.by_values:
            ones = np.ones((1, rows.n))
            found = self.corrected.accuracy(ones) if self.is_followed else dict.fromkeys(ACCURACY, np.full(1, np.nan))
            return {name: float(value[0]) for name, value in found.items()}
        given: dict[str, Any] = {"time": rows.time, "event": rows.event, "competing": rows.outcome.competing}
        given |= {"weights": rows.weights, "censoring": rows.censoring}
        order = cumulative_dynamic_auc(self.risk, self.horizon, **given)
        scaled = scaled_brier_score(1 - self.risk, self.horizon, **given)
        return dict(
            zip(ACCURACY, (float(found[0]) for found in (order.values, scaled.brier, scaled.values)), strict=True)
        )

    @cached_property
    def influence(self) -> tuple[tuple[float, Vector], tuple[float, Vector]]:
        """Calibration slope and intercept, each with the influence of every row."""
        return slope_and_intercept(self.risk, self.values, self.rows.weights)

    def ratios(self, level: float) -> list[ObservedExpected]:
        """Return O/E for each of `Rows.seen`, each with an interval of its own."""
        rows, p, found = self.rows, self.risk, []
        expected = mean_of(p, rows.weights)
        for part, values in zip(rows.seen, self.each, strict=True):
            observed = _observed_risk(rows, self.horizon, part, values)
            if rows.outcome.competing is not None and rows.clusters is None and not rows.by_values and part == 1:
                # As published where others compete: the error of Aalen-Johansen, the expected value taken as known.
                error = float(observed_risk(rows.outcome, rows.weights).error(self.horizon))
            else:
                error = error_of_mean(values, observed, p, rows.clusters, rows.weights)
            found.append(ratio(observed, expected, error, self.horizon, self.n_events, level))
        return found

    def ratio(self, level: float) -> ObservedExpected:
        """Return O/E."""
        found = self.ratios(level)
        return replace(found[0], lower=min(one.lower for one in found), upper=max(one.upper for one in found))

    def slope(self, level: float) -> CalibrationSlope:
        """Return calibration slope and intercept."""
        rows = self.rows
        given = (self.horizon, self.n_events, level, rows.clusters, rows.weights)
        found = [slope_of(self.risk, values, *given) for values in self.each]
        ends = {f"{name}_lower": min for name in ("slope", "intercept")}
        ends |= {f"{name}_upper": max for name in ("slope", "intercept")}
        return replace(found[0], **{name: of(getattr(one, name) for one in found) for name, of in ends.items()})

    def distances(self, level: float) -> Mapping[str, Distance]:
        """Return ICI, E50, E90 and Emax."""
        found = [smooth.distances(level) for smooth in self.smooths]
        return {name: _joined([one[name] for one in found]) for name in found[0]}

    def own(self, block: Block) -> Block:
        """Return how often these rows were drawn."""
        known = self.known
        return block if known is None else block.once(("rows", self.horizon), lambda: block.of_rows(known))


def _joined(distances: Sequence[Distance]) -> Distance:
    """Return the first distance with the interval that holds all of them."""
    lower, upper = min(one.lower for one in distances), max(one.upper for one in distances)
    return replace(distances[0], excess=min(one.excess for one in distances), lower=lower, upper=upper)


def _observed_risk(rows: Rows, horizon: float, part: float, values: Vector) -> float:
    """Return the observed risk: one minus Kaplan-Meier, or the mean of values that are corrected for censoring."""
    if rows.by_values or (rows.outcome.competing is not None and part != 1):
        return mean_of(values, rows.weights)
    if part == 1:
        return float(observed_risk(rows.outcome, rows.weights).at(horizon))
    times, place = np.unique(rows.time, return_inverse=True)
    one = np.ones(rows.n) if rows.weights is None else rows.weights
    events, censored = (np.bincount(place, one * kind).astype(np.float64) for kind in (rows.event, ~rows.event))
    # Half of the rows that are censored in an interval count as gone before its events (the actuarial rule).
    mixed = np.full(times.size, True)
    return 1 - float(curve_of_counts(times.astype(np.float64), events, censored, mixed=mixed).at(horizon))


def _null_risk(rows: Rows, horizon: float) -> Vector | None:
    """Return the risk of each row from its entry on by one curve for everybody; None where that is the same for all."""
    if rows.entry is None or rows.lower is not None:
        return None
    curve = fit_kaplan_meier(rows.time, rows.event, entry=rows.entry)
    come = np.asarray(curve.at(rows.entry))
    return np.asarray(1 - np.divide(float(curve.at(horizon)), come, out=np.zeros(rows.n), where=come > 0))


def pseudo_values_of(rows: Rows, horizon: float, part: float) -> Vector:
    """Return the pseudo-values of the event by a horizon, corrected for censoring where there is a model of it."""
    if rows.lower is not None:
        return coarsened(rows.hazards, rows.risk[horizon], *known_by(rows, horizon))
    if rows.censoring_model is None:
        return jackknife(rows.outcome, horizon, seen=part, weights=rows.weights)
    if rows.outcome.competing is not None:
        return _robust_of_cause(rows, horizon, rows.censoring_model)
    at_entry = None if rows.cdf_entry is None else 1 - rows.cdf_entry.astype(np.float64)
    if rows.survival is not None and rows.times is not None and rows.cdfs:
        cdf = dict(zip(rows.seen, rows.cdfs, strict=False)).get(part, rows.cdfs[0])
        times, interpolation = rows.times, rows.interpolation
        survival: FloatArray = rows.survival
        # The observed time of a late row is read beyond the horizon, and not needed.
        own: Vector = np.where(rows.time > horizon, 1.0, 1 - cdf.astype(np.float64))
    else:
        survival, _, times = _curves_by_risk(rows, horizon)
        passed = np.searchsorted(times, rows.time, side="right")
        own = np.append(np.ones((rows.n, 1)), survival, axis=1)[np.arange(rows.n), passed].astype(np.float64)
        interpolation = "previous"
    given = (survival, times, interpolation, own, rows.outcome, horizon, rows.censoring_model)
    return doubly_robust(*given, at_entry=at_entry)


def _robust_of_cause(rows: Rows, horizon: float, model: CensoringModel) -> Vector:
    """Return pseudo-values of one cause, by the curves of the model if it gives those of all causes."""
    if rows.survival is not None and rows.times is not None and rows.event_free is not None:
        curves, times, interpolation = (rows.survival, rows.event_free), rows.times, rows.interpolation
    else:
        *found, times = _curves_by_risk(rows, horizon)
        curves, interpolation = (found[0], found[1]), "previous"
    # The observed time of a late row is read beyond the horizon, and not needed.
    own = [at_own_time(one, times, np.minimum(rows.time, times[-1]), interpolation) for one in curves]
    of_cause, free = curves
    given = (of_cause, times, interpolation, own[0], rows.outcome, horizon, model)
    return doubly_robust(*given, free=(free, own[1]))


def known_by(rows: Rows, horizon: float) -> tuple[BoolArray, BoolArray]:
    """Return which rows have had their event by a horizon, and which have not, where events lie in intervals."""
    assert rows.lower is not None
    happened = rows.outcome.happened_by(horizon)
    return happened, np.asarray((rows.lower >= horizon) & ~happened)


def _curves_by_risk(rows: Rows, horizon: float) -> tuple[Matrix, Matrix, Vector]:
    """Return curves of rows with similar risks, one for each row, where the model gives no curves, and their times.

    The curves are Kaplan-Meier's; where others compete, one less the Aalen-Johansen estimate. The second ones are the
    probability of no event of any kind.
    """
    risk = rows.risk[horizon if horizon in rows.risk else max(rows.risk)]
    label, ended = group_labels(risk, _RISK_GROUPS), rows.outcome.ended
    times = np.unique(rows.time[ended & (rows.time <= horizon)]).astype(np.float64)
    curves, free = np.empty((2, int(label.max()) + 1, times.size))
    for k in range(len(free)):
        own = label == k
        at_risk = own.sum() - np.searchsorted(rows.time[own], times, side="left")
        deaths, of_any = (
            np.searchsorted(dead, times, side="right") - np.searchsorted(dead, times, side="left")
            for dead in (rows.time[own & rows.event], rows.time[own & ended])
        )
        curves[k] = free[k] = product_limit(of_any, at_risk)
        if rows.outcome.competing is not None:
            comes = np.divide(deaths, at_risk, out=np.zeros(times.size), where=at_risk > 0)
            curves[k] = 1 - np.cumsum(np.append(1.0, free[k, :-1]) * comes)
    return curves[label], free[label], times
