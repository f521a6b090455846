"""The models of a path, and which of them belong together."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xcal._checks import fail
from xcal.estimators.candidates import Maps
from xcal.estimators.fitted import FittedModel
from xcal.estimators.selection import Selection, nearest_to
from xcal.recalibration import KaplanMeierRecalibration

# The networks of one predicting model, in equal parts, and the map of F after them.
Chosen = tuple[tuple[FittedModel, ...], KaplanMeierRecalibration | None]


def by_weight(
    models: tuple[FittedModel, ...], table: pd.DataFrame, *, average: bool
) -> dict[float, tuple[FittedModel, ...]]:
    """Networks of each weight that was trained: all seeds, or the one with the lowest total."""
    found: dict[float, tuple[FittedModel, ...]] = {}
    for lam, lines in table[table["best_epoch"] >= 0].groupby("lambda"):
        chosen = lines.index if average else [lines["total"].idxmin()]
        found[float(lam)] = tuple(models[line] for line in chosen)
    return found


@dataclass(frozen=True, eq=False)
class Choices:
    """Networks in the order of the frontier, their values, the maps of F, and the choice that was made.

    Attributes
    ----------
    models : tuple of FittedModel
    frontier : DataFrame
        As in `SurvivalPath`.
    maps : mapping
        Map of F for each weight that has one.
    selection : Selection
    average : bool
        Whether the seeds of a weight are one model.
    target : float or None
        The D-calibration to reach, if the path was trained for one.
    """

    models: tuple[FittedModel, ...]
    frontier: pd.DataFrame
    maps: Maps
    selection: Selection
    average: bool
    target: float | None

    @property
    def line_of_selection(self) -> int:
        """Line of the frontier of the chosen weight."""
        return self.line(self.selection.lam) if self.target is None else nearest_to(self.frontier, self.target)

    def line(self, lam: float, seed: int | None = None) -> int:
        """Line of the frontier of a weight and a seed, or of the weight's seed with the lowest total."""
        table = self.frontier
        found = np.flatnonzero((table["lambda"] == lam) & ((seed is None) | (table["seed"] == seed)))
        if found.size == 0:
            known = ", ".join(f"{value:g}" for value in sorted(set(table["lambda"])))
            fail("lam", f"one of {known} with a seed of the path", f"{lam}, seed {seed}")
        totals = table["total"].to_numpy()[found]
        return int(found[0] if np.isnan(totals).all() else found[np.nanargmin(totals)])

    def members(self, lam: float) -> tuple[FittedModel, ...]:
        """Networks that together are the model of a weight."""
        line = self.line(lam)
        if self.target is not None:
            return (self.models[line],)
        return by_weight(self.models, self.frontier, average=self.average).get(lam, (self.models[line],))

    def chosen(self, lam: float, seed: int | None, *, recalibrated: bool) -> Chosen:
        """Networks and map of the model that a caller asks for."""
        members = self.members(lam) if seed is None else (self.models[self.line(lam, seed)],)
        if not recalibrated:
            return members, None
        if seed is not None or lam not in self.maps:
            known = ", ".join(f"{value:g}" for value in sorted(self.maps)) or "none: too few events to validate on"
            fail("recalibrated", f"a weight with a map of its own, all seeds together ({known})", f"{lam}, seed {seed}")
        return members, self.maps[lam]

    def selected(self) -> Chosen:
        """Networks and map of what the path chose."""
        if self.target is not None:
            return (self.models[self.line_of_selection],), None
        lam = self.selection.lam
        return self.members(lam), self.maps[lam] if self.selection.recalibrated else None

    def lines(self) -> list[tuple[float, tuple[FittedModel, ...], KaplanMeierRecalibration | None]]:
        """Weight, members and map of each candidate: as they were trained, in the order of the weights, then mapped."""
        plain = sorted(set(self.frontier.loc[self.frontier["best_epoch"] >= 0, "lambda"]))
        return [(lam, self.members(lam), None) for lam in plain] + [
            (lam, self.members(lam), self.maps[lam]) for lam in sorted(self.maps)
        ]

    def networks(self) -> Mapping[float, tuple[FittedModel, ...]]:
        """All trained networks of each candidate's weight, whether or not they are averaged."""
        return {
            lam: tuple(model for model in self.models if model.lam == lam and model.best_epoch >= 0)
            for lam, _, _ in self.lines()
        }
