"""Scaled Brier score from scikit-survival's Brier scores of the model and of Kaplan-Meier."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from sksurv.metrics import brier_score as sksurv_brier
from sksurv.util import Surv

from tests.metrics.simulate import survival_data
from xcal.metrics import scaled_brier_score

TIMES = np.array([0.25, 0.5, 1.0])


@pytest.mark.parametrize("grid", [None, 0.125])
def test_equals_scikit_survival(grid):
    data = survival_data(300, rng=np.random.default_rng(0), grid=grid)
    survival = data.survival(TIMES, 1.3)
    y = Surv.from_arrays(data.event, data.time)
    average = KaplanMeierFitter().fit(data.time, data.event).survival_function_at_times(TIMES).to_numpy()
    _, brier = sksurv_brier(y, y, survival, TIMES)
    _, null = sksurv_brier(y, y, np.tile(average, (300, 1)), TIMES)
    result = scaled_brier_score(survival, TIMES, time=data.time, event=data.event, left_limit=False)
    np.testing.assert_allclose(result.values, 1 - brier / null, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.null, null, rtol=1e-9)


def test_kaplan_meier_itself_scores_zero():
    data = survival_data(100, rng=np.random.default_rng(1))
    average = KaplanMeierFitter().fit(data.time, data.event).survival_function_at_times(TIMES).to_numpy()
    result = scaled_brier_score(np.tile(average, (100, 1)), TIMES, time=data.time, event=data.event)
    np.testing.assert_allclose(result.values, 0, atol=1e-12)
