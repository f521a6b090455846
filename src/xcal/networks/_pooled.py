"""Convolution blocks on a GPU: convolution, bias, ReLU, dropout and max-pooling in one pass, forward and backward.

One operation at a time, a block writes and reads its largest map five times over, and memory traffic and random
numbers take longer than the convolution. Here that map is never written; what is kept for the gradient is one byte for
each pooled value, which of the four it was. `_kernels` has images of one channel, `_convolution_kernels` maps of many.
Maps whose channels do not fill tiles, and convolutions without TensorFloat-32, are left to cuDNN, and the rest is one
pass.
"""

from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_ELEMENTS = 1024  # of one tile, pixels times channels padded to a power of two
_PROGRAMS = 792  # of a backward pass, each with a partial sum of its own
_WEIGHT_PROGRAMS = 528  # the same where the partial sums are large, those of a convolution's weights
_CHANNELS = 16  # at least, of a matrix product


class _Tile(NamedTuple):
    """What one program of a pass over maps of many channels takes at a time, and how."""

    pixels: int
    before: int
    after: int
    warps: int
    stages: int

    def options(self, before: int, after: int) -> dict[str, Any]:
        parts = {"PART_BEFORE": gcd(before, self.before), "PART_AFTER": gcd(after, self.after), "PIXELS": self.pixels}
        how = {"PRECISION": _precision(), "num_warps": self.warps, "num_stages": self.stages}
        return {"BEFORE": before, "AFTER": after, **parts, **how}


_FORWARD, _BACKWARD, _WEIGHTS = _Tile(64, 16, 64, 4, 3), _Tile(64, 32, 16, 4, 3), _Tile(16, 32, 64, 4, 3)


