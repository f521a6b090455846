"""Integrals of F^2 and S^2 for the three families in which log T is a location plus a scale times a standard law.

With u = (log z - loc) / scale, and G the standard cdf::

    int_0^y F^2 dz   = scale * int_{-inf}^w G(u)^2       exp(loc + scale u) du,      w = (log y - loc) / scale
    int_y^inf S^2 dz = scale * int_w^inf   (1 - G(u))^2  exp(loc + scale u) du

Both integrands are positive and log-concave, so a fixed Gauss-Legendre rule over the stretch that holds all but 1e-9 of
the integral keeps its *relative* accuracy everywhere, where the closed forms (Owen's T, incomplete gamma and beta
functions) subtract large numbers and, for the last two, have no gradient in torch. Where G is 1 (or 0) to 1e-10 the
integrand is a plain exponential and is integrated exactly.

The far end of the stretch is a constant: the integral does not depend on it. The end at w carries the gradient. Nodes
are spread evenly in asinh(u / 3), dense where G bends and sparse in its tails; 32 of them give 4e-8 or better (measured
against 30-digit integration: scales 1e-3 .. 10 with w -30 .. 40, and 1e-6 .. 30 with w near 0).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_N_NODES = 32
_BEND = 3.0
_roots, _weights = np.polynomial.legendre.leggauss(_N_NODES)
_NODES: list[float] = ((_roots + 1.0) / 2.0).tolist()
_WEIGHTS: list[float] = (_weights / 2.0).tolist()

# exp(-23) = 1e-10: what may be cut off, relative to the largest value of the integrand.
CUT = 23.0


@dataclass(frozen=True)
class StandardLaw:
    """A standard law of log-time, and where its integrals live.

    Parameters
    ----------
    log_cdf, log_sf
        ``log G(u)`` and ``log(1 - G(u))``.
    low, high
        Below `low` ``1 - G`` is 1, above `high` ``G`` is 1, to about 1e-10.
    reach_below
        ``(end, scale) -> length``: how far below `end` the left integrand matters.
    window_above
        ``(start, scale) -> (lower, upper)``: where the right integrand matters, for an integral from `start`.
    """

    log_cdf: Callable[[Tensor], Tensor]
    log_sf: Callable[[Tensor], Tensor]
    low: float
    high: float
    reach_below: Callable[[Tensor, Tensor], Tensor]
    window_above: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


_RULES: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}


def _rule(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and weights where they are needed, kept there: a copy from the host would stop a GPU at every step."""
    if torch.compiler.is_compiling():
        return torch.tensor(_NODES, dtype=dtype, device=device), torch.tensor(_WEIGHTS, dtype=dtype, device=device)
    if (dtype, device) not in _RULES:
        # Ordinary tensors, whatever mode the first call is made in: they are used in all of them.
        with torch.inference_mode(False):
            kept = (torch.tensor(values, dtype=dtype, device=device) for values in (_NODES, _WEIGHTS))
            _RULES[dtype, device] = (next(kept), next(kept))
    return _RULES[dtype, device]


def _integrate(start: Tensor, stop: Tensor, log_integrand: Callable[[Tensor], Tensor]) -> Tensor:
    """Integrate from `start`, which carries gradient, to `stop`, which does not; reversed ends change the sign."""
    nodes, weights = _rule(start.dtype, start.device)
    v_start = torch.asinh(start / _BEND)
    length = torch.asinh(stop / _BEND) - v_start
    v = v_start.unsqueeze(-1) + length.unsqueeze(-1) * nodes
    # A product and a sum instead of a matrix product, which autocast would take down to bfloat16.
    terms = weights * _BEND * torch.cosh(v) * torch.exp(log_integrand(_BEND * torch.sinh(v)))
    return length * terms.sum(dim=-1)


def squared_cdf_below(law: StandardLaw, time: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    """Integrate F^2 from 0 to `time`; `w` is the standardised log-time, any finite value where `time` is zero."""
    end = torch.clamp(w, max=law.high)
    with torch.no_grad():
        stop = end - law.reach_below(end, scale)
    w_, scale_ = w.unsqueeze(-1), scale.unsqueeze(-1)
    # exp(scale (u - w)) <= 1: in units of `time` nothing can overflow.
    bent = -scale * _integrate(end, stop, lambda u: 2.0 * law.log_cdf(u) + scale_ * (u - w_))
    saturated = -torch.expm1(-scale * (w - end))
    return time * (saturated + bent)


def squared_sf_above(
    law: StandardLaw, at_zero: Tensor, w: Tensor, loc: Tensor, scale: Tensor, needed: Tensor | None = None
) -> Tensor:
    """Integrate S^2 from a time to infinity; `at_zero` marks rows whose time is zero and whose `w` is a stand-in.

    Rows that are not `needed` get standard parameters: in float32 a scale of 19 already overflows.
    """
    if needed is not None:
        loc, scale = torch.where(needed, loc, 0.0), torch.where(needed, scale, 1.0)
    w = torch.where(at_zero, law.low - 1.0, w)
    with torch.no_grad():
        lower, upper = law.window_above(w, scale)
    start = torch.maximum(w, lower)
    loc_, scale_ = loc.unsqueeze(-1), scale.unsqueeze(-1)
    bent = scale * _integrate(start, torch.maximum(start, upper), lambda u: 2.0 * law.log_sf(u) + (loc_ + scale_ * u))
    # From `time` to the point where S starts to fall S^2 is 1: the length of that stretch.
    share = -torch.expm1(-scale * torch.clamp(law.low - w, min=0.0))
    flat = torch.exp(loc + scale * law.low) * torch.where(at_zero, 1.0, share)
    return flat + bent
