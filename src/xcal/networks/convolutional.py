"""The convolutional networks of the Survival-MNIST experiment: of the paper's text, and of its published code."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from xcal._checks import fail
from xcal._torch_private import kernels_usable
from xcal.networks._arguments import check_dropout, check_size, check_sizes
from xcal.networks._pooled import pooled_block

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
    of the work. On a GPU all of it is one pass, or all but the convolution (`_pooled`).
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
