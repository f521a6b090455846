"""One map for all rows, and for each known subgroup what its own rows ask for beyond it, shrunk by how few they are."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import check_rows, fail
from xcal.recalibration.base import Floats, held_out_rows
from xcal.recalibration.kaplan_meier import KaplanMeierRecalibration
from xcal.recalibration.piecewise import PiecewiseRecalibration

Label = str | int | float | bool
# Points at which a group's map is compared with the common one, evenly spaced in the common F.
_POINTS = 200


@dataclass(frozen=True, eq=False, repr=False)
class GroupRecalibration(PiecewiseRecalibration):
    """What one group adds to the common map: a map of the F that the common map gives, `weight` of the way there."""

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

    def log_density(self, u: Any, groups: Any) -> Floats:
        """Log of the slope of each row's map."""

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
        lines = [[label, own.content() | {"weight": own.weight}] for label, own in self.groups.items()]
        return {"common": self.common.content(), "groups": lines, "between": self.between}

    @classmethod
    def of_content(cls, content: dict[str, Any]) -> Self:
        """Make it again from what `content` gave; anything else is refused."""
        if not isinstance(content, dict) or set(content) != {"common", "groups", "between"}:
            fail("map", "a common map, groups and the variance between them", type(content).__name__)
        maps: dict[Label, GroupRecalibration] = {}
        for label, own in content["groups"]:
            if not isinstance(label, str | int | float) or set(own) != {"knots", "levels", "n", "n_events", "weight"}:
                fail("groups", "a label and a map", type(label).__name__)
            points = [np.asarray(own[name], dtype=np.float64) for name in ("knots", "levels")]
            maps[label] = GroupRecalibration(
                points[0], points[1], int(own["n"]), int(own["n_events"]), float(own["weight"])
            )
        return cls(KaplanMeierRecalibration.of_content(content["common"]), maps, float(content["between"]))

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

    def log_density(self, u: Floats) -> Floats:
        """Log of the slope."""
        return self.maps.log_density(u, self.groups)

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
