"""Cox calibration slope against lifelines, the intercept against sums over risk sets and a known truth."""

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from scipy.optimize import brentq

from tests.metrics.simulate import survival_data
from xcal.metrics import cox_calibration

CLOSE = {"fit_options": {"precision": 1e-12, "r_precision": 1e-14}}  # by default lifelines stops at 1e-5


@pytest.mark.parametrize("grid", [None, 0.125])
def test_slope_equals_lifelines(grid):
    data = survival_data(400, rng=np.random.default_rng(0), grid=grid)
    p = data.probability(0.75, too_fast=1.4) ** 1.5
    result = cox_calibration(p, at=0.75, time=data.time, event=data.event)
    frame = pd.DataFrame(
        {
            "x": np.log(-np.log(1 - p)),
            "time": np.minimum(data.time, 0.75),
            "event": data.event & (data.time <= 0.75),
        }
    )
    fitted = CoxPHFitter().fit(frame, "time", "event", **CLOSE)
    low, high = fitted.confidence_intervals_.to_numpy()[0]
    ours = (result.slope, result.slope_lower, result.slope_upper)
    # lifelines ends some 1e-8 from the maximum of the likelihood; the next test finds it by bisection.
    np.testing.assert_allclose(ours, (fitted.params_["x"], low, high), rtol=3e-8)
    assert result.n_events == frame["event"].sum()


def test_slope_is_the_root_of_the_score():
    data = survival_data(400, rng=np.random.default_rng(0))
    p = data.probability(0.75, too_fast=1.4) ** 1.5
    x, followed, events = np.log(-np.log(1 - p)), np.minimum(data.time, 0.75), data.event & (data.time <= 0.75)

    def score(slope):
        total = 0.0
        for i in np.flatnonzero(events):
            at_risk = followed >= followed[i]
            total += x[i] - np.average(x[at_risk], weights=np.exp(slope * x[at_risk]))
        return total

    result = cox_calibration(p, at=0.75, time=data.time, event=data.event)
    assert result.slope == pytest.approx(brentq(score, 0.2, 3.0, xtol=1e-14), abs=1e-9)


def test_a_linear_predictor_has_the_slope_of_its_risks_at_any_time():
    # Proportional hazards: log(-log S) differs from the linear predictor by a constant only.
    data = survival_data(400, rng=np.random.default_rng(1))
    everybody = float(data.time.max())
    slopes = [
        cox_calibration(1 - np.exp(-data.rate * scale), at=everybody, time=data.time, event=data.event).slope
        for scale in (0.1, 0.5, 2.0)
    ]
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-9)


def test_intercept_is_the_hazard_summed_over_risk_sets():
    data = survival_data(80, rng=np.random.default_rng(2), grid=0.25)
    p, at = data.probability(0.75, 1.4), 0.75
    hazard, variance = 0.0, 0.0
    weight = -np.log(1 - p)
    for t in np.unique(data.time[data.event & (data.time <= at)]):
        at_risk, dying = weight[data.time >= t].sum(), weight[data.event & (data.time == t)]
        for k in range(dying.size):  # Efron: the k-th of d tied deaths meets the rest with k / d of each gone
            step = 1 / (at_risk - k / dying.size * dying.sum())
            hazard, variance = hazard + step, variance + step**2
    result = cox_calibration(p, at=at, time=data.time, event=data.event)
    assert result.intercept == pytest.approx(np.log(hazard), abs=1e-12)
    half = (result.intercept_upper - result.intercept_lower) / 2
    assert half == pytest.approx(1.959963984540054 * np.sqrt(variance) / hazard, rel=1e-9)


def test_hazards_too_high_by_a_factor_are_the_intercept():
    data = survival_data(20_000, rng=np.random.default_rng(3))
    result = cox_calibration(data.probability(0.75, 1.5), at=0.75, time=data.time, event=data.event)
    assert result.intercept_lower < -np.log(1.5) < result.intercept_upper
    assert result.slope_lower < 1 < result.slope_upper


def test_what_the_rows_do_not_determine_is_nan():
    given = {"at": 2.5, "time": [1.0, 2.0, 3.0], "event": [1, 1, 0]}
    equal = cox_calibration([0.5, 0.5, 0.5], **given)
    assert np.isnan(equal.slope)
    assert np.isfinite(equal.intercept)
    assert np.isnan(cox_calibration([0.9, 0.5, 0.1], **given).slope)  # perfectly separated
    none = cox_calibration([0.9, 0.5, 0.1], at=2.5, time=[1, 2, 3], event=[0, 0, 0])
    assert np.isnan([none.slope, none.intercept]).all()
