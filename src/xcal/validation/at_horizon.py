"""Tests of calibration at horizons, in a world where the model is right."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import erfc, gammaincc

from xcal._checks import BoolArray, FloatArray
from xcal._kaplan_meier import later_entries
from xcal.calibration.histogram import cumulative_hazard
from xcal.metrics.calibration_curve import LocalLines
from xcal.metrics.inputs import Integers, Matrix, Vector, fraction, left_column
from xcal.metrics.of_rows import FEWEST_FOR_LEVELS_IN_GROUP
from xcal.metrics.rows import Rows, known_by
from xcal.metrics.spec import Key

# What is known of a row about the event by h, less what the model predicted of it:
#
# .. math:: D_i = P(T \le h \mid \text{what was observed of row } i) - P(T \le h)
#
# both by the model. A row with its event by h has 1 - p, one seen beyond h has -p, and a row censored at c before h
# has the chance that is left to it, 1 - S(h) / S(c), less p. If the model is right the mean of D is zero under any
# censoring that is independent given the covariates, and no model of the censoring is needed: D is the martingale
# integral of S(h) / S(u) until the row's last time. Of a row that came under observation at a time of entry both
# chances are given that it has come so far, and the integral begins there. So are sums of D with weights that the
# predictions determine: over all rows (right on average?), over neighbours in risk (right for each level of risk?),
# over the rows of a group, or over a part of a covariate, such as the oldest quarter. For such parts there is the same
# without a horizon, too: events less the cumulative hazard until the last time, which uses every event.
#
# Their law comes from the model's own world: times are drawn from the model's curves, censoring times are kept, and
# those of rows with an event, which nobody knows, are drawn beyond it from the censoring of all rows. The same draws
# serve every test, so that p-values can be corrected for the number of tests of a family (all rows, groups, or parts
# of covariates) without assuming that they are independent. With very many events the draws are left out: the sums are
# normal, and the correction is Bonferroni's.


# Draws at least, and at most where rows are few; a verdict asks whether p-values of 0.0017 are as small as they seem.
_FEWEST_DRAWS, _MOST_DRAWS = 1000, 4000
_BLOCK = 1 << 21  # numbers of a block of draws, and of all draws where there may be more than the fewest

# Events from which sums over them are normal far into the tails, so that nothing needs to be drawn.
MANY_EVENTS = 5000

# Events by the horizon below which one level of risk cannot be told from another over all rows.
FEWEST_FOR_LEVELS = 20
_PLACES = 26  # levels of risk at which the test looks
_ROUNDING = 1e-9  # of sums and of their tails, relative
_LEAST = float(np.finfo(np.float64).tiny)  # a survival of zero has no logarithm


@dataclass(frozen=True)
class Tested:
    """A p-value, alone and corrected for the number of tests of its family: all rows, groups, or parts."""

    p_value: float
    corrected: float


@dataclass(frozen=True, eq=False)
class _Statistic:
    """A sum of |weights' D|, one column of weights or several, with its law if the sums are normal."""

    key: Key
    members: Integers  # rows that take part
    weights: Matrix  # (members, k)
    share: Vector  # (k,)
    mean: float = 0.0
    variance: float = 1.0

    def size(self, deviations: Matrix) -> Vector:
        """Return the statistic of draws of D, shape (draws, n)."""
        own = deviations if self.members.size == deviations.shape[1] else deviations.take(self.members, axis=1)
        return np.asarray(np.abs(own @ self.weights) @ self.share)

    def of_draws(self, sizes: Vector) -> "_Statistic":
        """Return the statistic with the law that draws of it have."""
        if self.share.size == 1:
            return replace(self, variance=max(float(np.square(sizes).mean()), _LEAST))
        return replace(self, mean=max(float(sizes.mean()), _LEAST), variance=max(float(sizes.var()), _LEAST))

    def tail(self, sizes: Vector) -> Vector:
        """Return the chance of so large a statistic, or a larger one, under the normal law."""
        if self.share.size == 1:
            return np.asarray(erfc(sizes / np.sqrt(2 * self.variance)))
        shape = self.mean**2 / self.variance
        return np.asarray(gammaincc(shape, sizes * shape / self.mean))


