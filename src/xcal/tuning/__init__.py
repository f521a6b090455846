"""Search for the settings of an estimator: outside the settings, inside a whole path of weights for each of them."""

from xcal.tuning.result import TuningResult
from xcal.tuning.search import tune
from xcal.tuning.space import Range

__all__ = ["Range", "TuningResult", "tune"]
