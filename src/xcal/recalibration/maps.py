"""Increasing maps of F made of straight lines: Kaplan-Meier, isotonic, and one for each subgroup."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import (
    MANY,
    BoolArray,
    Floats,
    as_count,
    as_event,
    as_numpy,
    as_probability,
    as_weights,
    check_rows,
    effective_units,
    fail,
)
from xcal._files import Limits, read
from xcal._kaplan_meier import fit_kaplan_meier

# Digits to which F values are told apart by a map. Nearer ones are ties, as are those of rows that are alike but for
# rounding: a map that rises between them would turn the rounding of F, 1e-16, into differences that can be seen.
DIGITS = 8


Count = Annotated[int, Limits(at_least=1)]


class Kept:
    """What a file keeps of a fitted dataclass: its fields, arrays as lists."""

    def content(self) -> dict[str, Any]:
        """Return the serialisable state, as numbers and lists."""
        return {name: own.tolist() if isinstance(own, np.ndarray) else own for name, own in vars(self).items()}

    @classmethod
    def of_content(cls, content: Any) -> Self:
        """Make it again from what `content` gave; anything else is refused."""
        return read(cls, content, "map")


class Recalibration(Kept, ABC):
    """An increasing map G of [0, 1] onto itself: the recalibrated model has ``F'(t | x) = G(F(t | x))``.

    Attributes
    ----------
    n, n_events : int
        Rows and events that G was fitted to.
    """

    n: int
    n_events: int

    @abstractmethod
    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""

    @abstractmethod
    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`: the recalibrated median is the model's quantile at ``quantile(0.5)``."""

    @abstractmethod
    def log_density(self, u: Any, log_survival: Any = None) -> Floats:
        """Log of the slope of G at F values of any shape: what recalibration adds to a row's log-density.

        The model's own ``log(1 - F)`` tells more where F rounds to 1.
        """

    @abstractmethod
    def log_survival(self, u: Any, log_survival: Any = None) -> Floats:
        """``log(1 - G(u))``, -inf at u = 1, unless the model's own ``log(1 - F)`` is given and tells more."""


def held_out_rows(cdf: Any, event: Any) -> tuple[Floats, BoolArray]:
    """Check F at the observed times of rows that a map is fitted to: at least one of them must have had the event.

    F is rounded to `DIGITS`; what lies nearer to 0 or 1 than that, but not on it, stays apart from it.
    """
    check_rows({"cdf": cdf, "event": event})
    given = as_probability("cdf", cdf).astype(np.float64)
    happened = as_event(event, given.size)
    if not happened.any():
        fail("event", "at least one event", "none: every row is censored")
    least = 10.0**-DIGITS
    inside = np.clip(np.round(given, DIGITS), least, 1 - least)
    return np.where((given > 0) & (given < 1), inside, given), happened


def probabilities(values: Any, name: str = "u") -> Floats:
    """Probabilities of any shape."""
    array = as_numpy(name, values).astype(np.float64)
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), array.shape)
        fail(name, "values in [0, 1]", array[place], tuple(int(i) for i in place) if array.ndim != 1 else int(place[0]))
    return array


def own_log_survival(values: Any, u: Floats) -> Floats:
    """Check the model's own ``log(1 - F)``, given beside its F."""
    own = as_numpy("log_survival", values).astype(np.float64)
    if own.shape != u.shape:
        fail("log_survival", f"shape {u.shape}, as the F values have", own.shape)
    return own


