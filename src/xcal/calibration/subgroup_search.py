"""Where a model is off: the subgroup with the largest residuals, searched on one half of the rows, tested on the other.

A subgroup is one condition, or two joined by "and": a numeric column up to or above a cut, or a category. The search
looks at two questions, each a contrast of the bins: are the observed F too high or too low (location), and do they lie
too far out or too close to the middle (spread)? As the second half takes no part in the search, its p-value is that of
one test.

A sum over the rows of a subgroup is divided by the larger of two standard deviations: that of what was seen, and that
which a right model expects. The first alone is near zero in a subgroup of early censored rows without any event,
however few were expected, and the second alone in one where a single event came that nearly nobody expected.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from xcal.calibration.bins import Edges
from xcal.calibration.censored import rest
from xcal.calibration.covariates import Column
from xcal.calibration.histogram import edges_like, locate

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SEARCHED_ROWS = 200_000  # more add nothing to what a person can act on; a tenth of them at most is searched
_CUTS = 16  # numeric columns are cut at the 1/16 to 15/16 quantiles
_FIRST = 12  # single conditions that are tried in pairs
_SMALLEST = 30  # rows of a subgroup in each half, or one in fifty if that is more
_NUMBERS = 1 << 24  # of masks that are held as floating-point numbers at a time
_GAIN = 4.0  # by how much a second condition must raise the squared z: a cut that finds nothing raises it by chance


@dataclass(frozen=True)
class Condition:
    """One condition on one column."""

    column: int
    words: str
    cut: float
    kind: str  # "up to", "above", "is"

    def holds(self, columns: Sequence[Column]) -> Mask:
        """Rows for which it is true."""
        values = columns[self.column].values
        if self.kind == "up to":
            return values <= self.cut
        return values > self.cut if self.kind == "above" else values == self.cut


@dataclass(frozen=True)
class Subgroup:
    """The subgroup with the largest excess, and its test on rows that were not searched.

    Attributes
    ----------
    description : str
        In words: "rows with age > 71 and stage = III: F too low, events come earlier than predicted".
    rule : str
        The conditions alone.
    finding : str
        What the histogram of its rows in the half that was not searched shows.
    n : int
        Its rows among those looked at, in both halves.
    z, p_value : float
        Of the half that took no part in the search; two-sided, and honest: one test was made.
    conditions : tuple of Condition
    n_tested : int
        Its rows in that half.
    tested : array of shape (n_tested,)
        Their row numbers.
    mass, mass_error : arrays of shape (B,)
        Share of F in each bin among these rows, and the standard error of each, by the same rule as z.
    """

    description: str
    rule: str
    finding: str
    n: int
    z: float
    p_value: float
    conditions: tuple[Condition, ...]
    n_tested: int
    tested: npt.NDArray[np.intp] = field(compare=False, repr=False)
    mass: Floats = field(compare=False, repr=False)
    mass_error: Floats = field(compare=False, repr=False)

    def holds(self, columns: Sequence[Column]) -> Mask:
        """Rows of the subgroup."""
        return all_hold(self.conditions, columns)


def all_hold(conditions: Sequence[Condition], columns: Sequence[Column]) -> Mask:
    """Rows for which every condition is true."""
    return np.asarray(np.logical_and.reduce([condition.holds(columns) for condition in conditions]))


def contrasts(edges: Edges) -> Floats:
    """Location and spread of F, (B, 2), each with mean zero under a flat histogram."""
    middle, width = (edges[1:] + edges[:-1]) / 2 - 0.5, np.diff(edges)
    both = np.stack([middle, np.square(middle)], axis=1)
    return np.asarray(both - width @ both)


def expected_squares(cdf: npt.NDArray[np.floating], edges: Edges, shapes: Floats) -> Floats:
    r"""Variance of contrasts of the bins, (B, C), that a right model expects of a row up to its observed time, (n, C).

    While a row is watched, from F = 0 to its own F, its score is the mean of the contrast g over what is left,
    g(v..1), and jumps to g(v) at an event. Jumps are as likely as dv / (1 - v), so that the variance is the integral of
    (g(v) - g(v..1))^2 / (1 - v). Within a bin that difference is a constant over 1 - v. Whatever the censoring, the
    mean of these numbers is that of the squared scores, but they do not depend on whether an event came.
    """
    edge = edges_like(edges, cdf)
    u = cdf.astype(np.float64, copy=False)
    bins, above = locate(u, edge), 1 - edges
    of_bins = shapes * np.diff(edges)[:, None]
    after = of_bins.sum(axis=0) - np.cumsum(of_bins, axis=0)
    jumps = np.square(after - shapes * above[1:, None]) / 2
    jumps[-1] = 0.0  # a row in the last bin has its score
    inverse = 1 / np.square(above[:-1])
    before = np.concatenate([np.zeros((1, shapes.shape[1])), np.cumsum(jumps[:-1] * np.diff(inverse)[:, None], axis=0)])
    return np.asarray(before[bins] + jumps[bins] * (1 / np.square(rest(u, edge)) - inverse[bins])[:, None])


def masses(cdf: npt.NDArray[np.floating], residuals: Floats, edges: Edges, together: Floats) -> tuple[Floats, Floats]:
    """Share of F of some rows in each bin, or in bins taken together, (B, k) of 0 and 1, and its standard error."""
    own = residuals @ together
    variance = np.maximum(own.var(axis=0), expected_squares(cdf, edges, together).mean(axis=0))
    return own.mean(axis=0) + np.diff(edges) @ together, np.sqrt(variance / own.shape[0])


def find_subgroup(
    columns: Sequence[Column], cdf: npt.NDArray[np.floating], residuals: Floats, edges: Edges
) -> Subgroup | None:
    """Search the first half of the rows, test on the rest; None where no subgroup is large enough.

    The rows come in random order.
    """
    n = residuals.shape[0]
    scores, expected = residuals @ contrasts(edges), expected_squares(cdf, edges, contrasts(edges))
    half = min(n // 2, SEARCHED_ROWS // 10)
    here, there = ([column.take(rows) for column in columns] for rows in (slice(half), slice(half, None)))
    smallest = max(_SMALLEST, half // 50)
    found = _best_rule(here, scores[:half], expected[:half], smallest)
    if found is None:
        return None
    conditions, contrast = found
    inside = all_hold(conditions, there)
    z = _z(inside[None, :], scores[half:], expected[half:])[0, contrast]
    if not np.isfinite(z):
        return None
    tested = half + np.flatnonzero(inside)
    mass, error = masses(cdf[tested], residuals[tested], edges, np.eye(edges.size - 1))
    rule, finding = " and ".join(c.words for c in conditions), _finding(mass, edges)
    return Subgroup(
        description=f"rows with {rule}: {finding}",
        rule=rule,
        finding=finding,
        n=int(all_hold(conditions, here).sum() + inside.sum()),
        z=float(z),
        p_value=float(2 * ndtr(-abs(z))),
        conditions=conditions,
        n_tested=tested.size,
        tested=tested,
        mass=mass,
        mass_error=error,
    )


def _best_rule(
    columns: Sequence[Column], scores: Floats, expected: Floats, smallest: int
) -> tuple[tuple[Condition, ...], int] | None:
    """Conditions and contrast with the largest squared z."""
    singles = [c for k, column in enumerate(columns) for c in _conditions(k, column, smallest)]
    if not singles:
        return None
    masks = np.array([c.holds(columns) for c in singles])
    rows = masks.sum(axis=1)
    # A condition that leaves out almost nobody is no subgroup.
    large = (rows >= smallest) & (masks.shape[1] - rows >= smallest)
    if not large.any():
        return None
    z2 = np.where(large[:, None], np.square(_z(masks, scores, expected)), -1.0)
    best, contrast = np.unravel_index(np.argmax(z2), z2.shape)
    value = float(z2[best, contrast])
    conditions: tuple[Condition, ...] = (singles[best],)
    for first in np.argsort(-z2.max(axis=1))[:_FIRST]:
        if not large[first]:
            continue
        both = masks & masks[first]
        allowed = (both.sum(axis=1) >= smallest) & np.array([c.column != singles[first].column for c in singles])
        pair = np.where(allowed[:, None], np.square(_z(both, scores, expected)), -1.0)
        second, of_pair = np.unravel_index(np.argmax(pair), pair.shape)
        if pair[second, of_pair] > value + (_GAIN if len(conditions) == 1 else 0.0):
            value, contrast = float(pair[second, of_pair]), of_pair
            conditions = (singles[first], singles[second])
    return conditions, int(contrast)


def _z(masks: Mask, scores: Floats, expected: Floats) -> Floats:
    """Sum of each contrast over the rows of each mask, in units of its standard deviation, (masks, contrasts)."""
    given, some = np.stack([scores, np.square(scores), expected], axis=1), max(1, _NUMBERS // max(1, masks.shape[1]))
    pieces = (masks[k : k + some].astype(np.float64) for k in range(0, masks.shape[0], some))
    sums, seen, right = np.concatenate([np.tensordot(piece, given, axes=1) for piece in pieces]).transpose(1, 0, 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums / np.sqrt(np.maximum(seen, right)))


def _conditions(index: int, column: Column, smallest: int) -> list[Condition]:
    if column.labels is not None:
        # There may be thousands of labels, most of them too rare for a subgroup.
        rows = np.bincount(column.values.astype(np.intp), minlength=len(column.labels))
        often = [(k, label) for k, label in enumerate(column.labels) if rows[k] >= smallest]
        return [Condition(index, f"{column.name} = {label}", float(k), "is") for k, label in often]
    low, high = column.values.min(), column.values.max()
    # Of yes and no, written as 1 and 0, a person says which it is.
    two = bool(np.isin(column.values, (low, high)).all())
    cuts = np.unique([low]) if two else column.cuts(_CUTS)
    words = (f"= {low:.6g}", f"= {high:.6g}") if two else ("≤ {:.6g}", "> {:.6g}")
    return [
        Condition(index, f"{column.name} {sign.format(cut)}", float(cut), kind)
        for cut in cuts[(cuts >= low) & (cuts < high)]
        for sign, kind in zip(words, ("up to", "above"), strict=True)
    ]


def _finding(mass: Floats, edges: Edges) -> str:
    """Return what the histogram of the subgroup shows: its larger departure from flat, in location or in spread.

    The contrast that was tested need not be the larger one: with censored rows the spread has the smaller noise, and
    a histogram that rises from left to right can be surest there.
    """
    shapes, width = contrasts(edges), np.diff(edges)
    departure = (mass - width) @ shapes / np.sqrt(width @ np.square(shapes))
    location, spread = departure
    if abs(location) >= abs(spread):
        return (
            "F too high at the observed times, so that events come later than predicted"
            if location > 0
            else "F too low at the observed times, so that events come earlier than predicted"
        )
    return (
        "predicted distributions too narrow (over-confident)"
        if spread > 0
        else "predicted distributions too wide (under-confident)"
    )
