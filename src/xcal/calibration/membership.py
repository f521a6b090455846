"""How much of a row lies in each bin, softly and exactly, in torch; and which soft D-calibration is meant."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from xcal._checks import as_choice, as_count, as_flag, as_number, fail
from xcal.calibration.histogram import mass_of_bins

# Every function takes `u`, the model's F at each row's observed time with shape (..., n), and returns one number per
# row and bin, (..., n, B), or with ``derivative=True`` its derivative in u. A bin is I = [a, b), sigma the logistic
# function.
#
# name        an event at u contributes to bin I                            mass over all bins
# product     sigma(gamma (u - a)(b - u)), outer edges moved to -1 and 2    between 0.56 and 1.44
# partition   sigma((u - a) / T) - sigma((u - b) / T)                       one, exactly
#
# name        a row censored at F = u contributes to bin I                  mass over all bins
# soft        the paper's softened expected count                           .78 to 1.22 at 20 bins, gamma 1e4
# exact       clip(b - max(a, u), 0) / (1 - u): its event is uniform above  one, exactly
#
# The second rows of both tables are differences of one decreasing function of the edge, the mass above it.
# `partition_above` and `exact_above` return that function at the inner edges, (..., n, B - 1); adding rows up before
# taking differences saves a third of the work.

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
    """Mass above each inner edge e of a uniform on [u, 1]: min(1, (1 - e) / (1 - u)). The share of `histogram`, summed.

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
    """One over 1 - F, (..., n, 1), with F held at the last inner edge; `histogram.rest` in torch."""
    return (1 - torch.minimum(u, inner[-1])).reciprocal_().unsqueeze(-1)


def bins_from_above(above: Tensor) -> Tensor:
    """Differences of the mass above each inner edge, or of its derivative: (..., B - 1) to (..., B).

    Above the first edge lies everything and above the last one nothing; with what a perfect model has above each inner
    edge, 1 - e, taken off first, both are zero, and so are both derivatives.
    """
    return -F.pad(above, (1, 1)).diff(dim=-1)


# --- Exact calibration in torch, for many models at once and on their device, from sums that can be added up over rows:
# the uniform estimator of `histogram`, and the value of `conditional`.


def bin_sums(cdf: Tensor, event: Tensor, edges: Tensor, weights: Tensor | None = None) -> Tensor:
    """Events, censored rows and their 1 / (1 - F), summed by bin: (K, 3, B) in float64 from F values (K, n).

    The sums of `histogram.BinSums`, and its rules for edges: a value on an edge belongs to the bin on its right, and
    edges are read in the type of the F values.
    """
    edge = edges.to(cdf.dtype)
    bins = torch.bucketize(cdf.contiguous(), edge[1:-1].contiguous(), right=True)
    weight = cdf.new_ones(cdf.shape[-1], dtype=torch.float64) if weights is None else weights
    happened, censored = torch.where(event, weight, 0.0), torch.where(event, 0.0, weight)
    # As in `histogram.rest`: F held at the left edge of the last bin keeps the inverse finite.
    inverse = censored / (1 - torch.minimum(cdf.double(), edge[-2].double()))
    sources = torch.stack([happened.expand(cdf.shape), censored.expand(cdf.shape), inverse], dim=1)
    sums = sources.new_zeros(cdf.shape[0], 3, edges.shape[0] - 1)
    return sums.scatter_add_(2, bins.unsqueeze(1).expand(sources.shape), sources)


def uniform_histogram(sums: Tensor, edges: Tensor) -> Tensor:
    """Mass of each bin, (K, B): a censored row spreads evenly over [F, 1], the estimator of Haider et al."""
    happened, censored, inverse = sums.unbind(1)
    earlier = inverse.cumsum(-1) - inverse
    return mass_of_bins(happened, censored, inverse, earlier, edges) / (happened + censored).sum(-1, keepdim=True)


