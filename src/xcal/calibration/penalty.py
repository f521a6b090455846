r"""The X-CAL penalty: soft D-calibration of a batch, with its gradient by formula.

With zeta_ij the membership of row i in bin j, |I_j| the bin's width and R_ij = zeta_ij - |I_j|,

    bound     sum_j (mean_i R_ij)^2                                     (the paper's upper bound on a batch)
    unbiased  sum_j ((sum_i R_ij)^2 - sum_i R_ij^2) / (M (M - 1))       (the U-statistic of the squared mean)

and the gradient in F_i is sum_j (2 / M) (mean_i R_ij) zeta'_ij for the bound. Autograd through these formulas keeps
several n x B arrays; here the backward pass computes memberships again, a few rows at a time, so that extra memory
is a constant number of (..., n) buffers whatever the number of bins.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from xcal._checks import fail
from xcal.calibration import fused
from xcal.calibration import membership as soft
from xcal.calibration.bins import bin_edges

Membership = Literal["partition", "product"]
Censored = Literal["exact", "soft"]
Estimator = Literal["bound", "unbiased"]

# Elements of one block of rows x bins (times models): on a CPU small enough to stay in cache, on a GPU large enough
# that launching a kernel costs less than running it.
_BLOCK = {"cpu": 1 << 19, "cuda": 1 << 22}


@dataclass(frozen=True)
class SoftBins:
    """Which soft D-calibration is meant. `temperature` is in units of the mean bin width; see `xcal_penalty`."""

    membership: Membership = "partition"
    temperature: float | None = None
    gamma: float | None = None
    censored: Censored = "exact"
    estimator: Estimator = "bound"

    def __post_init__(self) -> None:
        for name, known in (("membership", Membership), ("censored", Censored), ("estimator", Estimator)):
            if getattr(self, name) not in get_args(known):
                fail(name, " or ".join(map(repr, get_args(known))), repr(getattr(self, name)))
        uses_gamma = self.membership == "product" or self.censored == "soft"
        self._default("gamma", 1e4, uses_gamma, "membership='product' or censored='soft'")
        self._default("temperature", 0.5, self.membership == "partition", "membership='partition'")

    def _default(self, name: str, default: float, used: bool, user: str) -> None:
        value = getattr(self, name)
        if value is None:
            object.__setattr__(self, name, default if used else None)
        elif not used:
            fail(name, f"None, as only {user} uses it", value)
        elif not (0 < value < float("inf")):
            fail(name, "a finite number above 0", value)

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

    def scale(self, n_bins: int) -> float:
        """Slope of the sigmoid: gamma, or one over the temperature in units of F."""
        if self.membership == "product":
            assert self.gamma is not None
            return self.gamma
        assert self.temperature is not None
        return n_bins / self.temperature

    def events(self, u: Tensor, event: Tensor) -> Tensor:
        """Rows that contribute as events: the published code adds censored ones that are all but certain."""
        return event if self.censored == "exact" else event | (u > soft.SATURATED)

    def features(self, u: Tensor, event: Tensor, edges: Tensor, *, derivative: bool = False) -> Tensor:
        """Mass of each row above each inner edge if `cumulative`, else in each bin; or its derivative in u."""
        scale = self.scale(edges.shape[0] - 1)
        if self.membership == "partition":
            happened = soft.partition_above(u, edges, 1 / scale, derivative=derivative)
            if not self.cumulative:
                happened = soft.bins_from_above(happened, derivative=derivative)
        else:
            happened = soft.product(u, edges, scale, derivative=derivative)
        if self.censored == "exact":
            later = soft.exact_above(u, edges, derivative=derivative)
            if not self.cumulative:
                later = soft.bins_from_above(later, derivative=derivative)
        else:
            assert self.gamma is not None
            later = soft.soft_censored(u, edges, self.gamma, derivative=derivative)
        return torch.where(self.events(u, event).unsqueeze(-1), happened, later)

    def bins(self, features: Tensor, *, derivative: bool = False) -> Tensor:
        """Turn features, or sums of features divided by the number of rows, into bins."""
        return soft.bins_from_above(features, derivative=derivative) if self.cumulative else features


def soft_membership(cdf: Tensor, event: Tensor, edges: Tensor, spec: SoftBins) -> Tensor:
    """Membership of every row in every bin, (..., n, B). For looking at; the penalty never builds it whole."""
    return spec.bins(spec.features(cdf, event, edges))


def _blocks(u: Tensor, n_bins: int) -> list[slice]:
    """Row blocks of bounded size. A compiler fuses the whole expression itself, so it gets one block."""
    n = u.shape[-1]
    if torch.compiler.is_compiling():
        return [slice(0, n)]
    models = max(1, u.numel() // max(1, n))
    rows = max(1, _BLOCK.get(u.device.type, 1 << 20) // (models * n_bins))
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def _sum_rows(weight: Tensor, values: Tensor) -> Tensor:
    """Weighted sum over rows: (..., G, n) and (..., n, P) give (..., G, P).

    A matrix product is the fastest way eagerly; a compiler would have to build its operand in memory.
    """
    if torch.compiler.is_compiling():
        return (weight.unsqueeze(-1) * values.unsqueeze(-3)).sum(-2)
    return weight @ values


def _group_weights(weight: Tensor, labels: Tensor | None, n_groups: int) -> Tensor:
    """Row weights split by group: (..., n) to (..., G, n). Without groups G is one."""
    if labels is None:
        return weight.unsqueeze(-2)
    one = torch.arange(n_groups, device=labels.device).unsqueeze(-1) == labels.unsqueeze(-2)
    return weight.unsqueeze(-2) * one


class _XCAL(torch.autograd.Function):
    """Penalty of every group, (..., G), of F values (..., n). Only F has a gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        u: Tensor,
        event: Tensor,
        weight: Tensor,
        labels: Tensor | None,
        edges: Tensor,
        spec: SoftBins,
        n_groups: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the penalty, the residual R of every bin summed over rows, and the pair count it is divided by."""
        unbiased = spec.estimator == "unbiased"
        width = edges.diff()
        with torch.autocast(u.device.type, enabled=False):
            total = square = sums = own = u.new_zeros(())
            use_kernel = labels is None and spec.fusable and fused.usable(u)
            if use_kernel:
                scale = spec.scale(width.shape[0])
                sums = fused.sum_features(u, event, weight, edges, scale, cumulative=spec.cumulative).unsqueeze(-2)
                total = weight.sum(-1, keepdim=True)
            for rows in [] if use_kernel else _blocks(u, width.shape[0]):
                x = spec.features(u[..., rows], event[..., rows], edges)
                w = _group_weights(weight[..., rows], None if labels is None else labels[..., rows], n_groups)
                sums = sums + _sum_rows(w, x)
                total = total + w.sum(-1)
                if unbiased:
                    residual = spec.bins(x) - width
                    own = own + (w.square() * residual.square().sum(-1).unsqueeze(-2)).sum(-1)
                    square = square + w.square().sum(-1)
            # A group without rows contributes nothing, whatever it is divided by.
            some = torch.where(total > 0, total, 1.0)
            mean = spec.bins(sums / some.unsqueeze(-1)) - width
            residual_sum = mean * total.unsqueeze(-1)
            pairs = total.square()
            value = residual_sum.square().sum(-1)
            if unbiased:
                pairs = pairs - square
                value = value - own
            # One row makes no pair, and a group without rows no mean: nothing to estimate, value and gradient zero.
            # Rounding may leave the count of pairs of one row a few units in the last place off zero.
            enough = pairs > 8 * torch.finfo(u.dtype).eps * total.square()
            pairs = torch.where(enough, pairs, torch.inf)
            return value / pairs, residual_sum, pairs

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        u, event, weight, labels, edges, spec, n_groups = inputs
        _, residual_sum, pairs = output
        ctx.mark_non_differentiable(residual_sum, pairs)
        ctx.save_for_backward(u, event, weight, labels, edges, residual_sum, pairs)
        ctx.spec, ctx.n_groups = spec, n_groups

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        u, event, weight, labels, edges, residual_sum, pairs = ctx.saved_tensors
        spec: SoftBins = ctx.spec
        with torch.autocast(u.device.type, enabled=False):
            scale = 2 * grad / pairs
            per_bin = residual_sum * scale.unsqueeze(-1)
            # Chain rule through bins = differences of the mass above each edge.
            slope = per_bin.diff(dim=-1) if spec.cumulative else per_bin
            if labels is None and spec.fusable and fused.usable(u):
                scale, features = spec.scale(edges.shape[0] - 1), slope.squeeze(-2)
                gradient = fused.row_gradient(u, event, weight, edges, features, scale, cumulative=spec.cumulative)
                return gradient, None, None, None, None, None, None
            pieces = []
            for rows in _blocks(u, edges.shape[0] - 1):
                part, happened, w = u[..., rows], event[..., rows], weight[..., rows]
                label = None if labels is None else labels[..., rows]
                dx = spec.features(part, happened, edges, derivative=True)
                piece = w * _row_product(dx, slope, label)
                if spec.estimator == "unbiased":
                    residual = spec.bins(spec.features(part, happened, edges)) - edges.diff()
                    own = (residual * spec.bins(dx, derivative=True)).sum(-1)
                    piece = piece - w.square() * own * _pick(scale, label)
                pieces.append(piece)
            gradient = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)
        return gradient, None, None, None, None, None, None


def _pick(per_group: Tensor, labels: Tensor | None) -> Tensor:
    """Value of each row's own group: (..., G) and labels (..., n) give (..., n)."""
    if labels is None:
        return per_group
    return torch.take_along_dim(per_group, labels.expand(*per_group.shape[:-1], labels.shape[-1]), dim=-1)


