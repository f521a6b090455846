"""The continuous distributions: log-normal, log-logistic, Weibull."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from xcal.distributions.base import SurvivalDistribution, as_level, as_parameters, split_zero

# --- The standard normal in the tails: value and gradient with full relative accuracy at any z.
# ``torch.special.log_ndtr`` differentiates as ``exp(-(log_ndtr(z) + z^2 / 2))``, the exponential of a difference of two
# large numbers: in float32 its gradient at z = -1e4 is 6.5 times too large and at -1e5 it is 0.4 instead of 1e5. Here
# both are written with the scaled complementary error function.

SQRT_2 = math.sqrt(2.0)
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def ndtr(z: Tensor) -> Tensor:
    """Cdf of the standard normal, with relative accuracy in the lower tail."""
    return 0.5 * torch.erfc(-z / SQRT_2)


def _tails(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whether z lies above zero; and z where it does and where it does not, with stand-ins elsewhere."""
    upper = z > 0
    return upper, torch.where(upper, z, 1.0), torch.where(upper, -1.0, z)


def log_sf(z: Tensor) -> Tensor:
    """Log of the upper tail, ``log(1 - Phi(z))``.

    Above zero ``1 - Phi(z) = exp(-z^2 / 2) erfcx(z / sqrt 2) / 2`` and the square leaves the logarithm untouched;
    below, ``log1p`` of the small lower tail.
    """
    upper, high, low = _tails(z)
    above = torch.log(0.5 * torch.special.erfcx(high / SQRT_2)) - 0.5 * high * high
    return torch.where(upper, above, torch.log1p(-ndtr(low)))


def log_cdf(z: Tensor) -> Tensor:
    """Log of the lower tail, ``log Phi(z)``."""
    return log_sf(-z)


def hazard(z: Tensor) -> Tensor:
    """Hazard of the standard normal, ``phi(z) / (1 - Phi(z))``, the inverse of Mills' ratio."""
    upper, high, low = _tails(z)
    # erfcx overflows far below zero, where the survival is 1 and the hazard is the density.
    below = torch.exp(-0.5 * low * low - HALF_LOG_2PI) / ndtr(-low)
    return torch.where(upper, torch.reciprocal(torch.special.erfcx(high / SQRT_2)) * _SQRT_2_OVER_PI, below)


def log_hazard(z: Tensor) -> Tensor:
    """Log of `hazard`, finite where the density underflows."""
    upper, high, low = _tails(z)
    below = -0.5 * low * low - HALF_LOG_2PI - torch.log(ndtr(-low))
    return torch.where(upper, math.log(_SQRT_2_OVER_PI) - torch.log(torch.special.erfcx(high / SQRT_2)), below)


# --- Integrals of F^2 and S^2 for the three families in which log T is a location plus a scale times a standard law.
# With u = (log z - loc) / scale, and G the standard cdf::
#
#     int_0^y F^2 dz   = scale * int_{-inf}^w G(u)^2       exp(loc + scale u) du,      w = (log y - loc) / scale
#     int_y^inf S^2 dz = scale * int_w^inf   (1 - G(u))^2  exp(loc + scale u) du
#
# Both integrands are positive and log-concave, so a fixed Gauss-Legendre rule over the stretch that holds all but 1e-9
# of the integral keeps its *relative* accuracy everywhere, where the closed forms (Owen's T, incomplete gamma and beta
# functions) subtract large numbers and, for the last two, have no gradient in torch. Where G is 1 (or 0) to 1e-10 the
# integrand is a plain exponential and is integrated exactly.
#
# The far end of the stretch is a constant: the integral does not depend on it. The end at w carries the gradient. Nodes
# are spread evenly in asinh(u / 3), dense where G bends and sparse in its tails; 32 of them give 4e-8 or better
# (measured against 30-digit integration: scales 1e-3 .. 10 with w -30 .. 40, and 1e-6 .. 30 with w near 0).

_N_NODES = 32
_BEND = 3.0
_roots, _weights = np.polynomial.legendre.leggauss(_N_NODES)
_NODES: list[float] = ((_roots + 1.0) / 2.0).tolist()
_WEIGHTS: list[float] = (_weights / 2.0).tolist()
# exp(-23) = 1e-10: what may be cut off, relative to the largest value of the integrand.
CUT = 23.0


