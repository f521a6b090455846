r"""How much of a row lies in each bin: the paper's soft indicators, and ours.

Every function takes `u`, the model's F at each row's observed time with shape (..., n), and returns one number per row
and bin, (..., n, B), or with ``derivative=True`` its derivative in u. A bin is I = [a, b), sigma the logistic function.

==========  ============================================================  ==================================
name        an event at u contributes to bin I                            mass over all bins
==========  ============================================================  ==================================
product     sigma(gamma (u - a)(b - u)), outer edges moved to -1 and 2    between 0.56 and 1.44
partition   sigma((u - a) / T) - sigma((u - b) / T)                       one, exactly
==========  ============================================================  ==================================

==========  ============================================================  ==================================
name        a row censored at F = u contributes to bin I                  mass over all bins
==========  ============================================================  ==================================
soft        the paper's softened expected count                           .78 to 1.22 at 20 bins, gamma 1e4
exact       clip(b - max(a, u), 0) / (1 - u): its event is uniform above   one, exactly
==========  ============================================================  ==================================

Both members of the second row of each table are differences of one decreasing function of the edge, the mass above it.
`partition_above` and `exact_above` return that function at the inner edges, (..., n, B - 1); adding rows up before
taking differences saves a third of the work.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

# The published code counts a censored row with F above this as an event. It keeps 1 / (1 - F) finite in the soft term.
SATURATED = 1.0 - 1e-4


def _widened(edges: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper edges with the outermost moved to -1 and 2 (appendix on the boundary bins).

    A value in the last bin can then only leave it downwards, and one in the first bin only upwards.
    """
    lower = torch.cat([edges.new_full((1,), -1.0), edges[1:-1]])
    upper = torch.cat([edges[1:-1], edges.new_full((1,), 2.0)])
    return lower, upper


def product(u: Tensor, edges: Tensor, gamma: float | Tensor, *, derivative: bool = False) -> Tensor:
    """Soft indicator of the paper: sigma(gamma (u - a)(b - u)), with widened outer bins."""
    lower, upper = _widened(edges)
    u = u.unsqueeze(-1)
    inside = torch.sigmoid(gamma * (u - lower) * (upper - u))
    if not derivative:
        return inside
    return inside * (1 - inside) * (gamma * (lower + upper - 2 * u))


def soft_censored(u: Tensor, edges: Tensor, gamma: float, *, derivative: bool = False) -> Tensor:
    """Softened expected count of the paper for a row censored at F = u.

    ((b - u) sigma(gamma (u - a)(b - u)) + (b - a) sigma(gamma (a - u))) / (1 - u). As in the published code the
    factors b - u and b - a keep the true edges and only the two indicators see the widened ones. Rows above
    `SATURATED` are for the caller to treat; here they are held at that value to stay finite.
    """
    lower, upper = _widened(edges)
    width, b = edges.diff(), edges[1:]
    u = u.clamp(max=SATURATED).unsqueeze(-1)
    inside = torch.sigmoid(gamma * (u - lower) * (upper - u))
    below = torch.sigmoid(gamma * (lower - u))
    left = 1 - u
    value = ((b - u) * inside + width * below) / left
    if not derivative:
        return value
    d_inside = inside * (1 - inside) * (gamma * (lower + upper - 2 * u))
    d_below = -gamma * below * (1 - below)
    return ((b - u) * d_inside - inside + width * d_below + value) / left


def partition_above(u: Tensor, edges: Tensor, temperature: float | Tensor, *, derivative: bool = False) -> Tensor:
    """Soft mass above each inner edge e: sigma((u - e) / T). T is in units of F."""
    above = (u.unsqueeze(-1) - edges[1:-1]).mul_(1 / temperature).sigmoid_()
    return sigmoid_slope(above, temperature) if derivative else above


def sigmoid_slope(above: Tensor, temperature: float | Tensor) -> Tensor:
    """Return the derivative of `partition_above` from its value s: s (1 - s) / T."""
    return torch.addcmul(above, above, above, value=-1).mul_(1 / temperature)


def exact_above(u: Tensor, edges: Tensor) -> Tensor:
    """Mass above each inner edge e of a uniform on [u, 1]: min(1, (1 - e) / (1 - u)). The share of `censored`, summed.

    In the last bin every edge lies below u and all the mass above it. Holding u at the last inner edge changes nothing
    there and keeps the quotient finite up to and including u = 1.
    """
    inner = edges[1:-1]
    return ((1 - inner) * one_over_rest(u, inner)).clamp(max=1.0)


def exact_slope(above: Tensor, u: Tensor, edges: Tensor) -> Tensor:
    """Return the derivative of `exact_above` from its value s: s / (1 - u) at edges above u, zero at those below."""
    # threshold(x, -1, 0) is x where x > -1 and 0 elsewhere: one pass, where a mask would take three.
    return F.threshold(-above, -1.0, 0.0) * -one_over_rest(u, edges[1:-1])


def one_over_rest(u: Tensor, inner: Tensor) -> Tensor:
    """One over 1 - F, (..., n, 1), with F held at the last inner edge; `censored.rest` in torch."""
    return (1 - torch.minimum(u, inner[-1])).reciprocal_().unsqueeze(-1)


def bins_from_above(above: Tensor) -> Tensor:
    """Differences of the mass above each inner edge, or of its derivative: (..., B - 1) to (..., B).

    Above the first edge lies everything and above the last one nothing; with what a perfect model has above each inner
    edge, 1 - e, taken off first, both are zero, and so are both derivatives.
    """
    return -F.pad(above, (1, 1)).diff(dim=-1)
