"""What a recalibration is fitted to: F, and what else a method asks, of rows that the model has not seen."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcal._checks import MANY, BoolArray, as_count, check_same_length, fail
from xcal.recalibration.adjustments import Column, labels_of, model_quantiles
from xcal.recalibration.base import Floats
from xcal.recalibration.csd import DEFAULT_PIECES, even_levels
from xcal.recalibration.grouped import squared_distance
from xcal.recalibration.kaplan_meier import KaplanMeierRecalibration
from xcal.recalibration.reading import read_own
from xcal.recalibration.refitting import Rows, check_each_row_once
from xcal.recalibration.registry import HeldOut, Method

# A fold is not trusted if the map of its F lies so many times further from that of the other folds than chance puts it
# (in mean squares), and so far (the root of it) that it matters. Of 5,300 fits of Cox models that did converge, to 60
# to 1,000 rows in five folds, none came above 9.5; where lifelines did not converge on NACD, folds had 17 to 109.
_TIMES_CHANCE = 12.0
_MATTERS = 0.1


@dataclass(frozen=True)
class Asked:
    """What is asked of a model about rows that it has not seen: a method, with its two settings."""

    method: Method
    n_pieces: int | None
    group_column: Column | None

    def of(self, model: Any, table: Any, time: Floats, event: BoolArray) -> HeldOut:
        """Ask a model."""
        own = read_own(model, table, time, event)
        quantiles = groups = None
        if self.method.asks_quantiles:
            pieces = (
                DEFAULT_PIECES
                if self.n_pieces is None
                else as_count("n_pieces", self.n_pieces, at_least=2, at_most=MANY)
            )
            quantiles = model_quantiles(model, table, even_levels(pieces), float(time.max()))
        if self.method.asks_groups:
            groups = np.asarray(labels_of(table, self.group_column))
            check_same_length("groups", groups, "y", time.size)
        return HeldOut(time, event, own.cdf, own.event, quantiles, groups)


def pooled(parts: Sequence[HeldOut], tested: Sequence[Rows], *, at_random: bool) -> HeldOut:
    """Put the answers of the folds together, in the order of the rows; `tested` has the row numbers of each part.

    A fold whose F are far from those of the others is left out, with a warning that names it: the model has not
    converged there, and a map of such F would spoil all predictions. Folds that were not made `at_random` may differ
    for reasons of their own: they are named, and kept.
    """
    check_each_row_once(np.concatenate(tested), sum(part.time.size for part in parts))
    off = _folds_that_differ(parts)
    if off:
        _tell(off, parts, at_random)
    kept = [k for k in range(len(parts)) if k not in off or not at_random]
    back = np.argsort(np.concatenate([tested[k] for k in kept]))

    def joined(name: str) -> Any:
        values = [getattr(parts[k], name) for k in kept]
        return None if values[0] is None else np.concatenate(values)[back]

    names = ("time", "happened", "cdf", "event", "quantiles", "groups")
    return HeldOut(**{name: joined(name) for name in names})


def _folds_that_differ(parts: Sequence[HeldOut]) -> dict[int, float]:
    """Find the folds whose F are not distributed as those of the others, the furthest first, with their distance.

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


def _distance(part: HeldOut, others: Sequence[HeldOut]) -> tuple[float, float]:
    """Mean squared distance of a fold from the others over that of chance, and its root."""
    cdf, event = (np.concatenate([getattr(other, name) for other in others]) for name in ("cdf", "event"))
    m, rest = int(part.event.sum()), int(event.sum())
    if m == 0 or rest == 0:
        return 0.0, 0.0
    common = KaplanMeierRecalibration.fit(cdf, event)
    found = squared_distance(KaplanMeierRecalibration.fit(common.cdf(part.cdf), part.event))
    return found / ((1 / m + 1 / rest) / 6), float(np.sqrt(found))


def _tell(off: dict[int, float], parts: Sequence[HeldOut], at_random: bool) -> None:
    """Warn of folds that differ, or refuse where they are no exception."""
    told = ", ".join(f"{k + 1} ({parts[k].time.size} rows, by {off[k]:.2f})" for k in sorted(off))
    which = f"fold {told}" if len(off) == 1 else f"folds {told}"
    if at_random and 2 * len(off) >= len(parts):
        advice = "look at its convergence; penalise it, leave out columns, or give it more rows"
        fail("model", f"a model that is trained alike in each of {len(parts)} folds ({advice})", f"other F in {which}")
    what = "left out of the map" if at_random else "kept, as these folds were not made at random"
    warnings.warn(
        f"recalibration: F at the observed times differs between the {len(parts)} folds by far more than chance in "
        f"{which}. Has the model converged there? The rows are {what}",
        UserWarning,
        stacklevel=5,
    )


def as_table(X: Any) -> Any:
    """Rows that can be counted and sliced."""
    return np.asarray(X) if isinstance(X, list) else X
