"""Maps of F made of others: the average of several (`method="auto"`), and one for each group."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from xcal._checks import BoolArray, Floats, as_weights, check_rows, effective_units, fail
from xcal._files import Limits, read
from xcal.data.survival import folds_by_event
from xcal.recalibration.maps import (
    KaplanMeierRecalibration,
    PiecewiseRecalibration,
    Recalibration,
    held_out_rows,
    squared_distance,
    through_points,
)
from xcal.recalibration.published import BetaRecalibration, CiPOTRecalibration

# --- The average of several maps, weighted by how well each predicts rows that were left out.

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


# --- A map for each group.


Label = str | int | float | bool


@dataclass(frozen=True, eq=False, repr=False)
class GroupRecalibration(PiecewiseRecalibration):
    """What one group adds to the common map: a map of the F that the common map gives, `weight` of the way there."""

    n: Annotated[int, Limits(at_least=0)]
    n_events: Annotated[int, Limits(at_least=0)]
    weight: float = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class GroupedRecalibration:
    """A common map G, followed in each group by a map of its own that is shrunk towards no change.

    The common map is `KaplanMeierRecalibration` on all rows. In group g, ``F' = (1 - w) G(F) + w K(G(F))``: K is the
    Kaplan-Meier map of G(F) on the rows of the group, and w is the share of its distance from the common map that is
    not noise. With m events in a group that has a share s of all events, a true map would be found at a mean squared
    distance of V = (1 - s) / (6 m). The variance between the groups, T, is the mean over groups, weighted by events,
    of the squared distance found less V, or 0; then w = T / (T + V). So groups that do not differ keep the common map,
    and a group of few events takes little from them. A group without events, and one that was not seen, has w = 0.

    Attributes
    ----------
    common : KaplanMeierRecalibration
    groups : dict
        From the label of a group to its `GroupRecalibration`, with the weight w.
    between : float
        T, the variance between groups.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(["old", "young"], 2000)
    >>> cdf = rng.uniform(size=4000) ** np.where(groups == "old", 2.0, 0.5)
    >>> recalibration = GroupedRecalibration.fit(cdf, np.ones(4000), groups)
    >>> recalibration
    GroupedRecalibration(2 groups of weight 1.00 to 1.00, from 4000 rows with 4000 events)
    >>> recalibration.cdf([0.25, 0.25], ["old", "young"]).round(1)
    array([0.5, 0.1])
    """

    common: KaplanMeierRecalibration
    groups: Mapping[Label, GroupRecalibration]
    between: float

    @classmethod
    def fit(cls, cdf: Any, event: Any, groups: Any, *, n_pieces: int | None = None) -> Self:
        """Fit the maps to F at the observed times of rows that did not train the model.

        Parameters
        ----------
        cdf, event : array-like of shape (n,)
            F at each row's observed time, and whether the event happened.
        groups : array-like of shape (n,)
            Label of each row's group, numbers or text.
        n_pieces : int, optional
            Straight lines of the common map, as for `KaplanMeierRecalibration`; a group has its default.
        """
        check_rows({"cdf": cdf, "groups": groups})
        u, happened = held_out_rows(cdf, event)
        labels = _labels(groups, u.size)
        common = KaplanMeierRecalibration.fit(u, happened, n_pieces=n_pieces)
        v = common.cdf(u)
        counts, own, distance, noise = {}, {}, {}, {}
        for label in sorted(set(labels.tolist()), key=lambda label: (str(type(label)), label)):
            rows = labels == label
            counts[label] = int(rows.sum()), int(happened[rows].sum())
            if counts[label][1] == 0:
                continue
            own[label] = KaplanMeierRecalibration.fit(v[rows], happened[rows])
            distance[label] = squared_distance(own[label])
            noise[label] = (1 - counts[label][1] / common.n_events) / (6 * counts[label][1])
        found = {label: counts[label][1] * (distance[label] - noise[label]) for label in own}
        between = max(0.0, sum(found.values()) / common.n_events)
        maps = {}
        for label, (n, n_events) in counts.items():
            if label not in own:
                maps[label] = GroupRecalibration(np.array([0.0, 1.0]), np.array([0.0, 1.0]), n, n_events, 0.0)
                continue
            weight = between / (between + noise[label]) if between > 0 else 0.0
            knots = own[label].knots
            levels = (1 - weight) * knots + weight * own[label].levels
            maps[label] = GroupRecalibration(knots, levels, n, n_events, float(weight))
        return cls(common, maps, float(between))

    @property
    def n(self) -> int:
        """Rows that the maps were fitted to."""
        return self.common.n

    @property
    def n_events(self) -> int:
        """Events that the maps were fitted to."""
        return self.common.n_events

    def cdf(self, u: Any, groups: Any) -> Floats:
        """Recalibrated F of rows ``(n,)`` or ``(n, m)`` of the given groups."""
        return self._by_group(u, groups, lambda own, values: own.cdf(self.common.cdf(values)))

    def quantile(self, p: Any, groups: Any) -> Floats:
        """Levels of F that each row's map takes to `p`, of shape ``(n,)`` or ``(n, m)``."""
        return self._by_group(p, groups, lambda own, values: self.common.quantile(own.quantile(values)))

    def log_density(self, u: Any, groups: Any, log_survival: Any = None) -> Floats:
        """Log of the slope of each row's map, which consists of straight lines and needs no ``log(1 - F)``."""

        def chain(own: PiecewiseRecalibration, values: Floats) -> Floats:
            return self.common.log_density(values) + own.log_density(self.common.cdf(values))

        return self._by_group(u, groups, chain)

    def log_survival(self, u: Any, groups: Any, log_survival: Any = None) -> Floats:
        """``log(1 - F')``; with the model's own ``log(1 - F)`` exact in the far tail."""
        tail = self.common.log_survival(u, log_survival)

        def chain(own: PiecewiseRecalibration, values: Floats, tails: Floats) -> Floats:
            return own.log_survival(self.common.cdf(values), tails)

        return self._by_group(u, groups, chain, tail)

    def of_rows(self, groups: Any) -> "RowMaps":
        """Return the map of each row, for rows of these groups."""
        return RowMaps(self, np.asarray(groups))

    def content(self) -> dict[str, Any]:
        """Everything that the maps hold, as numbers, words and lists."""
        lines = [[label, own.content()] for label, own in self.groups.items()]
        return {"common": self.common.content(), "groups": lines, "between": self.between}

    @classmethod
    def of_content(cls, content: dict[str, Any]) -> Self:
        """Make it again from what `content` gave; anything else is refused."""
        kept = read(_KeptGroups, content, "map")
        return cls(kept.common, dict(kept.groups), kept.between)

    def _by_group(self, values: Any, groups: Any, function: Callable[..., Floats], *more: Floats) -> Floats:
        array = np.asarray(values, dtype=np.float64)
        labels = _labels(groups, array.shape[0])
        result = np.empty(array.shape)
        for label in set(labels.tolist()):
            rows = labels == label
            result[rows] = function(self._of(label), array[rows], *(other[rows] for other in more))
        return result

    def _of(self, label: Label) -> PiecewiseRecalibration:
        if label in self.groups:
            return self.groups[label]
        known = ", ".join(map(repr, list(self.groups)[:10]))
        warnings.warn(
            f"groups: {label!r} was not among the groups that the maps were fitted to ({known}); its rows have the "
            "common map",
            UserWarning,
            stacklevel=5,
        )
        return GroupRecalibration(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 0, 0)

    def __repr__(self) -> str:
        weights = [own.weight for own in self.groups.values()]
        groups = f"{len(weights)} groups of weight {min(weights):.2f} to {max(weights):.2f}"
        return f"{type(self).__name__}({groups}, from {self.n} rows with {self.n_events} events)"


