"""xcal: survival models whose probabilities can be trusted."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xcal.calibration import (
        Annealing,
        DCalibration,
        XCALLoss,
        conditional_calibration,
        d_calibration,
        mean_across_processes,
        xcal_penalty,
    )
    from xcal.calibration.significance import DCalibrationResult, GroupedDCalibration
    from xcal.data import Surv, SurvivalData
    from xcal.distributions import family
    from xcal.estimators import SurvivalModel, SurvivalPath, load
    from xcal.metrics import concordance_index, evaluate
    from xcal.metrics.evaluation import Evaluation
    from xcal.objectives import nll, survival_crps
    from xcal.recalibration.estimator import Recalibrated
    from xcal.training import TrainingConfig, fit_path
    from xcal.tuning import tune
    from xcal.validation.audit import audit
    from xcal.validation.comparison import ModelComparison, compare_models
    from xcal.validation.result import AuditResult
    from xcal.validation.table_one import table_one

__version__ = "0.1.0"

# Where each public name lives. A name is imported when it is first asked for: `xcal --help` needs none of them, and
# nobody pays for scikit-learn who does not use an estimator.
_HOME = {
    "Annealing": "calibration",
    "AuditResult": "validation.result",
    "DCalibration": "calibration",
    "DCalibrationResult": "calibration.significance",
    "Evaluation": "metrics.evaluation",
    "GroupedDCalibration": "calibration.significance",
    "ModelComparison": "validation.comparison",
    "Recalibrated": "recalibration.estimator",
    "Surv": "data",
    "SurvivalData": "data",
    "SurvivalModel": "estimators",
    "SurvivalPath": "estimators",
    "TrainingConfig": "training",
    "XCALLoss": "calibration",
    "audit": "validation",
    "compare_models": "validation",
    "concordance_index": "metrics",
    "conditional_calibration": "calibration",
    "d_calibration": "calibration",
    "evaluate": "metrics",
    "family": "distributions",
    "fit_path": "training",
    "load": "estimators",
    "mean_across_processes": "calibration",
    "nll": "objectives",
    "survival_crps": "objectives",
    "table_one": "validation.table_one",
    "tune": "tuning",
    "xcal_penalty": "calibration",
}
_PACKAGES = {
    "calibration",
    "data",
    "datasets",
    "distributions",
    "estimators",
    "interop",
    "metrics",
    "networks",
    "objectives",
    "recalibration",
    "training",
    "tuning",
    "validation",
}

__all__ = [
    "Annealing",
    "AuditResult",
    "DCalibration",
    "DCalibrationResult",
    "Evaluation",
    "GroupedDCalibration",
    "ModelComparison",
    "Recalibrated",
    "Surv",
    "SurvivalData",
    "SurvivalModel",
    "SurvivalPath",
    "TrainingConfig",
    "XCALLoss",
    "__version__",
    "audit",
    "compare_models",
    "concordance_index",
    "conditional_calibration",
    "d_calibration",
    "evaluate",
    "family",
    "fit_path",
    "load",
    "mean_across_processes",
    "nll",
    "survival_crps",
    "table_one",
    "tune",
    "xcal_penalty",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME and name not in _PACKAGES:
        raise AttributeError(f"module 'xcal' has no attribute {name!r}")
    from xcal._imports import importing

    with importing():
        module = import_module(f"xcal.{_HOME.get(name, name)}")
    value = getattr(module, name) if name in _HOME else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_PACKAGES})
