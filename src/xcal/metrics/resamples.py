"""Resamples as counts of the rows: what is drawn, the curves of what was drawn, and metrics that are worked out of it.

A resample is how often each row was drawn, so that nothing is sorted or copied again. Resamples are worked on in
blocks, by as many threads as are of use.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from xcal._checks import MANY, BoolArray, FloatArray, as_count, as_number, fail
from xcal._devices import Workers
from xcal._kaplan_meier import KaplanMeier
from xcal.calibration.bins import Clusters
from xcal.data.surv import Outcome
from xcal.metrics.inputs import Integers, Matrix, Vector, running_sums
from xcal.metrics.observed import censoring_survival

Numbers = npt.NDArray[Any]
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Timeline:
    """Outcomes in time order, events first at one time, and the censoring curve of the training rows or None."""

    outcome: Outcome
    censoring: KaplanMeier | None = None

    @property
    def time(self) -> FloatArray:
        """Observed times."""
        return self.outcome.time

    @property
    def event(self) -> BoolArray:
        """Rows with the event."""
        return self.outcome.event

    @cached_property
    def first_of_tie(self) -> Integers:
        """First row with the same time, for each row."""
        return np.asarray(np.searchsorted(self.time, self.time, side="left"))

    def passed(self, t: float) -> int:
        """Rows whose time is at or before t."""
        return int(np.searchsorted(self.time, t, side="right"))


class Block:
    """Resamples, one per line: how often each row was drawn.

    Within one time, events come first and each leaves before the next is looked at. The product of their factors is
    that of the whole tie, (r - d) / r, so no rows need be put together.

    Parameters
    ----------
    line : Timeline
        The rows.
    drawn : array of shape (b, n)
        How often each row was drawn, in time order.
    weights : array of shape (n,), optional
        Of the rows. What a row counts for, `counts`, is then its weight times how often it was drawn.
    """

    def __init__(self, line: Timeline, drawn: Matrix, weights: Vector | None = None) -> None:
        self.line, self.drawn, self._weights = line, drawn, weights
        self.counts = drawn if weights is None else drawn * weights
        self.least = 1.0 if weights is None else float(weights.min())
        self._made: dict[Hashable, Any] = {}

    @classmethod
    def once_each(cls, line: Timeline, weights: Vector | None = None) -> "Block":
        """Return the rows themselves, each drawn once."""
        return cls(line, np.ones((1, line.outcome.n)), weights)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what several metrics share of these resamples, made for the first of them."""
        if key not in self._made:
            self._made[key] = make()
        found: Made = self._made[key]
        return found

    def of_rows(self, chosen: Integers) -> "Block":
        """Return the counts of some rows, for sums over them; curves and weights for censoring stay those of all."""
        return Block(self.line, self.drawn[:, chosen], None if self._weights is None else self._weights[chosen])

    @cached_property
    def total(self) -> Vector:
        """Rows of each resample, or their weights."""
        return np.asarray(self.counts.sum(axis=1))

    @cached_property
    def effective(self) -> Vector:
        """Rows of each resample, or their effective number."""
        if self._weights is None:
            return self.total
        return np.asarray(np.square(self.total) / (self.drawn @ np.square(self._weights)))

    @cached_property
    def last_time(self) -> Vector:
        """Largest time of each resample."""
        n = self.counts.shape[1]
        return np.asarray(self.line.time[n - 1 - np.argmax(self.counts[:, ::-1] > 0, axis=1)], dtype=np.float64)

    @cached_property
    def _lost(self) -> Matrix:
        """Share of those at risk that each row takes with it."""
        return share_lost(self.counts, self.least)

    @cached_property
    def survival(self) -> Matrix:
        """Kaplan-Meier curve of all events after each row, and 1 in front: shape (b, n + 1)."""
        return kaplan_meier_product(np.where(self.line.outcome.ended, self._lost, 0.0))

    @cached_property
    def uncensored(self) -> Matrix:
        """Kaplan-Meier curve of the censoring after each row, and 1 in front: shape (b, n + 1)."""
        return kaplan_meier_product(np.where(self.line.outcome.ended, 0.0, self._lost))

    @cached_property
    def without(self) -> Matrix:
        """Curve of the rows without the event after each row, and 1 in front; see `survival_at`."""
        if self.line.outcome.competing is None:
            return self.survival
        found = np.ones_like(self.survival)
        found[:, 1:] -= np.cumsum(np.where(self.line.event, self.survival[:, :-1] * self._lost, 0.0), axis=1)
        return found

    def survival_at(self, t: float) -> Vector:
        """Kaplan-Meier curve of the event at t; where others compete, one less its incidence by Aalen-Johansen."""
        passed = self.line.passed(t)
        if self.line.outcome.competing is None:
            return np.asarray(self.survival[:, passed])
        # Each event of a tie takes its part of those before the tie: sums go row by row, too.
        events = np.flatnonzero(self.line.event[:passed])
        return np.asarray(1 - (self.survival[:, events] * self._lost[:, events]).sum(axis=1))

    @cached_property
    def row_weights(self) -> tuple[Matrix, BoolArray]:
        """G just before each row's time, and where it is known, as `censoring_survival` has them."""
        if self.line.censoring is not None:
            g, known = censoring_survival(self.line.censoring, self.line.time, left_limit=True)
            return g[None, :], known[None, :]
        at_own = self.uncensored[:, self.line.first_of_tie]
        positive = at_own > 0
        least = np.where(positive, at_own, np.inf).min(axis=1)
        least = np.where(np.isfinite(least), least, 1.0)
        return np.where(positive, at_own, least[:, None]), positive

    def time_weight(self, t: float) -> tuple[Vector, BoolArray]:
        """G at t, and whether a Brier score can be estimated there: G known, and somebody under observation later."""
        if self.line.censoring is not None:
            g, known = censoring_survival(self.line.censoring, np.array([t]), left_limit=False)
            return np.broadcast_to(g, self.total.shape), known & (t < self.last_time)
        g_time = self.uncensored[:, self.line.passed(t)]
        known = (g_time > 0) & (t < self.last_time)
        return np.where(g_time > 0, g_time, 1.0), known