@dataclass(frozen=True)
class _KeptGroups:
    common: KaplanMeierRecalibration
    groups: tuple[tuple[Label, GroupRecalibration], ...]
    between: float


@dataclass(frozen=True, eq=False)
class RowMaps:
    """The maps of some rows, each by its group: what a map of all rows does, for arrays with one line per row."""

    maps: GroupedRecalibration
    groups: npt.NDArray[Any]

    def cdf(self, u: Floats) -> Floats:
        """Recalibrated F."""
        return self.maps.cdf(u, self.groups)

    def quantile(self, p: Floats) -> Floats:
        """Level of F for each of `p`."""
        return self.maps.quantile(p, self.groups)

    def log_density(self, u: Floats, log_survival: Floats | None = None) -> Floats:
        """Log of the slope."""
        return self.maps.log_density(u, self.groups, log_survival)

    def log_survival(self, u: Floats, log_survival: Floats | None = None) -> Floats:
        """``log(1 - F')``."""
        return self.maps.log_survival(u, self.groups, log_survival)


def _labels(groups: Any, n: int) -> npt.NDArray[np.object_]:
    """Labels as Python's own values, so that 1 and 1.0 are one group and a file can keep them."""
    array = np.asarray(groups)
    if array.shape != (n,):
        fail("groups", f"one label for each of the {n} rows", f"shape {array.shape}")
    labels = np.array(array.tolist(), dtype=object)
    bad = np.array(
        [
            not isinstance(label, str | int | float) or bool(np.isnan(label) if isinstance(label, float) else 0)
            for label in labels.tolist()
        ]
    )
    if bad.any():
        row = int(np.argmax(bad))
        fail("groups", "numbers or text", repr(labels[row]), row)
    return labels
