"""What surrounds a computation does not change it: under autocast every value is the same, to the last bit."""

import numpy as np
import pytest
import torch
from torch import nn

import xcal
from xcal.calibration.subgroups import KernelFeatures
from xcal.interop import TorchsurvWeibull

RNG = np.random.default_rng(0)
N, TIMES = 240, [0.2, 0.5, 1.0, 2.0]
X = RNG.normal(size=(N, 3)).astype(np.float32)
TIME, EVENT = RNG.exponential(np.exp(X[:, 0])), RNG.random(N) < 0.8
Y = TIME, EVENT
CDF = torch.tensor(-np.expm1(-TIME / np.exp(X[:, 0])), dtype=torch.float32)
HAPPENED = torch.tensor(EVENT)
FEATURES = KernelFeatures().fit(X)
FAST = {"epochs": 2, "hidden": (4,), "random_state": 0, "progress": False}


@pytest.fixture(scope="module")
def model():
    return xcal.SurvivalModel(**FAST).fit(X, Y)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def numbers(result):
    return np.array([value.value for value in result])


def gradient(penalty):
    u = CDF.clone().requires_grad_()
    penalty(u).backward()
    return u.grad


COMPUTED = {
    "predict": lambda model: model.predict(X),
    "predict_survival_function": lambda model: model.predict_survival_function(X, TIMES),
    "predict_median": lambda model: model.predict_median(X),
    "predict_distribution": lambda model: model.predict_distribution(X).cdf(torch.tensor(TIME)),
    "score": lambda model: model.score(X, Y),
    "SurvivalModel.d_calibration": lambda model: model.d_calibration(X, Y).value,
    "audit": lambda model: numbers(xcal.audit(model, X, Y, n_bootstrap=0, progress=False)),
    "audit of a network": lambda _: numbers(
        xcal.audit(TorchsurvWeibull(network()), torch.tensor(X), Y, n_bootstrap=0, progress=False)
    ),
    "evaluate": lambda model: numbers(
        xcal.evaluate(time=TIME, event=EVENT, survival=model.predict_survival_function(X, TIMES), times=TIMES).scores
    ),
    "Recalibrated": lambda model: xcal.Recalibrated(model).fit(X, Y).predict_survival_function(X, TIMES),
    "fit": lambda _: xcal.SurvivalModel(**FAST).fit(X, Y).predict(X),
    "fit, conditional": lambda _: (
        xcal.SurvivalModel(**FAST, calibration="conditional", xcal_lambda=9).fit(X, Y).predict(X)
    ),
    "SurvivalPath": lambda _: xcal.SurvivalPath((0, 10), 2, **FAST, cross_fit=2).fit(X, Y).predict(X),
    "d_calibration": lambda _: xcal.d_calibration(CDF, HAPPENED).value,
    "conditional_calibration": lambda _: xcal.conditional_calibration(CDF, HAPPENED, X, n_draws=9).value,
    "xcal_penalty": lambda _: xcal.xcal_penalty(CDF, HAPPENED),
    "xcal_penalty, gradient": lambda _: gradient(lambda u: xcal.xcal_penalty(u, HAPPENED)),
    "XCALLoss.paper": lambda _: xcal.XCALLoss.paper()(CDF, HAPPENED),
    "XCALLoss, conditional": lambda _: gradient(lambda u: xcal.XCALLoss(conditional=FEATURES)(u, HAPPENED, X=X)),
    "KernelFeatures": lambda _: FEATURES.of(X),
    "nll": lambda model: xcal.nll(model.predict_distribution(X), torch.tensor(TIME), HAPPENED),
}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.filterwarnings("ignore")
def test_autocast_changes_nothing(model, name):
    plain = np.asarray(COMPUTED[name](model))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = np.asarray(COMPUTED[name](model))
    np.testing.assert_array_equal(inside, plain)
    assert np.isfinite(plain).any()
