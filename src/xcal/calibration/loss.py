"""The public functions of the penalty: every argument checked once, then `unchecked_penalty`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from xcal._checks import MANY, as_count, fail, refuse_masked
from xcal._torch_private import in_transform
from xcal.calibration.bins import bin_edges
from xcal.calibration.conditional_penalty import unchecked_conditional_penalty
from xcal.calibration.penalty import unchecked_penalty
from xcal.calibration.softbins import Censored, Estimator, Membership, SoftBins


def _readable(*tensors: Tensor | None) -> bool:
    """Whether values can be read now: not while a graph is compiled or captured."""
    if torch.compiler.is_compiling():
        return False
    on_gpu = any(t is not None and t.is_cuda for t in tensors)
    return not (on_gpu and torch.cuda.is_current_stream_capturing())


def _is_true(flag: Tensor) -> bool:
    """Read a flag; inside torch.func.vmap there is no single value to read, and nothing is refused."""
    try:
        return bool(flag)
    except RuntimeError:
        if in_transform(flag):
            return False
        raise


def _refuse(name: str, expected: str, values: Tensor, bad: Tensor) -> None:
    """Raise if any value is bad, naming its row and, with several models, the model."""
    if _is_true(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        value = values.expand(bad.shape)[where].item()
        if len(where) == 1:
            fail(name, expected, value, where[0])
        fail(name, expected, f"{value} in model {where[:-1]}", where[-1])


def _refuse_outside(name: str, values: Tensor) -> None:
    """Raise if any value lies outside [0, 1]. One pass over the values: NaN is its own smallest and largest."""
    low, high = torch.aminmax(values.detach())
    if _is_true(~((low >= 0) & (high <= 1))):
        _refuse(name, "values in [0, 1]", values, ~((values >= 0) & (values <= 1)))


def _as_tensor(name: str, values: Any, device: torch.device | None = None) -> Tensor:
    refuse_masked(name, values)
    try:
        # Through numpy: torch would read a pandas column by its index, not by its position.
        return torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values), device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: expected a tensor or an array of numbers, got {type(values).__name__}") from error


def _check_shapes(cdf: Tensor, rows: dict[str, Tensor | None]) -> None:
    if not cdf.is_floating_point():
        fail("cdf", "a floating-point tensor of probabilities", f"dtype {cdf.dtype}")
    if cdf.ndim == 0 or cdf.numel() == 0:
        fail("cdf", "shape (..., n) with at least one row", f"shape {tuple(cdf.shape)}")
    for name, values in rows.items():
        if values is None:
            continue
        shape, wanted = tuple(values.shape), tuple(cdf.shape)
        if wanted[-1:] == (1,) and shape == wanted[:-1]:
            fail("cdf", f"rows in the last dimension, as {name} has them: cdf.squeeze(-1)?", f"shape {wanted}")
        if shape not in {wanted, wanted[-1:]}:
            fail(name, f"shape {wanted[-1:]}" + (f" or {wanted}" if cdf.ndim > 1 else ""), f"shape {shape}")
        # One penalty for each row: nobody wants n models of a single row that have events of their own.
        if name == "event" and wanted[-1:] == (1,) and max(shape) > 1:
            expected = "rows in the last dimension: cdf.squeeze(-1) and event.squeeze(-1)?"
            fail("cdf", expected, f"shape {wanted}, which is {cdf.numel()} models of one row")


def _checked(
    cdf: Tensor, event: Any, weights: Any, groups: Any, n_groups: int | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, int]:
    """Everything the penalty needs of its arguments, checked once, with groups as labels from 0."""
    cdf = _as_tensor("cdf", cdf)
    event = _as_tensor("event", event, cdf.device)
    weights = None if weights is None else _as_tensor("weights", weights, cdf.device)
    groups = None if groups is None else _as_tensor("groups", groups, cdf.device)
    _check_shapes(cdf, {"event": event, "weights": weights, "groups": groups})
    if groups is not None and (groups.is_floating_point() or groups.is_complex()):
        fail("groups", "integer labels, one per row", f"dtype {groups.dtype}")
    if groups is None and n_groups is not None:
        fail("n_groups", "None where there are no groups", n_groups)
    if n_groups is not None:
        n_groups = as_count("n_groups", n_groups, at_least=1, at_most=MANY)
    if _readable(cdf, event, weights, groups):
        _refuse_outside("cdf", cdf)
        if event.dtype != torch.bool:
            _refuse(
                "event",
                "True/False or 0/1, 1 meaning that the event happened",
                event,
                (event != 0) & (event != 1),
            )
        if weights is not None:
            _refuse("weights", "finite weights, zero or larger", weights, ~((weights >= 0) & weights.isfinite()))
            if _is_true((weights.sum(-1) <= 0).any()):
                fail("weights", "a positive sum", "weights that are all zero")
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
    features: Any = None,
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
        The paper's upper bound on a batch of n rows, at calibration larger than the full-data value by
        (1 - 1/n_bins) / n for sharp bins and less for soft ones; or the U-statistic, whose mean over batches is the
        full-data value (it can be negative).
    weights : Tensor of shape (n,) or (..., n), optional
        Row weights; constants to the gradient.
    groups : integer Tensor of shape (n,) or (..., n), optional
        The penalty is taken within each group and summed with the groups' shares of the weight.
    n_groups : int, optional
        With labels 0 to n_groups - 1, spares the count of labels; needed under torch.compile.
    features : Tensor of shape (n, M) or (..., n, M), optional
        Functions of the covariates: the penalty is then soft conditional calibration, which sees every subgroup that
        they can describe (`xcal.conditional_calibration`). ``KernelFeatures().of(X)`` makes them from covariates; a
        layer of a network will do. Constants to the gradient. Take ``estimator="unbiased"`` with them: the bound adds
        the noise of every single row.

    Returns
    -------
    Tensor of shape (...), float32 or float64
        One penalty per model. Half-precision input is computed and returned in float32, under autocast too.

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
    return _either(cdf, event, edge, spec, weights, labels, n_groups, features)


def _either(
    cdf: Tensor,
    event: Tensor,
    edges: Tensor,
    spec: SoftBins,
    weights: Tensor | None,
    labels: Tensor | None,
    n_groups: int,
    features: Any,
) -> Tensor:
    """Calibration on average or within groups, or with features of the rows calibration given them."""
    if features is None:
        return unchecked_penalty(cdf, event, edges, spec, weights, labels, n_groups)
    if labels is not None:
        fail("groups", "None where features are given: indicators of groups are features", "both")
    h = _as_tensor("features", features, cdf.device)
    n = cdf.shape[-1]
    if h.ndim < 2 or h.shape[-2] != n or tuple(h.shape[:-2]) not in {(), tuple(cdf.shape[:-1])}:
        fail("features", f"shape ({n}, M), one row per row of cdf", f"shape {tuple(h.shape)}")
    if _readable(h) and _is_true(~h.isfinite().all()):
        bad = ~h.isfinite().all(-1)
        fail("features", "finite numbers", "others", tuple(int(i) for i in bad.nonzero()[0])[-1])
    return unchecked_conditional_penalty(cdf, event, h, edges, spec, weights)


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
        # Held as bits, so that model.bfloat16() moves the edges with the model but does not round them.
        bits = torch.from_numpy(bin_edges(n_bins, edges)).view(torch.int64)
        self.register_buffer("_edge_bits", bits, persistent=False)

    @property
    def edges(self) -> Tensor:
        """Bin edges, float64, on the module's device."""
        bits = self._edge_bits
        assert isinstance(bits, Tensor)
        return bits.view(torch.float64)

    @classmethod
    def paper(cls, n_bins: int = 20, *, gamma: float = 1e4) -> "XCALLoss":
        """Penalty of the paper: product membership, softened censored term, upper bound on the batch."""
        return cls(n_bins, membership="product", gamma=gamma, censored="soft", estimator="bound")

    def forward(
        self,
        cdf: Tensor,
        event: Any,
        weights: Any = None,
        groups: Any = None,
        n_groups: int | None = None,
        features: Any = None,
    ) -> Tensor:
        """Return one penalty per model, shape (...)."""
        cdf, event, weights, labels, n_groups = _checked(cdf, event, weights, groups, n_groups)
        return _either(cdf, event, self.edges, self.spec, weights, labels, n_groups, features)

    def extra_repr(self) -> str:
        """Return the settings in use, as the constructor takes them."""
        n_bins = self.edges.shape[0] - 1
        equal = torch.equal(self.edges.cpu(), torch.from_numpy(bin_edges(n_bins)))
        used: dict[str, Any] = {"n_bins": n_bins} if equal else {"edges": self.edges.tolist()}
        used["membership"] = self.spec.membership
        used |= {k: v for k in ("temperature", "gamma") if (v := getattr(self.spec, k)) is not None}
        used |= {"censored": self.spec.censored, "estimator": self.spec.estimator}
        return ", ".join(f"{k}={v!r}" for k, v in used.items())
