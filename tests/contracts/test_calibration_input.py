"""Bad input to every public function of calibration: one error that names the argument and the first bad row."""

import numpy as np
import pandas as pd
import pytest
import torch

from xcal import DCalibration, XCALLoss, d_calibration, xcal_penalty

NAN, INF = float("nan"), float("inf")
GOOD_F, GOOD_EVENT = [0.1, 0.5, 0.9], [1, 0, 1]


def penalty(cdf, event, **options):
    return xcal_penalty(torch.tensor(cdf, dtype=torch.float64), torch.tensor(event), **options)


def module(cdf, event, **options):
    called = {k: torch.as_tensor(options.pop(k)) for k in ("weights", "groups") if k in options}
    return XCALLoss(**options)(torch.tensor(cdf, dtype=torch.float64), torch.tensor(event), **called)


def accumulator(cdf, event, **options):
    updated = {k: options.pop(k) for k in ("censoring_survival",) if k in options}
    return DCalibration(**options).update(np.array(cdf), np.array(event), **updated).compute()


def one_shot(cdf, event, **options):
    return d_calibration(np.array(cdf), np.array(event), **options)


DOORS = [penalty, module, one_shot, accumulator]
door_table = pytest.mark.parametrize("door", DOORS, ids=lambda f: f.__name__)


@door_table
@pytest.mark.parametrize(
    ("cdf", "event", "message"),
    [
        ([0.1, NAN, 0.9], GOOD_EVENT, r"cdf: expected values in \[0, 1\], got nan at row 1"),
        ([0.1, 0.2, INF], GOOD_EVENT, r"cdf: expected values in \[0, 1\], got inf at row 2"),
        ([-0.1, 0.2, 3.0], GOOD_EVENT, r"cdf: expected values in \[0, 1\], got -0.1 at row 0"),
        ([0.1, 1.0001, 0.2], GOOD_EVENT, r"cdf: expected values in \[0, 1\], got 1.0001 at row 1"),
        (GOOD_F, [1, 2, 0], r"event: expected True/False or 0/1.*, got 2.* at row 1"),
        (GOOD_F, [1.0, 0.0, NAN], r"event: expected True/False or 0/1.*, got nan at row 2"),
        (GOOD_F, [1, 0], r"event: expected .*3.*, got .*2"),
        ([], GOOD_EVENT, r"expected .*, got .*"),
        (0.5, 1, r"cdf: expected .*, got shape \(\)"),
    ],
)
def test_rows(door, cdf, event, message):
    with pytest.raises(ValueError, match=message):
        door(cdf, event)


@pytest.mark.parametrize("door", [penalty, module, one_shot], ids=lambda f: f.__name__)
def test_no_rows(door):
    with pytest.raises(ValueError, match=r"cdf: expected .*at least one row"):
        door([], [])


def test_an_empty_chunk_adds_nothing():
    assert DCalibration().update([], []).update([0.5], [1]).compute().n == 1


@door_table
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 1}, "n_bins: expected an integer of 2 or more, got 1"),
        ({"n_bins": 2.5}, "n_bins: expected an integer of 2 or more, got 2.5"),
        ({"n_bins": True}, "n_bins: expected an integer of 2 or more, got True"),
        ({"edges": [0, 0.5, 0.4, 1]}, "edges: expected strictly increasing edges, above 0.5, got 0.4 at row 2"),
        ({"edges": [0, 0.5, 0.5, 1]}, "edges: expected strictly increasing edges, above 0.5, got 0.5 at row 2"),
        (
            {"edges": [0.1, 0.5, 1]},
            r"edges: expected edges that cover \[0, 1\], from 0 to 1, got edges from 0.1 to 1.0",
        ),
        ({"edges": [0, 0.5, 0.9]}, r"edges: expected edges that cover \[0, 1\]"),
        ({"edges": [0, NAN, 1]}, "edges: expected finite numbers, got nan at row 1"),
        ({"edges": [0, 1]}, r"edges: expected at least three edges \(two bins\), got 2"),
        ({"edges": [[0, 0.5, 1]]}, r"edges: expected a one-dimensional array"),
        ({"edges": ["a", "b", "c"]}, "edges: expected an array of numbers"),
    ],
)
def test_bins(door, options, message):
    with pytest.raises(ValueError, match=message):
        door(GOOD_F, GOOD_EVENT, **options)