def product(left: Numbers, right: Numbers) -> Numbers:
    """Matrix product by the calling thread alone: numpy's library would wake all its threads for each of ours."""
    return np.asarray(torch.matmul(torch.from_numpy(left), torch.from_numpy(right)).numpy())


def at_risk(counts: Matrix) -> Matrix:
    """Rows drawn at each place and after it. Differences of whole numbers are exact, those of weights to rounding."""
    before = running_sums(counts)
    return np.asarray(before[:, -1:] - before[:, :-1])


def share_lost(counts: Matrix, least: float) -> Matrix:
    """Share of those at risk that each row takes with it; zero for a row that was not drawn.

    `least` is the smallest count of a row that was.
    """
    # Where nobody is left nothing was drawn, and zero over anything is zero.
    return np.asarray(counts / np.maximum(at_risk(counts), least))


def kaplan_meier_product(lost: Matrix) -> Matrix:
    """Product of what is left after each row, and 1 in front."""
    curve = np.ones((lost.shape[0], lost.shape[1] + 1))
    torch.cumprod(torch.from_numpy(1 - lost), dim=-1, out=torch.from_numpy(curve)[:, 1:])
    return curve


# --- Which rows are drawn.
# Of rows that depend on each other whole clusters are drawn.

Draw = Callable[[int], Vector]  # from the number of a resample to how often each row is drawn, in time order
Seed = int | tuple[int, ...]

# Counts of one block: a few arrays of this size fit the processor's cache, and with very many rows the memory.
_BLOCK = 1 << 18
_MOST_LINES, _FEWEST_LINES = 64, 2


def drawn_by_seed(order: Integers, clusters: Clusters | None, seed: Seed) -> Draw:
    """Draw each resample by a random stream of its own: the result depends on the seed alone, not on the threads.

    The draws are of the sample's own order, `order`, so that the same seed draws the same rows for another model.
    """
    return lambda number: _counts(np.random.default_rng([*numbers_of(seed), number]), order, clusters)


def drawn_by_generator(
    generator: np.random.Generator, n_bootstrap: int, order: Integers, clusters: Clusters | None = None
) -> Draw:
    """Draw all resamples beforehand, one after another, by the caller's generator."""
    drawn = [_counts(generator, order, clusters).astype(np.uint32) for _ in range(n_bootstrap)]
    return lambda number: drawn[number].astype(np.float64)


def numbers_of(seed: Seed) -> tuple[int, ...]:
    """Return a seed as numbers to which others can be added."""
    return (seed,) if isinstance(seed, int) else seed


def _counts(rng: np.random.Generator, order: Integers, clusters: Clusters | None) -> Vector:
    n = order.size if clusters is None else clusters.count
    counts = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
    return counts[order if clusters is None else clusters.codes]


def resampled(
    line: Timeline,
    weights: Vector | None,
    n_bootstrap: int,
    draw: Draw,
    make: Callable[[Block], Mapping[Any, Matrix]],
    workers: Workers,
    *,
    lines: int | None = None,
    progress: Callable[[int], None] = lambda rows_done: None,
) -> dict[Any, Matrix]:
    """Return what `make` gives of every resample, one line each; `lines` at a time, or as many as fit a cache."""
    n = line.outcome.n
    size = lines or max(_FEWEST_LINES, min(_MOST_LINES, _BLOCK // n))
    blocks = [range(k, min(k + size, n_bootstrap)) for k in range(0, n_bootstrap, size)]

    def made(block: Sequence[int]) -> Mapping[Any, Matrix]:
        return make(Block(line, np.array([draw(number) for number in block]), weights))

    parts: list[Mapping[Any, Matrix]] = []
    for k in range(0, len(blocks), workers.count):
        together = blocks[k : k + workers.count]
        parts += workers.map(made, together)
        progress(n * sum(map(len, together)))
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def check_bootstrap(n_bootstrap: Any, level: Any, generator: Any) -> None:
    """Check what a function with bootstrap intervals was asked for."""
    as_count("n_bootstrap", n_bootstrap, at_least=0, at_most=MANY)
    as_number("level", level, above=0, below=1)
    if n_bootstrap and not isinstance(generator, np.random.Generator):
        fail("generator", "a numpy.random.Generator when n_bootstrap is set", type(generator).__name__)
