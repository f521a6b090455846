"""Maps of F that differ between rows: by group, or by what the model says of each, its level of risk or its bins."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, Floats, as_event, as_numpy, as_probability, as_time, check_rows, fail
from xcal._files import Limits, read
from xcal.data.surv import Outcome
from xcal.data.survival import folds_by_event
from xcal.metrics.pseudo_values import doubly_robust, fit_censoring, normal_scores, same_for_all
from xcal.recalibration.maps import (
    DIGITS,
    Count,
    KaplanMeierRecalibration,
    Kept,
    PiecewiseRecalibration,
    count_of_pieces,
    held_out_rows,
    squared_distance,
)
from xcal.recalibration.published import BetaFormulas, CensoredLikelihood


class MapsOfRows(Protocol):
    """The maps of some rows: what a map of all rows does, for arrays ``(n,)`` or ``(n, m)`` with one line per row."""

    def cdf(self, u: Floats) -> Floats:
        """Recalibrated F."""
        ...

    def quantile(self, p: Floats) -> Floats:
        """Level of F for each of `p`."""
        ...

    def log_density(self, u: Floats, log_survival: Floats | None = None) -> Floats:
        """Log of the slope; with the model's own ``log(1 - F)`` exact in the far tail."""
        ...

    def log_survival(self, u: Floats, log_survival: Floats | None = None) -> Floats:
        """``log(1 - F')``."""
        ...


# --- By the group of each row.

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


# --- By what the model says of each row.