@dataclass(frozen=True, eq=False, repr=False)
class PiecewiseRecalibration(Recalibration):
    """A map G through points, straight in between."""

    # knots, levels: F and G(F) at the ends of the straight lines, both strictly increasing from 0 to 1
    knots: Floats
    levels: Floats
    # n, n_events: rows and events that G was fitted to
    n: Count
    n_events: Count

    def __post_init__(self) -> None:
        for name in ("knots", "levels"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            increases = values.ndim == 1 and values.size > 1 and bool((np.diff(values) > 0).all())
            if not increases or values[0] != 0 or values[-1] != 1:
                fail(name, "numbers that increase from 0 to 1", f"an array of shape {values.shape} that does not")
        if np.shape(self.knots) != np.shape(self.levels):
            fail("levels", f"{np.size(self.knots)} levels, as many as knots", np.size(self.levels))

    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""
        return np.interp(probabilities(u), self.knots, self.levels)

    def log_density(self, u: Any, log_survival: Any = None) -> Floats:
        """Log of the slope of G at F values of any shape: what recalibration adds to a row's log-density.

        On a knot it is the slope to the right; at 1, to the left, which needs no ``log(1 - F)``.
        """
        log_slope = np.log(np.diff(self.levels)) - np.log(np.diff(self.knots))
        piece = np.searchsorted(self.knots[1:-1], probabilities(u), side="right")
        return np.asarray(log_slope[piece])

    def log_survival(self, u: Any, log_survival: Any = None) -> Floats:
        """``log(1 - G(u))``, -inf at u = 1.

        Parameters
        ----------
        u : array-like
            F values of any shape.
        log_survival : array-like of the same shape, optional
            The model's own ``log(1 - F)``. In the last piece 1 - G is a multiple of 1 - F, so with it the result is
            finite and exact where F is so near 1 that it rounds to 1.
        """
        values = probabilities(u)
        left = np.interp(values, self.knots, 1 - self.levels)
        with np.errstate(divide="ignore"):
            result = np.log(left)
        if log_survival is None:
            return np.asarray(result)
        own = own_log_survival(log_survival, values)
        ratio = (1 - self.levels[-2]) / (1 - self.knots[-2])
        return np.asarray(np.where(values >= self.knots[-2], np.log(ratio) + own, result))

    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`: the recalibrated median is the model's quantile at ``quantile(0.5)``."""
        return np.interp(probabilities(p, "p"), self.levels, self.knots)

    def __repr__(self) -> str:
        pieces = self.knots.size - 1
        return f"{type(self).__name__}({pieces} pieces, from {self.n} rows with {self.n_events} events)"


def through_points(knots: Floats, levels: Floats) -> tuple[Floats, Floats]:
    """Knots and levels with both ends, without any that rounding, or a tie, has put on its neighbour."""
    knots, levels = np.concatenate([[0.0], knots, [1.0]]), np.concatenate([[0.0], levels, [1.0]])
    kept = [0]
    for i in range(1, knots.size - 1):
        inner = knots[kept[-1]] < knots[i] < 1 and levels[kept[-1]] < levels[i] < 1
        if inner:
            kept.append(i)
    kept.append(knots.size - 1)
    return knots[kept], levels[kept]


@dataclass(frozen=True, eq=False, repr=False)
class KaplanMeierRecalibration(PiecewiseRecalibration):
    r"""An increasing map G of [0, 1] onto itself: the recalibrated model has ``F'(t | x) = G(F(t | x))``.

    If a model is calibrated, F at the event times is uniform. G is the Kaplan-Meier estimate of the distribution that
    F has instead, on rows that did not train the model, made of straight lines between a few knots so that a density
    exists. The map is the same for every row: it changes no order of risks at one level of F, and it corrects
    calibration over all rows, not within subgroups.

    .. math:: \hat G(u) = 1 - \prod_{u_j \le u} \Big( 1 - \frac{d_j}{r_j} \Big)

    is the estimate, with :math:`d_j` events at the value :math:`u_j` of F and :math:`r_j` rows whose F is not below it.
    G goes through the middle of its steps at the knots.

    Attributes
    ----------
    knots, levels : ndarray
        F and G(F) at the ends of the straight lines, both strictly increasing from 0 to 1.
    n, n_events : int
        Rows and events that G was fitted to.

    Notes
    -----
    Censoring must be independent of F at the event time, as for ``d_calibration(method="km")``. Where the curve ends
    below 1 because the last rows are censored, what is left lies evenly between the last event and F = 1; so does what
    lies below the first event. F outside the range seen thus keeps a positive density.

    A curve through every event would fit noise: its slope is as variable as the gaps between neighbouring values, which
    costs a new row 0.42 nats of likelihood on average however many rows there are. With k knots the cost is about
    k / (2 n_events).

    References
    ----------
    Kaplan, Meier (1958), JASA 53(282):457-481.

    Examples
    --------
    A model whose hazards are twice too high, recalibrated:

    >>> import numpy as np
    >>> from xcal import d_calibration
    >>> rng = np.random.default_rng(0)
    >>> times = rng.exponential(size=(2, 4000))
    >>> seen, new = 1 - np.exp(-2 * times)
    >>> recalibration = KaplanMeierRecalibration.fit(seen, np.ones(4000))
    >>> recalibration
    KaplanMeierRecalibration(32 pieces, from 4000 rows with 4000 events)
    >>> d_calibration(new, np.ones(4000)).value > 0.03
    True
    >>> d_calibration(recalibration.cdf(new), np.ones(4000)).value < 0.001
    True
    """

    @classmethod
    def fit(
        cls, cdf: Any, event: Any, *, n_pieces: int | None = None, weights: Any = None
    ) -> "KaplanMeierRecalibration":
        """Fit G to F at the rows' observed times.

        Parameters
        ----------
        cdf : array-like of shape (n,)
            F at each row's observed time, of rows that did not train the model.
        event : array-like of shape (n,)
            True or 1 where the event happened.
        n_pieces : int, optional
            Straight lines of equal mass, at most; by default ``2 n_events^(1/3)``, rounded up, the usual number of
            bins of a histogram.
        weights : array-like of shape (n,), optional
            Sampling weights, one positive number per row, of the curve. The number of lines is then by the effective
            number of events.
        """
        u, happened = held_out_rows(cdf, event)
        n_events = int(happened.sum())
        w = None if weights is None else effective_units(as_weights("weights", weights, u.size))
        own = None if w is None else effective_units(w[happened])
        pieces = count_of_pieces(n_events if own is None else float(own.sum()), n_pieces)
        curve_u, curve_g = middle_curve(u, happened, w)
        last = curve_g[-2]
        # Knots at equal steps of G as far as events go, and at the last event if the curve ends early.
        wanted = np.arange(1, pieces) / pieces
        wanted = np.append(wanted[wanted < last], last) if 1 - last > 1.0 / pieces else wanted[wanted < last]
        knots, levels = through_points(np.interp(wanted, curve_g, curve_u), wanted)
        return cls(knots, levels, u.size, n_events)


def count_of_pieces(n_events: float, asked: int | None = None) -> int:
    """Return how many bins a histogram of so many events has, twice their cube root, unless a number is asked for."""
    if asked is None:
        # The cube root of a cube may come out a hair above it.
        return int(np.ceil(2 * round(n_events ** (1 / 3), 9)))
    return as_count("n_pieces", asked, at_least=1, at_most=MANY)


def middle_curve(u: Floats, event: npt.NDArray[np.bool_], weights: Floats | None = None) -> tuple[Floats, Floats]:
    """Half-way points of the steps of the Kaplan-Meier curve of F, between (0, 0) and (1, 1).

    Half-way, so that one event at u puts as much below u as above it, and tied events likewise. Steps at F = 0 or
    F = 1 have no room for that: their mass goes to the nearest piece.
    """
    curve = fit_kaplan_meier(u, event, weights=weights)
    after = 1 - curve.survival
    before = np.concatenate([[0.0], after[:-1]])
    inside = (curve.counts > 0) & (curve.times > 0) & (curve.times < 1)
    middle = (before + after)[inside] / 2
    return np.concatenate([[0.0], curve.times[inside], [1.0]]), np.concatenate([[0.0], middle, [1.0]])


@dataclass(frozen=True, eq=False, repr=False)
class IsotonicRecalibration(PiecewiseRecalibration):
    """An increasing map G with a knot at every distinct F of an event.

    Kuleshov, Fenner and Ermon (2018) recalibrate a regression by isotonic regression of the share of rows with F at
    most u on u. That share is a distribution function, which rises already: the regression goes through every point.
    With censored rows the share is the Kaplan-Meier estimate. Each point stands half-way up its step, the mean over
    tied events; at the upper end of the last step G would be 1 before F is, and a later event impossible.

    The slope of G is as variable as the gaps between neighbouring events: it costs a new row about 0.42 nats of
    likelihood, however many rows there are. `KaplanMeierRecalibration` is the same map made smooth.

    References
    ----------
    Kuleshov, Fenner, Ermon (2018), Accurate Uncertainties for Deep Learning Using Calibrated Regression, ICML, PMLR 80.

    Examples
    --------
    >>> IsotonicRecalibration.fit([0.2, 0.4, 0.4, 0.8], [1, 1, 1, 1]).cdf([0.2, 0.4, 0.8])
    array([0.125, 0.5  , 0.875])
    """

    @classmethod
    def fit(cls, cdf: Any, event: Any) -> Self:
        """Fit G to F at the observed times of rows that did not train the model; see `KaplanMeierRecalibration.fit`."""
        u, happened = held_out_rows(cdf, event)
        curve_u, curve_g = middle_curve(u, happened)
        knots, levels = through_points(curve_u[1:-1], curve_g[1:-1])
        return cls(knots, levels, u.size, int(happened.sum()))


Label = str | int | float | bool

# Points at which a group's map is compared with the common one, evenly spaced in the common F.
_POINTS = 200


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


def squared_distance(own: PiecewiseRecalibration) -> float:
    """Return the mean squared difference of a map from no change."""
    points = (np.arange(_POINTS) + 0.5) / _POINTS
    return float(((own.cdf(points) - points) ** 2).mean())


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


# A fold is not trusted if the map of its F lies so many times further from that of the other folds than chance puts it
# (in mean squares), and so far (the root of it) that it matters. Of 5,300 fits of Cox models that did converge, to 60
# to 1,000 rows in five folds, none came above 9.5; where lifelines did not converge on NACD, folds had 17 to 109.
_TIMES_CHANCE = 12.0
_MATTERS = 0.1
Fold = tuple[Floats, BoolArray]  # F of its rows at their observed times, and their events


def folds_that_differ(parts: Sequence[Fold]) -> dict[int, float]:
    """Return the folds whose F are not distributed as those of the others, the furthest first, with their distance.

    F of the fold's rows goes through the Kaplan-Meier map of the other folds. If their models are alike, the map of the
    result is no change, but for noise: with m events in the fold and M in the others the mean squared distance is
    (1 / m + 1 / M) / 6, that of two empirical distribution functions. One fold is taken away at a time, as it counts
    among the others when those are judged.
    """
    left, off = list(range(len(parts))), {}
    while len(left) > 1:
        found = {k: _distance(parts[k], [parts[j] for j in left if j != k]) for k in left}
        worst = max(found, key=lambda k: found[k][0])
        times_chance, distance = found[worst]
        if times_chance <= _TIMES_CHANCE or distance <= _MATTERS:
            break
        off[worst] = distance
        left.remove(worst)
    return off


def _distance(part: Fold, others: Sequence[Fold]) -> tuple[float, float]:
    """Mean squared distance of a fold from the others over that of chance, and its root."""
    cdf, event = (np.concatenate(one) for one in zip(*others, strict=True))
    m, rest = int(part[1].sum()), int(event.sum())
    if m == 0 or rest == 0:
        return 0.0, 0.0
    common = KaplanMeierRecalibration.fit(cdf, event)
    found = squared_distance(KaplanMeierRecalibration.fit(common.cdf(part[0]), part[1]))
    return found / ((1 / m + 1 / rest) / 6), float(np.sqrt(found))
