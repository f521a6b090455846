"""The convolutional network of the paper's Survival-MNIST experiment."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from xcal._checks import fail
from xcal.networks._arguments import check_dropout, check_size, check_sizes

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
        After every ReLU.

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
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        if len(image) != 3:
            fail("image", "(channels, height, width)", image)
        before, height, width = (check_size("image", size) for size in image)
        layers: list[nn.Module] = []
        for after in check_sizes("channels", channels):
            height, width = height - _KERNEL + 1, width - _KERNEL + 1
            if min(height, width) < 1:
                fail("image", f"an image large enough for {len(channels)} convolutions", image)
            layers += [nn.Conv2d(before, after, _KERNEL), nn.ReLU(), nn.Dropout(dropout)]
            if min(height, width) >= _POOL:
                layers.append(nn.MaxPool2d(_POOL))
                height, width = height // _POOL, width // _POOL
            before = after
        layers.append(nn.Flatten(start_dim=-3))
        sizes = [before * height * width, *check_sizes("head", head)]
        for fan_in, fan_out in pairwise(sizes):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU(), nn.Dropout(dropout)]
        self.body = nn.Sequential(*layers)
        self.output = nn.Linear(sizes[-1], check_size("n_outputs", n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(n, channels, height, width)`` to ``(n, n_outputs)``."""
        result: Tensor = self.output(self.body(x))
        return result
