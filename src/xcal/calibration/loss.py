"""The public functions of the penalty."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from xcal._checks import as_number, fail
from xcal._devices import Group, Processes, World
from xcal.calibration.across_processes import LocalRows, mean_and_penalty_across, no_rows, penalty_across
from xcal.calibration.bins import FINE_BINS, bin_edges
from xcal.calibration.membership import Censored, Estimator, Membership, SoftBins
from xcal.calibration.penalties import Seen, check_default, part_of_curves, part_penalty, unchecked_conditional_penalty
from xcal.calibration.penalty import as_tensor, checked, is_true, readable, refuse, unchecked_penalty
from xcal.calibration.subgroups import FeatureMaker, KernelFeatures

_ROUNDING = 1e-5  # of sums of probabilities in float32


@dataclass(frozen=True, eq=False)
class PenaltySlopes:
    """A penalty, and its slope in F of every row.

    Attributes
    ----------
    value : Tensor of shape (...)
        The penalty.
    slopes : Tensor of shape (..., n)
        Its derivative in F of each row of this process, times the number of processes if there are several.
    """

    value: Tensor
    slopes: Tensor


@dataclass(frozen=True, eq=False)
class MeanAndPenalty:
    """The two parts of a loss: ``mean + lam * penalty``.

    Attributes
    ----------
    mean : Tensor of shape (...)
        Mean over all rows of one value per row, such as the negative log-likelihood.
    penalty : Tensor of shape (...)
        The penalty of the same rows.
    """

    mean: Tensor
    penalty: Tensor


@dataclass(frozen=True, eq=False)
class _Beside:
    """What else the arguments say of the rows; None where nothing."""

    features: Any = None
    cdf_entry: Any = None
    cdf_lower: Any = None
    times: Any = None
    time: Any = None
    entry: Any = None


def rows_of(
    cdf: Any, event: Any, weights: Any, groups: Any, n_groups: int | None, beside: _Beside, *, alone: bool
) -> LocalRows:
    """Check the arguments; where the process is not `alone` others may have the rows."""
    if beside.times is not None:
        u, seen, by_cause = _rows_by_cause(cdf, event, beside)
        _check_alone(by_cause, groups, beside.features)
        weights = checked(u.detach(), seen, weights, None, None, alone=alone)[2]
        return LocalRows(u, seen, weights, seen=by_cause)
    for name in ("time", "entry"):
        if getattr(beside, name) is not None:
            fail(name, "None without times, the times of incidences by cause", "a value")
    cdf, event, weights, labels, n_groups = checked(cdf, event, weights, groups, n_groups, alone=alone)
    early = {name: _earlier(name, getattr(beside, name), cdf) for name in ("cdf_entry", "cdf_lower")}
    part = None if all(values is None for values in early.values()) else Seen(early["cdf_entry"], early["cdf_lower"])
    _check_alone(part, groups, beside.features)
    if beside.features is None:
        return LocalRows(cdf, event, weights, labels, n_groups, seen=part)
    if labels is not None:
        fail("groups", "None where features are given: indicators of groups are features", "both")
    h = as_tensor("features", beside.features, cdf.device)
    n = cdf.shape[-1]
    if h.ndim < 2 or h.shape[-2] != n or tuple(h.shape[:-2]) not in {(), tuple(cdf.shape[:-1])}:
        fail("features", f"shape ({n}, M), one row per row of cdf", f"shape {tuple(h.shape)}")
    if readable(h) and is_true(~h.isfinite().all()):
        bad = ~h.isfinite().all(-1)
        fail("features", "finite numbers", "others", tuple(int(i) for i in bad.nonzero()[0])[-1])
    return LocalRows(cdf, event, weights, features=h)


def _check_alone(part: Seen | None, groups: Any, features: Any) -> None:
    """Refuse what is there for plain rows only."""
    for name, values in (("groups", groups), ("features", features)):
        if part is not None and values is not None:
            fail(name, "None for rows that are seen in part", "a value")


def _earlier(name: str, values: Any, cdf: Tensor) -> Tensor | None:
    """Check F at an earlier time of each row: at most F at its observed time."""
    if values is None:
        return None
    early = as_tensor(name, values, cdf.device)
    if tuple(early.shape) not in {tuple(cdf.shape), tuple(cdf.shape[-1:])} or not early.is_floating_point():
        fail(
            name,
            f"floating-point numbers of shape {tuple(cdf.shape)}, as cdf",
            f"{early.dtype} of shape {tuple(early.shape)}",
        )
    if readable(cdf, early):
        refuse(name, "F at an earlier time: from 0 to at most cdf", early, ~((early >= 0) & (early <= cdf)))
    return early.to(cdf.dtype).expand(cdf.shape)


def _rows_by_cause(cif: Any, cause: Any, beside: _Beside) -> tuple[Tensor, Tensor, Seen]:
    """Check incidences by cause at times, and the observed times and causes of the rows; see `part_of_curves`."""
    curves = as_tensor("cdf", cif)
    if not curves.is_floating_point():
        fail("cdf", "floating-point incidences by cause, as times are given", f"dtype {curves.dtype}")
    for name in ("cdf_entry", "cdf_lower"):
        if getattr(beside, name) is not None:
            fail(name, "None beside times: entry has the times of entry", "a value")
    given = {"times": beside.times, "time": beside.time, "event": cause, "entry": beside.entry}
    found = {name: as_tensor(name, values, curves.device) for name, values in given.items() if values is not None}
    if "time" not in found:
        fail("time", "the observed time of each row, beside times", None)
    grid = found.pop("times")
    if grid.ndim != 1 or curves.ndim < 3 or curves.shape[-1] != grid.shape[0] or 0 in curves.shape[-2:]:
        expected = f"shape (..., n, causes, {grid.numel()}), incidences of each cause at each of times"
        fail("cdf", expected, f"shape {tuple(curves.shape)}")
    for name, values in found.items():
        if values.shape != curves.shape[-3:-2]:
            fail(name, f"shape ({curves.shape[-3]},), one value for each row", f"shape {tuple(values.shape)}")
    causes, time, entry = found["event"], found["time"], found.get("entry")
    if causes.is_floating_point() or causes.dtype == torch.bool:
        fail("event", "whole numbers: 0 for a censored row, or its cause, 1, 2, ...", f"dtype {causes.dtype}")
    if readable(curves, grid, *found.values()):
        refuse("times", "strictly increasing times, zero or larger", grid, ~(grid.diff(prepend=grid[:1] - 1) > 0))
        refuse("event", f"causes from 0 to {curves.shape[-2]}", causes, (causes < 0) | (causes > curves.shape[-2]))
        refuse("time", "finite times, zero or larger", time, ~(time.isfinite() & (time >= 0)))
        if entry is not None:
            late = ~((entry >= 0) & (entry < torch.clamp(time, max=grid[-1])))
            refuse("entry", "times before the time of the row and before the last of times", entry, late)
        _refuse_no_incidences(curves.detach())
    return part_of_curves(curves, grid, time, causes.long(), entry)


def _refuse_no_incidences(curves: Tensor) -> None:
    """Raise if incidences leave [0, 1], fall in time or add up to more than 1, by more than rounding."""
    if curves.numel() == 0:
        return
    low, total = curves.amin((-2, -1)), curves.sum(-2).amax(-1)
    fall = curves.diff(dim=-1, prepend=torch.zeros_like(curves[..., :1])).amin((-2, -1))
    refuse("cdf", "incidences of 0 or more", low, ~(low >= -_ROUNDING))
    refuse("cdf", "incidences that add up to at most 1 over the causes", total, ~(total <= 1 + _ROUNDING))
    refuse("cdf", "incidences that never fall in time, a rise of 0 or more", fall, fall < -_ROUNDING)


def penalty_of(rows: LocalRows, edges: Tensor, spec: SoftBins, process_group: Group | World | None) -> Tensor:
    """Calibration on average or within groups, with features of the rows calibration given them."""
    if rows.seen is not None:
        check_default(spec)
    if process_group is not None:
        value = penalty_across(rows, edges, spec, Processes.of(process_group))
        if bool(value.detach().isnan().any()):  # every process sees the same one, and all of them refuse it
            no_rows()
        return value
    if rows.seen is not None:
        return part_penalty(rows.cdf, rows.event, rows.seen, edges, spec, rows.weights)
    if rows.features is None:
        return unchecked_penalty(rows.cdf, rows.event, edges, spec, rows.weights, rows.labels, rows.n_groups)
    return unchecked_conditional_penalty(rows.cdf, rows.event, rows.features, edges, spec, rows.weights)


def xcal_penalty(
    cdf: Tensor,
    event: Any,
    *,
    n_bins: int = FINE_BINS,
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
    cdf_entry: Any = None,
    cdf_lower: Any = None,
    times: Any = None,
    time: Any = None,
    entry: Any = None,
    process_group: Group | World | None = None,
) -> Tensor:
    r"""Soft D-calibration of a batch, differentiable: add ``lam * xcal_penalty(F, event)`` to a loss.

    It is a statistic of the whole batch, not a mean of per-row values, and its value is not D-calibration: for
    reporting use `d_calibration`.

    .. math:: \sum_k \Big( \frac1n \sum_i \zeta_{ik} - (b_k - a_k) \Big)^2, \qquad
              \zeta_{ik} = \sigma\Big(\frac{F_i - a_k}{\tau}\Big) - \sigma\Big(\frac{F_i - b_k}{\tau}\Big)

    is the default, with :math:`\zeta_{ik}` the soft share of event i in the bin :math:`[a_k, b_k)` and the temperature
    :math:`\tau` in units of F. The outermost edges count as infinite, so that the shares of a row add up to one.

    Parameters
    ----------
    cdf : Tensor of shape (..., n)
        F at each row's observed time. Leading dimensions are models, trained side by side on the same rows.
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
    cdf_entry : Tensor of shape (n,) or (..., n), optional
        For rows of delayed entry: F at the time from which each row was under observation. What a row has in each bin
        is compared with what a row that has come this far expects there, as in `d_calibration`.
    cdf_lower : Tensor of shape (n,) or (..., n), optional
        For events that are known to lie between two times: F at the earlier one, where `cdf` is F at the later one.
    times, time, entry : Tensors of shape (m,), (n,) and (n,), optional
        For events with several causes: with `times`, `cdf` are cumulative incidences of shape (..., n, causes, m) at
        these times, `event` is the cause, 1, 2, ... or 0 for a censored row, `time` the observed time and `entry` the
        time of entry, if there is one. The penalty is then a sum over bins and causes, as `cause_calibration` has it.
    process_group : group of torch.distributed or "world", optional
        The batch is then the rows of all processes of the group, or of all processes there are: each of them calls
        with its own rows, which may be none, and gets the same value. `XCALLoss` says more.

    Returns
    -------
    Tensor of shape (...), float32 or float64
        One penalty per model. Half-precision input is computed and returned in float32, under autocast too.

    Raises
    ------
    ValueError
        Naming the argument and the row. Values are not looked at while compiling, capturing a CUDA graph or in vmap.

    References
    ----------
    Goldstein, Han, Puli, Perotte, Ranganath (2020), X-CAL: Explicit Calibration for Survival Analysis, NeurIPS 33.

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
    beside = _Beside(features, cdf_entry, cdf_lower, times, time, entry)
    rows = rows_of(cdf, event, weights, groups, n_groups, beside, alone=process_group is None)
    if edges is None:
        bin_edges(n_bins)
        dtype = torch.float64 if rows.cdf.dtype == torch.float64 else torch.float32
        edge = torch.arange(n_bins + 1, device=rows.cdf.device, dtype=dtype) / n_bins
    else:
        edge = torch.as_tensor(bin_edges(edges=edges), device=rows.cdf.device)
    return penalty_of(rows, edge, spec, process_group)


