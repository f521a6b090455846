"""The methods of recalibration, each behind one name, their average, and what a recalibrated model predicts."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from scipy.special import expit, softmax

from xcal._checks import BoolArray, Floats, as_choice, as_weights, effective_units, fail
from xcal.data.survival import folds_by_event
from xcal.distributions.base import SurvivalDistribution
from xcal.distributions.composed import RecalibratedDistribution, SurvivorDistribution
from xcal.interop.predictions import ModelPredictions, Rows, SeveralLaws, WholeLaw, take_rows
from xcal.recalibration.by_row import (
    GroupedRecalibration,
    IsotonicSurface,
    MapByCurve,
    MapsOfRows,
    RiskRecalibration,
    TemperatureRecalibration,
)
from xcal.recalibration.maps import (
    IsotonicRecalibration,
    KaplanMeierRecalibration,
    PiecewiseRecalibration,
    Recalibration,
    held_out_rows,
    through_points,
)
from xcal.recalibration.predictor import ConformalScores, MeanTime, Predicting, log_odds_spread
from xcal.recalibration.published import BetaRecalibration, CiPOTRecalibration, ConformalQuantiles, KSPRecalibration
from xcal.recalibration.reading import (
    Column,
    bin_ends,
    event_times,
    few_event_times,
    incidence_at,
    labels_of,
    model_quantiles,
    n_rows,
    own_values,
    quantile_at,
    read_own,
    survival_at,
)

# --- What a recalibrated model predicts: the model's answers, changed by a map of F or by shifts of its quantiles.

# Rows that a model is asked about at once, where each is asked at many times.
AT_ONCE = 10_000

# Rows times causes times times of incidences that are worked on together.
_CELLS = 1 << 20

# F that is 1 - S is off by so much: a sum of the masses of many time bins, which may not be 1 in its last digits.
_ROUNDING = 1e-14

# Nearer to 1, F has too few digits for the logarithm of 1 - F.
_TAIL = 1e-6


class Adjustment(ABC):
    """Interface: predictions of a model after recalibration, ``(n,)`` or ``(n, m)``."""

    @abstractmethod
    def cdf(self, model: Any, X: Any, times: Floats) -> Floats:
        """F' of each row at each time."""

    @abstractmethod
    def own(self, model: Any, X: Any, time: Floats, event: BoolArray) -> tuple[Floats, Floats | None]:
        """F' of each row at its observed time, and its negative log-likelihood where the model has a density."""

    def incidence(self, model: Any, X: Any, times: Floats, causes: tuple[str, ...]) -> Floats:
        """Incidence of each cause at each time, ``(n, causes, m)``."""
        fail("method", "a map of F, for incidences by cause", type(self).__name__)

    @abstractmethod
    def quantile(self, model: Any, X: Any, p: Floats, last: float) -> Floats:
        """Find the times at which F' of each row reaches each of `p`, ``(m,)`` or ``(n, m)``.

        Infinity past the end of the model's curves.
        """

    @abstractmethod
    def predictions(self, model: Any, found: ModelPredictions, X: Any, rows: Rows) -> ModelPredictions:
        """Change what was read of the model, for those who read models of any library."""

    @property
    @abstractmethod
    def counts(self) -> tuple[int, int]:
        """Rows and events that it was fitted to."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Everything that it holds, as numbers, words and lists: what a file keeps of it."""


