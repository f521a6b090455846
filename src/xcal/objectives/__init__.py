"""Training objectives, one value per row; the caller reduces."""

from xcal.objectives.crps import survival_crps
from xcal.objectives.likelihood import nll

__all__ = ["nll", "survival_crps"]