def _row_product(values: Tensor, per_group: Tensor, labels: Tensor | None) -> Tensor:
    """For each row the inner product of (..., n, P) with its own group's row of (..., G, P)."""
    if labels is None:
        if torch.compiler.is_compiling():
            return (values * per_group).sum(-1)
        return (values @ per_group.transpose(-1, -2)).squeeze(-1)
    index = labels.unsqueeze(-1).expand(*values.shape[:-1], 1)
    own = torch.take_along_dim(per_group, index, dim=-2)
    return (values * own).sum(-1)


def unchecked_penalty(
    cdf: Tensor,
    event: Tensor,
    edges: Tensor,
    spec: SoftBins,
    weights: Tensor | None = None,
    labels: Tensor | None = None,
    n_groups: int = 1,
) -> Tensor:
    """X-CAL penalty without any look at the values: the function for inside a training loop.

    Parameters
    ----------
    cdf : Tensor of shape (..., n)
        F at each row's own time, in [0, 1].
    event : bool Tensor of shape (n,) or (..., n)
    edges : Tensor of shape (B + 1,)
    spec : SoftBins
    weights : Tensor of shape (n,) or (..., n), optional
        Row weights, constants to the gradient.
    labels : int64 Tensor of shape (n,) or (..., n), optional
        Group of each row, 0 to n_groups - 1.
    n_groups : int

    Returns
    -------
    Tensor of shape (...)
    """
    u = cdf.float() if cdf.dtype in (torch.float16, torch.bfloat16) else cdf
    weight = torch.ones_like(event, dtype=u.dtype) if weights is None else weights.detach().to(u.dtype)
    value: Tensor
    value, _, _ = _XCAL.apply(u, event, weight, labels, edges.to(u.dtype), spec, n_groups)
    if labels is None:
        return value.squeeze(-1)
    share = _group_weights(weight, labels, n_groups).sum(-1)
    return (value * (share / share.sum(-1, keepdim=True))).sum(-1)