def horizon_tests(
    rows: Rows, groups: Mapping[str, BoolArray], parts: Mapping[str, BoolArray], *, seed: int
) -> dict[Key, Tested]:
    """Test every horizon on average and by level of risk, over all rows and in groups.

    In parts of covariates the average is tested, at horizons and over the whole follow-up (horizon None).

    Parameters
    ----------
    rows : Rows
        All rows. Without F at the observed times, or with clusters or weights, the law comes from random signs of D,
        and D from the pseudo-values where there is no F. Sums are weighted where rows are; how rows were sampled may
        depend on what happened, of which the model's own world knows nothing.
    groups, parts : mapping of str to mask
        Rows of each group, and of each part of a covariate, in the order of `rows`.
    seed : int
        Of the draws.

    Returns
    -------
    mapping of Key to Tested
        "oe": right on average. "slope": not too extreme, and spread widely enough. "ici": right for each level.
        Where times are coarse and nobody knows how long censored rows were seen, the largest p-value of all.
    """
    horizons = [h for h in rows.risk if h <= rows.last and rows.outcome.happened_by(h).any()]
    if not horizons:
        return {}
    found = [_tested(rows, horizons, groups, parts, cdf, seed) for cdf in (rows.cdfs_since_entry or (None,))]
    return {
        key: Tested(max(one[key].p_value for one in found), max(one[key].corrected for one in found))
        for key in found[0]
        if all(key in one for one in found)
    }


def _tested(
    rows: Rows,
    horizons: Sequence[float],
    groups: Mapping[str, BoolArray],
    parts: Mapping[str, BoolArray],
    cdf: FloatArray | None,
    seed: int,
) -> dict[Key, Tested]:
    """Test with one version of F at the observed times, or without any."""
    moments = [*horizons, *([None] if parts and cdf is not None else [])]
    deviations = [_Deviations(rows, moment, cdf) for moment in moments]
    statistics = [list(one.statistics(groups, parts)) for one in deviations]
    everything = [one for own in statistics for one in own]
    observed = [d.deviation[None] for d, own in zip(deviations, statistics, strict=True) for _ in own]
    sizes = np.array([float(one.size(d)[0]) for one, d in zip(everything, observed, strict=True)])
    family = np.array([0 if one.key.group is None else 1 if one.key.group in groups else 2 for one in everything])
    if np.count_nonzero(rows.event) >= MANY_EVENTS:
        tails = np.array([one.tail(size[None])[0] for one, size in zip(everything, sizes, strict=True)])
        corrected = np.minimum(1.0, tails * np.bincount(family)[family])
        return {one.key: Tested(float(p), float(c)) for one, p, c in zip(everything, tails, corrected, strict=True)}
    plain, blocks = [_Plain(kept, rows.n) for kept in statistics], []
    for drawn in _draws(rows, deviations, cdf, seed):
        blocks.append([size for draw, sums in zip(drawn, plain, strict=True) for size in sums.sizes(draw)])
    draws = np.concatenate(blocks, axis=1)
    # The scale on which tests are compared is that of the draws: one that follows from what happened would make tests
    # with many events look surer than they are.
    scaled = [one.of_draws(own) for one, own in zip(everything, draws, strict=True)]
    tails = np.array([one.tail(size[None])[0] for one, size in zip(scaled, sizes, strict=True)])
    drawn_tails = np.array([one.tail(own) for one, own in zip(scaled, draws, strict=True)])
    # Of each family the smallest tail of each draw; a family without a test has none.
    least = np.array([drawn_tails[family == k].min(axis=0, initial=1.0) for k in range(3)])[family]
    # The observed one is one more draw: a p-value is never zero. With few events by a horizon, draws are as far as the
    # observed one but for rounding.
    tails, sizes = tails * (1 + _ROUNDING), sizes * (1 - _ROUNDING)
    p_values, as_small = (
        (1 + np.count_nonzero(as_far, axis=1)) / (draws.shape[1] + 1)
        for as_far in (draws >= sizes[:, None], least <= tails[:, None])
    )
    return {
        one.key: Tested(float(p), float(max(p, c))) for one, p, c in zip(everything, p_values, as_small, strict=True)
    }