@pytest.mark.parametrize("door", [penalty, module], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1.0, -1.0, 1.0]}, "weights: expected finite weights, zero or larger, got -1.0 at row 1"),
        ({"weights": [1.0, 1.0, NAN]}, "weights: expected finite weights, zero or larger, got nan at row 2"),
        ({"weights": [0.0, 0.0, 0.0]}, "weights: expected a positive sum, got weights that are all zero"),
        ({"weights": [1.0, 1.0]}, r"weights: expected shape \(3,\), got shape \(2,\)"),
        ({"groups": [0, 1]}, r"groups: expected shape \(3,\), got shape \(2,\)"),
        ({"groups": [0.5, 1.0, 0.0]}, "groups: expected integer labels, one per row, got dtype"),
        ({"membership": "hard"}, "membership: expected one of 'partition', 'product', got 'hard'"),
        ({"censored": "drop"}, "censored: expected one of 'exact', 'soft', got 'drop'"),
        ({"estimator": "mean"}, "estimator: expected one of 'bound', 'unbiased', got 'mean'"),
        ({"temperature": 0.0}, "temperature: expected a finite number above 0, got 0.0"),
        ({"temperature": NAN}, "temperature: expected a finite number above 0, got nan"),
        ({"gamma": 10.0}, "gamma: expected None, as only membership='product' or censored='soft' uses it, got 10.0"),
        ({"temperature": "a"}, "temperature: expected a finite number above 0, got 'a'"),
        ({"membership": "product", "gamma": -1.0}, "gamma: expected a finite number above 0, got -1.0"),
        ({"membership": "product", "temperature": 1.0}, "temperature: expected None, as only membership='partition'"),
    ],
)
def test_penalty_options(door, options, message):
    if door is penalty:
        options = {k: torch.tensor(v) if k in ("weights", "groups") else v for k, v in options.items()}
    with pytest.raises(ValueError, match=message):
        door(GOOD_F, GOOD_EVENT, **options)


