"""Cumulative/dynamic AUC against scikit-survival and against pairs counted one by one."""

import numpy as np
import pytest
from sksurv.metrics import cumulative_dynamic_auc as sksurv_auc
from sksurv.util import Surv

from tests.metrics.simulate import survival_data
from xcal.metrics import cumulative_dynamic_auc, kaplan_meier

TIMES = np.array([0.25, 0.5, 1.0])


@pytest.mark.parametrize("grid", [None, 0.125])
@pytest.mark.parametrize("own_training", [False, True])
def test_equals_scikit_survival(grid, own_training):
    rng = np.random.default_rng(0)
    test, train = survival_data(300, rng=rng, grid=grid), survival_data(500, rng=rng, grid=grid)
    train = train if own_training else test
    risk = np.round(test.rate[:, None] + 0.5 * rng.normal(size=(300, 3)), 1)  # with ties
    theirs, _ = sksurv_auc(
        Surv.from_arrays(train.event, train.time), Surv.from_arrays(test.event, test.time), risk, TIMES
    )
    g = kaplan_meier(time=train.time, event=train.event, of="censoring") if own_training else None
    # Theirs weighs an event by G at its time, ours by default by G just before.
    ours = cumulative_dynamic_auc(risk, TIMES, time=test.time, event=test.event, censoring=g, left_limit=False)
    np.testing.assert_allclose(ours.values, theirs, rtol=1e-9)


def test_uncensored_it_is_the_share_of_ordered_pairs():
    data = survival_data(60, rng=np.random.default_rng(1), censoring_scale=np.inf)
    risk = np.round(data.rate, 1)
    case, control = risk[data.time <= 0.5], risk[data.time > 0.5]
    pairs = np.subtract.outer(case, control)
    expected = ((pairs > 0).sum() + (pairs == 0).sum() / 2) / pairs.size
    result = cumulative_dynamic_auc(risk, 0.5, time=data.time, event=data.event)
    np.testing.assert_allclose(result.values, [expected], rtol=1e-12)
    assert (result.n_cases[0], result.n_controls[0]) == (case.size, control.size)


def test_times_that_cannot_be_judged_are_nan_or_refused():
    data = survival_data(50, rng=np.random.default_rng(2))
    times = [data.time.min() / 2, 0.5, data.time.max()]
    result = cumulative_dynamic_auc(data.rate, times, time=data.time, event=data.event)
    np.testing.assert_array_equal(np.isfinite(result.values), [False, True, False])
    with pytest.raises(ValueError, match=r"^times: expected times with events before, .* at row 0$"):
        cumulative_dynamic_auc(data.rate, times, time=data.time, event=data.event, outside="raise")


def test_a_case_after_the_last_training_time_has_no_weight():
    train = kaplan_meier(time=[0.1, 0.2], event=[1, 0], of="censoring")
    data = survival_data(50, rng=np.random.default_rng(3))
    assert np.isnan(
        cumulative_dynamic_auc(data.rate, 0.5, time=data.time, event=data.event, censoring=train).values
    ).all()
