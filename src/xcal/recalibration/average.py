"""The average of several maps of F, weighted by how well each predicts rows that were left out: `method="auto"`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp, softmax

from xcal._checks import BoolArray, fail
from xcal.data.survival import folds_by_event
from xcal.recalibration.maps import (
    Count,
    Floats,
    KaplanMeierRecalibration,
    Recalibration,
    held_out_rows,
    own_log_survival,
    probabilities,
)
from xcal.recalibration.published import BetaRecalibration, CiPOTRecalibration

_FOLDS = 5

# The weight of a map is exp(gain / 2), its gain being its log-likelihood on rows that were left out, over that of no
# change; no change has exp(1). Measured by `studies.recalibrating`: without the half, weights follow the noise of few
# rows; without the 1, a true model of 50 rows loses twice as much.
_SHARE_OF_GAIN, _HEAD_START = 0.5, 1.0

# Maps with less weight than this are left out.
_LEAST_WEIGHT = 0.005


def no_change(n: int, n_events: int) -> KaplanMeierRecalibration:
    """Return the map that leaves F as it is."""
    return KaplanMeierRecalibration(np.array([0.0, 1.0]), np.array([0.0, 1.0]), n, n_events)


@dataclass(frozen=True, eq=False, repr=False)
class AveragedRecalibration(Recalibration):
    """An average of maps of F: no change, "beta", "cipot" and "km", each as far as left-out rows speak for it.

    The rows are divided into five folds. Each map is fitted to four of them and judged on the fifth by its censored
    likelihood over that of no change, its gain; among events that share their F, by the mass that it gives to their
    surroundings. The weight of a map is proportional to exp(gain / 2), that of no change to exp(1). So a model that is
    right on few rows is left nearly as it is, a smooth error is corrected by the smooth map, and any other by the
    Kaplan-Meier curve once there are rows enough to see it.

    Attributes
    ----------
    weights : ndarray of shape (4,)
        Of no change, "beta", "cipot" and "km"; they add up to 1.
    beta, cipot, km : Recalibration
        The maps, fitted to all rows.
    n, n_events : int
        Rows and events that they were fitted to.

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
    beta: BetaRecalibration
    cipot: CiPOTRecalibration
    km: KaplanMeierRecalibration
    n: Count
    n_events: Count

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights)
        if weights.shape != (4,) or not (weights >= 0).all() or abs(weights.sum() - 1) > 1e-9:
            fail("weights", "four shares that add up to 1", f"an array of shape {weights.shape} that does not")

    @classmethod
    def fit(cls, cdf: Any, event: Any) -> Self:
        """Fit the maps and their weights to rows that did not train the model; see `KaplanMeierRecalibration.fit`."""
        u, happened = held_out_rows(cdf, event)
        weights = softmax(np.append(_HEAD_START, _SHARE_OF_GAIN * _gains(u, happened)))
        weights = np.where(weights < _LEAST_WEIGHT, 0.0, weights)
        beta, cipot, km = (kind.fit(u, happened) for kind in _KINDS)
        return cls(weights / weights.sum(), beta, cipot, km, u.size, int(happened.sum()))

    def content(self) -> dict[str, Any]:
        """Return the serialisable state, as numbers and lists."""
        maps = {name: getattr(self, name).content() for name in ("beta", "cipot", "km")}
        return {"weights": self.weights.tolist(), **maps, "n": self.n, "n_events": self.n_events}

    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""
        values = probabilities(u)
        # Rounding of the weights must not lift 1 above itself.
        return np.minimum(sum(weight * own.cdf(values) for weight, own in self._used()), 1.0)

    def log_density(self, u: Any) -> Floats:
        """Log of the slope of G at F values of any shape; at 0 and 1 it may be infinite."""
        values = probabilities(u)
        return self._logs(lambda own: own.log_density(values))

    def log_survival(self, u: Any, log_survival: Any = None) -> Floats:
        """``log(1 - G(u))``, -inf at u = 1; with the model's own ``log(1 - F)`` exact where F rounds to 1."""
        values = probabilities(u)
        tail = None if log_survival is None else own_log_survival(log_survival, values)
        return self._logs(lambda own: own.log_survival(values, tail))

    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`, by bisection between those of the maps."""
        levels = probabilities(p, "p")
        found = np.stack([own.quantile(levels) for _, own in self._used()])
        low, high = found.min(axis=0), found.max(axis=0)
        for _ in range(100):
            middle = (low + high) / 2
            below = self.cdf(middle) < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(high)

    def _used(self) -> list[tuple[float, Recalibration]]:
        maps = (no_change(self.n, self.n_events), self.beta, self.cipot, self.km)
        return [(float(weight), own) for weight, own in zip(self.weights, maps, strict=True) if weight > 0]

    def _logs(self, of: Callable[[Recalibration], Floats]) -> Floats:
        # Where every map says -inf, or one of them inf, so does the average.
        parts = np.stack([np.log(weight) + of(own) for weight, own in self._used()])
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(logsumexp(parts, axis=0))

    def __repr__(self) -> str:
        names = ("no change", "beta", "cipot", "km")
        parts = ", ".join(f"{weight:.2f} {name}" for name, weight in zip(names, self.weights, strict=True) if weight)
        return f"{type(self).__name__}({parts}, from {self.n} rows with {self.n_events} events)"


_KINDS: tuple[Any, ...] = (BetaRecalibration, CiPOTRecalibration, KaplanMeierRecalibration)


def _gains(u: Floats, event: BoolArray) -> Floats:
    """Log-likelihood of each map on rows that were left out, over that of no change."""
    k = min(_FOLDS, int(event.sum()))
    if k < 2:
        # One event can be fitted or judged, not both.
        return np.full(len(_KINDS), -np.inf)
    fold = folds_by_event(event, k, np.random.default_rng(0))
    low, high, tied = _surroundings(u, event)
    # A row censored at the F of such events outlived them: it counts at the end of their surroundings.
    after = np.where(tied, high, u)
    gains = np.zeros(len(_KINDS))
    for number in range(k):
        train, test = fold != number, fold == number
        for place, kind in enumerate(_KINDS):
            own = kind.fit(u[train], event[train])
            point, mass, censored = test & event & ~tied, test & event & tied, test & ~event & (after < 1)
            gains[place] += own.log_density(u[point]).sum()
            gains[place] += np.log((own.cdf(high[mass]) - own.cdf(low[mass])) / (high - low)[mass]).sum()
            gains[place] += (own.log_survival(after[censored]) - np.log1p(-after[censored])).sum()
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
