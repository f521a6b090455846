"""Where training starts: with predictions near what the data say as a whole."""

import torch
from torch import Tensor, nn

from xcal._checks import as_number, fail


@torch.no_grad()
def start_near(layer: nn.Linear, outputs: Tensor, *, spread: float = 0.1) -> None:
    """Set a network's last layer so that its first predictions are near given raw outputs, for every row.

    With ``family.initial(time, event)`` they are near the Kaplan-Meier curve of the training rows. From there a large
    weight of the calibration penalty finds its way; from random predictions it may settle on ones that are calibrated
    and tell no rows apart.

    Parameters
    ----------
    layer
        The last layer, with a bias.
    outputs
        Raw outputs, one for each of the layer's.
    spread
        Factor on the layer's weights: how much rows differ at first.

    Examples
    --------
    >>> from xcal.distributions import family
    >>> made = family("logistic-hazard", edges=[0.0, 1.0, 2.0, 4.0])
    >>> network = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, made.n_outputs))
    >>> start_near(network[-1], made.initial(time=[0.5, 1.5, 1.7, 3.0], event=[1, 1, 0, 1]))
    >>> made.distribution(network(torch.zeros(1, 3))).cdf(torch.tensor([1.0])).item() < 0.5
    True
    """
    if not isinstance(layer, nn.Linear) or layer.bias is None:
        fail("layer", "a linear layer with a bias", repr(layer))
    if tuple(outputs.shape) != (layer.out_features,):
        fail("outputs", f"{layer.out_features} numbers, one for each output of the layer", tuple(outputs.shape))
    layer.bias.copy_(outputs)
    layer.weight.mul_(as_number("spread", spread, at_least=0))
