"""Inverse probability of censoring with the user's own G: every event counts 1 / G."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import as_floats, check_same_length, fail, first_row
from xcal.calibration.bins import Edges
from xcal.calibration.censored import rest, share_of_bin
from xcal.calibration.clusters import Clusters, sum_of_squares
from xcal.calibration.histogram import Array, Floats, edges_like, locate


def as_censoring_survival(values: Any, event: npt.NDArray[np.bool_], *, every_row: bool = False) -> Array:
    """Check the user's G at each row: in (0, 1] for events, and for `every_row` where censored rows use it too."""
    g = as_floats("censoring_survival", values)
    check_same_length("censoring_survival", g, "cdf", event.size)
    bad = ~((g > 0) & (g <= 1)) & (event | every_row)
    if bad.any():
        row = first_row(bad)
        fail("censoring_survival", f"probabilities in (0, 1] for every {'row' if every_row else 'event'}", g[row], row)
    if not event.any():
        fail("event", "at least one event, as method='ipcw' uses events only", "none")
    return g


@dataclass(frozen=True, eq=False)
class _Weighted:
    """Rows that count, with their weights 1 / G, times those of the rows where these have some."""

    counted: npt.NDArray[np.bool_]  # which of all rows
    event: npt.NDArray[np.bool_]  # of the rows that count, as the others
    cdf: Floats
    inverse: Floats

    @classmethod
    def of(
        cls, u: Array, event: npt.NDArray[np.bool_], g: Array, time: Array | None, weights: Floats | None
    ) -> "_Weighted":
        """Events; and with `time` rows that outlast the last event, which spread over [F, 1]."""
        counted = event if time is None else event | (time >= time[event].max())
        inverse = 1 / g[counted].astype(np.float64)
        if weights is not None:
            inverse *= weights[counted]
        return cls(counted, event[counted], u[counted].astype(np.float64), inverse)

    def shares(self, edges: Edges) -> Iterator[Floats]:
        """Weight of every row in one bin after the other."""
        bins, left = locate(self.cdf, edges), rest(self.cdf, edges)
        for j in range(edges.size - 1):
            yield self.inverse * np.where(self.event, bins == j, share_of_bin(j, bins, left, edges))


def inverse_weights(
    u: Array,
    event: npt.NDArray[np.bool_],
    g: Array,
    edges: Edges,
    time: Array | None = None,
    weights: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Sum 1 / G over the events of each bin, and its square; with `weights` those of weight / G.

    With `time`, rows that outlast the last event count 1 / G as well and spread over [F, 1]: what happens after the end
    of the follow-up would otherwise be missing.
    """
    sums, squares = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
    for j, share in enumerate(_Weighted.of(u, event, g, time, weights).shares(edges_like(edges, u))):
        sums[j], squares[j] = share.sum(), np.square(share).sum()
    return sums, squares


def clustered_floor(
    u: Array,
    event: npt.NDArray[np.bool_],
    g: Array,
    edges: Edges,
    time: Array | None,
    weights: Floats | None,
    clusters: Clusters,
) -> float:
    """Return the expected D-calibration of a perfect model whose rows come in clusters, with G taken as known.

    A mass is the ratio of a bin's weights to all weights. What a row adds to its deviation from the bin's width w is
    its weight in the bin less w times its whole weight, over the sum of all.
    """
    rows = _Weighted.of(u, event, g, time, weights)
    own = clusters.of_rows(rows.counted)
    widths, total = np.diff(edges), rows.inverse.sum()
    parts = zip(rows.shares(edges_like(edges, u)), widths, strict=True)
    return sum(sum_of_squares((share - width * rows.inverse) / total, own) for share, width in parts)


def lost_mass_caution(total: float, squares: float, n: float) -> str | None:
    """Return what to tell a user whose events do not stand for everybody, given the sums of 1 / G and its square.

    `n` is the number of rows, or the sum of their weights.
    """
    seen = total / n
    # Three standard errors below all rows, and by enough to matter.
    if seen + 3 * squares**0.5 / n > 0.97:
        return None
    return (
        f"the events, weighted by 1 / censoring_survival, stand for {seen:.0%} of the rows only: follow-up ended "
        "before the others could have theirs, and what they would add is missing. Give time as well, or use "
        "method='km'."
    )