@pytest.mark.parametrize(
    ("cdf", "event", "options", "message"),
    [
        (torch.ones(3, dtype=torch.int64), torch.ones(3), {}, "cdf: expected a floating-point tensor"),
        (torch.rand(2, 3), torch.ones(2), {}, r"event: expected shape \(3,\) or \(2, 3\), got shape \(2,\)"),
        (torch.tensor([[0.5, 0.5], [0.5, 2.0]]), torch.ones(2), {}, r"got 2.0 in model \(1,\) at row 1"),
        (
            torch.rand(3, 1),
            torch.ones(3),
            {},
            r"cdf: expected rows in the last dimension, .*squeeze.*got shape \(3, 1\)",
        ),
        (torch.rand(3), None, {}, "event: expected a tensor or an array of numbers, got NoneType"),
        (torch.rand(3), ["a", "b", "c"], {}, "event: expected a tensor or an array of numbers, got list"),
        (torch.rand(3), torch.ones(3), {"groups": ["a", "b", "c"]}, "groups: expected a tensor or an array of numbers"),
        (
            torch.rand(3),
            torch.ones(3),
            {"groups": [0, 1, 2], "n_groups": 0},
            "n_groups: expected an integer of 1 or more",
        ),
        (torch.rand(3), torch.ones(3), {"groups": [0, 1, 2], "n_groups": 2.5}, "n_groups: expected an integer of 1"),
        (torch.rand(3), torch.ones(3), {"n_groups": 2}, "n_groups: expected None where there are no groups, got 2"),
        (
            torch.rand(3),
            torch.ones(3),
            {"groups": torch.tensor([0, 1, 2]), "n_groups": 2},
            "groups: expected labels from 0 to 1, got 2 at row 2",
        ),
    ],
)
def test_penalty_shapes(cdf, event, options, message):
    with pytest.raises(ValueError, match=message):
        xcal_penalty(cdf, event, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "mean"}, "method: expected one of 'uniform', 'ipcw', 'km', got 'mean'"),
        (
            {"p_value": "exact"},
            "p_value: expected one of 'auto', 'akritas', 'simulated', 'pearson', 'residuals' or None, got 'exact'",
        ),
        ({"method": "ipcw"}, "time: expected time .* or censoring_survival .* with method='ipcw', got neither"),
        (
            {"method": "ipcw", "time": [1, 2, 3], "censoring_survival": [0.5, 0.0, 0.5]},
            r"censoring_survival: expected probabilities in \(0, 1\] for every row, got 0.0 at row 1",
        ),
        ({"groups": [1.0, NAN, 1.0]}, "groups: expected a label for every row, got nan at row 1"),
        ({"groups": ["a", None, "b"]}, "groups: expected a label for every row, got None at row 1"),
        ({"groups": ["a", NAN, "b"]}, "groups: expected a label for every row, got nan at row 1"),
        ({"groups": pd.Series(["a", pd.NA, "b"], dtype="string")}, "groups: expected a label for every row, .* row 1"),
        ({"groups": pd.to_datetime(["2020-01-01", None, "2020-01-01"])}, "groups: expected a label for every row"),
        ({"groups": np.array(["a", 1, "b"], dtype=object)}, "groups: expected labels of one type, got str and others"),
        (
            {"method": "ipcw", "censoring_survival": [1, 1, 1], "groups": ["a", "b", "a"]},
            "groups: expected an event in every group, .*, got none in group",
        ),
        ({"seed": -1}, "seed: expected an integer of 0 or more, got -1"),
        ({"method": "ipcw", "time": [1, -2, 3]}, "time: expected finite times, zero or larger, got -2.0 at row 1"),
        ({"method": "ipcw", "time": [1, 2]}, "time: expected 3 rows, as many as cdf has, got 2"),
        (
            {"method": "ipcw", "censoring_survival": [0.5, 0.0, 0.0]},
            r"censoring_survival: expected probabilities in \(0, 1\] for every event, got 0.0 at row 2",
        ),
        ({"method": "km", "p_value": "pearson"}, "p_value: expected 'akritas', 'simulated' or None with"),
        ({"method": "ipcw", "time": [1, 2, 3], "p_value": "simulated"}, "p_value: expected 'akritas' or None"),
        ({"groups": [1, 2]}, "groups: expected 3 rows, as many as cdf has, got 2"),
        ({"n_simulations": 0}, "n_simulations: expected an integer of 1 or more, got 0"),
    ],
)
def test_d_calibration_options(options, message):
    with pytest.raises(ValueError, match=message):
        one_shot(GOOD_F, GOOD_EVENT, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "mean"}, "method: expected"),
        ({"p_value": "simulated"}, "p_value: expected 'akritas', 'pearson' or None: a simulated null needs the rows"),
        ({"method": "km", "p_value": "pearson"}, "p_value: expected 'akritas', 'simulated' or None with"),
        ({"method": "ipcw"}, "censoring_survival: expected the probability of being uncensored"),
        ({"censoring_survival": [1, 1, 1]}, "censoring_survival: expected None with method='uniform'"),
        (
            {"method": "km", "grid_cells": 20},
            "grid_cells: expected an integer of at least ten times the 10 bins, got 20",
        ),
    ],
)
def test_accumulator_options(options, message):
    with pytest.raises(ValueError, match=message):
        accumulator(GOOD_F, GOOD_EVENT, **options)


def test_accumulator_without_rows_or_with_other_settings():
    with pytest.raises(ValueError, match="expected at least one row before compute"):
        DCalibration().compute()
    with pytest.raises(ValueError, match="other: expected an accumulator with the same bins"):
        DCalibration().merge(DCalibration(n_bins=20))
    with pytest.raises(ValueError, match=r"other: expected an accumulator with the same bins.*, got 3"):
        DCalibration().merge(3)
    with pytest.raises(ValueError, match="other: expected an accumulator with the same bins"):
        DCalibration(method="km").merge(DCalibration(method="uniform"))


