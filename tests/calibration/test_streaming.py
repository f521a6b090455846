import pickle
import warnings

import numpy as np
import pytest

from tests.calibration.simulate import survival_data
from xcal import DCalibration, d_calibration


def chunks(n, rng):
    cuts = np.sort(rng.integers(0, n, 4))
    return [c for c in np.split(np.arange(n), cuts) if c.size]


@pytest.mark.parametrize("method", ["uniform", "ipcw"])
@pytest.mark.parametrize("scale", [np.inf, 0.7])
@pytest.mark.parametrize("p_value", ["akritas", None])
def test_chunks_equal_the_one_shot_value(method, scale, p_value):
    rng = np.random.default_rng(0)
    u, event, time = survival_data(3000, scale, rng=rng)
    g = np.exp(-time / scale) if method == "ipcw" else None
    whole = d_calibration(u, event, method=method, p_value=p_value, censoring_survival=g)
    meter = DCalibration(method=method, p_value=p_value)
    merged = DCalibration(method=method, p_value=p_value)
    for rows in chunks(3000, rng):
        part = None if g is None else g[rows]
        meter.update(u[rows], event[rows], censoring_survival=part)
        # As if every chunk had come from another process.
        one = DCalibration(method=method, p_value=p_value).update(u[rows], event[rows], censoring_survival=part)
        merged.merge(pickle.loads(pickle.dumps(one)))
    for result in (meter.compute(), merged.compute()):
        assert result.value == pytest.approx(whole.value, rel=1e-10)
        assert result.floor == pytest.approx(whole.floor, rel=1e-10)
        assert result.n == whole.n
        assert result.n_censored == whole.n_censored
        if p_value:
            assert result.statistic == pytest.approx(whole.statistic, rel=1e-10)
            assert result.p_value == pytest.approx(whole.p_value, rel=1e-8)
        assert result.error_bound == 0


@pytest.mark.parametrize(("method", "grid_cells"), [("uniform", 100), ("ipcw", 100), ("km", 100), ("km", 5000)])
def test_the_state_can_be_written_and_read(method, grid_cells):
    rng = np.random.default_rng(1)
    u, event, time = survival_data(2000, 0.7, rng=rng)
    made = {"method": method, "grid_cells": grid_cells, "p_value": None}
    g = {"censoring_survival": np.exp(-time / 0.7)} if method == "ipcw" else {}
    meter = DCalibration(**made).update(u, event, **g)
    other = DCalibration(**made).load_state_dict(pickle.loads(pickle.dumps(meter.state_dict())))
    for one, another in zip(meter.state_dict().values(), other.state_dict().values(), strict=True):
        np.testing.assert_array_equal(one, another)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the coarse grid
        assert other.compute().value == meter.compute().value
        assert other.merge(meter).compute().n == 4000
    with pytest.raises(ValueError, match="state: expected the entries"):
        other.load_state_dict({"n": 1})
    broken = meter.state_dict() | {"sums.happened": np.zeros(3)}
    with pytest.raises(ValueError, match=r"sums\.happened"):
        other.load_state_dict(broken)


def hard_rows(rng):
    """F crowded into a range of any width from 1e-6 to 1, any share censored, ties; settings that the grid must serve.

    Few cells and many rows in most cases, so that the rows go beyond the exact state.
    """
    n = int(10 ** rng.uniform(0.3, 3.5))
    width = 10 ** rng.uniform(-6, 0)
    start = (1 - width) * rng.random()
    u = start + width * rng.beta(*rng.uniform(0.3, 3, 2), n)
    if rng.random() < 0.3:
        u = start + np.round((u - start) / width * 5) / 5 * width
    u = np.clip(u, 0, 1).astype(rng.choice([np.float32, np.float64]))
    event = rng.random(n) < rng.random()
    if rng.random() < 0.3:  # censored rows before all events, or after
        event = np.sort(event) if rng.random() < 0.5 else np.sort(event)[::-1]
        u = np.sort(u)
    n_bins = int(rng.choice([2, 3, 10]))
    return u, event, int(rng.choice([10, 13, 50, 400])) * n_bins, n_bins