class _Plain:
    """The statistics of one horizon on many draws: those of one sum each by one matrix product."""

    def __init__(self, statistics: Sequence[_Statistic], n: int) -> None:
        self._statistics = statistics
        single = [one for one in statistics if one.share.size == 1]
        self._weights = np.zeros((n, len(single)))
        for k, one in enumerate(single):
            self._weights[one.members, k] = one.weights[:, 0]

    def sizes(self, deviations: Matrix) -> Iterator[Vector]:
        """Return each statistic of draws of D, shape (draws, n)."""
        sums = iter(np.abs(deviations @ self._weights).T)
        for one in self._statistics:
            yield next(sums) if one.share.size == 1 else one.size(deviations)


class _Deviations:
    """D of one horizon, or over the whole follow-up, its variance, and the tests made of it.

    Over the whole follow-up D is what happened less the cumulative hazard lived through, 1 or 0 less H.

    Attributes
    ----------
    horizon : float or None
        None for the whole follow-up.
    risk, survival : arrays, shape (n,)
        1 - S(h) and S(h); not used for the whole follow-up.
    known : bool array, shape (n,)
        Rows that came under observation before the horizon.
    lived : array, shape (n,), or None
        Cumulative hazard until the row's last time or, if that is later, until h.
    deviation : array, shape (n,)
        D.
    variance : array, shape (n,)
        Its predictable variance: the integral of the squared ratio S(h) / S(u), half of S(h)^2 / S(last)^2 - S(h)^2;
        over the whole follow-up H.
    """

    def __init__(self, rows: Rows, horizon: float | None, cdf: FloatArray | None) -> None:
        self.rows, self.horizon = rows, horizon
        self.lived: Vector | None = None
        # Rows that come under observation after the horizon say nothing about it: their risk, D and variance are 0.
        self.known = np.full(rows.n, True)
        if rows.entry is not None and horizon is not None:
            self.known = np.asarray(rows.entry < horizon)
        if horizon is None:
            assert cdf is not None
            self.happened = rows.cdf_event
            lived = self.lived = cumulative_hazard(cdf) if rows.lower is None else rows.hazards.lived()
            self.deviation, self.variance = self.happened - lived, lived
            if rows.lower is not None:
                self.variance = np.square(self.deviation)
        else:
            self.risk = rows.risk[horizon]
            self.survival, self.happened = 1 - self.risk, rows.outcome.happened_by(horizon)
            if cdf is None:
                self.deviation = rows.at(horizon).values - self.risk
                self.variance = np.square(self.deviation)
                return
            if rows.lower is not None:
                hazard = -np.log1p(-np.minimum(self.risk, 1 - np.finfo(np.float64).eps))
                self.deviation = rows.hazards.by(hazard, *known_by(rows, horizon)) - self.risk
                self.variance = np.square(self.deviation)
                self.lived = np.minimum(cumulative_hazard(cdf), hazard)
                return
            # An F of a row's last time above that of the horizon, which comes later, is a matter of reading the curves.
            own = np.minimum(cdf.astype(np.float64, copy=False), self.risk)
            lived = self.lived = cumulative_hazard(np.where(rows.time > horizon, self.risk, own))
            reached = np.minimum(1.0, self.survival * np.exp(lived))
            self.deviation = np.where(self.happened, self.survival, self.survival - reached)
            self.variance = np.maximum(reached**2 - self.survival**2, 0.0) / 2
        if rows.clusters is not None or rows.weights is not None:
            self.variance = np.square(self.deviation)

    def of_world(self, left: Matrix, reached: Matrix) -> Matrix:
        """Return D of draws: of S at the event, and of S at the end of the time under observation, at most h.

        Every row has its event where its survival falls below an even random number, if it is observed for so long.
        """
        if self.horizon is None:
            return np.where(left >= reached, 1 + np.log(left), np.log(reached))
        return np.where(left >= reached, self.survival, self.survival - self.survival / reached)

    def statistics(self, groups: Mapping[str, BoolArray], parts: Mapping[str, BoolArray]) -> Iterator[_Statistic]:
        """Return every test that has the events it needs; over the whole follow-up of parts alone."""
        if self.horizon is not None:
            yield from self._of_rows(None, np.flatnonzero(self.known), FEWEST_FOR_LEVELS)
            for name, mask in groups.items():
                yield from self._of_rows(name, np.flatnonzero(mask & self.known), FEWEST_FOR_LEVELS_IN_GROUP)
        for name, mask in parts.items():
            yield from self._of_rows(name, np.flatnonzero(mask & self.known), None)

    def _of_rows(self, group: str | None, members: Integers, fewest: int | None) -> Iterator[_Statistic]:
        own = None if self.rows.weights is None else self.rows.weights[members]
        one = np.ones(members.size) if own is None else own
        yield from self._statistic("oe", group, members, one[:, None], np.ones(1))
        if fewest is None or self._expected(members) < fewest or np.ptp(self.risk[members]) == 0:
            return
        yield from self._statistic("slope", group, members, (one * self._slope(members, one))[:, None], np.ones(1))
        lines = LocalLines(self.risk[members], n_places=_PLACES, weights=own)
        yield from self._statistic("ici", group, members, lines.row_weights(), lines.share)

    def _expected(self, members: Integers) -> float:
        """Return the events that the model expects of some rows while they were observed.

        Not those that happened: tests that are made where many events happened favour an error. Without F at the
        observed times nothing else is at hand, nor where rows were sampled by what happened to them (weights).
        """
        known = self.happened if self.lived is None or self.rows.weights is not None else self.lived
        return float(known[members].sum())

    def _slope(self, members: Integers, one: Vector) -> Vector:
        """Weights of the score of a slope on log(-log(1 - p)), freed of that of an intercept.

        `one` are the weights of the rows, which come on top.
        """
        inside, variance = np.clip(self.risk[members], 1e-10, 1 - 1e-10), one**2 * self.variance[members]
        hazard = -np.log1p(-inside)
        level = hazard / inside
        slope = level * np.log(hazard)
        total = float((level * level * variance).sum())
        return np.asarray(slope - float((level * slope * variance).sum()) / total * level if total > 0 else slope)

    def _statistic(
        self, metric: str, group: str | None, members: Integers, weights: Matrix, share: Vector
    ) -> Iterator[_Statistic]:
        """Return the statistic of some sums of D with its law; nothing where it has no variance."""
        if self.rows.clusters is None:
            covariance = (weights * self.variance[members, None]).T @ weights
        else:
            own = self.rows.clusters.of_rows(members)
            sums = np.array([own.sums(column) for column in (weights * self.deviation[members, None]).T])
            covariance = sums @ sums.T
        mean, variance = _normal_law(covariance, share)
        if variance > 0:
            yield _Statistic(Key(metric, self.horizon, group), members, weights, share, mean, variance)


