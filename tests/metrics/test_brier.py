"""Brier scores against scikit-survival, by hand, and by what they must be without censoring."""

import numpy as np
import pytest
from sksurv.metrics import brier_score as sksurv_brier
from sksurv.metrics import integrated_brier_score as sksurv_integrated
from sksurv.util import Surv

from tests.metrics.simulate import survival_data
from xcal.metrics import brier_score, errors, integrated_brier_score, kaplan_meier


def samples(seed, grid):
    rng = np.random.default_rng(seed)
    train, test = survival_data(300, rng=rng, grid=grid), survival_data(200, rng=rng, grid=grid)
    last = min(train.time.max(), test.time.max())
    times = np.linspace(test.time.min(), last, 40, endpoint=False)
    return train, test, times, test.survival(times, too_fast=1.3)


@pytest.mark.parametrize("grid", [None, 0.25])
@pytest.mark.parametrize("seed", range(4))
def test_equals_scikit_survival(seed, grid):
    train, test, times, survival = samples(seed, grid)
    # scikit-survival refuses test times after the last training time, even where they do not matter.
    keep = test.time <= train.time.max()
    theirs = (Surv.from_arrays(train.event, train.time), Surv.from_arrays(test.event[keep], test.time[keep]))
    outcome = {
        "time": test.time[keep],
        "event": test.event[keep],
        "censoring": kaplan_meier(time=train.time, event=train.event, of="censoring"),
    }
    known = times < test.time[keep].max()
    survival, times = survival[np.ix_(keep, known)], times[known]
    # Theirs weighs an event by G at its time, ours by default by G just before: not the same where times are tied.
    score = brier_score(survival, times, **outcome, left_limit=False)
    np.testing.assert_allclose(score.values, sksurv_brier(*theirs, survival, times)[1], rtol=0, atol=1e-10)
    integrated = integrated_brier_score(survival, times, **outcome, left_limit=False)
    assert integrated.value == pytest.approx(sksurv_integrated(*theirs, survival, times), abs=1e-10)
    assert (integrated.start, integrated.stop) == (times[0], times[-1])


def test_censoring_from_the_rows_at_hand_equals_scikit_survival():
    _, test, times, survival = samples(9, 0.25)
    same = Surv.from_arrays(test.event, test.time)
    score = brier_score(survival, times, time=test.time, event=test.event, left_limit=False)
    np.testing.assert_allclose(score.values, sksurv_brier(same, same, survival, times)[1], rtol=0, atol=1e-10)


def test_without_censoring_it_is_the_mean_squared_error():
    data = survival_data(300, rng=np.random.default_rng(0), censoring_scale=np.inf)
    times = np.quantile(data.time, [0.1, 0.5, 0.9])
    survival = data.survival(times)
    expected = np.square(survival - (data.time[:, None] > times)).mean(axis=0)
    score = brier_score(survival, times, time=data.time, event=data.event)
    np.testing.assert_allclose(score.values, expected, rtol=1e-12)


def test_by_hand_with_one_censored_row():
    # At time 2 the row censored at 1 says nothing; G(2) = 2/3 lets the two rows seen afterwards speak for it.
    score = brier_score([[0.7], [0.4], [0.8]], [2.0], time=[1.0, 3.0, 4.0], event=[0, 1, 1])
    assert score.values[0] == pytest.approx((0.6**2 + 0.2**2) * 1.5 / 3)


def test_left_limit_counts_the_chance_that_the_event_was_seen():
    # One event and one censoring at 1: just before it nobody was censored, after it G = 1 - 1/2.
    rows = {"time": [1.0, 1.0, 3.0], "event": [1, 0, 1]}
    predicted = [[0.3], [0.5], [0.8]]
    right = brier_score(predicted, [2.0], **rows, left_limit=False)
    left = brier_score(predicted, [2.0], **rows)
    assert right.values[0] == pytest.approx((0.3**2 / 0.5 + 0.2**2 / 0.5) / 3)
    assert left.values[0] == pytest.approx((0.3**2 / 1.0 + 0.2**2 / 0.5) / 3)


def test_visits_at_whole_months_give_the_true_score():
    """Everything happens at visits, the event first: the score of the true risks is known, G(T) misses it by far."""
    rng = np.random.default_rng(0)
    n, at = 40_000, 3.0
    hazard = rng.uniform(0.01, 0.08, n)  # in each month
    happens, leaves = rng.geometric(hazard), rng.geometric(0.4, n)
    rows = {"time": np.minimum(happens, leaves).astype(float), "event": happens <= leaves}
    risk = 1 - (1 - hazard) ** at
    truth = (risk * (1 - risk)).mean()
    assert brier_score(1 - risk, at, **rows).values[0] == pytest.approx(truth, rel=0.05)
    assert brier_score(1 - risk, at, **rows, left_limit=False).values[0] > 1.3 * truth


