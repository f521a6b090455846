"""Trained models: everything that a prediction needs, and the units that the network sees."""

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from xcal._checks import FloatArray, Floats, effective_units, fail
from xcal._devices import Workers
from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier, fit_turnbull
from xcal.calibration import d_calibration
from xcal.calibration.bins import bin_edges
from xcal.calibration.causes import CauseCalibration, Levels, calibration_of_levels
from xcal.calibration.membership import SoftBins
from xcal.calibration.penalties import Seen, residuals
from xcal.calibration.significance import DCalibrationResult
from xcal.data.features import MappedFeatures, pieces
from xcal.data.survival import SurvivalData
from xcal.distributions import Family, SurvivalDistribution, family, mixture, quantile_edges
from xcal.distributions.composed import SurvivorDistribution
from xcal.estimators.settings import MOST_TIME_BINS, Settings
from xcal.recalibration.maps import KaplanMeierRecalibration
from xcal.recalibration.predictor import ConformalScores, MeanTime, Predicting, log_odds_spread
from xcal.training.result import History

# Points of the grid on which a continuous distribution is integrated: so many at quantiles of the event times, where F
# moves, and as many evenly up to the last time, as a late censored row may lie far beyond the last event.
_GRID = 200


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Mean and one over the standard deviation of each feature.

    A constant feature has factor 0: it carries no information, and a network that never saw it vary must not
    extrapolate from it.
    """

    mean: Floats
    factor: Floats

    @classmethod
    def of(cls, table: SurvivalData) -> "Standardizer":
        """Learn from the training rows, by weight."""
        if isinstance(table.x, MappedFeatures):
            return cls._of_file(table)
        mean = np.average(table.x, axis=0, weights=table.weights)
        with np.errstate(over="ignore"):
            variance = np.average(np.square(table.x - mean), axis=0, weights=table.weights)
        return cls._from(mean, variance, np.ptp(table.x, axis=0))

    @classmethod
    def _of_file(cls, table: SurvivalData) -> "Standardizer":
        """Learn from rows in a file, of which only some are in memory at a time: once for the mean, once around it."""
        mean: Floats = np.zeros(table.x.shape[1])
        low, high = np.full(mean.shape, np.inf), np.full(mean.shape, -np.inf)
        for piece, share in _with_shares(table):
            mean += share @ piece.astype(np.float64)
            low, high = np.minimum(low, piece.min(axis=0)), np.maximum(high, piece.max(axis=0))
        variance: Floats = np.zeros(mean.shape)
        with np.errstate(over="ignore"):
            for piece, share in _with_shares(table):
                variance += share @ np.square(piece - mean)
        return cls._from(mean, variance, high - low)

    @classmethod
    def _from(cls, mean: Floats, variance: Floats, span: Floats) -> "Standardizer":
        if not np.isfinite(variance).all():
            column = int(np.argmin(np.isfinite(variance)))
            fail("X", "features with a finite variance", f"{variance[column]} in column {column}")
        spread = np.sqrt(variance)
        # Also constant is what differs in its last digits only, as the results of one formula may.
        varies = (span > 0) & (spread > 10 * np.finfo(np.float64).eps * np.abs(mean))
        return cls(mean, np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0))

    def __call__(self, x: Floats) -> Floats:
        """Standardise rows ``(n, d)``."""
        return np.asarray((x - self.mean) * self.factor)


def _with_shares(table: SurvivalData) -> Iterator[tuple[npt.NDArray[Any], Floats]]:
    """Rows in a file, some at a time, and the share of each in the sum of all weights."""
    weights = np.ones(table.n) if table.weights is None else np.asarray(table.weights)
    shares, start = weights / weights.sum(), 0
    for piece in pieces(table.x):
        yield piece, shares[start : start + len(piece)]
        start += len(piece)


@dataclass(frozen=True, eq=False)
class Outputs:
    """What the raw outputs of the network mean: a distribution in the user's unit of time."""

    distribution: str
    interpolation: str
    # The network's unit of time, in the user's: the median of the event times. Whatever the unit of the data, the
    # network sees the same numbers.
    time_scale: float
    edges: Floats | None  # time edges of a discrete distribution, in the user's unit
    # From 0 to the last observed time: where curves are drawn, and the points of the integral behind the risk
    grid: Floats
    causes: tuple[str, ...] = ()  # names of causes, where there are several

    @classmethod
    def of(cls, table: SurvivalData, settings: Settings) -> "Outputs":
        """Choose scale and edges from the training rows."""
        table = table if table.lower is None else _at_middles(table)
        events, last = table.time[table.event], float(table.time.max())
        positive = events[events > 0]
        if positive.size == 0:
            fail("y", "an event after time 0", f"{events.size} events at time 0")
        scale = float(np.median(positive))
        if settings.discrete:
            # As edges are told apart.
            if np.unique(events.astype(np.float32)).size < 2:
                expected = "at least two distinct event times among the rows to train on, to place the time bins of"
                fail("y", f"{expected} {settings.distribution!r}", f"only the time {events[0]:g}")
            asked = settings.n_time_bins
            if asked is not None and asked > events.size:
                fail("n_time_bins", f"at most {events.size}, the number of events in the rows to train on", asked)
            usual = min(MOST_TIME_BINS, max(1, round(math.sqrt(events.size))))
            edges = time_edges(table, usual if asked is None else asked)
            return cls(settings.distribution, settings.interpolation, scale, edges, edges[:-1], tuple(table.causes))
        shares = np.arange(1, _GRID) / _GRID
        quantiles = np.quantile(events, shares)
        grid = np.unique(np.concatenate([quantiles, np.linspace(0.0, last, _GRID + 1)]))
        return cls(settings.distribution, settings.interpolation, scale, None, grid, tuple(table.causes))

    def family(self, unit: float | None = None) -> Family:
        """Family in the network's unit, to train with, or in another one."""
        scale = self.time_scale if unit is None else unit
        causes, end = max(1, len(self.causes)), float(self.grid[-1]) / scale
        if self.edges is None:
            return family(self.distribution, causes=causes, end=end)
        edges = self.edges / scale
        return family(self.distribution, edges=edges, interpolation=self.interpolation, causes=causes)

    def read(self, raw: Tensor) -> SurvivalDistribution:
        """Turn raw outputs into a distribution in the user's unit."""
        if self.edges is None:
            return self.family().scaled(raw, self.time_scale)
        return self.family(1.0).distribution(raw)

    def risk(self, distribution: SurvivalDistribution, cause: int | None = None) -> Tensor:
        """Mean of F from 0 to the last observed time: one less the restricted mean survival time as a share of it.

        Unlike the median it is known, and differs from row to row, also where most rows outlive the study; it asks
        nothing about times that were not observed; and it has no unit. With a `cause` its incidence stands for F.
        """
        grid = torch.from_numpy(self.grid)
        times = grid.unsqueeze(1).expand(-1, distribution.batch_shape[-1])
        cdf = distribution.cdf(times) if cause is None else distribution.cumulative_incidence(times)[..., cause - 1]
        left = cdf[1:] if self.edges is not None and self.interpolation == "step" else cdf[:-1]
        widths = grid.diff().unsqueeze(1)
        return ((left + cdf[1:]) / 2 * widths).sum(0) / grid[-1]


