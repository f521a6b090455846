"""Times of few distinct values: a true model must not be rejected for the ties of its rows."""

import numpy as np
import pytest

from xcal import d_calibration
from xcal.calibration.dcalibration import are_coarse

TIES = "distinct times only"


def months(n, seed, *, too_fast=1.0):
    """Exponential times in whole months, rounded up, with a month of censoring that leaves the month's events out."""
    rng = np.random.default_rng(seed)
    rate = 0.12 * np.exp(0.6 * rng.normal(size=n))
    happens, leaves = np.ceil(rng.exponential(1 / rate)), rng.integers(4, 13, n)
    time, event = np.minimum(happens, leaves), happens <= leaves
    end, start = (-np.expm1(-too_fast * rate * t) for t in (time, time - 1))
    return end, start, time, event


def test_a_true_model_of_months_is_rejected_without_the_interval_and_not_with_it():
    end, start, time, event = months(20_000, 0)
    with pytest.warns(UserWarning, match=TIES):
        assert d_calibration(end, event, time=time).p_value < 1e-30
    result = d_calibration(end, event, time=time, cdf_before=start)
    assert result.p_value > 0.01
    assert result.value < 3 * result.floor


@pytest.mark.ci
@pytest.mark.parametrize("p_value", ["akritas", "simulated"])
def test_size_and_power(p_value):
    runs = 200
    rejected = {}
    for too_fast in (1.0, 1.3):
        p_values = []
        for seed in range(runs):
            end, start, _, event = months(400, seed, too_fast=too_fast)
            result = d_calibration(end, event, cdf_before=start, p_value=p_value, n_simulations=99, seed=seed)
            p_values.append(result.p_value)
        rejected[too_fast] = np.mean(np.array(p_values) <= 0.05)
    # Three standard errors of a share of .05 over the runs.
    assert abs(rejected[1.0] - 0.05) <= 3 * np.sqrt(0.05 * 0.95 / runs)
    assert rejected[1.3] > 0.5


def test_times_without_ties_get_no_word():
    rng = np.random.default_rng(0)
    d_calibration(rng.random(300), np.ones(300), time=rng.exponential(size=300))
    # Days among years: many ties, none of them large.
    d_calibration(rng.random(3000), np.ones(3000), time=rng.integers(1, 400, 3000))


def test_an_interval_that_is_none():
    with pytest.raises(ValueError, match=r"cdf_before: expected at most cdf, 0.2, got 0.3 at row 1"):
        d_calibration([0.5, 0.2], [1, 1], cdf_before=[0.5, 0.3])
    with pytest.raises(ValueError, match="cdf_before: expected 2 rows"):
        d_calibration([0.5, 0.2], [1, 1], cdf_before=[0.1])
    # An interval without length leaves the value as it is.
    same = d_calibration([0.5, 0.2], [1, 1], cdf_before=[0.5, 0.2])
    np.testing.assert_array_equal(same.histogram, d_calibration([0.5, 0.2], [1, 1]).histogram)


def test_few_distinct_event_times_without_a_common_unit_are_coarse():
    """Visits at odd moments: no unit is common to them, and the times of the events repeat."""
    moments = np.sort(np.random.default_rng(0).exponential(20, 15))
    assert are_coarse(np.repeat(moments, 20), np.full(300, True))
