"""When a Triton kernel can stand in for torch operations."""

from importlib.util import find_spec

import torch
from torch import Tensor

_INSTALLED = find_spec("triton") is not None


def usable(values: Tensor) -> bool:
    """Whether kernels can take these values: plain float32 on CUDA, outside compilation and function transforms."""
    if torch.compiler.is_compiling():
        return False
    plain = values.is_cuda and values.dtype == torch.float32
    return _INSTALLED and plain and not torch._C._functorch.is_functorch_wrapped_tensor(values)