def test_before_the_first_observation_everybody_should_be_alive():
    score = brier_score([[0.9], [0.8]], [0.5], time=[1.0, 2.0], event=[1, 1])
    assert score.values[0] == pytest.approx((0.1**2 + 0.2**2) / 2)


def test_times_outside_the_follow_up_are_a_choice():
    rows = {"time": [1.0, 2.0, 3.0], "event": [1, 0, 1]}
    survival, times = np.full((3, 4), 0.5), [0.5, 1.5, 2.5, 9.0]
    score = brier_score(survival, times, **rows)
    np.testing.assert_array_equal(np.isnan(score.values), [False, False, False, True])
    np.testing.assert_array_equal(score.estimable, [True, True, True, False])
    with pytest.raises(ValueError, match=r"times: expected times below 3.0.*got 9.0 at row 3"):
        brier_score(survival, times, **rows, outside="raise")
    assert np.isfinite(brier_score(survival, times, **rows, outside="clip").values).all()
    inside = integrated_brier_score(survival[:, :3], times[:3], **rows)
    assert integrated_brier_score(survival, times, **rows).value == pytest.approx(inside.value, rel=1e-12)
    assert integrated_brier_score(survival, times, **rows).stop == 2.5
    with pytest.raises(ValueError, match="times: expected times below"):
        integrated_brier_score(survival, times, **rows, outside="raise")
    assert np.isnan(integrated_brier_score(survival, [5.0, 6.0, 7.0, 8.0], **rows).value)


def test_after_the_training_follow_up_nothing_is_known():
    curve = kaplan_meier(time=[1.0, 2.0], event=[1, 0], of="censoring")  # falls to zero at 2
    score = brier_score(np.full((2, 3), 0.5), [1.5, 2.0, 3.0], time=[1.0, 9.0], event=[1, 1], censoring=curve)
    np.testing.assert_array_equal(score.estimable, [True, False, False])


def test_a_constant_half_scores_a_quarter_whatever_happens():
    data = survival_data(300, rng=np.random.default_rng(3), censoring_scale=np.inf)
    times = np.quantile(data.time, np.linspace(0.05, 0.95, 10))
    result = integrated_brier_score(np.full((300, 10), 0.5), times, time=data.time, event=data.event)
    assert result.value == pytest.approx(0.25, abs=1e-12)


def test_the_truth_beats_a_distorted_model_on_average():
    data = survival_data(20_000, rng=np.random.default_rng(4), censoring_scale=1.0)
    times = np.linspace(0.1, 2.0, 20)
    truth, wrong = (
        integrated_brier_score(data.survival(times, too_fast), times, time=data.time, event=data.event).value
        for too_fast in (1.0, 2.0)
    )
    assert truth < wrong


def test_censoring_does_not_bias_it():
    # The same rows with and without censoring: the weights bring the score back, up to sampling error.
    rng = np.random.default_rng(5)
    rate = rng.uniform(0.3, 2.0, size=50_000)
    happens, censors = rng.exponential(1 / rate), rng.exponential(1.5, size=50_000)
    times = np.array([0.3, 0.8, 1.5])
    survival = np.exp(-times * rate[:, None])
    full = brier_score(survival, times, time=happens, event=np.ones(50_000)).values
    seen = brier_score(survival, times, time=np.minimum(happens, censors), event=happens <= censors).values
    # One score has a standard error of about 0.001 here; four of them.
    np.testing.assert_allclose(seen, full, atol=0.004)


@pytest.mark.parametrize("block", [1, 1000, 1 << 20])
def test_the_block_size_does_not_matter(monkeypatch, block):
    _, test, times, survival = samples(1, None)
    expected = brier_score(survival, times, time=test.time, event=test.event).values
    monkeypatch.setattr(errors, "_BLOCK", block)
    result = brier_score(survival, times, time=test.time, event=test.event).values
    np.testing.assert_allclose(result, expected, rtol=1e-13)


def test_float32_predictions_are_summed_in_float64():
    _, test, times, survival = samples(1, None)
    single = survival.astype(np.float32)
    left = brier_score(single, times, time=test.time, event=test.event).values
    right = brier_score(single.astype(np.float64), times, time=test.time, event=test.event).values
    np.testing.assert_allclose(left, right, rtol=1e-13)


def test_one_time_may_come_with_one_column_of_predictions():
    rows = {"time": [1.0, 2.0], "event": [1, 1]}
    column = brier_score([[0.2], [0.7]], [1.5], **rows).values
    assert brier_score([0.2, 0.7], 1.5, **rows).values == pytest.approx(column, rel=1e-12)


def test_the_integral_needs_two_times():
    with pytest.raises(ValueError, match="times: expected at least two times to integrate over, got 1"):
        integrated_brier_score([[0.5]], [1.0], time=[1.0], event=[1])