def _at_middles(table: SurvivalData) -> SurvivalData:
    """Rows whose events lie between two times, as if these came in the middle: good enough to place bins by."""
    middle = np.where(table.event, (table.time + table.lower) / 2, table.time)
    # The last observed time stays the end of what was seen.
    middle[np.argmax(table.time)] = table.time.max()
    return table.replaced(time=middle, lower=None)


def time_edges(table: SurvivalData, n_bins: int) -> Floats:
    """Edges of a discrete distribution: 0, quantiles of the event times, the last observed time, and one beyond it.

    All mass of a discrete distribution lies before its last edge. If that were the last observed time, every row would
    be certain to have had its event by then, and rows that are censored late could not be calibrated. The mass after
    the last observed time T therefore has a bin of its own, which no row reaches into. How long it is matters only for
    what the model says beyond T; it is as long as one expects a row to live on at the mean hazard of the data, with
    S(T) by Kaplan-Meier: ``t / -log S(T)``, t the last event time. If the last row is an event, S(T) is 0 and half a
    row takes its place.

    Examples
    --------
    >>> rows = SurvivalData(np.zeros((4, 1)), time=[1.0, 2.0, 3.0, 4.0], event=[True, True, False, False])
    >>> time_edges(rows, 2).round(3)
    array([0.   , 1.5  , 2.   , 4.   , 6.885])
    """
    with warnings.catch_warnings():
        # Times in whole days or months have ties; fewer bins than asked for is then what anyone would want.
        warnings.filterwarnings("ignore", message="quantile_edges")
        inner = quantile_edges(table.time, table.event, n_bins).numpy()
    last_event, last = inner[-1], table.time.max()
    # The first bin starts at 0. It ends at the second edge, unless so many events share the first time that it is a
    # quantile too: then they have the first bin for themselves.
    if np.quantile(table.time[table.event], 1 / n_bins) > inner[0]:
        inner = inner[1:]
    left = max(float(fit_kaplan_meier(table.time, table.event, entry=table.entry).survival[-1]), 0.5 / table.n)
    beyond = last + last_event / -math.log(left)
    edges = np.concatenate([[0.0], inner, [last, beyond]])
    # The last observed time is often an event time already; training cannot tell edges apart that float32 cannot.
    _, first = np.unique(edges.astype(np.float32), return_index=True)
    return np.asarray(edges[first])


