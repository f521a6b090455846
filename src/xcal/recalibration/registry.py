"""The methods of recalibration, each behind one name, and what a recalibrated model predicts."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from xcal._checks import BoolArray, Floats, as_choice, fail
from xcal.data.survival import SurvivalData
from xcal.distributions import RecalibratedDistribution, SurvivalDistribution
from xcal.distributions.composed import SurvivorDistribution
from xcal.interop import ModelPredictions, Rows
from xcal.interop.predictions import SeveralLaws, WholeLaw, take_rows
from xcal.recalibration.average import AveragedRecalibration, GroupedRecalibration
from xcal.recalibration.by_row import (
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
)
from xcal.recalibration.predictor import MeanTime, Predicting
from xcal.recalibration.published import BetaRecalibration, CiPOTRecalibration, ConformalQuantiles, KSPRecalibration
from xcal.recalibration.reading import (
    bin_ends,
    event_times,
    few_event_times,
    n_rows,
    own_values,
    quantile_at,
    read_own,
    survival_at,
)

# --- What a recalibrated model predicts: the model's answers, changed by a map of F or by shifts of its quantiles.

Column = str | int

# Rows that a model is asked about at once, where each is asked at many times.
AT_ONCE = 10_000

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
        return replace(found, survival=survival, cdf=cdf, nll=loss)

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
        return replace(found, survival=survival, interpolation="linear", cdf=cdf, nll=loss)

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


def model_quantiles(model: Any, X: Any, levels: Floats, last: float) -> Floats:
    """Quantiles at the same levels for every row; past the end of a curve, along a line from the origin."""
    wanted = np.ascontiguousarray(np.broadcast_to(levels, (n_rows(X), levels.size)))
    found = quantile_at(model, X, wanted, last, extended=True)
    endless = ~np.isfinite(found).all(axis=1)
    if endless.any():
        row = int(np.argmax(endless))
        fail("model", f"quantiles up to the level {levels[-1]:g}", "a curve that never falls", row)
    return found


def labels_of(X: Any, column: Column | None) -> Any:
    """Read the groups of rows from a column of X, or from the groups that `SurvivalData` has."""
    if isinstance(X, SurvivalData):
        if column is None and X.groups is not None:
            return X.groups
        if isinstance(column, str) and column in X.feature_names:
            column = list(X.feature_names).index(column)
        X = X.x
    if column is None:
        fail("group_column", "the column of X that holds the groups, by name or number", "None")
    if hasattr(X, "columns"):
        names: list[Any] = list(X.columns)
        if isinstance(column, int) and column not in names and 0 <= column < len(names):
            column = names[column]
        if column not in names:
            fail("group_column", f"one of the columns {', '.join(map(str, names[:20]))}", repr(column))
        return np.asarray(X[column])
    array = np.asarray(X)
    if not isinstance(column, int) or array.ndim != 2 or not 0 <= column < array.shape[1]:
        fail("group_column", "the number of a column of X, which has no names", repr(column))
    return array[:, column]


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
        """Mean of F' along straight lines over the grid."""
        return np.asarray(np.trapezoid(self.cdf(rows, self.times), self.times, axis=1) / self.times[-1])

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
    quantiles: Floats | None = None  # (n, k): the model's quantiles, for a method that asks for them
    groups: Any = None  # (n,): for a method that has groups
    # curves, times: (n, m) and (m,): the model's F of each row at some times, for a method that asks for them
    curves: Floats | None = None
    times: Floats | None = None


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
        return MapOfF(self.kind.fit(rows.cdf, rows.event, *beside, **more), group_column)

    def restore(self, content: Any, group_column: Column | None) -> Adjustment:
        """Make the adjustment of a file again."""
        found = self.kind.of_content(content)
        return ShiftedQuantiles(found) if self.asks_quantiles else MapOfF(found, group_column)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("km", "Kaplan-Meier curve of F, in a few straight lines", KaplanMeierRecalibration, takes_pieces=True),
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
