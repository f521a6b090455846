"""The convolutional networks of the Survival-MNIST experiment: of the paper's text, and of its published code.

First the networks, then their blocks on a GPU.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import max_pool2d, relu

from xcal._checks import fail
from xcal._torch_private import kernels_usable
from xcal.networks import check_dropout, check_size, check_sizes

__all__ = ["PaperCNN", "PublishedCNN"]

# Modules that these had before; a fingerprint of a run knows them by it (`xcal.training.checkpoint`).
FORMER_MODULES = dict.fromkeys(("PaperCNN", "PublishedCNN", "_Block"), "xcal.networks.convolutional")

_KERNEL, _POOL = 2, 2


class PaperCNN(nn.Module):
    """Convolutions of kernel 2 and stride 1, each followed by ReLU, dropout and max-pooling of 2; then a dense head.

    As the paper's text has it (the published code has another network). On a 28 x 28 image the map is 1 x 1 after the
    fourth convolution ("the last layer containing scalars"), where there is nothing left to pool: pooling is left out
    once the map is one pixel wide.

    Parameters
    ----------
    n_outputs
        Raw outputs that the family asks for.
    image : (channels, height, width)
        Shape of one row.
    channels
        Channels of the convolutions.
    head
        Hidden units after them; ``()`` is the linear head of the paper's MTLR.
    dropout
        Of single values, after every ReLU and before pooling, as the text says. Pooling then picks the largest of what
        is left, scaled up by 1 / (1 - dropout): maps are larger in training than in use.
    released_dropout
        What is dropped the text leaves open. With this it is what the layers of the released code drop: whole channels
        of a map, which pooling leaves as large as they are, and nothing after the last hidden layer of the head.

    Examples
    --------
    >>> import torch
    >>> PaperCNN(50)(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 50])
    """

    def __init__(
        self,
        n_outputs: int,
        image: tuple[int, int, int] = (1, 28, 28),
        *,
        channels: Sequence[int] = (32, 64, 128, 256),
        head: Sequence[int] = (512, 1024, 1024),
        dropout: float = 0.0,
        released_dropout: bool = False,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        if len(image) != 3:
            fail("image", "(channels, height, width)", image)
        before, height, width = (check_size("image", size) for size in image)
        convolutions: list[nn.Module] = []
        for after in check_sizes("channels", channels):
            height, width = height - _KERNEL + 1, width - _KERNEL + 1
            if min(height, width) < 1:
                fail("image", f"an image large enough for {len(channels)} convolutions", image)
            pooled = min(height, width) >= _POOL
            convolutions.append(_Block(before, after, pooled=pooled, dropout=dropout, whole=released_dropout))
            if pooled:
                height, width = height // _POOL, width // _POOL
            before = after
        sizes = [before * height * width, *check_sizes("head", head)]
        self.convolutions = nn.Sequential(*convolutions)
        self.body = nn.Sequential(nn.Flatten(start_dim=-3), *_hidden(sizes, dropout, last=not released_dropout))
        self.output = nn.Linear(sizes[-1], check_size("n_outputs", n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(n, channels, height, width)`` to ``(n, n_outputs)``."""
        result: Tensor = self.output(self.body(self.convolutions(x)))
        return result


class _Block(nn.Module):
    """Convolution, ReLU, dropout, max-pooling.

    Where no single values are dropped, pooling comes first: the order changes nothing, and the pooled map is a quarter
    of the work. On a GPU all of it is one pass, or all but the convolution (`pooled_block`).
    """

    def __init__(self, before: int, after: int, *, pooled: bool, dropout: float, whole: bool) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, after, _KERNEL)
        self.dropout: nn.Module = nn.Dropout2d(dropout) if whole else nn.Dropout(dropout)
        # Rates for single values, which pooling must not come before, and for whole channels.
        self.single, self.whole = (0.0, dropout) if whole else (dropout, 0.0)
        self.pooled = pooled

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., before, height, width)`` to ``(..., after, smaller, smaller)``."""
        single, whole = (self.single, self.whole) if self.training else (0.0, 0.0)
        if self.pooled and x.ndim == 4 and kernels_usable(x) and kernels_usable(self.convolution.weight):
            return pooled_block(x, self.convolution, single=single, whole=whole)
        y = self.convolution(x)
        if not self.pooled:
            return self._dropped(relu(y))
        if single > 0:
            return max_pool2d(self._dropped(relu(y)), _POOL)
        return self._dropped(relu(max_pool2d(y, _POOL)))

    def _dropped(self, x: Tensor) -> Tensor:
        result: Tensor = self.dropout(x)
        return result


def _hidden(sizes: Sequence[int], dropout: float, *, last: bool) -> list[nn.Module]:
    """Dense layers with ReLU and dropout; after the last of them only if `last`."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU(), nn.Dropout(dropout)]
    return layers if last else layers[:-1]