@dataclass(frozen=True)
class StandardLaw:
    """A standard law of log-time, and where its integrals live."""

    log_cdf: Callable[[Tensor], Tensor]  # log G(u)
    log_sf: Callable[[Tensor], Tensor]  # log(1 - G(u))
    low: float  # below it 1 - G is 1, to about 1e-10
    high: float  # above it G is 1
    # (end, scale) -> length: how far below `end` the left integrand matters.
    reach_below: Callable[[Tensor, Tensor], Tensor]
    # (start, scale) -> (lower, upper): where the right integrand matters, for an integral from `start`.
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


# Above zero the normal log-tail, squared, falls at least as fast as its tangent minus 0.63 x^2.
_CURVATURE = 0.63


def _fall(rate: Tensor) -> Tensor:
    """Distance x at which ``rate x + 0.63 x^2`` reaches the cut."""
    return 2.0 * CUT / (rate + torch.sqrt(rate * rate + 4.0 * _CURVATURE * CUT))


def _lognormal_reach_below(end: Tensor, scale: Tensor) -> Tensor:
    rate = scale + 2.0 * hazard(-torch.clamp(end, max=0.0))
    tangent = CUT / (scale + 2.0 * hazard(-end))
    return torch.minimum(tangent, torch.clamp(end, min=0.0) + _fall(rate))