class XCALLoss(nn.Module):
    """`xcal_penalty` as a module: made once, its edges move with the model.

    The defaults are ours: partition membership at half a bin width and the exact censored term. `XCALLoss.paper()` is
    the penalty of the paper. See `xcal_penalty` for the parameters, and for rows that are seen in part: from an entry
    on, between two times, with one of several causes.

    With ``process_group="world"`` (all processes) or a group of `torch.distributed`, each process calls it with its own
    rows and gets the penalty of the rows of all: the sums over bins are added up by one all-reduce, and no row leaves
    its process. Gradients must then be averaged over processes, as DistributedDataParallel, Lightning and Accelerate
    do; after that every parameter has the gradient of this one penalty. Processes may have different numbers of rows,
    or none. Use `with_mean` for the mean of the objective beside it. With groups give `n_groups`.
    ``torch.distributed.group.WORLD`` is None before the processes are initialised; "world" is looked up at every call.

    With `conditional`, a maker of features such as ``KernelFeatures().fit(X)``, it is called with the covariates `X` of
    its rows and penalises calibration given them, by the estimator "unbiased" unless another is asked for. The features
    are made on the CPU at every call. Where that is too slow, or the step is compiled or recorded, make those of all
    rows once and give those of the batch as `features`, without `conditional`.

    Examples
    --------
    >>> penalty = XCALLoss(n_bins=10)
    >>> penalty
    XCALLoss(n_bins=10, membership='partition', temperature=0.5, censored='exact', estimator='bound')
    >>> penalty(torch.rand(8, 100), torch.ones(100)).shape
    torch.Size([8])

    >>> from xcal.calibration import KernelFeatures
    >>> X = torch.rand(100, 3)
    >>> given = XCALLoss(conditional=KernelFeatures().fit(X))
    >>> given(torch.rand(32), torch.ones(32), X=X[:32]).shape
    torch.Size([])

    Incidences of two causes at four times, and causes 1, 2 or none:

    >>> cif = torch.tensor([0.1, 0.2, 0.3, 0.4]).expand(8, 2, 4)
    >>> penalty(cif, torch.tensor([0, 1, 2, 0, 1, 2, 1, 2]), times=torch.arange(1.0, 5.0), time=torch.rand(8)).shape
    torch.Size([])
    """

    def __init__(
        self,
        n_bins: int = FINE_BINS,
        *,
        edges: Any = None,
        membership: Membership = "partition",
        temperature: float | None = None,
        gamma: float | None = None,
        censored: Censored = "exact",
        estimator: Estimator | None = None,
        conditional: FeatureMaker | None = None,
        process_group: Group | World | None = None,
    ) -> None:
        super().__init__()
        # One that was not fitted would make other features in every batch and on every process.
        unfitted = isinstance(conditional, KernelFeatures)
        if unfitted or (conditional is not None and not callable(getattr(conditional, "of", None))):
            expected = "None or a maker of features that were fitted to all rows, such as KernelFeatures().fit(X)"
            fail("conditional", expected, type(conditional).__name__)
        if estimator is None:
            estimator = "bound" if conditional is None else "unbiased"
        self.conditional = conditional
        if isinstance(process_group, str) and process_group != "world":
            fail("process_group", 'a group of torch.distributed, "world" or None', repr(process_group))
        self.process_group = process_group
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

    def set_temperature(self, temperature: float) -> None:
        """Change the temperature of the membership, in bin widths: from epoch to epoch as `Annealing` says, for one.

        Examples
        --------
        >>> from xcal.calibration import Annealing
        >>> penalty, schedule = XCALLoss(), Annealing(epochs=10)
        >>> penalty.set_temperature(schedule.temperature(0))
        >>> penalty.spec.temperature
        2.0
        """
        self.spec = replace(self.spec, temperature=as_number("temperature", temperature, above=0))

    def forward(
        self,
        cdf: Tensor,
        event: Any,
        weights: Any = None,
        groups: Any = None,
        n_groups: int | None = None,
        features: Any = None,
        X: Any = None,
        *,
        cdf_entry: Any = None,
        cdf_lower: Any = None,
        times: Any = None,
        time: Any = None,
        entry: Any = None,
    ) -> Tensor:
        """Return one penalty per model, shape (...)."""
        beside = _Beside(features, cdf_entry, cdf_lower, times, time, entry)
        rows = self._rows(cdf, event, weights, groups, n_groups, beside, X)
        return penalty_of(rows, self.edges, self.spec, self.process_group)

    def _rows(
        self, cdf: Tensor, event: Any, weights: Any, groups: Any, n_groups: Any, beside: _Beside, X: Any
    ) -> LocalRows:
        """Check the rows; with `conditional` their features are made from the covariates."""
        if self.conditional is not None:
            if beside.features is not None:
                fail("features", "None, as conditional= makes them from X", type(beside.features).__name__)
            if X is None:
                fail("X", "the covariates of these rows, from which conditional= makes features", None)
            images = isinstance(X, Tensor) and X.ndim > 2 and X.layout == torch.strided
            beside = replace(beside, features=self.conditional.of(X.flatten(1) if images else X))
        elif X is not None:
            fail("X", "None, as this penalty was made without conditional=", type(X).__name__)
        return rows_of(cdf, event, weights, groups, n_groups, beside, alone=self.process_group is None)

    def with_mean(
        self,
        values: Any,
        cdf: Tensor,
        event: Any,
        weights: Any = None,
        groups: Any = None,
        n_groups: int | None = None,
        features: Any = None,
        X: Any = None,
        *,
        cdf_entry: Any = None,
        cdf_lower: Any = None,
        times: Any = None,
        time: Any = None,
        entry: Any = None,
    ) -> MeanAndPenalty:
        """Return the mean of one value per row, such as the negative log-likelihood, and the penalty of the same rows.

        With a `process_group` both are those of the rows of all processes, by a single all-reduce: the mean is that of
        `xcal.mean_across_processes`, which would take another one. `values` has the shape of `cdf`; a NaN gives NaN.

        Examples
        --------
        >>> penalty, nll = XCALLoss(n_bins=4), torch.tensor([1.0, 2.0, 6.0])
        >>> both = penalty.with_mean(nll, torch.tensor([0.2, 0.5, 0.7]), torch.ones(3))
        >>> loss = both.mean + 10 * both.penalty
        >>> both.mean
        tensor(3.)
        """
        beside = _Beside(features, cdf_entry, cdf_lower, times, time, entry)
        rows = self._rows(cdf, event, weights, groups, n_groups, beside, X)
        each = as_tensor("values", values, rows.cdf.device)
        if each.shape != rows.cdf.shape or not each.is_floating_point():
            expected = f"floating-point numbers of shape {tuple(rows.cdf.shape)}, as cdf"
            fail("values", expected, f"{each.dtype} of shape {tuple(each.shape)}")
        if self.process_group is not None:
            processes = Processes.of(self.process_group)
            return MeanAndPenalty(*mean_and_penalty_across(each, rows, self.edges, self.spec, processes))
        w = None if rows.weights is None else rows.weights.detach()
        mean = each.mean(-1) if w is None else (w * each).sum(-1) / w.sum(-1)
        return MeanAndPenalty(mean, penalty_of(rows, self.edges, self.spec, None))

    def slopes(
        self,
        cdf: Tensor,
        event: Any,
        weights: Any = None,
        groups: Any = None,
        n_groups: int | None = None,
        features: Any = None,
        X: Any = None,
    ) -> PenaltySlopes:
        """Return the penalty and its slope in F of every row, for a batch that is trained on in pieces.

        The penalty is a function of all rows of a batch, so the penalties of pieces (micro-batches of gradient
        accumulation) do not add up to it. Two passes do: F of all rows without gradient, then for each piece the loss
        ``(slopes * F).sum()``, whose gradients add up to that of the penalty. Both passes must see the same F: dropout
        has to draw the same numbers in both.

        Examples
        --------
        >>> penalty, x = XCALLoss(n_bins=4), torch.linspace(-1, 1, 8)
        >>> w = torch.tensor(0.5, requires_grad=True)
        >>> with torch.no_grad():
        ...     found = penalty.slopes(torch.sigmoid(w * x), torch.ones(8))
        >>> for piece, slopes in zip(x.split(3), found.slopes.split(3)):
        ...     (slopes * torch.sigmoid(w * piece)).sum().backward()
        >>> whole, = torch.autograd.grad(penalty(torch.sigmoid(w * x), torch.ones(8)), w)
        >>> torch.allclose(w.grad, whole)
        True
        """
        with torch.enable_grad():
            u = as_tensor("cdf", cdf).detach().requires_grad_()
            value = self(u, event, weights, groups, n_groups, features, X)
            (slopes,) = torch.autograd.grad(value.sum(), u)
        return PenaltySlopes(value.detach(), slopes)

    def extra_repr(self) -> str:
        """Return the settings in use, as the constructor takes them."""
        n_bins = self.edges.shape[0] - 1
        equal = torch.equal(self.edges.cpu(), torch.from_numpy(bin_edges(n_bins)))
        used: dict[str, Any] = {"n_bins": n_bins} if equal else {"edges": self.edges.tolist()}
        used["membership"] = self.spec.membership
        used |= {k: v for k in ("temperature", "gamma") if (v := getattr(self.spec, k)) is not None}
        used |= {"censored": self.spec.censored, "estimator": self.spec.estimator}
        if self.conditional is not None:
            used["conditional"] = self.conditional
        if self.process_group is not None:
            used["process_group"] = self.process_group
        return ", ".join(f"{k}={v!r}" for k, v in used.items())
