"""Average curve against Kaplan-Meier: SurvivalEVAL, and by hand."""

import numpy as np
import pytest
from SurvivalEVAL.evaluations.calibration.distributional.km_calibration import km_calibration as survivaleval

from tests.metrics.simulate import survival_data
from xcal.metrics import km_calibration


@pytest.mark.parametrize("grid", [None, 0.25])
@pytest.mark.parametrize("from_zero", [True, False])
def test_equals_survivaleval(grid, from_zero):
    data = survival_data(300, rng=np.random.default_rng(0), grid=grid)
    times = np.linspace(0.0 if from_zero else 0.1, data.time.max(), 50)
    survival = data.survival(times, too_fast=1.5)
    result = km_calibration(survival, times, time=data.time, event=data.event)
    expected = survivaleval(survival.mean(axis=0), times, data.time, data.event)
    assert result.value == pytest.approx(expected, abs=1e-12)


def test_by_hand():
    # Kaplan-Meier is 1, 1/2, 0 at 0, 1, 2; the prediction 1, 1, 1. Squared: 0, 1/4, 1; area 1/8 + 5/8, over 2.
    result = km_calibration([[1.0, 1.0]] * 2, [1, 2], time=[1, 2], event=[1, 1])
    assert result.value == pytest.approx(0.75 / 2)
    assert result.stop == 2.0


def test_held_values_and_lines_differ_between_grid_points():
    rows = {"time": [1, 2], "event": [1, 1]}
    line = km_calibration([[0.0]] * 2, [2], **rows)
    held = km_calibration([[0.0]] * 2, [2], **rows, interpolation="previous")
    np.testing.assert_allclose(line.predicted, [1, 0.5, 0])
    np.testing.assert_allclose(held.predicted, [1, 1, 0])


def test_ends_with_the_grid():
    result = km_calibration([[0.5]] * 3, [1.5], time=[1, 2, 3], event=[1, 1, 1])
    assert result.stop == 1.0
    np.testing.assert_allclose(result.times, [0, 1])


def test_the_true_model_comes_close_and_a_wrong_one_does_not():
    data = survival_data(20_000, rng=np.random.default_rng(1))
    times = np.linspace(0, data.time.max(), 400)
    right, wrong = (
        km_calibration(data.survival(times, too_fast), times, time=data.time, event=data.event).value
        for too_fast in (1.0, 2.0)
    )
    # The squared standard error of Kaplan-Meier is below 1e-4 until few rows are left.
    assert right < 2e-3 < wrong


def test_without_events_in_the_grid_it_is_nan():
    assert np.isnan(km_calibration([[0.5]], [1], time=[3], event=[1]).value)
    assert np.isnan(km_calibration([[0.5]], [1], time=[0.5], event=[0]).value)
