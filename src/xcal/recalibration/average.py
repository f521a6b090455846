"""The average of several maps of F, weighted by how well each predicts rows that were left out: `method="auto"`."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import expit, softmax

from xcal._checks import BoolArray, Floats, as_weights, effective_units, fail
from xcal.data.survival import folds_by_event
from xcal.recalibration.maps import (
    KaplanMeierRecalibration,
    PiecewiseRecalibration,
    Recalibration,
    held_out_rows,
    through_points,
)
from xcal.recalibration.published import BetaRecalibration, CiPOTRecalibration

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
