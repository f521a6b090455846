"""Networks trained with torchsurv.

torchsurv has losses and no models: a network is a plain torch module, and nothing in it says what its output means.
These two say it.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class TorchsurvWeibull:
    """A network that was trained with `torchsurv.loss.weibull`: its outputs are log scale and log shape.

    Parameters
    ----------
    network : torch.nn.Module
        From features to (n, 2), or (n, 1) for a shape of 1.
    """

    network: Any


@dataclass(frozen=True, eq=False)
class TorchsurvCox:
    """A network that was trained with `torchsurv.loss.cox`: its output is the log relative hazard.

    Parameters
    ----------
    network : torch.nn.Module
        From features to (n,) or (n, 1).
    X, time, event
        The training rows, from which `torchsurv.loss.cox.baseline_survival_function` estimates Breslow's baseline.
    """

    network: Any
    X: Any
    time: Any
    event: Any
