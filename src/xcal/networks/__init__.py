"""Networks: plain torch modules from covariates to the raw outputs of a family, ``(n, ...)`` to ``(n, n_outputs)``."""

from xcal.networks.dense import MLP, Linear
from xcal.networks.start import start_near
from xcal.networks.towers import TwoTower

__all__ = ["MLP", "Linear", "TwoTower", "start_near"]