# --- F of rows at their observed times, and what it says of their calibration.

# Steps towards Turnbull's estimate, where it stands for a perfect model; and points of time at which Aalen and
# Johansen's does.
_STEPS, _POINTS = 2000, 200


@dataclass(frozen=True, eq=False)
class Own:
    """F of some rows at their observed times, and beside it F at what else is known of them; None where nothing is."""

    cdf: Floats  # (n,)
    entry: Floats | None = None  # at the times of entry
    lower: Floats | None = None  # at the lower ends of intervals
    steps: Floats | None = None  # what each cause adds to F, (n, causes, points); see `incidence_steps`
    shares: Floats | None = None  # of each cause in the events at the observed times, (n, causes)

    @classmethod
    def of(cls, law: SurvivalDistribution, rows: SurvivalData) -> "Own":
        """Read off the laws of the rows."""

        def at(time: FloatArray | None) -> Any:
            return None if time is None else law.cdf(torch.from_numpy(time)).numpy()

        found = cls(at(rows.time), at(rows.entry), at(rows.lower))
        if rows.cause is None:
            return found
        time, causes = torch.from_numpy(rows.time), range(1, law.n_causes + 1)
        shares = [law.log_share(time, torch.full(time.shape, k, dtype=torch.int64)) for k in causes]
        return replace(found, steps=law.incidence_steps().numpy(), shares=torch.stack(shares, -1).exp().numpy())

    @classmethod
    def perfect(cls, rows: SurvivalData, factor: float = 1.0) -> "Own":
        """F without covariates, a perfect model if they tell nothing: Kaplan-Meier, Turnbull or Aalen-Johansen.

        F times a `factor` below 1 does not come to 1.
        """
        if rows.lower is not None and rows.entry is None:
            upper = np.where(rows.event, rows.time, np.inf)
            _, ends, mass, _ = fit_turnbull(rows.lower, upper, np.full(rows.n, 1 / rows.n), steps=_STEPS)
            known = np.append(0.0, np.cumsum(mass))
            # What lies in an interval has come by its end.
            at = (known[np.searchsorted(ends, time, side="right")] for time in (rows.time, rows.lower))
            cdf, lower = (np.clip(factor * one, 0.0, 1.0) for one in at)
            return cls(cdf, None, np.where(rows.event, lower, cdf))
        # With times of entry too, as if what lies in an interval came in its middle.
        placed = rows if rows.lower is None else _at_middles(rows)
        weights = None if rows.weights is None else effective_units(rows.weights)
        curve = fit_kaplan_meier(placed.time, rows.event, weights=weights, entry=rows.entry)
        times = (rows.time, rows.entry, rows.lower)
        cdf, entry, low = (None if one is None else np.clip(1.0 - curve.at(one), 0.0, 1.0) * factor for one in times)
        return cls(np.asarray(cdf), entry, low, None if rows.cause is None else _aalen_johansen(rows, curve, factor))

    @classmethod
    def joined(cls, parts: Sequence["Own"], order: npt.NDArray[np.intp]) -> "Own":
        """Put parts one after another, and then in an order."""
        given = {one.name: [getattr(part, one.name) for part in parts] for one in fields(cls)}
        if parts[0].steps is not None:
            # Models of other rows may have another number of points; after the last one nothing is added.
            most = max(steps.shape[2] for steps in given["steps"])
            given["steps"] = [np.pad(own, ((0, 0), (0, 0), (0, most - own.shape[2]))) for own in given["steps"]]
        joint: dict[str, Any] = {
            name: None if own[0] is None else np.concatenate(own)[order] for name, own in given.items()
        }
        return cls(**joint)

    def recalibration(
        self, rows: SurvivalData, which: Any = slice(None), n_pieces: int | None = None
    ) -> KaplanMeierRecalibration:
        """Fit a map of F to some of the rows, or to all."""
        known = {"weights": rows.weights, "cdf_entry": self.entry, "cdf_lower": self.lower, "cause": rows.cause}
        known["shares"] = self.shares
        given = {name: None if one is None else one[which] for name, one in known.items()}
        return KaplanMeierRecalibration.fit(self.cdf[which], rows.event[which], n_pieces=n_pieces, **given)

    def calibration(self, rows: SurvivalData, n_bins: int, **options: Any) -> DCalibrationResult | CauseCalibration:
        """D-calibration of these rows, by cause where they have causes; `options` are those of `d_calibration`."""
        if self.steps is None:
            known = {"cdf_entry": self.entry, "cdf_lower": self.lower, "clusters": rows.groups, "weights": rows.weights}
            found: DCalibrationResult = d_calibration(self.cdf, rows.event, n_bins=n_bins, **known, **options)
            return found
        steps, entry, cause = self.steps, self.entry, rows.cause
        size = max(1, _CHUNK // (steps.shape[1] * steps.shape[2]))
        parts = [slice(start, start + size) for start in range(0, rows.n, size)]
        blocks = (
            (Levels(_curves(steps[part])), self.cdf[part], None if entry is None else entry[part], cause[part])
            for part in parts
        )
        return calibration_of_levels(blocks, steps.shape[1], bin_edges(n_bins))

    def deviations(self, rows: SurvivalData, n_bins: int) -> Floats:
        """Share of each row in each cell, less what it should have there, ``(n, cells)``."""
        given = (self.cdf, self.entry, self.lower, self.steps)
        cdf, entry, lower, steps = (None if one is None else torch.from_numpy(one) for one in given)
        cause = None if rows.cause is None else torch.from_numpy(rows.cause)
        assert cdf is not None
        seen, edges = Seen(entry, lower, cause, steps), torch.from_numpy(bin_edges(n_bins))
        return np.asarray(residuals(cdf, torch.from_numpy(rows.event), seen, edges, SoftBins(), exact=True).numpy())


def _curves(steps: Floats) -> Floats:
    """Incidences, (n, causes, points + 1), from what is added."""
    return np.concatenate([np.zeros((*steps.shape[:2], 1)), np.cumsum(steps, axis=2)], axis=2)


def _aalen_johansen(rows: SurvivalData, curve: KaplanMeier, factor: float) -> Floats:
    """Return the steps of Aalen and Johansen's estimate, the same for all rows, with the rest divided alike."""
    before = np.append(1.0, curve.survival[:-1])
    place, n_causes = np.searchsorted(curve.times, rows.time), len(rows.causes)
    counts = np.stack([np.bincount(place[rows.cause == k], minlength=before.size) for k in range(1, n_causes + 1)])
    rises = factor * before * counts / np.maximum(curve.at_risk, 1)
    starts = np.unique(np.linspace(0, before.size - 1, min(_POINTS, before.size)).astype(int))
    steps = np.add.reduceat(rises, starts, axis=1)
    rest = np.maximum(1.0 - steps.sum(), 0.0) * steps.sum(axis=1, keepdims=True) / steps.sum()
    found: Floats = np.broadcast_to(np.append(steps, rest, axis=1), (rows.n, n_causes, starts.size + 1)).copy()
    return found


# --- What an estimator predicts with.


# Values computed at a time, rows times points of a curve: they stay in a core's cache.
_CHUNK = 1 << 16
# Points of a curve that its mean takes, about.
_MEAN_POINTS = 500
# Features of rows that are standardised at a time: of wide rows, which may come from a file, fewer than that.
_FEATURES = 1 << 22


def in_own_memory(values: npt.NDArray[Any]) -> Tensor:
    """Copy an array to memory of torch's, which starts at a multiple of 64 bytes.

    What a matrix product rounds to may depend on where in a cache line its numbers start, and numpy starts anywhere.
    """
    return torch.from_numpy(values).clone()


class PredictingModel(Predicting):
    """What an estimator predicts with: one network, or several that are averaged, with or without a map of F.

    Predictions are made in float64, from the float32 weights of training: a row's prediction does not depend on the
    rows beside it, up to rounding. The same rows give the same bits.
    """

    outputs: Outputs  # the meaning of the raw outputs

    @property
    @abstractmethod
    def members(self) -> "tuple[FittedModel, ...]":
        """The networks; all were trained on the same rows, with the same scaling and meaning of their outputs."""

    @property
    def recalibration(self) -> KaplanMeierRecalibration | None:
        """The map of F that was fitted after training; None without one."""
        return None

    @property
    def grid(self) -> Floats:
        """Times from 0 to the last one seen in training."""
        return self.outputs.grid

    def count(self, x: Floats) -> int:
        """Return the number of rows."""
        return len(x)

    @abstractmethod
    def raw(self, x: Floats) -> Tensor:
        """Raw outputs of rows ``(n, d)``, of shape ``(..., n, outputs)``."""

    @abstractmethod
    def read(self, raw: Tensor) -> SurvivalDistribution:
        """Turn raw outputs into the distribution of each row, in the user's unit of time."""

    def distribution(self, x: Floats, after: Floats | None = None) -> SurvivalDistribution:
        """Distribution of each row, in the user's unit of time; with `after`, of those that come as far as that."""
        found = self.read(self.raw(x))
        return found if after is None else SurvivorDistribution(found, torch.from_numpy(after))

    def _of(self, x: Floats, after: Floats | None) -> Callable[[slice], SurvivalDistribution]:
        """Return a function that gives the distribution of some of the rows."""
        return lambda part: self.distribution(x[part], None if after is None else after[part])

    def survival(self, x: Floats, times: Floats, after: Floats | None = None) -> Floats:
        """S of each row at each time, ``(n, m)``."""
        return self._curves(len(x), times, self._of(x, after), "survival")

    def survival_of(self, raw: Tensor, times: Floats) -> Floats:
        """S at each time, ``(n, m)``, of rows whose raw outputs are known already."""
        return self._curves(raw.shape[-2], times, lambda part: self.read(raw[..., part, :]), "survival")

    def curves(self, x: Floats) -> Iterator[tuple[Floats, Callable[[Floats], Floats]]]:
        """S of each row at the grid, and the same at other times, from the raw outputs of the row."""
        raw = self.raw(x)
        for row, values in enumerate(self.survival_of(raw, self.grid)):
            yield values, partial(self.survival_of, raw[..., row : row + 1, :])

    def cdf(self, x: Floats, times: Floats, after: Floats | None = None) -> Floats:
        """F of each row at each time, ``(n, m)``."""
        return self._curves(len(x), times, self._of(x, after), "cdf")

    def cdf_at_own(self, x: Floats, time: FloatArray) -> Floats:
        """F of each row at its observed time, ``(n,)``."""
        return self._by_parts(
            len(x), 1, lambda part: self.distribution(x[part]).cdf(torch.from_numpy(time[part])).numpy()
        )

    def own(self, rows: SurvivalData) -> Own:
        """F of rows at their observed times, and at what else is known of them."""
        parts = list(self._parts(rows.n, 1))
        with Workers() as workers:
            found = workers.map(lambda part: Own.of(self.distribution(rows.x[part]), rows[part]), parts)
        return Own.joined(found, np.arange(rows.n))

    @property
    def causes(self) -> tuple[str, ...]:
        """Names of the causes, where there are several."""
        return self.outputs.causes

    def incidence(self, x: Floats, times: Floats, after: Floats | None = None) -> Floats:
        """Incidence of each cause at each time, ``(n, causes, m)``."""
        if not self.causes:
            return super().incidence(x, times, after)
        grid, of = torch.from_numpy(times).unsqueeze(1), self._of(x, after)

        def values(part: slice) -> Floats:
            law = of(part)
            found = law.cumulative_incidence(grid.expand(-1, law.batch_shape[-1]))
            return np.asarray(found.movedim(0, -1).numpy())

        return self._by_parts(len(x), times.size * max(1, len(self.causes)), values)

    def quantile(self, x: Floats, levels: Floats, after: Floats | None = None) -> Floats:
        """Quantiles of each row, ``(n, levels)``."""
        of, n = self._of(x, after), len(x)

        def found(part: slice) -> Floats:
            law = of(part)
            level = torch.from_numpy(levels).unsqueeze(1).expand(-1, law.batch_shape[-1])
            return law.quantile(level).T.numpy()

        return self._by_parts(n, levels.size, found)

    def mean_time(self, x: Floats, after: Floats | None, horizon: float | None) -> MeanTime:
        """Mean time of each row, or of the time until the event or a horizon; and those of the networks behind it."""

        def means(model: PredictingModel) -> Floats:
            of = model._of(x, after)

            def found(part: slice) -> Floats:
                law = of(part)
                if horizon is None:
                    return law.mean.numpy()
                return law.restricted_mean(torch.full(law.batch_shape, horizon, dtype=torch.float64)).numpy()

            return model._by_parts(len(x), _MEAN_POINTS, found)

        one = len(self.members) == 1
        networks = [] if one else [means(combined([member], self.recalibration)) for member in self.members]
        return MeanTime.of_networks(means(self), np.array(networks))

    def risk(self, x: Floats, cause: int | None = None) -> Floats:
        """Risk of each row, ``(n,)``; see `Outputs.risk`."""
        return self._by_parts(
            len(x), self.outputs.grid.size, lambda part: self.outputs.risk(self.distribution(x[part]), cause).numpy()
        )

    def _curves(
        self,
        n: int,
        times: Floats,
        distribution_of: Callable[[slice], SurvivalDistribution],
        curve: Literal["survival", "cdf"],
    ) -> Floats:
        grid = torch.from_numpy(times).unsqueeze(1)

        def values(part: slice) -> Floats:
            distribution = distribution_of(part)
            at = grid.expand(-1, distribution.batch_shape[-1])
            found = distribution.survival(at) if curve == "survival" else distribution.cdf(at)
            return found.T.numpy()

        return self._by_parts(n, times.size, values)

    def _by_parts(self, n: int, points: int, predict: Callable[[slice], Floats]) -> Floats:
        """Predictions of all rows, made piece by piece and by as many threads as torch may use."""
        with Workers() as workers:
            return np.concatenate(workers.map(predict, list(self._parts(n, points))))

    def _parts(self, n: int, points: int) -> Iterator[slice]:
        """Rows in pieces that fit into a cache; a discrete row also holds its bins."""
        bins = 1 if self.outputs.edges is None else self.outputs.edges.size
        step = max(1, min(_CHUNK // max(points, bins), _FEATURES // self.members[0].standardizer.mean.size))
        return (slice(start, start + step) for start in range(0, n, step))


@dataclass(frozen=True, eq=False)
class FittedModel(PredictingModel):
    """A network at its best epoch, with the scaling of its inputs and the meaning of its outputs."""

    standardizer: Standardizer
    outputs: Outputs
    network: nn.Module  # in float64 and evaluation mode
    lam: float  # weight of the penalty
    seed: int  # of the initial weights, batches and dropout
    best_epoch: int  # epoch, from 0, whose weights these are
    history: History  # validation values of every epoch, ``(epochs, 1)``
    own_scores: ConformalScores | None = None  # of the validation rows; None where there were none of their own

    @property
    def scores(self) -> ConformalScores | None:
        """What intervals are made of: F of the validation rows."""
        return self.own_scores

    @torch.no_grad()
    def raw(self, x: Floats) -> Tensor:
        """Raw outputs of rows ``(n, d)``."""
        result: Tensor = self.network(in_own_memory(self.standardizer(x)))
        return result

    def read(self, raw: Tensor) -> SurvivalDistribution:
        """Read the raw outputs as they are meant."""
        return self.outputs.read(raw)

    @property
    def members(self) -> "tuple[FittedModel, ...]":
        """The model itself."""
        return (self,)


@dataclass(frozen=True, eq=False)
class CombinedModel(PredictingModel):
    """Several networks in equal parts, or a map of F after one or more of them. Make it with `combined`."""

    parts: tuple[FittedModel, ...]
    fitted_map: KaplanMeierRecalibration | None = None
    outputs: Outputs = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", self.parts[0].outputs)

    @property
    def members(self) -> tuple[FittedModel, ...]:
        """The networks."""
        return self.parts

    @property
    def recalibration(self) -> KaplanMeierRecalibration | None:
        """The map of F, if there is one."""
        return self.fitted_map

    @property
    def scores(self) -> ConformalScores | None:
        """Of the mixture, before the map of F, which changes nothing about whom an interval holds."""
        own = [member.own_scores for member in self.parts]
        known = [one for one in own if one is not None]
        if len(known) < len(own):
            return None
        return replace(known[0], cdf=np.mean([one.cdf for one in known], axis=0))

    def spread(self, rows: Floats, times: Floats) -> Floats:
        """Return the standard error of the log-odds of S: by the seeds, and of a share among the map's events."""
        curves = np.stack([combined([part], self.fitted_map).survival(rows, times) for part in self.parts])
        square = log_odds_spread(curves) ** 2 / len(curves) if len(curves) > 1 else np.zeros(curves.shape[1:])
        if self.fitted_map is not None:
            left = np.clip(self.survival(rows, times), 1e-12, 1 - 1e-12)
            square = square + 1 / (left * (1 - left) * self.fitted_map.n_events)
        return np.sqrt(square)

    def bounds(self, rows: Floats, levels: Floats) -> Floats:
        """Return the times at which F of the mixture, before the map, comes to the levels."""
        return self.quantile(rows, levels if self.fitted_map is None else self.fitted_map.cdf(levels))

    def raw(self, x: Floats) -> Tensor:
        """Raw outputs of every member, ``(members, n, outputs)``."""
        return torch.stack([member.raw(x) for member in self.parts])

    def read(self, raw: Tensor) -> SurvivalDistribution:
        """Mix the members, then map F."""
        mixed = mixture([self.outputs.read(own) for own in raw])
        return mixed if self.fitted_map is None else self.fitted_map.law(mixed)


def combined(members: Sequence[FittedModel], recalibration: KaplanMeierRecalibration | None = None) -> PredictingModel:
    """Average models and recalibrate them; one model without a map is itself."""
    if len(members) == 1 and recalibration is None:
        return members[0]
    return CombinedModel(tuple(members), recalibration)
