"""What a recalibrated model predicts: the model's answers, changed by a map of F or by shifts of its quantiles."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xcal._checks import BoolArray, fail
from xcal.data import SurvivalData
from xcal.interop import ModelPredictions, Rows
from xcal.recalibration.base import Floats, Recalibration
from xcal.recalibration.csd import ConformalQuantiles
from xcal.recalibration.grouped import GroupedRecalibration, RowMaps
from xcal.recalibration.reading import chosen_rows, n_rows, own_values, quantile_at, read_own, survival_at

Column = str | int
# Rows that a model is asked about at once, where each is asked at many times.
_AT_ONCE = 10_000
# F that is 1 - S is off by so much: a sum of the masses of many time bins, which may not be 1 in its last digits.
_ROUNDING = 1e-14


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
        """Find the times at which F' of each row reaches each of `p`; infinity past the end of the model's curves."""

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
    """F' = G(F), with one map for all rows or one for each group."""

    map: Recalibration | GroupedRecalibration
    group_column: Column | None = None

    def cdf(self, model: Any, X: Any, times: Floats) -> Floats:
        """F' of each row at each time."""
        return self._of(X).cdf(_inside(1 - survival_at(model, X, times)))

    def own(self, model: Any, X: Any, time: Floats, event: BoolArray) -> tuple[Floats, Floats | None]:
        """F' of each row at its observed time, and its negative log-likelihood where the model has a density."""
        found = read_own(model, X, time, event)
        return self.changed(X, found.cdf, found.nll, event)

    def changed(self, X: Any, cdf: Floats, nll: Floats | None, event: BoolArray) -> tuple[Floats, Floats | None]:
        """F' and the negative log-likelihood from those of the model, by the chain rule."""
        own = self._of(X)
        if nll is None:
            return own.cdf(cdf), None
        # The model's log-survival is known of censored rows only; an event needs none.
        tail = np.where(event, 0.0, -nll)
        loss = np.where(event, nll - own.log_density(cdf), -own.log_survival(cdf, tail))
        return own.cdf(cdf), loss

    def quantile(self, model: Any, X: Any, p: Floats, last: float) -> Floats:
        """Find the times at which F' of each row reaches each of `p`."""
        own = self._of(X)
        levels = own.quantile(np.broadcast_to(p, (n_rows(X), p.size)))
        return quantile_at(model, X, levels, last)

    def predictions(self, model: Any, found: ModelPredictions, X: Any, rows: Rows) -> ModelPredictions:
        """Change what was read of the model."""
        own = self._of(X)
        survival = (
            None if found.survival is None else 1 - own.cdf(_inside(np.asarray(1 - found.survival, dtype=np.float64)))
        )
        cdf = loss = None
        if found.cdf is not None:
            cdf, loss = self.changed(X, found.cdf, found.nll, rows.event)
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

    def _of(self, X: Any) -> Recalibration | RowMaps:
        if isinstance(self.map, Recalibration):
            return self.map
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
        result = np.stack([np.interp(p, levels, row) for row in ends])
        beyond = p > levels[-1]
        if beyond.any():
            asked = np.broadcast_to(p[beyond], (len(new), int(beyond.sum())))
            tail, shift = quantile_at(model, X, np.ascontiguousarray(asked), last), new[:, -1:] - own[:, -1:]
            moved = tail + shift
            # Rounding must not put a quantile before the step of the model's curve that it belongs to.
            moved = np.where(moved - shift < tail, np.nextafter(moved, np.inf), moved)
            result[:, beyond] = np.maximum(moved, new[:, -1:])
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
        for start in range(0, rows.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            nobody = np.zeros(rows[part].size, dtype=bool)
            tail = read_own(model, chosen_rows(X, rows[part]), moved[part], nobody).cdf
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
        name = names[column] if isinstance(column, int) and column not in names and column < len(names) else column
        if name not in names:
            fail("group_column", f"one of the columns {', '.join(map(str, names[:20]))}", repr(column))
        return np.asarray(X[name])
    array = np.asarray(X)
    if not isinstance(column, int) or array.ndim != 2 or not 0 <= column < array.shape[1]:
        fail("group_column", "the number of a column of X, which has no names", repr(column))
    return array[:, column]


def _inside(u: Floats) -> Floats:
    """Cut off what rounding of 1 - S added beyond 0 and 1, or to 0; curves were checked when they were read.

    A map may rise so steeply at 0 that the rounding could be seen, as an F' above 0 at time 0.
    """
    return np.where(u < _ROUNDING, 0.0, np.minimum(u, 1.0))
