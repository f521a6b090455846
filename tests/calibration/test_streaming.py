import pickle

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


def test_chunks_without_events_are_no_error_for_ipcw():
    meter = DCalibration(method="ipcw")
    meter.update([0.2, 0.4], [0, 0], censoring_survival=[0.5, 0.5])
    with pytest.raises(ValueError, match="event: expected at least one event"):
        meter.compute()
    meter.update([0.2, 0.4], [0, 1], censoring_survival=[0.5, 0.5])
    assert meter.compute().n == 4
