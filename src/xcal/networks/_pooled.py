"""Convolution blocks on a GPU: bias, ReLU, dropout and max-pooling in one pass, forward and backward.

One operation at a time, a block writes and reads its largest map five times over, and memory traffic and random
numbers take longer than the convolution. Here the map is read once; what is kept for the gradient is one byte for each
pooled value, which of the four it was.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_ELEMENTS = 1024  # of one tile, pixels times channels padded to a power of two
_PROGRAMS = 1024  # of a backward pass, each with a partial sum of its own


class _Layout:
    """Sizes of a pooled map ``(n, rows, columns, channels)`` made from ``(n, height, width)``."""

    def __init__(self, n: int, height: int, width: int, after: tuple[int, int], channels: int) -> None:
        self.n, self.channels = n, channels
        self.rows, self.columns = after[0] // 2, after[1] // 2
        self.sizes = (n * self.rows * self.columns, self.rows, self.columns, height, width, channels)
        self.padded = max(16, 1 << (channels - 1).bit_length())
        self.pixels = max(1, _ELEMENTS // self.padded)
        self.blocks = -(-self.sizes[0] // self.pixels)

    def empty(self, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return like.new_empty(self.n, self.rows, self.columns, self.channels, dtype=dtype)


class _Image(torch.autograd.Function):
    """Convolution with kernel 2 of images of one channel, ReLU, dropout, pooling; no gradient in the images."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rate: float, scale: Tensor) -> Tensor:
        from xcal.networks._kernels import image_forward

        x = x.contiguous()
        n, _, height, width = x.shape
        at = _Layout(n, height, width, (height - 1, width - 1), weight.shape[0])
        out, chosen = at.empty(x), at.empty(x, torch.uint8)
        with torch.cuda.device(x.device):
            image_forward[at.blocks,](
                x, weight.contiguous(), bias, _seed(x, rate), scale, out, chosen, *at.sizes, rate,
                DROPOUT=rate > 0, WHOLE=scale.numel() > 0, CHANNELS=at.padded, PIXELS=at.pixels,
            )  # fmt: skip
        ctx.save_for_backward(x, chosen, scale)
        ctx.at, ctx.rate = at, rate
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from xcal.networks._kernels import image_backward

        x, chosen, scale = ctx.saved_tensors
        at, grad = ctx.at, grads[0].permute(0, 2, 3, 1).contiguous()
        programs = min(_PROGRAMS, at.blocks)
        partial = x.new_empty(programs, 5, at.channels)
        with torch.cuda.device(x.device):
            image_backward[programs,](
                x, chosen, grad, scale, partial, *at.sizes, ctx.rate,
                WHOLE=scale.numel() > 0, CHANNELS=at.padded, PIXELS=at.pixels,
            )  # fmt: skip
        total = partial.sum(0)
        return None, total[:4].T.reshape(at.channels, 1, 2, 2), total[4], None, None


class _Map(torch.autograd.Function):
    """Bias, ReLU, dropout and pooling of the map that a convolution has made."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor, rate: float, scale: Tensor) -> Tensor:
        from xcal.networks._kernels import map_forward

        n, channels, height, width = y.shape
        at = _Layout(n, height, width, (height, width), channels)
        last = y.permute(0, 2, 3, 1).contiguous()
        out, chosen = at.empty(y), at.empty(y, torch.uint8)
        with torch.cuda.device(y.device):
            map_forward[at.blocks,](
                last, bias, _seed(y, rate), scale, out, chosen, *at.sizes, rate,
                DROPOUT=rate > 0, WHOLE=scale.numel() > 0, CHANNELS=at.padded, PIXELS=at.pixels,
            )  # fmt: skip
        ctx.save_for_backward(chosen, scale)
        ctx.at, ctx.rate, ctx.shape = at, rate, last.shape
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from xcal.networks._kernels import map_backward

        chosen, scale = ctx.saved_tensors
        at, grad = ctx.at, grads[0].permute(0, 2, 3, 1).contiguous()
        # Of an odd number of rows or columns the last is in no window.
        odd = ctx.shape[1] % 2 or ctx.shape[2] % 2
        out = grad.new_zeros(ctx.shape) if odd else grad.new_empty(ctx.shape)
        programs = min(_PROGRAMS, at.blocks)
        partial = grad.new_empty(programs, at.channels, dtype=torch.float32)
        with torch.cuda.device(grad.device):
            map_backward[programs,](
                chosen, grad, scale, out, partial, *at.sizes, ctx.rate,
                WHOLE=scale.numel() > 0, CHANNELS=at.padded, PIXELS=at.pixels,
            )  # fmt: skip
        return out.permute(0, 3, 1, 2), partial.sum(0), None, None


def _seed(like: Tensor, rate: float) -> Tensor:
    """Draw a seed on the device, so that a recorded step draws a new one each time it is replayed."""
    if rate > 0:
        return torch.randint(2**31 - 1, (1,), device=like.device)
    return torch.empty(0, dtype=torch.int64, device=like.device)


def _channel_scale(like: Tensor, channels: int, rate: float) -> Tensor:
    """Draw what `torch.nn.Dropout2d` multiplies the channels of each row by, as it does; empty without dropout."""
    if rate > 0:
        return like.new_empty(like.shape[0], channels, 1, 1).bernoulli_(1 - rate).div_(1 - rate)
    return like.new_empty(0)


def pooled_block(x: Tensor, convolution: torch.nn.Conv2d, *, single: float = 0.0, whole: float = 0.0) -> Tensor:
    """Convolve, activate, drop out and pool ``(n, before, height, width)``; the result is channels-last in memory.

    `single` and `whole` are the rates of dropout of single values and of whole channels.
    """
    weight, bias = convolution.weight, convolution.bias
    scale = _channel_scale(x, weight.shape[0], whole)
    result: Tensor
    if weight.shape[1] == 1 and not x.requires_grad:
        result = _Image.apply(x, weight, bias, single, scale)
    else:
        last = torch.channels_last
        y = torch.nn.functional.conv2d(x.contiguous(memory_format=last), weight.contiguous(memory_format=last))
        result = _Map.apply(y, bias, single, scale)
    return result
