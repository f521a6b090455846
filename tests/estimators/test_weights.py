"""Estimators on rows with sampling weights: what judges and recalibrates counts them."""

import numpy as np
import pytest

from xcal import Surv, SurvivalModel, SurvivalPath
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.data import SurvivalData
from xcal.estimators.selection import gap_error
from xcal.metrics import concordance_index
from xcal.recalibration import KaplanMeierRecalibration

SETTINGS = {"distribution": "weibull", "hidden": (), "epochs": 120, "learning_rate": 0.02, "patience": None}


def case_cohort(n, seed, *, share=0.1):
    """Weibull times, all events of a cohort and a share of the other rows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    happens, leaves = rng.weibull(1.5, n) * np.exp(2.0 + 0.5 * x[:, 0]), rng.uniform(1.0, 3.0, n)
    time, event = np.minimum(happens, leaves), happens <= leaves
    kept = event | (rng.random(n) < share)
    return x[kept], Surv(time=time[kept], event=event[kept]), np.where(event, 1.0, 1 / share)[kept]


@pytest.fixture(scope="module")
def path():
    x, y, weights = case_cohort(12_000, 0)
    return SurvivalPath((0,), 1, progress=False, cross_fit=2, **SETTINGS).fit(x, y, sample_weight=weights)


def test_a_right_model_of_a_case_cohort_sample_is_at_its_floor(path):
    assert path.selection_.at_floor, path.selection_.reason
    assert not path.selection_.recalibrated
    # The rows without their weights have many more events than the model expects.
    x, y, weights = case_cohort(12_000, 1)
    model = path.select()
    assert model.d_calibration(x, y).p_value < 1e-10
    assert model.d_calibration(x, y, weights).p_value > 0.01


def test_values_of_a_path_are_weighted():
    x, y, weights = case_cohort(6000, 2)
    held_x, held_y, held = case_cohort(6000, 3)
    path = SurvivalPath((0, 10), 1, progress=False, **SETTINGS | {"epochs": 20})
    path.fit(x, y, weights, validation_data=(held_x, held_y, held))
    time, event = held_y["time"], held_y["event"]
    for k, lam in ((0, 0.0), (2, 10.0)):
        model, line = path.model(lam), path.candidates_.iloc[k]
        assert not line["recalibrated"]
        found = model.d_calibration(held_x, held_y, held)
        assert line["dcal"] == pytest.approx(found.value)
        assert line["dcal_floor"] == pytest.approx(found.floor)
        assert line["dcal_p"] == pytest.approx(found.p_value)
        expected = concordance_index(time=time, event=event, risk=model.predict(held_x), weights=held)
        assert line["concordance"] == pytest.approx(expected.value)
    assert path.frontier_["dcal_floor"].iloc[0] == pytest.approx(path.candidates_["dcal_floor"].iloc[0])
    # D-calibration by which epochs were chosen is that of weighted rows too.
    assert path.frontier_["dcal"].iloc[0] == pytest.approx(path.candidates_["dcal"].iloc[0], rel=1e-3)


def test_a_map_is_that_of_weighted_rows():
    x, y, weights = case_cohort(6000, 4)
    model = SurvivalModel(progress=False, **SETTINGS | {"epochs": 3}).fit(x, y, weights)
    assert model.d_calibration(x, y, weights).p_value < 1e-6  # hardly trained
    fresh = case_cohort(6000, 5)
    before = model.d_calibration(*fresh).value
    assert model.recalibrate(x, y, weights).d_calibration(*fresh).value < 0.1 * before
    # A map of the rows without their weights makes it worse.
    assert model.recalibrate(x, y).d_calibration(*fresh).value > before


def test_a_map_goes_through_the_weighted_kaplan_meier_curve():
    rng = np.random.default_rng(6)
    u, event, weights = rng.random(400) ** 2, rng.random(400) < 0.7, rng.integers(1, 5, 400)
    fitted = KaplanMeierRecalibration.fit(u, event, weights=weights, n_pieces=8)
    again = np.repeat(np.arange(400), weights)
    repeated = KaplanMeierRecalibration.fit(u[again], event[again], n_pieces=8)
    np.testing.assert_allclose(fitted.knots, repeated.knots, rtol=1e-9)
    np.testing.assert_allclose(fitted.levels, repeated.levels, rtol=1e-9)
    curve = fit_kaplan_meier(u, event, weights=weights.astype(float))
    assert np.abs(fitted.cdf(u) - (1 - curve.at(u))).max() < 0.05
    # As many lines as 2 (effective events)^(1/3): rows of unequal weight tell less.
    unequal = np.where(np.arange(400) % 2 == 0, 1.0, 50.0)
    assert KaplanMeierRecalibration.fit(u, event, weights=unequal).knots.size < fitted_size(u, event)


def fitted_size(u, event):
    return KaplanMeierRecalibration.fit(u, event).knots.size


def test_survival_data_brings_its_weights(path):
    x, y, weights = case_cohort(3000, 7)
    data = SurvivalData(x, y["time"], y["event"], weights=weights)
    model = path.select()
    assert model.d_calibration(data).value == model.d_calibration(x, y, weights).value
    assert model.score(data) != model.score(x, y)
    with pytest.raises(ValueError, match="sample_weight: expected nothing beside SurvivalData"):
        model.d_calibration(data, sample_weight=weights)
    with pytest.raises(ValueError, match="X: expected rows of equal weight"):
        path.report("never.html", data)


def test_bad_weights_are_refused_with_the_row(path):
    x, y, weights = case_cohort(1000, 8)
    weights[3] = 0
    with pytest.raises(ValueError, match=r"sample_weight: expected finite weights above zero.*at row 3"):
        path.d_calibration(x, y, weights)
    with pytest.raises(ValueError, match=r"sample_weight: expected .* rows, as many as X has"):
        path.d_calibration(x, y, weights[4:])


def test_the_error_of_a_weighted_difference():
    """Against the spread of the difference over many samples, with weights that go with the values."""
    rng = np.random.default_rng(9)
    gaps, errors = [], []
    for _ in range(2000):
        weights = np.where(rng.random(300) < 0.3, 1.0, 10.0)
        base = rng.normal(size=300)
        values = base + 0.5 + weights * rng.normal(size=300) / 10
        gaps.append(np.average(values - base, weights=weights))
        errors.append(gap_error(values, base, weights=weights))
    assert np.mean(errors) == pytest.approx(np.std(gaps), rel=0.06)