def _normal_law(covariance: Matrix, share: Vector) -> tuple[float, float]:
    """Mean and variance of the weighted sum of absolute values of normal numbers; of one number, its plain variance."""
    if share.size == 1:
        return 0.0, float(covariance[0, 0])
    spread = np.sqrt(np.diag(covariance))
    both = np.outer(spread, spread)
    correlation = np.clip(np.divide(covariance, both, out=np.zeros_like(both), where=both > 0), -1.0, 1.0)
    # Cov(|X|, |Y|) of two normal numbers with this correlation.
    absolute = 2 / np.pi * both * (np.sqrt(1 - correlation**2) + correlation * np.arcsin(correlation) - 1)
    return float(np.sqrt(2 / np.pi) * spread @ share), float(share @ absolute @ share)


def n_draws(n: int) -> int:
    """Return the number of draws for so many rows."""
    return max(_FEWEST_DRAWS, min(_MOST_DRAWS, _BLOCK // n))


def _draws(rows: Rows, deviations: Sequence[_Deviations], cdf: FloatArray | None, seed: int) -> Iterator[list[Matrix]]:
    """Draw D of every horizon, a block at a time: one matrix (draws, n) for each horizon.

    In the model's own world; without F or curves, or with clusters or weights, by random signs.
    """
    rng = np.random.default_rng([seed, 2])
    signs = rows.clusters is not None or rows.weights is not None or cdf is None or rows.survival is None
    signs = signs or rows.lower is not None  # nobody knows when those with an event would have been seen again
    world = None if signs or cdf is None else _World(rows, cdf)
    done = 0
    while done < n_draws(rows.n):
        number = min(max(1, _BLOCK // rows.n), n_draws(rows.n) - done)
        done += number
        if world is not None:
            yield world.draw(deviations, number, rng)
            continue
        size = rows.n if rows.clusters is None else rows.clusters.count
        sign = rng.integers(0, 2, (number, size)) * 2.0 - 1
        sign = sign if rows.clusters is None else sign[:, rows.clusters.codes]
        yield [sign * one.deviation for one in deviations]


class _World:
    """The model's own world: event times by its curves, and the time under observation of every row."""

    def __init__(self, rows: Rows, cdf: FloatArray) -> None:
        self._rows, self._own = rows, np.maximum(1 - cdf.astype(np.float64), _LEAST)
        self._with_event = np.flatnonzero(rows.event & (rows.cdf_event | (rows.time <= self._end)))
        censored = ~rows.event
        if rows.censoring_model is not None:
            self._times, hazard = rows.censoring_model.times, rows.censoring_model.hazard
            self._factor = rows.censoring_model.factor[self._with_event]
        else:
            # At one time the events come first: they are no longer at risk of being censored there.
            at_risk = np.arange(rows.n, 0, -1)[censored].astype(np.float64)
            if rows.entry is not None:
                at_risk = at_risk - later_entries(rows.time[censored].astype(np.float64), rows.entry)
            self._times, hazard = rows.time[censored].astype(np.float64), np.cumsum(1 / at_risk)
            self._factor = np.ones(self._with_event.size)
        self._hazard = hazard
        passed = np.searchsorted(self._times, rows.time[self._with_event], side="left")
        self._lived = np.append(0.0, hazard)[passed]

    @property
    def _end(self) -> float:
        return np.inf if self._rows.times is None else float(self._rows.times[-1])

    def draw(self, deviations: Sequence[_Deviations], number: int, rng: np.random.Generator) -> list[Matrix]:
        """Return D of every horizon, each of shape (number, n)."""
        left = np.maximum(rng.random((number, self._rows.n)), _LEAST)
        # The censoring time of a row with an event lies beyond it: its hazard grows by an exponential number.
        until = self._lived + rng.exponential(size=(number, self._with_event.size)) / self._factor
        leaves = np.append(self._times, np.inf)[np.searchsorted(self._hazard, until, side="left")]
        return [one.of_world(left, self._reached(one, leaves)) for one in deviations]

    def _reached(self, one: _Deviations, leaves: Matrix) -> Matrix:
        """S of every row at the end of its time under observation, or at the horizon if that comes first."""
        rows = self._rows
        horizon = self._end if one.horizon is None else one.horizon
        fixed = self._own if one.horizon is None else np.where(rows.time > horizon, one.survival, self._own)
        reached = np.broadcast_to(np.maximum(fixed, _LEAST), (len(leaves), rows.n)).copy()
        reached[:, self._with_event] = self._at(np.minimum(leaves, horizon))
        return reached

    def _at(self, t: Matrix) -> Matrix:
        """S of the rows with an event at times of their own, shape (draws, rows with an event)."""
        rows = self._rows
        assert rows.survival is not None
        assert rows.times is not None
        t = np.minimum(t, rows.times[-1])
        column = left_column(rows.times, t)
        whole = np.append(np.ones((self._with_event.size, 1)), rows.survival[self._with_event], axis=1)
        line = np.arange(self._with_event.size)
        value = whole[line, column + 1].astype(np.float64)
        if rows.interpolation == "linear":
            share = fraction(rows.times, t, column)
            value = (1 - share) * value + share * whole[line, np.minimum(column + 2, rows.times.size)]
        if rows.cdf_entry is not None:  # given that the row has come to its entry
            value = np.minimum(value / np.maximum(1 - rows.cdf_entry[self._with_event], _LEAST), 1.0)
        return np.maximum(value, _LEAST)
