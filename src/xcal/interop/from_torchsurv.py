"""Networks trained with torchsurv, inside `TorchsurvWeibull` or `TorchsurvCox`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcal._checks import FloatArray, as_event, as_time, fail
from xcal.distributions import SurvivalDistribution, Weibull
from xcal.interop.gathering import class_name, from_distribution, from_own_times
from xcal.interop.predictions import ModelPredictions
from xcal.interop.rows import Rows, take_rows
from xcal.interop.torchsurv_models import TorchsurvCox


def read(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a network by what its outputs mean."""
    name = f"{class_name(model.network)} ({'Cox' if isinstance(model, TorchsurvCox) else 'Weibull'})"
    if isinstance(model, TorchsurvCox):
        return _cox(model, X, rows, name)
    return from_distribution(name, "torchsurv", lambda part: _weibull(model.network, take_rows(X, part)), rows)


def _outputs(network: Any, X: Any) -> Tensor:
    """Run a network in evaluation mode; outputs in float64, and the network is left in the mode that it was in."""
    parameter = next(network.parameters(), torch.zeros(()))
    values = X if isinstance(X, Tensor) else torch.as_tensor(np.asarray(X, dtype=np.float64))
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            outputs: Tensor = network(values.to(device=parameter.device, dtype=parameter.dtype))
    finally:
        network.train(training)
    return outputs.double().cpu()


def _weibull(network: Any, X: Any) -> SurvivalDistribution:
    outputs = _outputs(network, X)
    if outputs.ndim != 2 or outputs.shape[1] not in (1, 2):
        fail("network", "outputs of shape (rows, 2), log scale and log shape", tuple(outputs.shape))
    log_shape = outputs[:, 1] if outputs.shape[1] == 2 else torch.zeros(len(outputs), dtype=torch.float64)
    return Weibull(torch.exp(outputs[:, 0]), torch.exp(log_shape))


def _cox(model: TorchsurvCox, X: Any, rows: Rows, name: str) -> ModelPredictions:
    try:
        from torchsurv.loss.cox import baseline_survival_function
    except ImportError as error:
        raise ImportError("TorchsurvCox estimates the baseline with torchsurv: pip install torchsurv") from error
    time = as_time(model.time, name="TorchsurvCox time")
    event = as_event(model.event, time.size, reference="time", name="TorchsurvCox event")
    seen = torch.from_numpy(np.asarray(time, dtype=np.float64))
    hazards = _log_hazard(model.network, model.X)
    baseline: Any = baseline_survival_function(hazards, torch.from_numpy(np.array(event)), seen)
    own = baseline["time"].numpy().astype(np.float64)
    start: FloatArray = baseline["baseline_survival"].numpy()

    def predict(part: slice) -> FloatArray:
        relative = torch.exp(_log_hazard(model.network, take_rows(X, part))).numpy()
        return np.asarray(start[None, :] ** relative[:, None])

    origin = f"Curves are by Breslow's estimator on the {time.size:,} training rows, at their {own.size:,} times."
    return from_own_times(name, "torchsurv", predict, own, rows, "previous", origin)


def _log_hazard(network: Any, X: Any) -> Tensor:
    outputs = _outputs(network, X)
    if outputs.ndim == 2 and outputs.shape[1] == 1:
        return outputs[:, 0]
    if outputs.ndim != 1:
        fail("network", "outputs of shape (rows,) or (rows, 1), the log relative hazard", tuple(outputs.shape))
    return outputs
