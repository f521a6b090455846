"""The penalty of rows that are seen in part: from an entry on, between two times, or with one of several causes.

One formula covers them, and plain right censoring too. A cell is a bin of F, or with causes a bin of the all-cause F
times a cause. With O what was observed of a row and E the condition on which it came under observation,

    s_cell = mean over rows of P(cell | O) - P(cell | E),

zero on average for a true model. The penalty is the sum of the squares, with an event shared softly among the bins as
in `membership`; the value by which epochs are chosen shares it exactly.

What a row tells of a cell is written as mass above an edge: bins are differences of it, as in `membership`. With L_k(u)
what the model leaves to cause k when its all-cause F has come to u, the mass of cause k above the edge e is

    of a row that is known to have come to u     L_k(max(e, u)) / sum of L(u)     (censored at u, or entered there)
    of an event of cause k at u                  sigma((u - e) / T), or 1 where u >= e
    of an event between l and u                  the mean of that between l and u

Without causes L(u) = 1 - u, and the first line is `exact_above`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from xcal._checks import fail
from xcal.calibration.membership import SATURATED, SoftBins, exact_above
from xcal.calibration.penalty import in_full, one_over_pairs


@dataclass(frozen=True, eq=False)
class Seen:
    """What is known of rows beside F at their time and whether the event happened; None where nothing is.

    Attributes
    ----------
    entry : Tensor of shape (..., n) or None
        F at the time from which each row was under observation.
    lower : Tensor of shape (..., n) or None
        F at the earlier end of the interval that holds an event, F itself where the time is known.
    cause : int64 Tensor of shape (n,) or (..., n), or None
        The cause of each event, 1, 2, ...; 0 for a censored row.
    steps : Tensor of shape (..., n, causes, points) or None
        What each cause adds to F from point to point, as `SurvivalDistribution.incidence_steps` gives it. Between two
        points all causes rise in proportion to F.
    beyond : bool
        Whether the last cause is none, but what lies beyond the end of the curves. It is one cell.
    """

    entry: Tensor | None = None
    lower: Tensor | None = None
    cause: Tensor | None = None
    steps: Tensor | None = None
    beyond: bool = False

    def double(self) -> "Seen":
        """Return it in float64."""
        entry, lower, steps = (None if one is None else one.double() for one in (self.entry, self.lower, self.steps))
        return Seen(entry, lower, self.cause, steps, self.beyond)


def check_default(spec: SoftBins) -> None:
    """Refuse the memberships of the paper, which are there for plain rows."""
    if not spec.cumulative:
        expected = "membership='partition' and censored='exact' for rows that are seen in part"
        fail("membership, censored", expected, f"{spec.membership!r}, {spec.censored!r}")


def residuals(cdf: Tensor, event: Tensor, known: Seen, edges: Tensor, spec: SoftBins, *, exact: bool = False) -> Tensor:
    """Return P(cell | observed) - P(cell | entry) of every row, (..., n, cells), softly or, in float64, exactly.

    Cells are the bins, for each cause. Edges are read in the type of F, and a value on an edge is above it.
    """
    edges = edges.to(cdf.dtype)
    if exact:
        edges, cdf, known = edges.double(), cdf.double(), known.double()
    event = event.unsqueeze(-1).unsqueeze(-1)
    seen = _event_above(cdf, known.lower, edges, spec, exact=exact).unsqueeze(-2)
    if known.steps is None:
        given = 1 - edges[1:-1] if known.entry is None else exact_above(known.entry, edges)
        above = torch.where(event, seen, exact_above(cdf, edges).unsqueeze(-2)) - given.unsqueeze(-2)
        return -pad(above, (1, 1)).diff(dim=-1).squeeze(-2)
    assert known.cause is not None
    left = _Left(known.steps)
    held = 1 - 1e-12 if exact else SATURATED
    start = torch.zeros_like(cdf) if known.entry is None else known.entry
    causes = torch.arange(1, known.steps.shape[-2] + 1, device=cdf.device)
    own = (known.cause.unsqueeze(-1) == causes).to(cdf.dtype).unsqueeze(-1)
    observed = torch.where(event, pad(seen, (1, 0), value=1.0) * own, left.above(cdf, edges, held))
    above = observed - left.above(start, edges, held)
    cells = -pad(above, (0, 1)).diff(dim=-1)
    if not known.beyond:
        return cells.flatten(-2)
    return torch.cat([cells[..., :-1, :].flatten(-2), above[..., -1, :1]], dim=-1)


def _event_above(cdf: Tensor, lower: Tensor | None, edges: Tensor, spec: SoftBins, *, exact: bool) -> Tensor:
    """Mass above each inner edge of an event, (..., n, B - 1): where its F is, or evenly between two."""
    inner, u = edges[1:-1], cdf.unsqueeze(-1)
    if exact:
        at = (u >= inner).to(cdf.dtype)
        if lower is None:
            return at
        start = lower.unsqueeze(-1)
        width = u - start
        some = width > 0
        share = (u - torch.maximum(start, inner)) / torch.where(some, width, 1.0)
        return torch.where(some, torch.clamp(share, 0.0, 1.0), at)
    per_unit = spec.scale(edges.shape[0] - 1)
    at = torch.sigmoid((u - inner) * per_unit)
    if lower is None:
        return at
    # The mean of a sigmoid over an interval, in units of its temperature. Short ones: two nodes of Gauss and Legendre.
    end, start = (u - inner) * per_unit, (lower.unsqueeze(-1) - inner) * per_unit
    width = (u - lower.unsqueeze(-1)) * per_unit
    short = width < 0.5
    safe = torch.where(short, 1.0, width)
    middle, reach = (end + start) / 2, width / (2 * math.sqrt(3))
    two = (torch.sigmoid(middle - reach) + torch.sigmoid(middle + reach)) / 2
    return torch.where(short, two, (softplus(end) - softplus(start)) / safe)


class _Left:
    """What each cause has left when the all-cause F has come to a level, read along straight lines."""

    def __init__(self, steps: Tensor) -> None:
        # From the far end, so that what is small keeps its digits.
        self._after = steps.flip(-1).cumsum(-1).flip(-1) - steps
        self._level = steps.sum(-2).cumsum(-1)
        width = steps.sum(-2)
        some = width > 0
        self._share = steps / torch.where(some, width, 1.0).unsqueeze(-2)
        self._search = self._level.detach().contiguous()

    def at(self, level: Tensor) -> Tensor:
        """Return it at levels (..., n, m) of each row, (..., n, causes, m)."""
        level = level.expand(*self._level.shape[:-1], level.shape[-1])
        index = torch.searchsorted(self._search, level.detach().contiguous()).clamp(max=self._level.shape[-1] - 1)
        end = self._level.gather(-1, index)
        index = index.unsqueeze(-2).expand(*index.shape[:-1], self._share.shape[-2], index.shape[-1])
        rest = self._share.gather(-1, index) * torch.clamp(end - level, min=0.0).unsqueeze(-2)
        return self._after.gather(-1, index) + rest

    def above(self, level: Tensor, edges: Tensor, held: float) -> Tensor:
        """Return the mass above each edge but the last of a row that has come to a level, (..., n, causes, B).

        Where next to nothing is left the shares of the causes are noise, and their slopes without bound: the level is
        `held` below 1.
        """
        level = torch.clamp(level, max=held).unsqueeze(-1)
        left = self.at(torch.cat([level, torch.maximum(level, edges[1:-1])], dim=-1))
        whole = left[..., :1].sum(-2, keepdim=True)
        return left / torch.where(whole > 0, whole, 1.0)


def mean_square(values: Tensor, weights: Tensor | None, spec: SoftBins) -> Tensor:
    """Penalty (...) of residuals (..., n, cells): squared means over rows, summed over cells."""
    if weights is None:
        weights = values.new_ones(values.shape[:-1])
    total = weights.sum(-1)
    share = weights / total.unsqueeze(-1)
    value = (share.unsqueeze(-1) * values).sum(-2).square().sum(-1)
    if spec.estimator == "bound":
        return value
    squares = share.square()
    own = (squares * values.square().sum(-1)).sum(-1)
    return (value - own) * one_over_pairs(squares.sum(-1), values.dtype)


def part_penalty(
    cdf: Tensor, event: Tensor, known: Seen, edges: Tensor, spec: SoftBins, weights: Tensor | None = None
) -> Tensor:
    """X-CAL penalty of rows that are seen in part, (...), without any look at the values."""
    u = in_full(cdf)
    found = residuals(u, event.expand(u.shape), known, edges, spec)
    return mean_square(found, None if weights is None else weights.detach().to(u.dtype).expand(u.shape), spec)


# --- From curves of an own loop.


def part_of_curves(
    incidence: Tensor, times: Tensor, time: Tensor, cause: Tensor, entry: Tensor | None
) -> tuple[Tensor, Tensor, Seen]:
    """Return F at the observed times, whether an event was seen, and what is known beside, from incidences.

    Incidences (..., n, causes, m) are read along straight lines between `times`, from 0 at time 0. Rows observed longer
    than the last of them are censored there.
    """
    curves = in_full(incidence)
    grid = times.to(curves)
    steps = torch.cat([curves[..., :1], curves.diff(dim=-1)], dim=-1).clamp(min=0.0)
    total = steps.sum(-2).cumsum(-1)
    rest = torch.clamp(1 - total[..., -1:], min=0.0).unsqueeze(-2)
    steps = torch.cat([pad(steps, (0, 1)), pad(rest, (steps.shape[-1], 0))], dim=-2)

    def level(at: Tensor) -> Tensor:
        """F along straight lines at one time of each row."""
        at = torch.minimum(at.to(curves), grid[-1])
        right = torch.searchsorted(grid, at.contiguous()).clamp(max=grid.shape[0] - 1)
        end, start = grid[right], torch.where(right > 0, grid[(right - 1).clamp(min=0)], 0.0)
        done = torch.where(end > start, (at - start) / torch.where(end > start, end - start, 1.0), 1.0)
        known = pad(total, (1, 0))
        low, high = (_pick(known, place) for place in (right, right + 1))
        return low + (high - low) * done

    seen = (cause > 0) & (time <= times[-1])
    cause = torch.where(seen, cause, 0)
    u = torch.clamp(level(time), max=1.0)
    known = Seen(None if entry is None else level(entry), None, cause, steps, beyond=True)
    return u, seen, known


def _pick(values: Tensor, index: Tensor) -> Tensor:
    """Entry of `values` (..., n, m) at an index of each row."""
    index = index.expand(values.shape[:-1]).unsqueeze(-1)
    return values.gather(-1, index).squeeze(-1)
