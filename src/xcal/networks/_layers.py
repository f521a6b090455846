"""What a network is made of."""

from torch import nn

_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)


def has_convolutions(network: nn.Module) -> bool:
    """Whether any part of a network is a convolution, on which stacking does not pay and compiling does."""
    return any(isinstance(module, _CONVOLUTIONS) for module in network.modules())
