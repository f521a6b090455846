"""The checks of the penalty's arguments."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import MANY, as_count, check_rows, fail, refuse_masked
from xcal._torch_private import in_transform


def readable(*tensors: Tensor | None) -> bool:
    """Whether values can be read now: not while a graph is compiled or captured."""
    if torch.compiler.is_compiling():
        return False
    on_gpu = any(t is not None and t.is_cuda for t in tensors)
    return not (on_gpu and torch.cuda.is_current_stream_capturing())


def is_true(flag: Tensor) -> bool:
    """Read a flag; inside torch.func.vmap there is no single value to read, and nothing is refused."""
    try:
        return bool(flag)
    except RuntimeError:
        if in_transform(flag):
            return False
        raise


def _refuse(name: str, expected: str, values: Tensor, bad: Tensor) -> None:
    """Raise if any value is bad, naming its row and, with several models, the model."""
    if is_true(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        value = values.expand(bad.shape)[where].item()
        if len(where) == 1:
            fail(name, expected, value, where[0])
        fail(name, expected, f"{value} in model {where[:-1]}", where[-1])


def _refuse_outside(name: str, values: Tensor) -> None:
    """Raise if any value lies outside [0, 1]. One pass over the values: NaN is its own smallest and largest."""
    if values.numel() == 0:
        return
    low, high = torch.aminmax(values.detach())
    if is_true(~((low >= 0) & (high <= 1))):
        _refuse(name, "values in [0, 1]", values, ~((values >= 0) & (values <= 1)))


def as_tensor(name: str, values: Any, device: torch.device | None = None) -> Tensor:
    """Turn an array into a tensor, or say that it is none."""
    refuse_masked(name, values)
    if isinstance(values, Tensor) and (values.is_meta or values.layout != torch.strided):
        fail(name, "a tensor whose values can be read", f"one of layout {values.layout} on device {values.device}")
    try:
        # Through numpy: torch would read a pandas column by its index, not by its position.
        made = torch.as_tensor(values if isinstance(values, Tensor) else _forwards(values), device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: expected a tensor or an array of numbers, got {type(values).__name__}") from error
    if made.is_complex():
        fail(name, "real numbers", f"dtype {made.dtype}")
    return made


def _forwards(values: Any) -> npt.NDArray[Any]:
    """Return an array whose rows lie in memory one after the other: torch takes none that was turned round."""
    array = np.asarray(values)
    return array.copy() if any(step < 0 for step in array.strides) else array


def _check_shapes(cdf: Tensor, rows: dict[str, Tensor | None], *, alone: bool) -> None:
    if not cdf.is_floating_point():
        fail("cdf", "a floating-point tensor of probabilities", f"dtype {cdf.dtype}")
    if cdf.ndim == 0 or (cdf.numel() == 0 and (alone or cdf.shape[-1] > 0)):
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


def checked(
    cdf: Tensor, event: Any, weights: Any, groups: Any, n_groups: int | None, *, alone: bool = True
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, int]:
    """Everything the penalty needs of its arguments, checked once, with groups as labels from 0.

    Where the process is not `alone`, others may have the rows, the weight and the labels that it has not.
    """
    if not torch.compiler.is_compiling():  # what is compiled takes tensors, which have no index
        check_rows({"cdf": cdf, "event": event, "weights": weights, "groups": groups})
    cdf = as_tensor("cdf", cdf)
    event = as_tensor("event", event, cdf.device)
    weights = None if weights is None else as_tensor("weights", weights, cdf.device)
    groups = None if groups is None else as_tensor("groups", groups, cdf.device)
    _check_shapes(cdf, {"event": event, "weights": weights, "groups": groups}, alone=alone)
    if groups is not None and groups.is_floating_point():
        fail("groups", "integer labels, one per row", f"dtype {groups.dtype}")
    if groups is None and n_groups is not None:
        fail("n_groups", "None where there are no groups", n_groups)
    if n_groups is not None:
        n_groups = as_count("n_groups", n_groups, at_least=1, at_most=MANY)
    if readable(cdf, event, weights, groups):
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
            if alone and is_true((weights.sum(-1) <= 0).any()):
                fail("weights", "a positive sum", "weights that are all zero")
        if groups is not None and n_groups is not None:
            _refuse("groups", f"labels from 0 to {n_groups - 1}", groups, (groups < 0) | (groups >= n_groups))
    if groups is not None:
        if n_groups is None:
            if not alone:
                fail("n_groups", "a number, as every process sees only the labels of its own rows", None)
            if torch.compiler.is_compiling():
                raise ValueError(
                    "n_groups: expected a number, as the labels cannot be counted while compiling, got None"
                )
            known, groups = torch.unique(groups, return_inverse=True)
            n_groups = known.shape[0]
        groups = groups.long()
    return cdf, event.bool(), weights, groups, n_groups or 1