@pytest.mark.parametrize("seed", range(300))
def test_the_error_bound_of_km_holds_for_crowded_tied_and_few_rows(seed):
    rng = np.random.default_rng(seed)
    u, event, grid_cells, n_bins = hard_rows(rng)
    settings = {"method": "km", "p_value": None, "n_bins": n_bins, "grid_cells": grid_cells}
    exact = d_calibration(u, event, method="km", p_value=None, n_bins=n_bins)
    meter = DCalibration(**settings)
    for part in np.array_split(np.arange(u.size), rng.integers(1, 5)):
        if rng.random() < 0.5:
            meter.update(u[part], event[part])
        else:
            meter.merge(DCalibration(**settings).update(u[part], event[part]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the grid cannot tell
        result = meter.compute()
    assert abs(result.value - exact.value) <= result.error_bound + 1e-12
    assert result.histogram.sum() == pytest.approx(1)
    if np.unique(u).size <= grid_cells:
        assert result.error_bound == 0
        np.testing.assert_allclose(result.histogram, exact.histogram, rtol=0, atol=1e-12)


def test_few_rows_close_together_are_measured_exactly():
    """One cell of the grid holds both, and which of them comes first decides."""
    u, event = [0.30001, 0.30002], [0, 1]
    result = DCalibration(method="km").update(u, event).compute()
    assert result.value == pytest.approx(0.9)  # all mass in one bin of ten: .9^2 + 9 * .1^2
    assert result.error_bound == 0


def test_says_where_the_grid_cannot_tell():
    rng = np.random.default_rng(0)
    u, event = 0.5 + 1e-6 * rng.random(3000), rng.random(3000) < 0.3
    meter = DCalibration(method="km", grid_cells=1000).update(u, event)
    with pytest.warns(UserWarning, match="the grid cannot tell where: too many of them share a cell") as seen:
        result = meter.compute()
    assert seen[0].filename == __file__
    assert abs(result.value - d_calibration(u, event, method="km").value) <= result.error_bound


def test_the_km_state_depends_on_the_rows_alone():
    """Exact or on the grid, in any order, one by one or all at once, in one accumulator or several."""
    rng = np.random.default_rng(0)
    settings = {"method": "km", "grid_cells": 200}
    for n in (150, 600):
        u, event, _ = survival_data(n, 0.6, rng=rng)
        whole = DCalibration(**settings).update(u, event).compute()
        assert (whole.error_bound == 0) == (n == 150)
        order = rng.permutation(n)
        one_by_one, merged = DCalibration(**settings), DCalibration(**settings)
        for row in order:
            one_by_one.update(u[[row]], event[[row]])
        for part in np.array_split(order, 4):
            merged.merge(pickle.loads(pickle.dumps(DCalibration(**settings).update(u[part], event[part]))))
        for other in (one_by_one.compute(), merged.compute()):
            assert (other.value, other.floor, other.error_bound) == (whole.value, whole.floor, whole.error_bound)


def test_the_caller_may_write_into_the_arrays_afterwards():
    u, event = np.array([0.2, 0.4, 0.9]), np.array([True, False, True])
    meter = DCalibration(method="km").update(u, event)
    expected = d_calibration(u, event, method="km").value
    u[:], event[:] = 0.5, False
    assert meter.compute().value == pytest.approx(expected, rel=1e-12)


def test_the_floor_of_the_exact_state_is_that_of_the_rows():
    u, event, _ = survival_data(2000, 0.6, rng=np.random.default_rng(0))
    exact = d_calibration(u, event, method="km").floor
    assert DCalibration(method="km").update(u, event).compute().floor == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("scale", [np.inf, 2.0, 0.6, 0.25, 0.1])
@pytest.mark.parametrize("n", [30, 500, 20_000])
def test_the_error_of_the_km_grid_is_within_its_bound(scale, n):
    rng = np.random.default_rng(n)
    for _ in range(25 if n < 20_000 else 5):
        u, event, _ = survival_data(n, scale, too_fast=rng.choice([1.0, 1.5]), rng=rng)
        exact = d_calibration(u, event, method="km")
        meter = DCalibration(method="km", grid_cells=2000)
        for rows in chunks(n, rng):
            meter.update(u[rows], event[rows])
        result = meter.compute()
        assert abs(result.value - exact.value) <= result.error_bound + 1e-12
        assert result.p_value == pytest.approx(exact.p_value, rel=1e-8)
        assert result.histogram.sum() == pytest.approx(1)


def test_the_km_grid_gets_better_with_more_cells():
    u, event, _ = survival_data(20_000, 0.6, too_fast=1.5, rng=np.random.default_rng(0))
    bounds, errors = [], []
    exact = d_calibration(u, event, method="km")
    for cells in (500, 5_000, 50_000):
        result = DCalibration(method="km", grid_cells=cells).update(u, event).compute()
        bounds.append(result.error_bound)
        errors.append(abs(result.value - exact.value))
    assert bounds[0] > bounds[1] > bounds[2]
    assert errors[2] < 1e-4
    assert result.floor == pytest.approx(exact.floor, rel=0.02)


@pytest.mark.parametrize("scale", [0.6, 2.0])
def test_the_floor_holds_with_tied_values(scale):
    """Many rows of one cell leave one after another; the floor of the grid is that of the rows to within a third."""
    u, event, _ = survival_data(2000, scale, rng=np.random.default_rng(0))
    u = np.round(u, 1)
    exact = d_calibration(u, event, method="km").floor
    assert DCalibration(method="km").update(u, event).compute().floor == pytest.approx(exact, rel=0.33)


def test_ties_on_bin_edges_are_not_split_by_the_grid():
    u = np.repeat(np.arange(11) / 10, 20)
    event = np.arange(u.size) % 3 > 0
    exact = d_calibration(u, event, method="km")
    result = DCalibration(method="km", grid_cells=1000).update(u, event).compute()
    assert abs(result.value - exact.value) <= result.error_bound + 1e-12


def test_state_does_not_grow_with_the_rows():
    meter = DCalibration()
    rng = np.random.default_rng(0)
    size = len(pickle.dumps(meter))
    for _ in range(10):
        meter.update(rng.random(10_000), np.ones(10_000))
    assert len(pickle.dumps(meter)) == size
    assert "100,000 rows" in repr(meter)


def test_the_state_of_km_is_bounded():
    meter = DCalibration(method="km", grid_cells=1000)
    rng = np.random.default_rng(0)
    sizes = []
    for _ in range(100):
        meter.update(rng.random(300), np.ones(300))
        sizes.append(len(pickle.dumps(meter)))
    # A value and two counts of 8 bytes a cell, and as many rows waiting to be sorted in.
    assert max(sizes) < 1000 * (3 * 8 + 9) + 5000
    assert len(set(sizes[20:])) == 1


def test_chunks_without_events_are_no_error_for_ipcw():
    meter = DCalibration(method="ipcw")
    meter.update([0.2, 0.4], [0, 0], censoring_survival=[0.5, 0.5])
    with pytest.raises(ValueError, match="event: expected at least one event"):
        meter.compute()
    meter.update([0.2, 0.4], [0, 1], censoring_survival=[0.5, 0.5])
    assert meter.compute().n == 4