class PublishedCNN(nn.Module):
    """The network of the published code, which is not that of the paper's text.

    Convolutions of kernels 5, 5 and 4 with 64, 128 and 256 channels; after each of the first two ReLU, dropout of whole
    channels and average pooling of 2. Then a dense head, with dropout between its hidden layers and none before the
    output. For images of 28 x 28.

    Parameters
    ----------
    n_outputs, head, dropout
        As in `PaperCNN`.

    Examples
    --------
    >>> import torch
    >>> PublishedCNN(50)(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 50])
    """

    def __init__(self, n_outputs: int, *, head: Sequence[int] = (1024, 1024, 1024), dropout: float = 0.0) -> None:
        super().__init__()
        check_dropout(dropout)
        layers: list[nn.Module] = []
        for before, after in ((1, 64), (64, 128)):
            layers += [nn.Conv2d(before, after, 5), nn.ReLU(), nn.Dropout2d(dropout), nn.AvgPool2d(_POOL)]
        layers += [nn.Conv2d(128, 256, 4), nn.ReLU(), nn.Flatten(start_dim=-3)]
        sizes = [256, *check_sizes("head", head)]
        layers += _hidden(sizes, dropout, last=False)
        self.body = nn.Sequential(*layers)
        self.output = nn.Linear(sizes[-1], check_size("n_outputs", n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(n, 1, 28, 28)`` to ``(n, n_outputs)``."""
        if x.shape[-3:] != (1, 28, 28):
            fail("x", "images of 1 x 28 x 28", tuple(x.shape))
        result: Tensor = self.output(self.body(x))
        return result


# ----------------------------------------------------------------------------------------------------------------------
# Convolution blocks on a GPU: convolution, bias, ReLU, dropout and max-pooling in one pass, forward and backward.
#
# One operation at a time, a block writes and reads its largest map five times over, and memory traffic and random
# numbers take longer than the convolution. Here that map is never written; what is kept for the gradient is one byte
# for each pooled value, which of the four it was. `_kernels` has images of one channel, and maps of many. Maps whose
# channels do not fill tiles, and convolutions without TensorFloat-32, are left to cuDNN, and the rest is one pass.


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
        from xcal_paper._kernels import image_forward

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
        from xcal_paper._kernels import image_backward

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
        from xcal_paper._kernels import convolution_forward

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
    from xcal_paper._kernels import convolution_backward

    at, (n, height, width, before), out = ctx.at, last.shape, torch.empty_like(last)
    cells, options = n * ((height + 1) // 2) * ((width + 1) // 2), _BACKWARD.options(before, at.channels)
    transposed = weight.permute(2, 3, 1, 0).contiguous()
    convolution_backward[-(-cells // _BACKWARD.pixels), before // options["PART_BEFORE"]](
        chosen, grad, transposed, out, cells, ctx.factor, **at.sizes, **options
    )
    return out.permute(0, 3, 1, 2)


def _weight_gradient(ctx: Any, chosen: Tensor, grad: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient of a convolution block in its weights and bias."""
    from xcal_paper._kernels import convolution_weights

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
        from xcal_paper._kernels import map_forward

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
        from xcal_paper._kernels import map_backward

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
    """Return whether the kernels for maps of many channels are used: for products in TensorFloat-32, of whole tiles.

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