def _readable(*tensors: Tensor | None) -> bool:
    """Whether values can be read now: not while a graph is compiled or captured."""
    if torch.compiler.is_compiling():
        return False
    on_gpu = any(t is not None and t.is_cuda for t in tensors)
    return not (on_gpu and torch.cuda.is_current_stream_capturing())


def _refuse(name: str, expected: str, values: Tensor, bad: Tensor) -> None:
    """Raise if any value is bad, naming its row and, with several models, the model."""
    try:
        found = bool(bad.any())
    except RuntimeError as error:
        # Inside torch.func.vmap there is no single value to look at.
        if "vmap" in str(error):
            return
        raise
    if found:
        where = tuple(int(i) for i in bad.nonzero()[0])
        value = float(values.expand(bad.shape)[where])
        if len(where) == 1:
            fail(name, expected, value, where[0])
        fail(name, expected, f"{value} in model {where[:-1]}", where[-1])


def _check_shapes(cdf: Tensor, rows: dict[str, Tensor | None]) -> None:
    if not cdf.is_floating_point():
        fail("cdf", "a floating-point tensor of probabilities", f"dtype {cdf.dtype}")
    if cdf.ndim == 0 or cdf.numel() == 0:
        fail("cdf", "shape (..., n) with at least one row", f"shape {tuple(cdf.shape)}")
    for name, values in rows.items():
        if values is None:
            continue
        shape, wanted = tuple(values.shape), tuple(cdf.shape)
        if shape not in {wanted, wanted[-1:]}:
            fail(name, f"shape {wanted[-1:]}" + (f" or {wanted}" if cdf.ndim > 1 else ""), f"shape {shape}")
        if values.device != cdf.device:
            fail(name, f"a tensor on {cdf.device}, as cdf is", f"one on {values.device}")


