"""Models and curves of other libraries, each behind its own lazy import."""

from xcal.interop.libraries import Library, register, supported, unregister
from xcal.interop.predictions import ModelPredictions
from xcal.interop.reading import read_model
from xcal.interop.rows import Rows
from xcal.interop.torchsurv_models import TorchsurvCox, TorchsurvWeibull

__all__ = [
    "Library",
    "ModelPredictions",
    "Rows",
    "TorchsurvCox",
    "TorchsurvWeibull",
    "read_model",
    "register",
    "supported",
    "unregister",
]