@pytest.mark.parametrize("event", [[1], [0]])
@pytest.mark.parametrize("options", [{}, {"method": "km"}, {"p_value": "simulated"}, {"method": "km", "p_value": None}])
def test_one_row_has_a_value(event, options):
    result = one_shot([0.3], event, **options)
    assert np.isfinite(result.value)
    assert result.histogram.sum() == pytest.approx(1)


@pytest.mark.parametrize("options", [{}, {"method": "km"}, {"p_value": "simulated"}])
def test_no_events_at_all_has_a_value(options):
    """Nothing contradicts the model: every row spreads over what is left above it."""
    result = one_shot([0.1, 0.4, 0.7], [0, 0, 0], **options)
    assert np.isfinite(result.value)
    assert np.isfinite(result.p_value)


def test_no_events_with_ipcw_is_an_error_or_uniform():
    with pytest.raises(ValueError, match="event: expected at least one event"):
        one_shot([0.1, 0.4], [0, 0], method="ipcw", censoring_survival=[1, 1])
    by_time = one_shot([0.1, 0.4], [0, 0], method="ipcw", time=[1, 2])
    np.testing.assert_allclose(by_time.histogram, one_shot([0.1, 0.4], [0, 0]).histogram)


MASKED = np.ma.masked_array([0.1, 0.5, 0.9], [False, True, False])


@pytest.mark.parametrize("door", [xcal_penalty, XCALLoss(), d_calibration, DCalibration().update])
def test_masked_values_are_refused_with_their_row(door):
    with pytest.raises(ValueError, match="cdf: expected values without a mask, got a masked one at row 1"):
        door(MASKED, GOOD_EVENT)
    with pytest.raises(ValueError, match="event: expected values without a mask, got a masked one at row 0"):
        door(np.array(GOOD_F), np.ma.masked_array(GOOD_EVENT, [True, False, False]))


def test_other_masked_arguments_are_refused():
    cdf, masked_row_1 = np.array(GOOD_F), "expected values without a mask, got a masked one at row 1"
    with pytest.raises(ValueError, match=f"weights: {masked_row_1}"):
        xcal_penalty(cdf, GOOD_EVENT, weights=MASKED)
    with pytest.raises(ValueError, match=f"groups: {masked_row_1}"):
        d_calibration(cdf, GOOD_EVENT, groups=np.ma.masked_array([1, 2, 1], [0, 1, 0]))
    with pytest.raises(ValueError, match=f"edges: {masked_row_1}"):
        d_calibration(cdf, GOOD_EVENT, edges=np.ma.masked_array([0, 0.5, 1], [0, 1, 0]))
    with pytest.raises(ValueError, match=f"time: {masked_row_1}"):
        d_calibration(cdf, GOOD_EVENT, method="ipcw", time=np.ma.masked_array([1, 2, 3], [0, 1, 0]))


def test_a_mask_that_masks_nothing_changes_nothing():
    whole = np.ma.masked_array(GOOD_F)
    assert d_calibration(whole, GOOD_EVENT).value == d_calibration(GOOD_F, GOOD_EVENT).value
    torch.testing.assert_close(xcal_penalty(whole, GOOD_EVENT), xcal_penalty(np.array(GOOD_F), GOOD_EVENT))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cdf": [[0.1], [0.2, 0.3]]}, "cdf: expected an array of numbers, got rows of different lengths"),
        ({"event": [[1], [1, 0]]}, "event: expected an array of numbers, got rows of different lengths"),
        ({"edges": [[0], [0.5, 1]]}, "edges: expected an array of numbers, got rows of different lengths"),
        ({"groups": [[1], [1, 2], [3]]}, "groups: expected a one-dimensional array, one label per row, got .*lengths"),
        ({"groups": 5}, "groups: expected a one-dimensional array, one label per row, got 5"),
        ({"groups": "abc"}, "groups: expected a one-dimensional array, one label per row, got 'abc'"),
        ({"cdf": torch.rand(3).to_sparse()}, "cdf: expected a tensor whose values can be read, got .*sparse"),
        ({"cdf": torch.rand(3, device="meta")}, "cdf: expected a tensor whose values can be read, got .*meta"),
    ],
)
def test_what_is_no_array_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        d_calibration(**({"cdf": GOOD_F, "event": GOOD_EVENT} | given))