def _checked(
    cdf: Tensor, event: Any, weights: Any, groups: Any, n_groups: int | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, int]:
    """Everything the penalty needs of its arguments, checked once, with groups as labels from 0."""
    if not isinstance(cdf, Tensor):
        cdf = torch.as_tensor(cdf)
    event = torch.as_tensor(event, device=cdf.device)
    weights = None if weights is None else torch.as_tensor(weights, device=cdf.device)
    groups = None if groups is None else torch.as_tensor(groups, device=cdf.device)
    _check_shapes(cdf, {"event": event, "weights": weights, "groups": groups})
    if groups is not None and (groups.is_floating_point() or groups.is_complex()):
        fail("groups", "integer labels, one a row", f"dtype {groups.dtype}")
    if groups is None and n_groups is not None:
        fail("n_groups", "None where there are no groups", n_groups)
    if _readable(cdf, event, weights, groups):
        _refuse("cdf", "values in [0, 1]", cdf, ~((cdf >= 0) & (cdf <= 1)))
        if event.dtype != torch.bool:
            _refuse(
                "event",
                "True/False or 0/1, 1 meaning that the event happened",
                event,
                (event != 0) & (event != 1),
            )
        if weights is not None:
            _refuse("weights", "finite weights, zero or larger", weights, ~((weights >= 0) & weights.isfinite()))
            _refuse("weights", "a positive sum", weights.sum(-1, keepdim=True), weights.sum(-1, keepdim=True) <= 0)
        if groups is not None and n_groups is not None:
            _refuse("groups", f"labels from 0 to {n_groups - 1}", groups, (groups < 0) | (groups >= n_groups))
    if groups is not None:
        if n_groups is None:
            if torch.compiler.is_compiling():
                raise ValueError(
                    "n_groups: expected a number, as the labels cannot be counted while compiling, got None"
                )
            known, groups = torch.unique(groups, return_inverse=True)
            n_groups = known.shape[0]
        groups = groups.long()
    return cdf, event.bool(), weights, groups, n_groups or 1


