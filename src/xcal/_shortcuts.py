"""When torch's general ways can be left for shorter ones."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

_TRITON = find_spec("triton") is not None


def kernels_usable(values: Tensor) -> bool:
    """Whether Triton kernels can take these values: plain float32 on CUDA, outside compilation and transforms."""
    if torch.compiler.is_compiling():
        return False
    plain = values.is_cuda and values.dtype == torch.float32
    return _TRITON and plain and not torch._C._functorch.is_functorch_wrapped_tensor(values)


def apply(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """``function.apply(*inputs)``, without the look at its signature that costs 25 microseconds at every call."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return function.apply(*inputs)
    # What Function.apply itself ends in; torch's stubs do not know the base class.
    return super(torch.autograd.Function, function).apply(*inputs)  # type: ignore[misc]