def _lognormal_window_above(start: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    # The integrand peaks where the hazard is scale / 2; h(u) = (u + sqrt(u^2 + 8 / pi)) / 2 is close enough to find it.
    peak = scale / 2.0 - 4.0 / (math.pi * scale)
    lower = torch.clamp(peak - 7.0, min=_NORMAL_LAW_LOW)
    top = torch.clamp(torch.maximum(torch.maximum(start, lower), peak), min=0.0)
    rate = torch.clamp(2.0 * hazard(top) - scale, min=0.0)
    return lower, top + _fall(rate)


_NORMAL_LAW_LOW = -6.5
_NORMAL_LAW = StandardLaw(
    log_cdf, log_sf, _NORMAL_LAW_LOW, -_NORMAL_LAW_LOW, _lognormal_reach_below, _lognormal_window_above
)


@final
class LogNormal(SurvivalDistribution):
    """``log T`` is normal with mean `loc` and standard deviation ``exp(log_scale)``.

    At time zero: F = 0, S = 1, the density and the hazard are 0 (``log_prob`` is -inf).

    Parameters
    ----------
    loc, log_scale
        Tensors of shape ``(..., n)``.

    Examples
    --------
    >>> dist = LogNormal(torch.tensor([0.0, 1.0]), torch.tensor([0.0, -1.0]))
    >>> dist.median
    tensor([1.0000, 2.7183])
    >>> dist.log_survival(torch.tensor([0.0, 1e6]))
    tensor([   0.0000, -611.2498])
    """

    def __init__(self, loc: Tensor, log_scale: Tensor) -> None:
        self.loc, self.log_scale = as_parameters(("loc", loc), ("log_scale", log_scale))
        self.scale = torch.exp(self.log_scale)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of `loc` and `log_scale`."""
        return self.loc.shape

    def _standardise(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        safe, at_zero = split_zero(time, self.loc)
        log_time = torch.log(safe)
        return log_time, (log_time - self.loc) / self.scale, at_zero

    def log_prob(self, time: Tensor) -> Tensor:
        """``-z^2 / 2 - log_scale - log t - log(2 pi) / 2`` with ``z = (log t - loc) / scale``."""
        log_time, z, at_zero = self._standardise(time)
        value = -0.5 * z * z - self.log_scale - log_time - HALF_LOG_2PI
        return torch.where(at_zero, -math.inf, value)

    def log_survival(self, time: Tensor) -> Tensor:
        """``log(1 - Phi(z))``, accurate at any z."""
        _, z, at_zero = self._standardise(time)
        return torch.where(at_zero, 0.0, log_sf(z))

    def cdf(self, time: Tensor) -> Tensor:
        """``Phi(z)``."""
        _, z, at_zero = self._standardise(time)
        return torch.where(at_zero, 0.0, ndtr(z))

    def hazard(self, time: Tensor) -> Tensor:
        """``phi(z) / (scale t (1 - Phi(z)))``."""
        log_time, z, at_zero = self._standardise(time)
        # One exponential of the sum: each factor alone may underflow or overflow.
        return torch.where(at_zero, 0.0, torch.exp(log_hazard(z) - self.log_scale - log_time))

    def log_hazard(self, time: Tensor) -> Tensor:
        """``log(phi(z) / (1 - Phi(z))) - log_scale - log t``."""
        log_time, z, at_zero = self._standardise(time)
        return torch.where(at_zero, -math.inf, log_hazard(z) - self.log_scale - log_time)

    def quantile(self, p: float | Tensor) -> Tensor:
        """``exp(loc + scale Phi^-1(p))``."""
        return torch.exp(self.loc + self.scale * torch.special.ndtri(as_level(p, self.loc)))

    def quantile_left(self, log_left: Tensor) -> Tensor:
        """``exp(loc + scale Phi^-1)``, from the smaller of the two tails."""
        z = torch.where(
            log_left > -math.log(2.0),
            torch.special.ndtri(-torch.expm1(log_left)),
            -torch.special.ndtri(torch.exp(log_left)),
        )
        return torch.exp(self.loc + self.scale * z)

    @property
    def mean(self) -> Tensor:
        """``exp(loc + scale^2 / 2)``, the whole mean."""
        return torch.exp(self.loc + 0.5 * self.scale * self.scale)

    @property
    def mode(self) -> Tensor:
        """Time of the highest density."""
        return torch.exp(self.loc - self.scale * self.scale)

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw ``exp(loc + scale * noise)``, shape ``shape + batch_shape``."""
        size = torch.Size(shape) + self.batch_shape
        noise = torch.randn(size, generator=generator, dtype=self.loc.dtype, device=self.loc.device)
        return torch.exp(self.loc + self.scale * noise)

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of F^2 from 0 to `time`, by quadrature (its closed form needs Owen's T and cancels)."""
        _, z, _ = self._standardise(time)
        return squared_cdf_below(_NORMAL_LAW, torch.clamp(time, min=0), z, self.scale)

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` to infinity, by quadrature."""
        _, z, at_zero = self._standardise(time)
        return squared_sf_above(_NORMAL_LAW, at_zero, z, self.loc, self.scale, needed)


# --- The log-logistic and the Weibull distribution: a scale, and a concentration on the scale of log-time.


class _ScaleAndConcentration(SurvivalDistribution):
    """``concentration * log(T / scale)`` has a standard law, `_law`."""

    _law: ClassVar[StandardLaw]

    def __init__(self, scale: Tensor, concentration: Tensor) -> None:
        self.scale, self.concentration = as_parameters(("scale", scale), ("concentration", concentration))
        self._log_scale = torch.log(self.scale)

    @staticmethod
    @abstractmethod
    def _log_standard_hazard(u: Tensor) -> Tensor:
        """Log-hazard of the standard law."""

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of `scale` and `concentration`."""
        return self.scale.shape

    def _standardise(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-time, where it lies under the standard law, and the rows at zero."""
        safe, at_zero = split_zero(time, self.scale)
        log_time = torch.log(safe)
        return log_time, self.concentration * (log_time - self._log_scale), at_zero

    def log_hazard(self, time: Tensor) -> Tensor:
        """Log-hazard of the standard law, on the scale of `time`."""
        log_time, u, at_zero = self._standardise(time)
        k = self.concentration
        limit = torch.where(k > 1, -math.inf, torch.where(k < 1, math.inf, -self._log_scale))
        return torch.where(at_zero, limit, torch.log(k) + self._log_standard_hazard(u) - log_time)

    def log_prob(self, time: Tensor) -> Tensor:
        """Log-hazard plus log-survival."""
        return self.log_hazard(time) + self.log_survival(time)

    def hazard(self, time: Tensor) -> Tensor:
        """Exponential of the log-hazard: ``concentration / t`` times the hazard of the standard law."""
        return torch.exp(self.log_hazard(time))

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of F^2 from 0 to `time`, by quadrature."""
        _, u, _ = self._standardise(time)
        return squared_cdf_below(self._law, torch.clamp(time, min=0), u, 1.0 / self.concentration)


def _logistic_reach_below(end: Tensor, scale: Tensor) -> Tensor:
    rate = scale + 2.0 * torch.sigmoid(-end)
    return torch.minimum(CUT / rate, torch.clamp(end, min=0.0) + CUT / (2.0 + scale))


def _logistic_window_above(start: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    # Both tails are plain exponentials: below -23 S is 1 and above 23 it is exp(-u), each integrated exactly.
    bound = torch.full_like(start + scale, CUT)
    return -bound, bound


@final
class LogLogistic(_ScaleAndConcentration):
    """``S(t) = 1 / (1 + (t / scale)^concentration)``.

    At time zero: F = 0 and S = 1. The density there is 0 for a concentration above 1 (``log_prob`` is -inf),
    1 / scale for a concentration of 1, and infinite below (``log_prob`` is +inf); the hazard likewise.

    The tails are heavy: the mean is infinite for a concentration of 1 or less, and the survival CRPS of an event is
    infinite for a concentration of 1/2 or less, because S^2 then falls no faster than 1 / t. Both are returned as
    inf; the survival CRPS of a censored row is finite for every concentration.

    Parameters
    ----------
    scale, concentration
        Positive tensors of shape ``(..., n)``. The scale is the median.

    Examples
    --------
    >>> dist = LogLogistic(torch.tensor([3.0, 3.0]), torch.tensor([2.0, 1.0]))
    >>> dist.survival(torch.tensor([3.0, 3.0]))
    tensor([0.5000, 0.5000])
    >>> dist.mean
    tensor([4.7124,    inf])
    """

    _law = StandardLaw(logsigmoid, lambda u: logsigmoid(-u), -CUT, CUT, _logistic_reach_below, _logistic_window_above)

    @staticmethod
    def _log_standard_hazard(u: Tensor) -> Tensor:
        return logsigmoid(u)

    def log_survival(self, time: Tensor) -> Tensor:
        """``-log(1 + (t / scale)^concentration)``, by log-sigmoid."""
        _, u, at_zero = self._standardise(time)
        return torch.where(at_zero, 0.0, logsigmoid(-u))

    def cdf(self, time: Tensor) -> Tensor:
        """Sigmoid of ``concentration log(t / scale)``."""
        _, u, at_zero = self._standardise(time)
        return torch.where(at_zero, 0.0, torch.sigmoid(u))

    def quantile(self, p: float | Tensor) -> Tensor:
        """``scale (p / (1 - p))^(1 / concentration)``."""
        return self.scale * torch.exp(torch.logit(as_level(p, self.scale)) / self.concentration)

    def quantile_left(self, log_left: Tensor) -> Tensor:
        """``scale (1 / S - 1)^(1 / concentration)``."""
        return self.scale * torch.exp((torch.log(-torch.expm1(log_left)) - log_left) / self.concentration)

    @property
    def mean(self) -> Tensor:
        """``scale (pi / k) / sin(pi / k)`` for a concentration k above 1, else infinite."""
        finite = self.concentration > 1
        inverse = 1.0 / torch.where(finite, self.concentration, 2.0)
        # sinc(x) = sin(pi x) / (pi x)
        return torch.where(finite, self.scale / torch.sinc(inverse), math.inf)

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw times of shape ``shape + batch_shape``."""
        # The ratio of two unit exponentials is log-logistic, and never hits the end points 0 and infinity.
        size = (2, *shape, *self.batch_shape)
        empty = torch.empty(size, dtype=self.scale.dtype, device=self.scale.device)
        top, bottom = empty.exponential_(generator=generator)
        return self.scale * torch.pow(top / bottom, 1.0 / self.concentration)

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` to infinity, by quadrature; infinite for a concentration of 1/2 or less."""
        _, u, at_zero = self._standardise(time)
        spread, log_scale = 1.0 / self.concentration, self._log_scale
        if needed is not None:
            spread, log_scale = torch.where(needed, spread, 1.0), torch.where(needed, log_scale, 0.0)
        finite = spread < 2
        spread = torch.where(finite, spread, 1.0)
        decay = 2.0 - spread
        # Above CUT the integrand is spread * exp(loc + (spread - 2) u), to 2 exp(-CUT).
        start = torch.clamp(torch.where(at_zero, -CUT, u), min=CUT)
        tail = spread / decay * torch.exp(log_scale - decay * start)
        middle = squared_sf_above(self._law, at_zero, u, log_scale, spread)
        return torch.where(finite, middle + tail, math.inf)


# exp(-exp(7)) is zero in float64: S is zero there, later starts add nothing to an integral of S^2, and exp(u) itself
# would soon overflow.
_LATEST = 7.0
# Below it 1 - exp(-x) = x (1 - x / 2) to all digits of float64.
_SMALL = -15.0


def _log_cdf(u: Tensor) -> Tensor:
    """``log(1 - exp(-exp(u)))``; for small u from the series, because exp(u) underflows long before u does."""
    x = torch.exp(u)
    small = u < _SMALL
    return torch.where(small, u - 0.5 * x, torch.log(-torch.expm1(-torch.where(small, 1.0, x))))


def _gumbel_reach_below(end: Tensor, scale: Tensor) -> Tensor:
    x = torch.exp(end)
    rate = scale + torch.where(end < _SMALL, 2.0, 2.0 * x / torch.expm1(x))
    return torch.minimum(CUT / rate, torch.clamp(end, min=0.0) + CUT / (2.0 + scale))


def _gumbel_window_above(start: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    # The integrand exp(scale u - 2 exp(u)) peaks at log(scale / 2). Left of the peak it falls at least like
    # exp(scale s) once s < -1; right of m = max(start, peak), with X = 2 exp(m), the bound exp(s) - 1 - s >= CUT / X
    # holds from s = log1p(x + sqrt(2 x)), x = CUT / X, on.
    peak = torch.log(scale / 2.0)
    lower = torch.clamp(peak - CUT / scale - 1.0, min=_GUMBEL_LAW_LOW)
    m = torch.maximum(torch.maximum(start, lower), peak)
    x = CUT / (2.0 * torch.exp(m))
    return lower, m + torch.log1p(x + torch.sqrt(2.0 * x))


_GUMBEL_LAW_LOW = -24.0


@final
class Weibull(_ScaleAndConcentration):
    """``S(t) = exp(-(t / scale)^concentration)``.

    At time zero: F = 0 and S = 1. The density there is 0 for a concentration above 1 (``log_prob`` is -inf),
    1 / scale for a concentration of 1, and infinite below (``log_prob`` is +inf); the hazard likewise.

    Parameters
    ----------
    scale, concentration
        Positive tensors of shape ``(..., n)``.

    Examples
    --------
    >>> dist = Weibull(torch.tensor([2.0]), torch.tensor([1.5]))
    >>> dist.log_survival(torch.tensor([2.0]))
    tensor([-1.])
    >>> dist.cdf(dist.median)
    tensor([0.5000])
    """

    _law = StandardLaw(
        _log_cdf, lambda u: -torch.exp(u), _GUMBEL_LAW_LOW, 3.3, _gumbel_reach_below, _gumbel_window_above
    )

    @staticmethod
    def _log_standard_hazard(u: Tensor) -> Tensor:
        return u

    def _standardise(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-time, the log of the cumulative hazard ``(t / scale)^concentration``, and the rows at zero.

        Rows at zero hold 0: the hazard at the time 1 that stands in for theirs can overflow, with a NaN gradient.
        """
        log_time, u, at_zero = super()._standardise(time)
        return log_time, torch.where(at_zero, 0.0, u), at_zero

    def log_survival(self, time: Tensor) -> Tensor:
        """``-(t / scale)^concentration``; -inf, without a gradient, where that overflows."""
        _, u, at_zero = self._standardise(time)
        # Zero times an infinite slope would be NaN for a row whose log-survival nobody asked for.
        largest = math.log(torch.finfo(u.dtype).max)
        finite = torch.where(at_zero, 0.0, -torch.exp(torch.clamp(u, max=largest)))
        return torch.where(u > largest, -math.inf, finite)

    def _bounded_log_survival(self, time: Tensor) -> Tensor:
        """``log_survival``, held where S is zero to the last digit: an infinite one has a NaN gradient behind exp."""
        _, u, at_zero = self._standardise(time)
        return torch.where(at_zero, 0.0, -torch.exp(torch.clamp(u, max=_LATEST)))

    def survival(self, time: Tensor) -> Tensor:
        """``exp(log_survival)``."""
        return torch.exp(self._bounded_log_survival(time))

    def cdf(self, time: Tensor) -> Tensor:
        """``-expm1(log_survival)``."""
        return -torch.expm1(self._bounded_log_survival(time))

    def quantile(self, p: float | Tensor) -> Tensor:
        """``scale (-log(1 - p))^(1 / concentration)``."""
        exponential = -torch.log1p(-as_level(p, self.scale))
        return self.scale * exponential ** (1.0 / self.concentration)

    def quantile_left(self, log_left: Tensor) -> Tensor:
        """``scale (-log S)^(1 / concentration)``."""
        return self.scale * (-log_left) ** (1.0 / self.concentration)

    @property
    def mean(self) -> Tensor:
        """``scale Gamma(1 + 1 / concentration)``, the whole mean."""
        return self.scale * torch.exp(torch.lgamma(1.0 + 1.0 / self.concentration))

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw times of shape ``shape + batch_shape``."""
        # A unit exponential to the power 1 / k; unlike a uniform it never hits the end points 0 and infinity.
        empty = torch.empty(torch.Size(shape) + self.batch_shape, dtype=self.scale.dtype, device=self.scale.device)
        return self.scale * empty.exponential_(generator=generator) ** (1.0 / self.concentration)

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` to infinity, by quadrature."""
        _, u, at_zero = self._standardise(time)
        start = torch.clamp(u, max=_LATEST)
        return squared_sf_above(self._law, at_zero, start, self._log_scale, 1.0 / self.concentration, needed)