def feature_sums(
    cdf: Tensor, event: Tensor, features: Tensor, edges: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the sums behind conditional calibration, in float64, from F values (K, n) and features of the rows (n, M).

    Features times residuals above each inner edge, (K, M, B - 1), and the products of every row with itself, (K,). The
    rules for edges are those of `bin_sums`.
    """
    edge = edges.to(cdf.dtype)
    weight = cdf.new_ones(cdf.shape[-1], dtype=torch.float64) if weights is None else weights
    happened = (cdf.unsqueeze(-1) >= edge[1:-1]).double()
    above = torch.where(event.unsqueeze(-1), happened, exact_above(cdf.double(), edge.double()))
    above -= 1 - edges[1:-1]
    h = weight.unsqueeze(-1) * features.double()
    own = (h.square().sum(-1) * bins_from_above(above).square().sum(-1)).sum(-1)
    return torch.einsum("nm,knp->kmp", h, above), own


def conditional_value(sums: Tensor, own: Tensor, pairs: Tensor) -> Tensor:
    """Conditional calibration of every model, (K,), from `feature_sums` of all rows and the weight of their pairs.

    One row makes no pair, and has the value zero.
    """
    value = bins_from_above(sums).square().sum((-2, -1)) - own
    return torch.where(pairs > 0, value / torch.where(pairs > 0, pairs, 1.0), 0.0)


Membership = Literal["partition", "product"]
Censored = Literal["exact", "soft"]
Estimator = Literal["bound", "unbiased"]
# One over anything smaller is no number; every sigmoid is a step long before.
_LEAST = 1e-100


@dataclass(frozen=True)
class SoftBins:
    """Which soft D-calibration is meant. `temperature` is in units of the mean bin width; see `xcal_penalty`.

    A temperature that changes while a model is trained is a tensor of one number. It is read at every step, by a
    recorded CUDA graph too, so that whoever fills it anew changes the penalty.

    With `random_edges`, `xcal.fit_path` draws new inner edges for every batch, uniform on [0, 1], and no bin is looked
    at twice: S-cal (Stochastic Explicit Calibration Algorithm for Survival Models, IEEE Access, 2025), written from its
    abstract. A loop of your own gives such edges to `xcal_penalty`.
    """

    membership: Membership = "partition"
    temperature: float | Tensor | None = None
    gamma: float | None = None
    censored: Censored = "exact"
    estimator: Estimator = "bound"
    random_edges: bool = False

    def __post_init__(self) -> None:
        as_flag("random_edges", self.random_edges)
        for name, known in (("membership", Membership), ("censored", Censored), ("estimator", Estimator)):
            as_choice(name, getattr(self, name), get_args(known))
        uses_gamma = self.membership == "product" or self.censored == "soft"
        self._default("gamma", 1e4, uses_gamma, "membership='product' or censored='soft'")
        self._default("temperature", 0.5, self.membership == "partition", "membership='partition'")

    def _default(self, name: str, default: float, used: bool, user: str) -> None:
        value = getattr(self, name)
        if value is None:
            object.__setattr__(self, name, default if used else None)
        elif not used:
            fail(name, f"None, as only {user} uses it", value)
        elif isinstance(value, Tensor):
            # Its value is not looked at: it may be filled later, and on a GPU reading it would wait for all steps.
            if value.numel() != 1 or not value.is_floating_point() or value.is_meta or value.layout != torch.strided:
                found = f"shape {tuple(value.shape)}, {value.dtype}"
                fail(name, "a number, or a floating-point tensor of one number", found)
        else:
            number = as_number(name, value, above=0)
            if number < _LEAST:
                fail(name, f"a number of {_LEAST:g} or more", value)
            object.__setattr__(self, name, number)

    @property
    def cumulative(self) -> bool:
        """Whether both terms are differences of a mass above the edges, so that rows can be summed before the bins."""
        return self.membership == "partition" and self.censored == "exact"

    @property
    def fusable(self) -> bool:
        """Whether `fused` has a kernel for it: the default penalty and the paper's, as batch bounds."""
        return self.estimator == "bound" and (self.membership, self.censored) in {
            ("partition", "exact"),
            ("product", "soft"),
        }

    def scale(self, n_bins: int) -> float | Tensor:
        """Slope of the sigmoid: gamma, or one over the temperature in units of F; a tensor if the temperature is."""
        if self.membership == "product":
            assert self.gamma is not None
            return self.gamma
        assert self.temperature is not None
        return n_bins / self.temperature

    def events(self, u: Tensor, event: Tensor) -> Tensor:
        """Rows that contribute as events: the published code adds censored ones that are all but certain."""
        return event if self.censored == "exact" else event | (u > SATURATED)

    def event_features(self, u: Tensor, edges: Tensor) -> Tensor:
        """Mass of an event at u above each inner edge if `cumulative`, else in each bin."""
        scale = self.scale(edges.shape[0] - 1)
        if self.membership == "product":
            return product(u, edges, scale)
        above = partition_above(u, edges, 1 / scale)
        return above if self.cumulative else _bins(above, edges)

    def censored_features(self, u: Tensor, edges: Tensor) -> Tensor:
        """Return the same for a row censored at F = u."""
        if self.censored == "soft":
            assert self.gamma is not None
            return soft_censored(u, edges, self.gamma)
        above = exact_above(u, edges)
        return above if self.cumulative else _bins(above, edges)

    def event_slopes(self, u: Tensor, edges: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the derivative of `event_features` in u; features that are `known` save the sigmoids."""
        scale = self.scale(edges.shape[0] - 1)
        if self.membership == "product":
            return product(u, edges, scale, derivative=True)
        if self.cumulative and known is not None:
            return sigmoid_slope(known, 1 / scale)
        slope = partition_above(u, edges, 1 / scale, derivative=True)
        return slope if self.cumulative else bins_from_above(slope)

    def censored_slopes(self, u: Tensor, edges: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the derivative of `censored_features` in u; features that are `known` save the quotients."""
        if self.censored == "soft":
            assert self.gamma is not None
            return soft_censored(u, edges, self.gamma, derivative=True)
        above = known if self.cumulative and known is not None else exact_above(u, edges)
        slope = exact_slope(above, u, edges)
        return slope if self.cumulative else bins_from_above(slope)

    def features(self, u: Tensor, event: Tensor, edges: Tensor) -> Tensor:
        """Return the features of every row, whichever kind it is."""
        happened, later = self.event_features(u, edges), self.censored_features(u, edges)
        return torch.where(self.events(u, event).unsqueeze(-1), happened, later)

    def slopes(self, u: Tensor, event: Tensor, edges: Tensor) -> Tensor:
        """Return the derivative of `features` in u."""
        happened, later = self.event_slopes(u, edges), self.censored_slopes(u, edges)
        return torch.where(self.events(u, event).unsqueeze(-1), happened, later)

    def residual(self, features: Tensor, edges: Tensor) -> Tensor:
        """Turn features, or weighted means of them, into R of the paper: mass of each bin less its width."""
        if self.cumulative:
            return bins_from_above(features - (1 - edges[1:-1]))
        return features - edges.diff()

    def residual_slope(self, derivatives: Tensor) -> Tensor:
        """Turn derivatives of the features into those of the residual."""
        return bins_from_above(derivatives) if self.cumulative else derivatives


def _bins(above: Tensor, edges: Tensor) -> Tensor:
    """Mass in each bin from that above each inner edge."""
    return bins_from_above(above - (1 - edges[1:-1])) + edges.diff()


def soft_membership(cdf: Tensor, event: Tensor, edges: Tensor, spec: SoftBins) -> Tensor:
    """Membership of every row in every bin, (..., n, B), to look at; the penalty never builds it whole.

    The arguments are trusted, as those of `unchecked_penalty` are.

    Examples
    --------
    >>> F, event, edges = torch.tensor([0.25, 0.5]), torch.tensor([True, False]), torch.tensor([0.0, 0.5, 1.0])
    >>> soft_membership(F, event, edges, SoftBins(temperature=0.1))
    tensor([[0.9933, 0.0067],
            [0.0000, 1.0000]])
    """
    return spec.residual(spec.features(cdf, event, edges), edges) + edges.diff()


# --- A schedule of weight and temperature, for `fit_path` and for own loops.

FIRST_TEMPERATURE = 2.0


@dataclass(frozen=True)
class Annealing:
    """The first epochs of a training with the X-CAL penalty: its weight rises, its temperature falls.

    A large weight from the first step on can hold a network at its start: predictions that are calibrated and tell no
    rows apart. So the weight begins at 0 and rises in equal steps. A wide membership leaves the gradient little noise,
    and a narrow one the result little bias. So the temperature begins wide and falls by equal factors. After `epochs`
    epochs both are where they end, and stay there.

    Parameters
    ----------
    epochs : int
        Epochs until both have reached their end. With 0 they are there from the start.
    first_temperature, last_temperature : float
        In bin widths; the end is by default that of `XCALLoss`. A start below the end counts as the end: a temperature
        never rises.

    Examples
    --------
    >>> schedule = Annealing(epochs=10)
    >>> [schedule.weight(epoch) for epoch in (0, 5, 10, 50)]
    [0.0, 0.5, 1.0, 1.0]
    >>> [round(schedule.temperature(epoch), 2) for epoch in (0, 5, 10, 50)]
    [2.0, 1.0, 0.5, 0.5]
    """

    epochs: int
    first_temperature: float = FIRST_TEMPERATURE
    last_temperature: float = 0.5

    def __post_init__(self) -> None:
        as_count("epochs", self.epochs, at_least=0)
        for name in ("first_temperature", "last_temperature"):
            as_number(name, getattr(self, name), above=0)

    def weight(self, epoch: int) -> float:
        """Share of lambda in an epoch, counted from 0: from 0 to 1."""
        return 1.0 if epoch >= self.epochs else epoch / self.epochs

    def temperature(self, epoch: int) -> float:
        """Temperature of the membership in an epoch, counted from 0, in bin widths."""
        if epoch >= self.epochs or self.first_temperature <= self.last_temperature:
            return self.last_temperature
        factor = self.last_temperature / self.first_temperature
        return float(self.first_temperature * factor ** (epoch / self.epochs))
