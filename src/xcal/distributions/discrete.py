"""The distributions over time bins: categorical, MTLR, logistic hazards."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid

from xcal._checks import as_choice, as_numpy, fail
from xcal.distributions._bins import READINGS, Bins, Grid, LikelihoodByFormula, Rows, as_edges, likelihood_and_cdf
from xcal.distributions.base import Family, SurvivalDistribution, as_level, as_parameter, bin_logits


class DiscreteDistribution(SurvivalDistribution):
    """Masses on K bins between K + 1 edges; its leaves say how the masses come about.

    Bin k is ``(e_k, e_{k+1}]``; the first bin also holds all times at or before ``e_0``, the last all after ``e_K``.

    ============================ ============================== ==================================
    at time t in bin k           ``interpolation="step"``       ``interpolation="linear"``
    ============================ ============================== ==================================
    F(t)                         p_0 + ... + p_k                p_0 + ... + p_{k-1} + r p_k,
                                                                r = (t - e_k) / (e_{k+1} - e_k)
    F before e_0                 p_0, and 0 at time zero        0
    F after e_K                  1                              1
    hazard                       p_k / (p_k + p_{k+1} + ...)    density / S
    quantile, sample             end of the bin                 inside the bin
    mean                         sum of p_k e_{k+1}             sum of p_k (e_k + e_{k+1}) / 2
    ============================ ============================== ==================================

    ``log_prob`` is the log-mass of the bin, ``log_density`` the log of mass over bin width, in both readings and also
    for times outside the edges.
    """

    def __init__(self, logits: Tensor, edges: Any, interpolation: str) -> None:
        as_choice("interpolation", interpolation, READINGS)
        # A tensor is trusted: looking at its values would stop a GPU and cannot be compiled.
        known = edges.edges if isinstance(edges, Grid) else edges if isinstance(edges, Tensor) else as_edges(edges)
        if known.ndim != 1 or known.shape[0] != logits.shape[-1] + 1:
            fail("edges", f"{logits.shape[-1] + 1} edges around {logits.shape[-1]} bins", tuple(known.shape))
        self._grid = (edges if isinstance(edges, Grid) else Grid(known)).like(logits)
        self.edges = self._grid.edges
        self.interpolation = interpolation
        self._reading = READINGS[interpolation]
        self._logits = logits
        self._normalised: Bins | None = None

    @property
    def bins(self) -> Bins:
        """The bins with their log-masses, normalised when first asked for."""
        if self._normalised is None:
            self._normalised = Bins(log_softmax(self._logits, dim=-1), self._grid)
        return self._normalised

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the parameters without the bins."""
        return self._logits.shape[:-1]

    @property
    def log_mass(self) -> Tensor:
        """Log-probability of each bin, ``(..., n, K)``."""
        return self.bins.log_mass

    def log_prob(self, time: Tensor) -> Tensor:
        """Log-mass of the bin that holds `time`."""
        return _keep_nan(time, self.bins.take(self.log_mass, self.bins.index(time)))

    def log_density(self, time: Tensor) -> Tensor:
        """Log of mass over width of the bin that holds `time`; comparable with a continuous distribution."""
        return self.log_prob(time) - torch.log(self.bins.width)[self.bins.index(time)]

    def log_survival(self, time: Tensor) -> Tensor:
        """Log-sum-exp of the masses after `time`; -inf where none is left (step: the last bin, linear: after e_K)."""
        return _keep_nan(time, self._reading.log_survival(self.bins, time))

    def survival(self, time: Tensor) -> Tensor:
        """Mass after `time`; cheaper than the logarithm for many times per row."""
        return _keep_nan(time, self._reading.survival(self.bins, time))

    def log_censored(self, time: Tensor) -> Tensor:
        """Contribution of a censored row: ``log S(time)``, or the log-mass of the last bin where S is 0.

        A row censored so late that the grid leaves no mass after it has at least outlived every earlier bin. That,
        ``P(T > e_{K-1})``, is the most that the bins can tell, and it is finite. In the last bin it has the same
        gradient as ``log S`` of the linear reading.
        """
        log_survival = self._reading.log_survival(self.bins, time)
        return _keep_nan(time, torch.where(self.exhausted(time), self.log_mass[..., -1], log_survival))

    def share_after_entry(self, time: Tensor, entry: Tensor) -> Tensor:
        """Share of the bin that holds `time` which lies after `entry`; read in steps 0 if they share a bin."""
        later = self._reading.share_after(self._grid, entry)
        index = self._grid.index(time)
        return later.expand(*index.shape, later.shape[-1]).gather(-1, index.unsqueeze(-1)).squeeze(-1)

    def log_between(self, start: Tensor, stop: Tensor) -> Tensor:
        """Log-sum-exp of the masses between; the log-mass of the bin of `stop` where the reading has none between."""
        grid = self._grid
        inside = self._reading.share_after(grid, start) - self._reading.share_after(grid, stop)
        own, none = grid.index(stop), (inside <= 0).all(-1)
        logits = torch.broadcast_tensors(self._logits, inside)[0]
        return likelihood_and_cdf(*Rows(logits, inside, own, none))[0]

    def log_likelihood_and_cdf(self, time: Tensor, event: Tensor, *, floor: float = 0.0) -> tuple[Tensor, Tensor]:
        """Both from one array of masses, with one gradient (see `_bins`)."""
        return likelihood_and_cdf(*self._rows(time, event, floor))

    def likelihood_by_formula(self, time: Tensor, event: Tensor, *, floor: float = 0.0) -> LikelihoodByFormula | None:
        """Return both without a graph, and their gradient by formula; not for a subclass with its own likelihood."""
        if type(self).log_likelihood_and_cdf is not DiscreteDistribution.log_likelihood_and_cdf:
            return None
        return LikelihoodByFormula(self._rows(time, event, floor))

    def _rows(self, time: Tensor, event: Tensor, floor: float) -> Rows:
        grid = self._grid
        own, after = grid.index(time), self._reading.share_after(grid, time)
        # As in `log_censored`: a row that has outlived the grid tells that it reached the last bin.
        pointed = event if floor else event | self._reading.exhausted(grid, time)
        return Rows(self._logits, after, own, pointed, floor)

    @property
    def read_in_steps(self) -> bool:
        """Whether the interpolation is "step"."""
        return self.interpolation == "step"

    def exhausted(self, time: Tensor) -> Tensor:
        """Step: every time in the last bin. Linear: every time from the last edge on."""
        return self._reading.exhausted(self._grid, time)

    def cdf(self, time: Tensor) -> Tensor:
        """Mass up to `time`, as the reading counts the bin that holds it."""
        return _keep_nan(time, self._reading.cdf(self.bins, time))

    def hazard(self, time: Tensor) -> Tensor:
        """Step: probability of the bin for those who reach it. Linear: density over survival."""
        return _keep_nan(time, self._reading.hazard(self.bins, time))

    def quantile(self, p: float | Tensor) -> Tensor:
        """Step: end of the first bin with F >= p. Linear: the time at which F is p."""
        return self._reading.quantile(self.bins, as_level(p, self.log_mass))

    def quantile_left(self, log_left: Tensor) -> Tensor:
        """Step: end of the first bin with S at most this. Linear: the time at which S is this."""
        return self._reading.quantile_left(self.bins, torch.exp(log_left))

    def breaks(self) -> Tensor:
        """Return the edges."""
        edges = self.edges.view(-1, *[1] * len(self.batch_shape))
        return edges.expand(-1, *self.batch_shape)

    @property
    def mean(self) -> Tensor:
        """Mean of the times that `sample` draws; no mass lies after the last edge."""
        return self._reading.mean(self.bins)

    @property
    def midpoint_mean(self) -> Tensor:
        """Sum of mass times the middle of the bin, whatever the reading."""
        return self.bins.midpoint_mean

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw by inversion, shape ``shape + batch_shape``; `log_prob` of a draw is that of the bin drawn."""
        size = torch.Size(shape) + self.batch_shape
        uniform = torch.rand(size, generator=generator, dtype=self.edges.dtype, device=self.edges.device)
        return self.quantile(1.0 - uniform)

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of F^2 from 0 to `time`, exactly."""
        return _keep_nan(time, self._reading.squared_cdf_below(self.bins, time))

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` to infinity, exactly; finite for every row, so `needed` changes nothing."""
        return _keep_nan(time, self._reading.squared_survival_above(self.bins, time))


def as_logits(name: str, value: Tensor) -> Tensor:
    """Check a parameter with a last dimension of bins."""
    value = as_parameter(name, value)
    if value.ndim == 0 or value.shape[-1] == 0:
        fail(name, "shape (..., n, bins) with at least one bin", tuple(value.shape))
    return value


def _keep_nan(time: Tensor, value: Tensor) -> Tensor:
    """Make the value of a NaN time NaN; it has fallen into some bin."""
    return torch.where(torch.isnan(time), torch.nan, value)


@final
class Categorical(DiscreteDistribution):
    """Bin masses ``softmax(logits)``.

    Parameters
    ----------
    logits
        Shape ``(..., n, K)``.
    edges
        K + 1 increasing edges. Anything but a tensor is checked; a tensor is taken as it is (make it with `as_edges`
        or `quantile_edges`).
    interpolation
        ``"step"`` (the paper's NI) or ``"linear"`` (its I); see `DiscreteDistribution`.

    Examples
    --------
    >>> import torch
    >>> logits = torch.zeros(1, 4)
    >>> time = torch.tensor([1.5])
    >>> Categorical(logits, [0.0, 1.0, 2.0, 4.0, 8.0], interpolation="step").cdf(time)
    tensor([0.5000])
    >>> Categorical(logits, [0.0, 1.0, 2.0, 4.0, 8.0], interpolation="linear").cdf(time)
    tensor([0.3750])
    """

    def __init__(self, logits: Tensor, edges: Any, interpolation: str = "linear") -> None:
        self.logits = as_logits("logits", logits)
        super().__init__(self.logits, edges, interpolation)


@final
class MTLR(DiscreteDistribution):
    """Bin masses from K - 1 scores (x-cal, appendix on models; Yu et al. 2011).

    The unnormalised log-mass of bin k < K is the sum of scores k, ..., K - 1, and that of bin K is 0: a reversed
    cumulative sum, then a softmax against a final 0.

    Parameters
    ----------
    scores
        Shape ``(..., n, K - 1)``.
    edges
        K + 1 increasing edges. Anything but a tensor is checked; a tensor is taken as it is (make it with `as_edges`
        or `quantile_edges`).
    interpolation
        ``"step"`` (the paper's NI) or ``"linear"`` (its I); see `DiscreteDistribution`.

    Examples
    --------
    >>> dist = MTLR(torch.tensor([[0.0, 1.0]]), [0.0, 1.0, 2.0, 3.0])
    >>> dist.log_mass.exp()
    tensor([[0.4223, 0.4223, 0.1554]])
    """

    def __init__(self, scores: Tensor, edges: Any, interpolation: str = "linear") -> None:
        self.scores = as_logits("scores", scores)
        sums = torch.cumsum(self.scores.flip(-1), dim=-1).flip(-1)
        logits = torch.cat([sums, torch.zeros_like(sums[..., :1])], dim=-1)
        super().__init__(logits, edges, interpolation)


@final
class LogisticHazard(DiscreteDistribution):
    """Bin masses from K - 1 conditional probabilities: one for each bin but the last, of an event in it if reached.

    With ``h_k = sigmoid(logits_k)``, bin k has the mass ``h_k (1 - h_1) ... (1 - h_{k-1})`` and the last bin what is
    left. Known as logistic hazard, nnet-survival or discrete-time survival (Brown 1975; Gensheimer and Narasimhan 2019;
    Kvamme and Borgan 2021).

    Parameters
    ----------
    logits
        Shape ``(..., n, K - 1)``.
    edges
        K + 1 increasing edges. Anything but a tensor is checked; a tensor is taken as it is (make it with `as_edges`
        or `quantile_edges`).
    interpolation
        ``"step"`` or ``"linear"``; see `DiscreteDistribution`.

    Examples
    --------
    >>> LogisticHazard(torch.zeros(1, 2), [0.0, 1.0, 2.0, 3.0]).log_mass.exp()
    tensor([[0.5000, 0.2500, 0.2500]])
    """

    def __init__(self, logits: Tensor, edges: Any, interpolation: str = "linear") -> None:
        self.hazard_logits = as_logits("logits", logits)
        # log(1 - h), summed over the bins passed: nothing before the first.
        passed = torch.cumsum(logsigmoid(-self.hazard_logits), dim=-1)
        start = torch.zeros_like(passed[..., :1])
        reached = torch.cat([start, passed], dim=-1)
        happened = torch.cat([logsigmoid(self.hazard_logits), start], dim=-1)
        super().__init__(reached + happened, edges, interpolation)


@dataclass(frozen=True, eq=False)
class DiscreteFamily(Family):
    """Base of the families on a grid of time edges: what they share is the edges, and how they are read."""

    edges: Tensor
    interpolation: str = "linear"
    by_hazards: ClassVar[bool] = False  # whether raw outputs are hazards of bins

    @property
    def n_outputs(self) -> int:
        """Number of bins, less one."""
        return self.edges.shape[0] - 2

    def __post_init__(self) -> None:
        as_choice("interpolation", self.interpolation, READINGS)
        self._hold(as_edges(self.edges))
        if self.n_outputs < 1:
            fail("edges", "three or more edges: the family needs two bins", f"{self.edges.shape[0]}")

    def _hold(self, edges: Tensor) -> None:
        """Keep checked edges, and their grids in the types that networks have: every step of training needs one."""
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "_grids", {kind: Grid(edges.to(kind)) for kind in (torch.float32, torch.float64)})

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the grids, which follow from the edges."""
        return {"edges": self.edges, "interpolation": self.interpolation}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the settings, and make the grids again."""
        object.__setattr__(self, "interpolation", state["interpolation"])
        self._hold(state["edges"])

    def grid(self, raw: Tensor) -> Grid:
        """Return the grid for a distribution of raw outputs."""
        grids: dict[torch.dtype, Grid] = self.__dict__["_grids"]
        return grids.get(raw.dtype) or Grid(self.edges)

    def log_shares(self, time: Any, event: Any, entry: Any = None, lower: Any = None) -> npt.NDArray[np.float64]:
        """Log of the Kaplan-Meier share of each bin."""
        return bin_logits(time, event, entry, lower, as_numpy("edges", self.edges))

    def to(self, device: torch.device | str) -> Self:
        """Put the edges on a device."""
        moved = type(self).__new__(type(self))
        # They were checked before; reading them again would wait for a GPU.
        moved.__setstate__({"edges": self.edges.to(device), "interpolation": self.interpolation})
        return moved

    def scaled(self, raw: Tensor, factor: float) -> SurvivalDistribution:
        """Return the distribution of `factor` times the time: the same masses between other edges."""
        return replace(self, edges=self.edges * factor).distribution(raw)
