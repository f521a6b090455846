"""Training objectives, one value per row; the caller reduces."""

from xcal.objectives.crps import survival_crps
from xcal.objectives.joint import gives_cdf
from xcal.objectives.likelihood import nll

__all__ = ["gives_cdf", "nll", "survival_crps"]