def xcal_penalty(
    cdf: Tensor,
    event: Any,
    *,
    n_bins: int = 20,
    edges: Any = None,
    membership: Membership = "partition",
    temperature: float | None = None,
    gamma: float | None = None,
    censored: Censored = "exact",
    estimator: Estimator = "bound",
    weights: Any = None,
    groups: Any = None,
    n_groups: int | None = None,
) -> Tensor:
    """Soft D-calibration of a batch, differentiable: add ``lam * xcal_penalty(F, event)`` to a loss.

    It is a statistic of the whole batch, not a mean of per-row values, and its value is not D-calibration: for
    reporting use `d_calibration`.

    Parameters
    ----------
    cdf : Tensor of shape (..., n)
        F at each row's own time. Leading dimensions are models, trained side by side on the same rows.
    event : Tensor of shape (n,) or (..., n)
        True or 1 where the event happened, False or 0 where the row is censored.
    n_bins : int, default 20
        Number of equal bins, unless `edges` are given.
    edges : array-like, optional
        Bin edges from 0 to 1.
    membership : {"partition", "product"}
        How an event is shared among bins. "partition": difference of sigmoids at the edges, mass one; "product": the
        paper's sigma(gamma (u - a)(b - u)).
    temperature : float, optional
        Softness of "partition" in units of the mean bin width; 0.5 if not given.
    gamma : float, optional
        Sharpness of "product" and of ``censored="soft"``; 1e4 if not given. Not scale-free: raise it with n_bins².
    censored : {"exact", "soft"}
        How a censored row is shared among bins: the exact expected count, or the paper's softened one.
    estimator : {"bound", "unbiased"}
        The paper's upper bound on a batch, larger than the full-data value by about (1 - 1/n_bins) / n at calibration,
        or the U-statistic whose mean over batches is the full-data value (it can be negative).
    weights : Tensor of shape (n,) or (..., n), optional
        Row weights; constants to the gradient.
    groups : integer Tensor of shape (n,) or (..., n), optional
        The penalty is taken within each group and summed with the groups' shares of the weight.
    n_groups : int, optional
        With labels 0 to n_groups - 1, spares the count of labels; needed under torch.compile.

    Returns
    -------
    Tensor of shape (...), float32 or float64
        One penalty a model. Half-precision input is computed and returned in float32, under autocast too.

    Raises
    ------
    ValueError
        Naming the argument and the row. Values are not looked at while compiling, capturing a CUDA graph or in vmap.

    Examples
    --------
    >>> F = torch.tensor([0.1, 0.4, 0.6, 0.9], requires_grad=True)
    >>> event = torch.tensor([True, True, False, True])
    >>> value = xcal_penalty(F, event, n_bins=4)
    >>> value.backward()
    >>> F.grad.shape
    torch.Size([4])
    """
    spec = SoftBins(membership, temperature, gamma, censored, estimator)
    cdf, event, weights, labels, n_groups = _checked(cdf, event, weights, groups, n_groups)
    if edges is None:
        bin_edges(n_bins)
        dtype = torch.float64 if cdf.dtype == torch.float64 else torch.float32
        edge = torch.arange(n_bins + 1, device=cdf.device, dtype=dtype) / n_bins
    else:
        edge = torch.as_tensor(bin_edges(edges=edges), device=cdf.device)
    return unchecked_penalty(cdf, event, edge, spec, weights, labels, n_groups)


class XCALLoss(nn.Module):
    """`xcal_penalty` as a module: made once, its edges move with the model.

    The defaults are ours: partition membership at half a bin width and the exact censored term. `XCALLoss.paper()` is
    the penalty of the paper. See `xcal_penalty` for the parameters.

    Examples
    --------
    >>> penalty = XCALLoss(n_bins=10)
    >>> penalty
    XCALLoss(n_bins=10, membership='partition', temperature=0.5, censored='exact', estimator='bound')
    >>> penalty(torch.rand(8, 100), torch.ones(100)).shape
    torch.Size([8])
    """

    edges: Tensor

    def __init__(
        self,
        n_bins: int = 20,
        *,
        edges: Any = None,
        membership: Membership = "partition",
        temperature: float | None = None,
        gamma: float | None = None,
        censored: Censored = "exact",
        estimator: Estimator = "bound",
    ) -> None:
        super().__init__()
        self.spec = SoftBins(membership, temperature, gamma, censored, estimator)
        self.register_buffer("edges", torch.from_numpy(bin_edges(n_bins, edges)), persistent=False)

    @classmethod
    def paper(cls, n_bins: int = 20, *, gamma: float = 1e4) -> "XCALLoss":
        """Penalty of the paper: product membership, softened censored term, upper bound on the batch."""
        return cls(n_bins, membership="product", gamma=gamma, censored="soft", estimator="bound")

    def forward(
        self, cdf: Tensor, event: Any, weights: Any = None, groups: Any = None, n_groups: int | None = None
    ) -> Tensor:
        """Return one penalty a model, shape (...)."""
        cdf, event, weights, labels, n_groups = _checked(cdf, event, weights, groups, n_groups)
        return unchecked_penalty(cdf, event, self.edges, self.spec, weights, labels, n_groups)

    def extra_repr(self) -> str:
        """Return the settings in use, as the constructor takes them."""
        used: dict[str, Any] = {"n_bins": self.edges.shape[0] - 1, "membership": self.spec.membership}
        used |= {k: v for k in ("temperature", "gamma") if (v := getattr(self.spec, k)) is not None}
        used |= {"censored": self.spec.censored, "estimator": self.spec.estimator}
        return ", ".join(f"{k}={v!r}" for k, v in used.items())
