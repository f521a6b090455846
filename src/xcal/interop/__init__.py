"""Models and curves of other libraries, each behind its own lazy import."""

from xcal.interop.predictions import HazardFunction, ModelPredictions, Rows
from xcal.interop.readers import TorchsurvCox, TorchsurvWeibull
from xcal.interop.reading import Library, read_model, register, supported

__all__ = [
    "HazardFunction",
    "Library",
    "ModelPredictions",
    "Rows",
    "TorchsurvCox",
    "TorchsurvWeibull",
    "read_model",
    "register",
    "supported",
]