class _Layout:
    """Sizes of a pooled map ``(n, rows, columns, channels)`` made from ``(n, height, width)``."""

    def __init__(self, n: int, height: int, width: int, after: tuple[int, int], channels: int) -> None:
        self.n, self.channels = n, channels
        self.rows, self.columns = after[0] // 2, after[1] // 2
        self.n_pixels = n * self.rows * self.columns
        self.sizes = {"ROWS": self.rows, "COLUMNS": self.columns, "HEIGHT": height, "WIDTH": width}

    def tiles(self, elements: int = _ELEMENTS) -> tuple[int, dict[str, int]]:
        """Return how many tiles of about so many elements the map has, and how large they are."""
        padded = max(16, 1 << (self.channels - 1).bit_length())
        pixels = max(1, elements // padded)
        return -(-self.n_pixels // pixels), {"CHANNELS": padded, "PIXELS": pixels}

    def empty(self, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return like.new_empty(self.n, self.rows, self.columns, self.channels, dtype=dtype)


class _Image(torch.autograd.Function):
    """Convolution with kernel 2 of images of one channel, ReLU, dropout, pooling; no gradient in the images."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rate: float, mask: Tensor, factor: float) -> Tensor:
        from xcal.networks._kernels import image_forward

        x = x.contiguous()
        n, _, height, width = x.shape
        at = _Layout(n, height, width, (height - 1, width - 1), weight.shape[0])
        out, chosen = at.empty(x), at.empty(x, torch.uint8)
        # Larger tiles were measured without random numbers for single values, which need registers.
        blocks, tile = at.tiles(_ELEMENTS if rate > 0 else 2 * _ELEMENTS)
        with torch.cuda.device(x.device):
            image_forward[blocks,](
                x, weight.contiguous(), bias, _seed(x, rate), mask, out, chosen, at.n_pixels, at.channels, rate, factor,
                **at.sizes, DROPOUT=rate > 0, WHOLE=mask.numel() > 0, **tile,
            )  # fmt: skip
        ctx.save_for_backward(x, chosen)
        ctx.at, ctx.rate, ctx.factor = at, rate, factor
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from xcal.networks._kernels import image_backward

        x, chosen = ctx.saved_tensors
        at, grad = ctx.at, grads[0].permute(0, 2, 3, 1).contiguous()
        blocks, tile = at.tiles()
        programs = min(_PROGRAMS, blocks)
        partial = x.new_empty(programs, 5, at.channels)
        with torch.cuda.device(x.device):
            image_backward[programs,](
                x, chosen, grad, partial, at.n_pixels, at.channels, ctx.rate, ctx.factor, **at.sizes, **tile
            )
        total = partial.sum(0)
        return None, total[:4].T.reshape(at.channels, 1, 2, 2), total[4], None, None, None


class _Convolution(torch.autograd.Function):
    """Convolution with kernel 2 of maps of many channels, ReLU, dropout, pooling."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rate: float, mask: Tensor, factor: float) -> Tensor:
        from xcal.networks._convolution_kernels import convolution_forward

        n, before, height, width = x.shape
        at = _Layout(n, height, width, (height - 1, width - 1), weight.shape[0])
        last, flat = x.permute(0, 2, 3, 1).contiguous(), weight.permute(0, 2, 3, 1).contiguous()
        out, chosen = at.empty(x), at.empty(x, torch.uint8)
        options = _FORWARD.options(before, at.channels)
        with torch.cuda.device(x.device):
            convolution_forward[-(-at.n_pixels // _FORWARD.pixels), at.channels // options["PART_AFTER"]](
                last, flat, bias, _seed(x, rate), mask, out, chosen, at.n_pixels, rate, factor,
                **at.sizes, DROPOUT=rate > 0, WHOLE=mask.numel() > 0, **options,
            )  # fmt: skip
        ctx.save_for_backward(last, weight, chosen)
        ctx.at, ctx.factor = at, factor / (1 - rate)
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        last, weight, chosen = ctx.saved_tensors
        grad = grads[0].permute(0, 2, 3, 1).contiguous()
        with torch.cuda.device(last.device):
            in_map = _map_gradient(ctx, weight, chosen, grad, last) if ctx.needs_input_grad[0] else None
            return in_map, *_weight_gradient(ctx, chosen, grad, last), None, None, None


def _map_gradient(ctx: Any, weight: Tensor, chosen: Tensor, grad: Tensor, last: Tensor) -> Tensor:
    """Gradient of a convolution block in its map."""
    from xcal.networks._convolution_kernels import convolution_backward

    at, (n, height, width, before), out = ctx.at, last.shape, torch.empty_like(last)
    cells, options = n * ((height + 1) // 2) * ((width + 1) // 2), _BACKWARD.options(before, at.channels)
    transposed = weight.permute(2, 3, 1, 0).contiguous()
    convolution_backward[-(-cells // _BACKWARD.pixels), before // options["PART_BEFORE"]](
        chosen, grad, transposed, out, cells, ctx.factor, **at.sizes, **options
    )
    return out.permute(0, 3, 1, 2)


def _weight_gradient(ctx: Any, chosen: Tensor, grad: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient of a convolution block in its weights and bias."""
    from xcal.networks._convolution_kernels import convolution_weights

    at, before = ctx.at, last.shape[3]
    options = _WEIGHTS.options(before, at.channels)
    tiles = at.channels // options["PART_AFTER"], before // options["PART_BEFORE"]
    programs = max(1, min(_WEIGHT_PROGRAMS // (tiles[0] * tiles[1]), -(-at.n_pixels // _WEIGHTS.pixels)))
    partial, partial_bias = grad.new_empty(programs, at.channels, 2, 2, before), grad.new_empty(programs, at.channels)
    convolution_weights[programs, *tiles](
        last, chosen, grad, partial, partial_bias, at.n_pixels, ctx.factor, **at.sizes, **options
    )
    return partial.sum(0).permute(0, 3, 1, 2), partial_bias.sum(0)


class _Map(torch.autograd.Function):
    """Bias, ReLU, dropout and pooling of the map that a convolution has made."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor, rate: float, mask: Tensor, factor: float) -> Tensor:
        from xcal.networks._kernels import map_forward

        n, channels, height, width = y.shape
        at = _Layout(n, height, width, (height, width), channels)
        last = y.permute(0, 2, 3, 1).contiguous()
        out, chosen = at.empty(y), at.empty(y, torch.uint8)
        blocks, tile = at.tiles()
        with torch.cuda.device(y.device):
            map_forward[blocks,](
                last, bias, _seed(y, rate), mask, out, chosen, at.n_pixels, at.channels, rate, factor,
                **at.sizes, DROPOUT=rate > 0, WHOLE=mask.numel() > 0, **tile,
            )  # fmt: skip
        ctx.save_for_backward(chosen)
        ctx.at, ctx.rate, ctx.factor, ctx.shape = at, rate, factor, last.shape
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from xcal.networks._kernels import map_backward

        (chosen,) = ctx.saved_tensors
        at, grad = ctx.at, grads[0].permute(0, 2, 3, 1).contiguous()
        # Of an odd number of rows or columns the last is in no window.
        odd = ctx.shape[1] % 2 or ctx.shape[2] % 2
        out = grad.new_zeros(ctx.shape) if odd else grad.new_empty(ctx.shape)
        blocks, tile = at.tiles()
        programs = min(_PROGRAMS, blocks)
        partial = grad.new_empty(programs, at.channels)
        with torch.cuda.device(grad.device):
            map_backward[programs,](
                chosen, grad, out, partial, at.n_pixels, at.channels, ctx.rate, ctx.factor, **at.sizes, **tile
            )
        return out.permute(0, 3, 1, 2), partial.sum(0), None, None, None


def _seed(like: Tensor, rate: float) -> Tensor:
    """Draw a seed on the device, so that a recorded step draws a new one each time it is replayed."""
    if rate > 0:
        return torch.randint(2**31 - 1, (1,), device=like.device)
    return torch.empty(0, dtype=torch.int64, device=like.device)


def _kept_channels(like: Tensor, channels: int, rate: float) -> tuple[Tensor, float]:
    """Draw the channels of each row that `torch.nn.Dropout2d` keeps, as it does, and what it multiplies them by.

    Without dropout the former is empty. The latter is divided in single precision, as torch has it.
    """
    if rate > 0:
        kept = like.new_empty(like.shape[0], channels, 1, 1).bernoulli_(1 - rate)
        return kept, torch.tensor(1 - rate, dtype=torch.float32).reciprocal().item()
    return like.new_empty(0), 1.0


def _precision() -> str:
    """Return what cuDNN computes a convolution in."""
    conv: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]  # torch has no types there
    return "tf32" if conv.fp32_precision == "tf32" else "ieee"


def _tiled(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels for maps of many channels are used: for products in TensorFloat-32, of whole tiles.

    They were measured on Hopper; for others Triton may not compile them, and cuDNN may be faster.
    """
    whole = all(channels % _CHANNELS == 0 for channels in weight.shape[:2])
    hopper = torch.version.hip is None and torch.cuda.get_device_capability(x.device)[0] == 9
    return whole and hopper and _precision() == "tf32"


def pooled_block(x: Tensor, convolution: torch.nn.Conv2d, *, single: float = 0.0, whole: float = 0.0) -> Tensor:
    """Convolve, activate, drop out and pool ``(n, before, height, width)``; the result is channels-last in memory.

    `single` and `whole` are the rates of dropout of single values and of whole channels.
    """
    weight, bias = convolution.weight, convolution.bias
    kept = _kept_channels(x, weight.shape[0], whole)
    result: Tensor
    if weight.shape[1] == 1 and not x.requires_grad:
        result = _Image.apply(x, weight, bias, single, *kept)
    elif _tiled(x, weight):
        result = _Convolution.apply(x, weight, bias, single, *kept)
    else:
        last = torch.channels_last
        y = torch.nn.functional.conv2d(x.contiguous(memory_format=last), weight.contiguous(memory_format=last))
        result = _Map.apply(y, bias, single, *kept)
    return result