@dataclass(frozen=True, eq=False)
class MapOfF(Adjustment):
    """F' = G(F), with one map for all rows, one for each group, or one for each row by its own curve."""

    map: Recalibration | GroupedRecalibration | MapByCurve
    group_column: Column | None = None

    def cdf(self, model: Any, X: Any, times: Floats) -> Floats:
        """F' of each row at each time."""
        return self._of(model, X).cdf(_inside(1 - survival_at(model, X, times)))

    def own(self, model: Any, X: Any, time: Floats, event: BoolArray) -> tuple[Floats, Floats | None]:
        """F' of each row at its observed time, and its negative log-likelihood where the model has a density."""
        found = read_own(model, X, time, event)
        return self._changed(model, X, Rows(time, event), found.cdf, found.nll)

    def _changed(self, model: Any, X: Any, rows: Rows, cdf: Floats, nll: Floats | None) -> tuple[Floats, Floats | None]:
        """F' and the negative log-likelihood from those of the model, by the chain rule."""
        own = self._of(model, X)
        if nll is None:
            return own.cdf(cdf), None
        # The likelihood of a censored row is its survival. An event far in the tail, where F has no digits left to tell
        # it by, is asked about once more as if it were censored.
        far = np.flatnonzero(rows.event & (cdf > 1 - _TAIL))
        tail = np.where(rows.event, np.log1p(-np.minimum(cdf, 1 - _TAIL)), -nll)
        if far.size:
            nobody = np.zeros(far.size, dtype=bool)
            again = read_own(model, take_rows(X, far), rows.time[far].astype(np.float64), nobody).nll
            tail[far] = tail[far] if again is None else -again
        loss = np.where(rows.event, nll - own.log_density(cdf, tail), -own.log_survival(cdf, tail))
        return own.cdf(cdf), loss

    def incidence(self, model: Any, X: Any, times: Floats, causes: tuple[str, ...]) -> Floats:
        """Incidence of each cause at each time, ``(n, causes, m)``."""
        asked, place = np.unique(times, return_inverse=True)
        size = max(1, _CELLS // (asked.size * len(causes)))
        numbers = np.arange(n_rows(X))
        parts = [numbers[start : start + size] for start in range(0, numbers.size, size)]
        return np.concatenate([self._incidence(model, take_rows(X, part), asked, causes) for part in parts])[..., place]

    def _incidence(self, model: Any, X: Any, times: Floats, causes: tuple[str, ...]) -> Floats:
        own = self._of(model, X)
        if isinstance(model, WholeLaw) and isinstance(own, KaplanMeierRecalibration):
            law = own.law(model.predict_distribution(X))
            at = torch.from_numpy(times).unsqueeze(1).expand(-1, n_rows(X))
            return np.asarray(law.cumulative_incidence(at).movedim(0, -1).numpy())
        grid, curves = incidence_at(model, X, times, causes)
        return _divided(own, curves)[..., np.searchsorted(grid, times)]

    def quantile(self, model: Any, X: Any, p: Floats, last: float) -> Floats:
        """Find the times at which F' of each row reaches each of `p`."""
        own = self._of(model, X)
        levels = own.quantile(np.broadcast_to(p, (n_rows(X), p.shape[-1])))
        return quantile_at(model, X, levels, last)

    def predictions(self, model: Any, found: ModelPredictions, X: Any, rows: Rows) -> ModelPredictions:
        """Change what was read of the model."""
        own = self._of(model, X)
        survival = (
            None if found.survival is None else 1 - own.cdf(_inside(np.asarray(1 - found.survival, dtype=np.float64)))
        )
        cdf = loss = None
        if found.cdf is not None:
            cdf, loss = self._changed(model, X, rows, found.cdf, found.nll)
        elif found.interpolation == "linear":
            # Lines between the points of the model's curves are bent by the map: read the model's, then map.
            cdf = own.cdf(own_values(found, rows.time.astype(np.float64), rows.event).cdf)
        of_causes = None
        if found.incidence is not None and found.times is not None:
            of_causes = self.incidence(model, X, found.times, found.causes)
        return replace(found, survival=survival, cdf=cdf, nll=loss, incidence=of_causes)

    @property
    def counts(self) -> tuple[int, int]:
        """Rows and events that the map was fitted to."""
        return self.map.n, self.map.n_events

    def content(self) -> dict[str, Any]:
        """Return the serialisable state."""
        return self.map.content()

    def _of(self, model: Any, X: Any) -> Recalibration | MapsOfRows:
        if isinstance(self.map, Recalibration):
            return self.map
        if isinstance(self.map, MapByCurve):
            return self.map.of_rows(_inside(1 - survival_at(model, X, self.map.times)))
        return self.map.of_rows(labels_of(X, self.group_column))


@dataclass(frozen=True, eq=False)
class ShiftedQuantiles(Adjustment):
    """New quantiles at some levels, straight lines between them; past the last level the model's curve, moved.

    A row whose last quantile moved by d has F'(t) = F(t - d) after it, or the last level where F is below that.
    """

    shifts: ConformalQuantiles

    def cdf(self, model: Any, X: Any, times: Floats) -> Floats:
        """F' of each row at each time."""
        own, new = self._quantiles(model, X, float(times.max()))
        return self._cdf(model, X, np.broadcast_to(times, (len(new), times.size)), own, new)

    def own(self, model: Any, X: Any, time: Floats, event: BoolArray) -> tuple[Floats, Floats | None]:
        """F' of each row at its observed time, and its negative log-likelihood where the model has a density."""
        own, new = self._quantiles(model, X, float(time.max()))
        at = read_own(model, X, time, event).time  # where the curves of a model end, a row counts as censored
        cdf = self._cdf(model, X, at[:, None], own, new)[:, 0]
        moved = np.maximum(time - (new[:, -1] - own[:, -1]), 0.0)
        tail = read_own(model, X, moved, event).nll
        if tail is None:
            return cdf, None
        levels, ends = self._lines(new)
        piece = np.minimum((ends <= time[:, None]).sum(axis=1) - 1, ends.shape[1] - 2)
        rows = np.arange(time.size)
        width = ends[rows, piece + 1] - ends[rows, piece]
        with np.errstate(divide="ignore"):
            inside = np.where(event, np.log(width) - np.log(np.diff(levels)[piece]), -np.log1p(-cdf))
        return cdf, np.where(time >= new[:, -1], tail, inside)

    def quantile(self, model: Any, X: Any, p: Floats, last: float) -> Floats:
        """Find the times at which F' of each row reaches each of `p`."""
        own, new = self._quantiles(model, X, last)
        levels, ends = self._lines(new)
        wanted = np.broadcast_to(p, (len(new), p.shape[-1]))
        result = np.stack([np.interp(asked, levels, row) for asked, row in zip(wanted, ends, strict=True)])
        beyond = (wanted > levels[-1]).any(axis=0)
        if beyond.any():
            asked = wanted[:, beyond]
            tail, shift = quantile_at(model, X, np.ascontiguousarray(asked), last), new[:, -1:] - own[:, -1:]
            moved = tail + shift
            # Rounding must not put a quantile before the step of the model's curve that it belongs to.
            moved = np.where(moved - shift < tail, np.nextafter(moved, np.inf), moved)
            result[:, beyond] = np.where(asked > levels[-1], np.maximum(moved, new[:, -1:]), result[:, beyond])
        return result

    def predictions(self, model: Any, found: ModelPredictions, X: Any, rows: Rows) -> ModelPredictions:
        """Change what was read of the model."""
        survival = None if found.times is None else 1 - self.cdf(model, X, found.times)
        cdf, loss = self.own(model, X, rows.time.astype(np.float64), rows.event)
        # Shifts of the quantiles of any event say nothing of single causes.
        return replace(found, survival=survival, interpolation="linear", cdf=cdf, nll=loss, incidence=None, causes=())

    @property
    def counts(self) -> tuple[int, int]:
        """Rows and events that the shifts were fitted to."""
        return self.shifts.n, self.shifts.n_events

    def content(self) -> dict[str, Any]:
        """Return the serialisable state."""
        return self.shifts.content()

    def _quantiles(self, model: Any, X: Any, last: float) -> tuple[Floats, Floats]:
        own = model_quantiles(model, X, self.shifts.levels, last)
        return own, self.shifts.quantiles(own)

    def _lines(self, new: Floats) -> tuple[Floats, Floats]:
        """Levels and times of the corners of F', from (0, 0) on."""
        return np.append(0.0, self.shifts.levels), np.hstack([np.zeros((len(new), 1)), new])

    def _cdf(self, model: Any, X: Any, times: Floats, own: Floats, new: Floats) -> Floats:
        """F' of each row at its times, ``(n, m)``."""
        levels, ends = self._lines(new)
        result = np.array([np.interp(t, row, levels) for t, row in zip(times, ends, strict=True)])
        rows, columns = np.nonzero(times > new[:, -1:])
        moved = np.maximum(times - (new[:, -1:] - own[:, -1:]), 0.0)[rows, columns]
        # The tails of many rows at once, but no more than a library can take.
        for start in range(0, rows.size, AT_ONCE):
            part = slice(start, start + AT_ONCE)
            nobody = np.zeros(rows[part].size, dtype=bool)
            tail = read_own(model, take_rows(X, rows[part]), moved[part], nobody).cdf
            result[rows[part], columns[part]] = np.maximum(levels[-1], tail)
        return result


def _divided(own: Recalibration | MapsOfRows, curves: Floats) -> Floats:
    """Return incidences ``(n, causes, m)`` after a map of F, which may move the shares of the causes too.

    Between two times all causes rise in proportion, so that each keeps its share of what the map makes of the rise.
    """
    steps = np.maximum(np.diff(curves, axis=2, prepend=0.0), 0.0)
    u = np.minimum(np.cumsum(steps.sum(axis=1), axis=1), 1.0)
    before = np.concatenate([np.zeros((len(u), 1)), u[:, :-1]], axis=1)
    log_shares = np.log(np.maximum(steps, np.finfo(np.float64).tiny))
    ends, splits = np.array([0.0, 1.0]), np.zeros((1, curves.shape[1]))
    if isinstance(own, KaplanMeierRecalibration) and own.splits is not None and own.split_knots is not None:
        ends, splits = own.split_knots, own.splits.reshape(own.split_knots.size - 1, -1)
    found = np.zeros(curves.shape)
    for low, high, added in zip(ends[:-1], ends[1:], splits, strict=True):
        rise = own.cdf(np.clip(u, low, high)) - own.cdf(np.clip(before, low, high))
        found += rise[:, None] * softmax(log_shares + added[:, None], axis=1)
    return np.asarray(np.cumsum(found, axis=2))


def _inside(u: Floats) -> Floats:
    """Cut off what rounding of 1 - S added beyond 0 and 1, or to 0; curves were checked when they were read.

    A map may rise so steeply at 0 that the rounding could be seen, as an F' above 0 at time 0.
    """
    return np.where(u < _ROUNDING, 0.0, np.minimum(u, 1.0))


@dataclass(frozen=True, eq=False)
class Corrected(Predicting):
    """A model and what corrects it, asked about rows as the model takes them."""

    model: Any
    adjustment: Adjustment
    times: Floats  # from 0 to the end
    # Of the model inside: a map that is the same for all rows changes nothing about whom an interval holds, and one
    # that is not was fitted to the rows by which the interval has to be judged.
    scores: ConformalScores | None = None
    # What is fitted to resamples of the rows that it was recalibrated on.
    resampled: Callable[[], Sequence[Adjustment]] | None = None
    causes: tuple[str, ...] = ()  # names of the causes that it was fitted to, where there are several

    # `Recalibrated.times_` says which of both.
    seen = "seen in training or recalibration"

    @property
    def grid(self) -> Floats:
        """Times from 0 to the end."""
        return self.times

    @property
    def law(self) -> bool:
        """Whether the recalibrated model is a distribution."""
        return self._map_of_law() is not None

    def count(self, rows: Any) -> int:
        """Return the number of rows."""
        return n_rows(rows)

    def risk(self, rows: Any, cause: int | None = None) -> Floats:
        """Mean of F', or of the incidence of a cause, along straight lines over the grid."""
        values = self.cdf(rows, self.times) if cause is None else self.incidence(rows, self.times)[:, cause - 1]
        return np.asarray(np.trapezoid(values, self.times, axis=1) / self.times[-1])

    def incidence(self, rows: Any, times: Floats, after: Floats | None = None) -> Floats:
        """Incidence of each cause at each time, ``(n, causes, m)``."""
        if not self.causes:
            return super().incidence(rows, times, after)
        values = self.adjustment.incidence(self.model, rows, times, self.causes)
        if after is None:
            return values
        come, place = np.unique(after, return_inverse=True)
        at = self.adjustment.incidence(self.model, rows, come, self.causes)[np.arange(after.size), :, place][..., None]
        left = 1 - at.sum(axis=1, keepdims=True)
        since = np.divide(values - at, left, out=np.full(values.shape, np.nan), where=left > 0)
        return np.asarray(np.where(times > after[:, None, None], since, 0.0 * left))

    def cdf(self, rows: Any, times: Floats, after: Floats | None = None) -> Floats:
        """F' of each row at each time."""
        values = self.adjustment.cdf(self.model, rows, times)
        if after is None:
            return values
        left = 1 - self._reached(rows, after)[:, None]
        survived = np.divide(1 - values, left, out=np.full(values.shape, np.nan), where=left > 0)
        return np.where(times > after[:, None], 1 - survived, 0.0 * left)

    def survival(self, rows: Any, times: Floats, after: Floats | None = None) -> Floats:
        """1 - F'."""
        return 1 - self.cdf(rows, times, after)

    def curves(self, rows: Any) -> Iterator[tuple[Floats, Callable[[Floats], Floats]]]:
        """S' of each row at the grid, and the model asked again at other times."""
        for row, values in enumerate(self.survival(rows, self.times)):
            yield values, partial(self.survival, take_rows(rows, np.array([row])))

    def quantile(self, rows: Any, levels: Floats, after: Floats | None = None) -> Floats:
        """Find the times at which F' of each row reaches the levels."""
        if after is not None:
            gone = self._reached(rows, after)[:, None]
            levels = gone + levels * (1 - gone)
        values = self.adjustment.quantile(self.model, rows, levels, float(self.times[-1]))
        return values if after is None else np.maximum(values, after[:, None])

    def spread(self, rows: Any, times: Floats) -> Floats:
        """Return the standard error of the log-odds of S', by resamples, and by the seeds of a model of xcal."""
        if self.resampled is None:
            fail("interval", "a model with the rows that it was recalibrated on", "a loaded one, which keeps none")
        draws = np.stack([1 - own.cdf(self.model, rows, times) for own in self.resampled()])
        square = log_odds_spread(draws) ** 2
        members = self.model.predict_members(rows) if isinstance(self.model, SeveralLaws) else ()
        if len(members) > 1:
            at = torch.from_numpy(times).unsqueeze(1).expand(-1, n_rows(rows))
            square += log_odds_spread(np.stack([law.survival(at).T.numpy() for law in members])) ** 2 / len(members)
        return np.asarray(np.sqrt(square))

    def bounds(self, rows: Any, levels: Floats) -> Floats:
        """Return the times at which F of the model inside comes to the levels."""
        wanted = np.ascontiguousarray(np.broadcast_to(levels, (n_rows(rows), levels.size)))
        return quantile_at(self.model, rows, wanted, float(self.times[-1]))

    def mean_time(self, rows: Any, after: Floats | None, horizon: float | None) -> MeanTime:
        """Mean of the time until the event or the horizon, and those of the networks of a model that has several."""
        own = self._map_of_law()
        if own is None:
            value = self._mean_of_curves(rows, after, horizon)
            return MeanTime.of_networks(value, value[None])

        def mean(law: SurvivalDistribution, reached: Floats | None) -> Floats:
            law = RecalibratedDistribution(law, own.knots, own.levels)
            law = law if reached is None else SurvivorDistribution(law, torch.from_numpy(reached))
            if horizon is None:
                return np.asarray(law.mean.numpy())
            return np.asarray(law.restricted_mean(torch.full(law.batch_shape, horizon, dtype=torch.float64)).numpy())

        whole, networks = [], []
        for start in range(0, n_rows(rows), AT_ONCE):
            few = np.arange(start, min(start + AT_ONCE, n_rows(rows)))
            some, reached = take_rows(rows, few), None if after is None else after[few]
            whole.append(mean(self.model.predict_distribution(some), reached))
            members = self.model.predict_members(some) if isinstance(self.model, SeveralLaws) else ()
            networks.append(np.array([mean(member, reached) for member in members]).reshape(len(members), few.size))
        return MeanTime.of_networks(np.concatenate(whole), np.concatenate(networks, axis=1))

    def _map_of_law(self) -> PiecewiseRecalibration | None:
        """Return the map, where the recalibrated model is a distribution: a law behind one map of straight lines."""
        own = self.adjustment.map if isinstance(self.adjustment, MapOfF) else None
        return own if isinstance(own, PiecewiseRecalibration) and isinstance(self.model, WholeLaw) else None

    def _mean_of_curves(self, rows: Any, after: Floats | None, horizon: float | None) -> Floats:
        """Area under each curve along straight lines over the grid, up to the horizon or the end."""
        stop = float(self.times[-1]) if horizon is None else horizon
        grid = np.append(self.times[self.times < stop], stop)
        survival = self.survival(rows, grid, after)
        if after is None:
            return np.asarray(np.trapezoid(survival, grid, axis=1))
        # S is 1 until `after`, and falls from there on.
        return np.asarray(after + np.trapezoid(survival, np.maximum(grid, after[:, None]), axis=1))

    def _reached(self, rows: Any, after: Floats) -> Floats:
        """F' of each row at the time that it has come to."""
        return self.adjustment.own(self.model, rows, after, np.zeros(after.size, dtype=bool))[0]


# --- The average of several maps of F, weighted by how well each predicts rows that were left out: `method="auto"`.

_FOLDS = 5

# The weight of a map is exp(gain / 2), its gain being its log-likelihood on rows that were left out, over that of no
# change; no change has exp(1). Measured by `studies.recalibrating`: without the half, weights follow the noise of few
# rows; without the 1, a true model of 50 rows loses twice as much.
_SHARE_OF_GAIN, _HEAD_START = 0.5, 1.0

# Maps with less weight than this are left out.
_LEAST_WEIGHT = 0.005

# Knots of a smooth map, evenly spaced on the scale of log-odds: from 1e-8, where F values are told apart, to 1 - 1e-8.
_SMOOTH_KNOTS = expit(np.linspace(-18.4, 18.4, 369))


@dataclass(frozen=True, eq=False, repr=False)
class AveragedRecalibration(PiecewiseRecalibration):
    """An average of maps of F: no change, "beta", "cipot" and "km", each as far as left-out rows speak for it.

    The rows are divided into five folds. Each map is fitted to four of them and judged on the fifth by its censored
    likelihood over that of no change, its gain; among events that share their F, by the mass that it gives to their
    surroundings. The weight of a map is proportional to exp(gain / 2), that of no change to exp(1). So a model that is
    right on few rows is left nearly as it is, a smooth error is corrected by the smooth map, and any other by the
    Kaplan-Meier curve once there are rows enough to see it. The average goes through the knots of all its maps, those
    of the smooth one being dense, with straight lines in between.

    Attributes
    ----------
    knots, levels : ndarray
        F and G(F) at the ends of the straight lines.
    n, n_events : int
        Rows and events that the maps were fitted to.
    weights : ndarray of shape (4,)
        Of no change, "beta", "cipot" and "km"; they add up to 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> true, too_fast = rng.uniform(size=300), 1 - (1 - rng.uniform(size=300)) ** 2
    >>> AveragedRecalibration.fit(true, np.ones(300)).weights[0] > 0.5  # no change
    np.True_
    >>> AveragedRecalibration.fit(too_fast, np.ones(300)).weights[0] < 0.01
    np.True_
    """

    weights: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = np.asarray(self.weights)
        if weights.shape != (4,) or not (weights >= 0).all() or abs(weights.sum() - 1) > 1e-9:
            fail("weights", "four shares that add up to 1", f"an array of shape {weights.shape} that does not")

    @classmethod
    def fit(cls, cdf: Any, event: Any, *, weights: Any = None) -> Self:
        """Fit the maps and their weights to rows that did not train the model; see `KaplanMeierRecalibration.fit`."""
        u, happened = held_out_rows(cdf, event)
        w = None if weights is None else effective_units(as_weights("weights", weights, u.size))
        shares = softmax(np.append(_HEAD_START, _SHARE_OF_GAIN * _gains(u, happened, w)))
        shares = np.where(shares < _LEAST_WEIGHT, 0.0, shares)
        shares /= shares.sum()
        maps = [kind.fit(u, happened, weights=w) for kind in _KINDS]
        used = [(share, own) for share, own in zip(shares[1:], maps, strict=True) if share > 0]
        at = [own.knots if isinstance(own, PiecewiseRecalibration) else _SMOOTH_KNOTS for _, own in used]
        knots = np.unique(np.concatenate([*at, [0.5]]))
        levels = shares[0] * knots + sum(share * own.cdf(knots) for share, own in used)
        inside = (knots > 0) & (knots < 1)
        return cls(*through_points(knots[inside], levels[inside]), u.size, int(happened.sum()), shares)

    def __repr__(self) -> str:
        names = ("no change", "beta", "cipot", "km")
        parts = ", ".join(f"{weight:.2f} {name}" for name, weight in zip(names, self.weights, strict=True) if weight)
        return f"{type(self).__name__}({parts}, from {self.n} rows with {self.n_events} events)"


_KINDS: tuple[Any, ...] = (BetaRecalibration, CiPOTRecalibration, KaplanMeierRecalibration)


def _gains(u: Floats, event: BoolArray, weights: Floats | None) -> Floats:
    """Log-likelihood of each map on rows that were left out, over that of no change."""
    k = min(_FOLDS, int(event.sum()))
    if k < 2:
        # One event can be fitted or judged, not both.
        return np.full(len(_KINDS), -np.inf)
    fold = folds_by_event(event, k, np.random.default_rng(0))
    one = np.ones(u.size) if weights is None else weights
    low, high, tied = _surroundings(u, event)
    # A row censored at the F of such events outlived them: it counts at the end of their surroundings.
    after = np.where(tied, high, u)
    gains = np.zeros(len(_KINDS))
    for number in range(k):
        train, test = fold != number, fold == number
        point, mass, censored = test & event & ~tied, test & event & tied, test & ~event & (after < 1)
        for place, kind in enumerate(_KINDS):
            own: Recalibration = kind.fit(u[train], event[train], weights=None if weights is None else weights[train])
            gains[place] += one[point] @ own.log_density(u[point])
            gains[place] += one[mass] @ np.log((own.cdf(high[mass]) - own.cdf(low[mass])) / (high - low)[mass])
            gains[place] += one[censored] @ (own.log_survival(after[censored]) - np.log1p(-after[censored]))
    # A gain of 0: all events are at one F, and nothing could be judged.
    return np.where(gains == 0, -np.inf, gains)


def _surroundings(u: Floats, event: BoolArray) -> tuple[Floats, Floats, BoolArray]:
    """Half-way to the F of the next events on both sides, and which rows are judged by that: ties of events, 0 and 1.

    A density at a point that many rows share says nothing: it is as large as the point is narrow.
    """
    values, counts = np.unique(u[event], return_counts=True)
    middle = (values[1:] + values[:-1]) / 2
    place = np.minimum(np.searchsorted(values, u), values.size - 1)
    among = values[place] == u
    tied = among & ((counts[place] > 1) | (u == 0) | (u == 1))
    return np.append(0.0, middle)[place], np.append(middle, 1.0)[place], tied


# --- The methods of recalibration, each behind one name: an entry here feeds `Recalibrated`, its files and its tests.


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that the model has not seen, and what it says of them."""

    # time, happened: (n,): outcomes
    time: Floats
    happened: BoolArray
    # cdf, event: (n,): F at the observed times, and whether the event happened there (see `OwnValues`)
    cdf: Floats
    event: BoolArray
    uncensored: Floats  # (n,): probability of not being censored before the observed time, given the covariates
    quantiles: Floats | None = None  # (n, k): the model's quantiles, for a method that asks for them
    groups: Any = None  # (n,): for a method that has groups
    # curves, times: (n, m) and (m,): the model's F of each row at some times, for a method that asks for them
    curves: Floats | None = None
    times: Floats | None = None
    # entry, lower: (n,): F at the times of entry, and at the lower ends of intervals, of rows that have them
    entry: Floats | None = None
    lower: Floats | None = None
    # cause, shares: (n,) and (n, causes): of events with several causes the cause of each, 0 for a censored row, and
    # the shares that the model gives the causes in the events at that time
    cause: Any = None
    shares: Floats | None = None

    def take(self, rows: Any) -> "HeldOut":
        """Pick rows."""
        picked: dict[str, Any] = {
            name: None if own is None else own[rows] for name, own in vars(self).items() if name != "times"
        }
        return HeldOut(**picked, times=self.times)


@dataclass(frozen=True)
class Method:
    """One way to recalibrate."""

    name: str
    summary: str
    kind: Any  # what is fitted, and read again from a file
    # takes_pieces, asks_quantiles, asks_groups, asks_times: whether `n_pieces` means something, and what has to be read
    # beside F: quantiles, groups, observed times
    takes_pieces: bool = False
    asks_quantiles: bool = False
    asks_groups: bool = False
    asks_times: bool = False
    knows_parts: bool = False  # whether rows may be seen in part (entry, intervals), or have several causes
    # For a method that asks for F of each row on a grid of times: a function of model, X, times and events that returns
    # the grid
    curve_times: Callable[[Any, Any, Floats, BoolArray], Floats] | None = None

    def fit(self, rows: HeldOut, n_pieces: int | None, group_column: Column | None) -> Adjustment:
        """Fit to held-out rows."""
        if self.asks_quantiles:
            return ShiftedQuantiles(self.kind.fit(rows.quantiles, rows.time, rows.happened))
        beside: tuple[Any, ...] = (rows.groups,) if self.asks_groups else ()
        if self.curve_times is not None:
            beside = (rows.curves, rows.times)
        more: dict[str, Any] = {"n_pieces": n_pieces} if self.takes_pieces else {}
        if self.asks_times:
            more |= {"time": rows.time, "happened": rows.happened}
        if self.knows_parts:
            known = {"cdf_entry": rows.entry, "cdf_lower": rows.lower, "cause": rows.cause, "shares": rows.shares}
            more |= {name: values for name, values in known.items() if values is not None}
        return MapOfF(self.kind.fit(rows.cdf, rows.event, *beside, **more), group_column)

    def restore(self, content: Any, group_column: Column | None) -> Adjustment:
        """Make the adjustment of a file again."""
        found = self.kind.of_content(content)
        return ShiftedQuantiles(found) if self.asks_quantiles else MapOfF(found, group_column)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "km",
            "Kaplan-Meier curve of F, in a few straight lines",
            KaplanMeierRecalibration,
            takes_pieces=True,
            knows_parts=True,
        ),
        Method("auto", "average of no change, 'beta', 'cipot' and 'km', by left-out rows", AveragedRecalibration),
        Method("isotonic", "Kaplan-Meier curve of F, through every event", IsotonicRecalibration),
        Method("beta", "smooth map with three parameters, by censored likelihood", BetaRecalibration),
        Method("ksp", "map of the log-odds by the Kolmogorov-Smirnov distance (NeurIPS 2025)", KSPRecalibration),
        Method("cipot", "conformal percentiles of F (Qi et al., NeurIPS 2024)", CiPOTRecalibration, takes_pieces=True),
        Method(
            "csd",
            "conformal shifts of the quantiles in time (Qi et al., ICML 2024)",
            ConformalQuantiles,
            takes_pieces=True,
            asks_quantiles=True,
        ),
        Method(
            "groups",
            "the map of 'km', and what each known group adds to it, shrunk",
            GroupedRecalibration,
            takes_pieces=True,
            asks_groups=True,
        ),
        Method("risk", "the map of 'beta', smoothly by the level of risk", RiskRecalibration, curve_times=event_times),
        Method(
            "dr-isr",
            "isotonic in risk and in time, doubly robust (Jain et al., 2026)",
            IsotonicSurface,
            asks_times=True,
            curve_times=few_event_times,
        ),
        Method(
            "temperature",
            "temperature scaling of a model with time bins",
            TemperatureRecalibration,
            curve_times=bin_ends,
        ),
    )
}


def as_method(name: Any, n_pieces: Any, group_column: Any) -> Method:
    """Find a method by its name, and check that it takes the options given beside it."""
    method = METHODS[as_choice("method", name, METHODS)]
    if n_pieces is not None and not method.takes_pieces:
        takers = ", ".join(repr(other.name) for other in METHODS.values() if other.takes_pieces)
        fail("n_pieces", f"None with method={name!r} (it is for {takers})", repr(n_pieces))
    if group_column is not None and not method.asks_groups:
        fail("group_column", f"None with method={name!r} (it is for 'groups')", repr(group_column))
    return method