@dataclass(frozen=True, eq=False, repr=False)
class MapByCurve(Kept, ABC):
    """A map for each row, which depends on the row's own curve: F at `times`."""

    times: Floats  # times at which the model is asked for F, increasing
    # n, n_events: rows and events that it was fitted to
    n: Count
    n_events: Count

    def __post_init__(self) -> None:
        times = np.asarray(self.times)
        if times.ndim != 1 or times.size == 0 or times[0] <= 0 or (np.diff(times) <= 0).any():
            fail("times", "increasing times above zero", f"an array of shape {times.shape} that is not")

    @abstractmethod
    def of_rows(self, curves: Any) -> MapsOfRows:
        """Return the map of each row, from its F at `times`, ``(n, m)``."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._told()}, from {self.n} rows with {self.n_events} events)"

    @abstractmethod
    def _told(self) -> str:
        """Return what was found, in a few words."""


@dataclass(frozen=True, eq=False)
class _Asked:
    """Checked rows that a `MapByCurve` is fitted to."""

    u: Floats
    event: BoolArray
    curves: Floats
    times: Floats

    @classmethod
    def of(cls, cdf: Any, event: Any, curves: Any, times: Any) -> Self:
        check_rows({"cdf": cdf, "event": event, "curves": curves})
        u, happened = held_out_rows(cdf, event)
        table, at = as_curves(curves), as_time(times, name="times").astype(np.float64)
        if table.shape != (u.size, at.size):
            fail("curves", f"shape ({u.size}, {at.size}), one column per time", f"shape {table.shape}")
        return cls(u, happened, table, at)


def as_curves(curves: Any) -> Floats:
    """F of each row on a grid of times, never falling but for rounding."""
    table = as_numpy("curves", curves).astype(np.float64)
    if table.ndim != 2:
        fail("curves", "an array of shape (rows, times)", f"shape {table.shape}")
    as_probability("curves", table.ravel())
    return np.asarray(np.maximum.accumulate(table, axis=1))


@dataclass(frozen=True, eq=False)
class LineMaps:
    """Maps of rows that each go through points of their own, straight in between and to (0, 0) and (1, 1)."""

    # knots, levels: (n, k): F and G(F), neither of them falling along a row. Of points with one F the last counts.
    knots: Floats
    levels: Floats

    def cdf(self, u: Floats) -> Floats:
        """Recalibrated F."""
        return self._each(lambda row, knots, levels: np.interp(u[row], knots, levels), u)

    def quantile(self, p: Floats) -> Floats:
        """Level of F for each of `p`."""
        return self._each(lambda row, knots, levels: np.interp(p[row], levels, knots), p)

    def log_density(self, u: Floats, log_survival: Floats | None = None) -> Floats:
        """Log of the slope to the right; at 1, to the left."""

        def slope(row: int, knots: Floats, levels: Floats) -> Floats:
            piece = np.searchsorted(knots[1:-1], u[row], side="right")
            log_slope: Floats = np.log(np.diff(levels)) - np.log(np.diff(knots))
            return np.asarray(log_slope[piece])

        return self._each(slope, u)

    def log_survival(self, u: Floats, log_survival: Floats | None = None) -> Floats:
        """``log(1 - F')``; with the model's own ``log(1 - F)`` exact in the far tail."""

        def tail(row: int, knots: Floats, levels: Floats) -> Floats:
            with np.errstate(divide="ignore"):
                inside = np.log(np.interp(u[row], knots, 1 - levels))
            if log_survival is None:
                return np.asarray(inside)
            ratio = np.log(1 - levels[-2]) - np.log(1 - knots[-2])
            return np.asarray(np.where(u[row] >= knots[-2], ratio + log_survival[row], inside))

        return self._each(tail, u)

    def _each(self, function: Callable[[int, Floats, Floats], Floats], like: Floats) -> Floats:
        result = np.empty(np.shape(like))
        for row in range(len(self.knots)):
            knots, levels = self.knots[row], self.levels[row]
            # Of points at one F the last; none on an end, and none that does not rise.
            last = np.append(knots[1:] > knots[:-1], True) & (knots > 0) & (knots < 1) & (levels > 0) & (levels < 1)
            knots = np.concatenate([[0.0], knots[last], [1.0]])
            levels = np.concatenate([[0.0], levels[last], [1.0]])
            rises = np.append(True, np.diff(levels[:-1]) > 0)
            result[row] = function(row, knots[np.append(rises, True)], levels[np.append(rises, True)])
        return result


# Levels of the held-out risks that tell where a row stands among them.
_LEVELS = 21

# Standard deviations of what the level of risk adds to the common map, of which the rows choose one.
_SPREADS = (0.0, 0.1, 0.3, 1.0)
_FOLDS = 5


@dataclass(frozen=True, eq=False, repr=False)
class RiskRecalibration(MapByCurve):
    r"""A smooth map of F that changes with the level of risk, shrunk to one map for all rows.

    .. math:: \mathrm{logit}\, G(u \mid z) = c(z) + a(z) \log u - b(z) \log(1 - u)

    is the map of `BetaRecalibration`, with log a, log b and c quadratic in z. The risk of a row is the mean of its F
    over `times`, and z, from -1 to 1, the place of that risk among those of the held-out rows. The parameters maximise
    the censored likelihood with normal priors: standard deviation 1 on the common part, and one of 0, 0.1, 0.3 and 1
    on what z adds, whichever has the largest likelihood on rows that were left out, in five folds. At 0, and for rows
    of one risk, the map is that of `BetaRecalibration`.

    One map of F cannot move rows by their risk: where the model is over-confident, high risks are too high and low
    risks too low. This one can.

    Attributes
    ----------
    times : ndarray
        Times whose mean F is the risk.
    n, n_events : int
        Rows and events that it was fitted to.
    risks : ndarray
        Evenly spaced quantiles of the risk of the held-out rows.
    parameters : ndarray of shape (9,)
        Of log a, log b and c: constant, slope and bend in z.
    spread : float
        The standard deviation that was chosen.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> hazard = np.exp(rng.normal(size=2000))  # the model has these, and the truth their roots
    >>> time = rng.exponential(size=2000) / np.sqrt(hazard)
    >>> times = np.array([0.5, 1.0, 2.0])
    >>> own, curves = -np.expm1(-hazard * time), -np.expm1(-hazard[:, None] * times)
    >>> risk = RiskRecalibration.fit(own, np.ones(2000), curves, times)
    >>> after = risk.of_rows(-np.expm1(-np.array([[3.0], [1 / 3]]) * times)).cdf(np.array([0.5, 0.5]))
    >>> bool(after[0] < 0.5 < after[1])  # high risks were too high, low ones too low
    True
    """

    risks: Floats
    parameters: Floats
    spread: float

    @classmethod
    def fit(cls, cdf: Any, event: Any, curves: Any, times: Any) -> Self:
        """Fit to rows that did not train the model.

        Parameters
        ----------
        cdf, event : array-like of shape (n,)
            F at each row's observed time, and whether the event happened.
        curves : array-like of shape (n, m)
            F of each row at `times`.
        times : array-like of shape (m,)
            Increasing, above zero.
        """
        rows = _Asked.of(cdf, event, curves, times)
        risks = np.quantile(rows.curves.mean(axis=1), np.linspace(0, 1, _LEVELS))
        basis = _basis(rows.curves, risks)
        spread = 0.0 if risks[0] == risks[-1] else _best_spread(rows.u, rows.event, basis)
        found = _fitted(rows.u, rows.event, basis, spread)
        return cls(rows.times, rows.u.size, int(rows.event.sum()), risks, found, spread)

    def of_rows(self, curves: Any) -> MapsOfRows:
        """Return the map of each row, from its F at `times`."""
        a, b, c = self.parameters.reshape(3, 3) @ _basis(as_curves(curves), self.risks).T
        return BetaMaps(np.exp(a), np.exp(b), c)

    def _told(self) -> str:
        return f"spread {self.spread:g}"


@dataclass(frozen=True, eq=False)
class BetaMaps(BetaFormulas):
    """A beta map of each row: `a`, `b` and `c` of shape (n,)."""

    a: Floats
    b: Floats
    c: Floats


def _basis(curves: Floats, risks: Floats) -> Floats:
    """Constant, z and its Legendre square for each row, by its place among the held-out risks."""
    # Of equal quantiles of the risk the middle one counts.
    values = np.unique(risks)
    place = (np.searchsorted(risks, values) + np.searchsorted(risks, values, side="right") - 1) / 2
    z = np.interp(curves.mean(axis=1), values, 2 * place / (risks.size - 1) - 1)
    return np.stack([np.ones(z.size), z, (3 * z**2 - 1) / 2], axis=1)


def _fitted(u: Floats, event: BoolArray, basis: Floats, spread: float) -> Floats:
    """Parameters ``(9,)`` of largest posterior; what z adds is 0 where `spread` is."""
    if spread == 0:
        alone = CensoredLikelihood.of(u, event).maximum()
        return np.stack([alone, np.zeros(3), np.zeros(3)], axis=1).ravel()
    precision = np.array([1.0, spread**-2, spread**-2])
    return CensoredLikelihood.of(u, event, basis, precision).maximum()


def _best_spread(u: Floats, event: BoolArray, basis: Floats) -> float:
    k = min(_FOLDS, int(event.sum()))
    if k < 2:
        return 0.0
    fold, total = folds_by_event(event, k, np.random.default_rng(0)), dict.fromkeys(_SPREADS, 0.0)
    for number in range(k):
        train, test = fold != number, fold == number
        for spread in _SPREADS:
            found = _fitted(u[train], event[train], basis[train], spread)
            left = CensoredLikelihood.of(u[test], event[test], basis[test], np.zeros(3))
            total[spread] -= left.loss_and_gradient(found)[0]
    return max(_SPREADS, key=lambda spread: total[spread])


# Share of the model's own F in an isotonic surface, which has stretches without any mass: there a density would be 0.
# Of 200 and 1,000 rows of three models, .1 lost least where the model was right and gained where it was not; with 30
# times, 50 groups of risk and a share of .001 the likelihood lost .3 to 1 nats per row.
_OWN_SHARE = 0.1

# Rounds of projections, until they change less than this.
_ROUNDS, _CLOSE = 100, 1e-5


@dataclass(frozen=True, eq=False, repr=False)
class IsotonicSurface(MapByCurve):
    """F by risk and time, rising in both: isotonic survival regression, doubly robust (DR-ISR).

    Whether a row's event has happened by a time is not known of all rows. In its place stands a number that is right
    on average if the model's F is right, or if censoring depends on the predicted risk alone, whichever it is: F plus a
    correction by the rows seen, weighted by one over the probability not to be censored, by a Cox model of the
    censoring on the predicted risk. The surface is the nearest one to these numbers, in squares, that rises in time and
    in risk, over as many groups of rows with neighbouring risks as the cube root of the number of events.

    It was made for Cox models, whose rows keep one order at all times. The risk of a row is here the mean of its F over
    `times`. Between two of them a row follows its own F, scaled; after the last, its own hazard.

    Attributes
    ----------
    times : ndarray
        Columns of the surface.
    n, n_events : int
        Rows and events that it was fitted to.
    risks : ndarray
        Its rows, increasing.
    surface : ndarray of shape (risks * times,)
        F, row by row.

    References
    ----------
    Jain, Zhang, Bates (2026), Isotonic Survival Regression: Calibrated Survival Distributions from Deep Cox Models,
    arXiv 2605.16571. Written from its description; grid, grouping and the share of the model's own F are ours.
    """

    risks: Floats
    surface: Floats

    @classmethod
    def fit(cls, cdf: Any, event: Any, curves: Any, times: Any, *, time: Any, happened: Any = None) -> Self:
        """Fit to rows that did not train the model; `cdf`, `event`, `curves` and `times` as in `RiskRecalibration.fit`.

        Parameters
        ----------
        time : array-like of shape (n,)
            Observed times, which tell when rows are censored.
        happened : array-like of shape (n,), optional
            Events among them, where `event` holds fewer: those after the end of the model's curves.
        """
        rows = _Asked.of(cdf, event, curves, times)
        seen = as_time(time, rows.u.size, reference="cdf").astype(np.float64)
        known = rows.event if happened is None else as_event(happened, rows.u.size)
        risk = np.round(rows.curves.mean(axis=1), DIGITS)
        censoring = fit_censoring(normal_scores(risk)[:, None], Outcome(seen, known))
        found, seen_by = censoring or same_for_all(Outcome(seen, known)), Outcome(seen, rows.event)
        left, own = 1 - rows.curves, 1 - rows.u
        columns = [doubly_robust(left, rows.times, "linear", own, seen_by, float(t), found) for t in rows.times]
        values = np.stack(columns, axis=1)
        levels, group = np.unique(risk, return_inverse=True)
        most = count_of_pieces(int(rows.event.sum())) // 2
        if levels.size > most:
            # Groups of equally many rows; rows of one risk stay together.
            first = np.searchsorted(np.sort(risk), risk)
            group = np.unique((first * most) // risk.size, return_inverse=True)[1]
        counts = np.bincount(group).astype(np.float64)
        risks = np.bincount(group, risk) / counts
        means = np.stack([np.bincount(group, column) / counts for column in values.T], axis=1)
        surface = _rising_in_both(means, counts)
        return cls(rows.times, rows.u.size, int(rows.event.sum()), risks, surface.ravel())

    def of_rows(self, curves: Any) -> MapsOfRows:
        """Return the map of each row, from its F at `times`."""
        own = as_curves(curves)
        table = self.surface.reshape(self.risks.size, self.times.size)
        risk = own.mean(axis=1)
        levels = np.stack([np.interp(risk, self.risks, column) for column in table.T], axis=1)
        return LineMaps(own, (1 - _OWN_SHARE) * levels + _OWN_SHARE * own)

    def _told(self) -> str:
        return f"{self.risks.size} risks, {self.times.size} times"


def _rising_in_both(values: Floats, weights: Floats) -> Floats:
    """Nearest table in weighted squares that rises along rows and columns, within [0, 1], by Dykstra's projections."""
    from sklearn.isotonic import isotonic_regression

    table = values
    by_row, by_column = np.zeros_like(values), np.zeros_like(values)
    for _ in range(_ROUNDS):
        asked = table + by_row
        along = np.stack([isotonic_regression(line, y_min=0.0, y_max=1.0) for line in asked])
        by_row = asked - along
        asked = along + by_column
        columns = [isotonic_regression(line, sample_weight=weights, y_min=0.0, y_max=1.0) for line in asked.T]
        new = np.stack(columns, axis=1)
        by_column = asked - new
        done = np.abs(new - table).max() < _CLOSE
        table = new
        if done:
            break
    return np.maximum.accumulate(table, axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class TemperatureRecalibration(MapByCurve):
    """Temperature scaling of a model with time bins: each row's log-masses divided by one number.

    ``p'_k = p_k^(1/T) / sum_j p_j^(1/T)`` for the mass of every bin between two of `times`; what lies after the last of
    them is a bin too. Within a bin F' rises as F does. T maximises the censored likelihood, with a standard normal
    prior on its logarithm. T above 1 makes over-confident rows flatter, each around its own bins: no map of F can.

    Attributes
    ----------
    times : ndarray
        Ends of the bins.
    n, n_events : int
        Rows and events that it was fitted to.
    temperature : float
        T.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017), On Calibration of Modern Neural Networks, ICML, PMLR 70.
    """

    temperature: Annotated[float, Limits(above=0)]

    @classmethod
    def fit(cls, cdf: Any, event: Any, curves: Any, times: Any) -> Self:
        """Fit T to rows that did not train the model; arguments as in `RiskRecalibration.fit`."""
        from scipy.optimize import minimize_scalar

        rows = _Asked.of(cdf, event, curves, times)
        bins = _Bins.of(rows)
        found = minimize_scalar(bins.loss, bounds=(-4.0, 4.0), method="bounded", options={"xatol": 1e-7})
        return cls(rows.times, rows.u.size, int(rows.event.sum()), float(np.exp(found.x)))

    def of_rows(self, curves: Any) -> MapsOfRows:
        """Return the map of each row, from its F at `times`."""
        own = as_curves(curves)
        return LineMaps(own, np.cumsum(_scaled(_masses(own), 1 / self.temperature), axis=1)[:, :-1])

    def _told(self) -> str:
        return f"T = {self.temperature:.3g}"


def _masses(curves: Floats) -> Floats:
    """Masses of the bins that end at each of the times, and of the one after the last."""
    return np.diff(curves, axis=1, prepend=0.0, append=1.0)


def _scaled(masses: Floats, power: float) -> Floats:
    with np.errstate(divide="ignore"):
        logs = power * np.log(masses)
    raised = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class _Bins:
    """Each row's bin, and the share of it that is left at the row's F."""

    masses: Floats
    event: BoolArray
    place: npt.NDArray[np.int64]
    left: Floats

    @classmethod
    def of(cls, rows: _Asked) -> Self:
        masses = _masses(rows.curves)
        # F on the edge of a bin belongs to the bin that it ends, as times do.
        place = (rows.curves < rows.u[:, None] - 10.0**-DIGITS).sum(axis=1)
        n = np.arange(rows.u.size)
        end, mass = np.cumsum(masses, axis=1)[n, place], masses[n, place]
        left = np.divide(end - rows.u, mass, out=np.zeros(rows.u.size), where=mass > 0)
        return cls(masses, rows.event, place, np.clip(left, 0.0, 1.0))

    def loss(self, log_temperature: float) -> float:
        """Negative log-posterior."""
        scaled = _scaled(self.masses, float(np.exp(-log_temperature)))
        n = np.arange(self.place.size)
        own, before = scaled[n, self.place], np.cumsum(scaled, axis=1)[n, self.place]
        after = np.maximum(1 - before, 0.0) + self.left * own
        told = np.where(self.event, own, after)
        # A row of whose outcome the model says that it cannot be tells nothing of T.
        told = np.where(told > 0, told, 1.0)
        return float(log_temperature**2 / 2 - np.log(told).sum())
