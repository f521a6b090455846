"""A model that is recalibrated after training, and the mixture of its seeds: predictions, files, whole months."""

import numpy as np
import pytest
import torch

from tests.estimators.simulate import survival_rows
from xcal import Surv, d_calibration
from xcal.estimators import SurvivalModel, SurvivalPath, load
from xcal.estimators.model import interval_starts
from xcal.recalibration import KaplanMeierRecalibration

DATA, FRESH, TEST = survival_rows(300), survival_rows(600, seed=1), survival_rows(2000, seed=2)
FAST = {"hidden": (4,), "epochs": 3}


@pytest.fixture(params=["mtlr", "lognormal"])
def model(request):
    return SurvivalModel(request.param, seeds=2, **FAST).fit(DATA.x, DATA.y)


def test_recalibrate_is_the_map_of_f(model):
    time = FRESH.y["time"] * 0.6
    fresh = Surv(time=time, event=FRESH.y["event"])
    before = model.predict_distribution(FRESH.x)
    u = before.cdf(torch.from_numpy(time)).numpy()
    fitted = KaplanMeierRecalibration.fit(u, fresh["event"])
    assert model.recalibrate(FRESH.x, fresh) is model
    np.testing.assert_allclose(model.predict_distribution(FRESH.x).cdf(torch.from_numpy(time)), fitted.cdf(u))
    assert model.fitted_.recalibration.n == 600
    # Once more: a new map of the same networks, not a map of a map.
    again = model.recalibrate(FRESH.x, fresh).fitted_.recalibration
    np.testing.assert_array_equal(again.knots, fitted.knots)


def test_recalibration_corrects_a_model_that_is_off():
    model = SurvivalModel("lognormal", (8,), epochs=40, learning_rate=1e-2).fit(DATA.x, DATA.y)
    early = Surv(time=TEST.y["time"] * 0.5, event=TEST.y["event"])
    off, order = model.d_calibration(TEST.x, early), model.score(TEST.x, early)
    half = slice(0, 1000), slice(1000, None)
    model.recalibrate(TEST.x[half[0]], early[half[0]])
    corrected = model.d_calibration(TEST.x[half[1]], early[half[1]])
    assert corrected.value < off.value / 5
    assert model.score(TEST.x, early) == pytest.approx(order, abs=0.01)


def test_saved_with_the_model(model, tmp_path):
    model.recalibrate(FRESH.x, FRESH.y)
    model.save(tmp_path / "model.xcal")
    again = load(tmp_path / "model.xcal")
    assert again.seeds == 2
    assert len(again.fitted_.members) == 2
    time = torch.from_numpy(TEST.y["time"].copy())
    one, other = (m.predict_distribution(TEST.x) for m in (model, again))
    for method in ("cdf", "log_survival", "log_density"):
        assert torch.equal(getattr(one, method)(time), getattr(other, method)(time))
    assert torch.equal(one.quantile(0.3), other.quantile(0.3))
    np.testing.assert_array_equal(again.predict(TEST.x), model.predict(TEST.x))


def test_a_path_keeps_its_maps(tmp_path):
    path = SurvivalPath((0.0, 10.0), 2, path="always", **FAST).fit(DATA.x, DATA.y)
    assert path.candidates_["recalibrated"].tolist() == [False, True, False, True]
    path.save(tmp_path / "path.xcal")
    again = load(tmp_path / "path.xcal")
    for lam in (0.0, 10.0):
        one, other = (p.model(lam, recalibrated=True) for p in (path, again))
        assert one.fitted_.recalibration is not None
        np.testing.assert_array_equal(one.predict(TEST.x), other.predict(TEST.x))
    with pytest.raises(ValueError, match=r"recalibrated: expected a weight with a map of its own, all seeds together"):
        path.model(10.0, 1, recalibrated=True)


def test_whole_months_are_measured_over_the_month():
    """A true model of months is not rejected: times are rounded up, and the network learns F at the end of a month."""
    rng = np.random.default_rng(3)
    n = 3000
    x = rng.normal(size=(n, 1))
    rate = 0.15 * np.exp(0.5 * x[:, 0])
    happens, leaves = np.ceil(rng.exponential(1 / rate)), rng.integers(6, 13, n)
    time, event = np.minimum(happens, leaves).astype(float), happens <= leaves
    model = SurvivalModel("weibull", (), epochs=1).fit(x, Surv(time=time + 0.0, event=event))
    starts = interval_starts("auto", time, event, 20)
    np.testing.assert_array_equal(starts, time - 1)
    cdf, before = (model.fitted_.cdf_at_own(x, t) for t in (time, starts))
    y = Surv(time=time, event=event)
    assert model.d_calibration(x, y).value == d_calibration(cdf, event, n_bins=20, cdf_before=before).value
    assert model.d_calibration(x, y, ties="point").value == d_calibration(cdf, event, n_bins=20).value
    truth = [-np.expm1(-rate * t) for t in (time, starts)]
    assert d_calibration(truth[0], event, n_bins=20, cdf_before=truth[1]).p_value > 0.01
    # No grid: an interval starts at the time before. No ties: a time is itself.
    uneven = np.array([1.0, 1.0, 2.5, 2.5, 7.1, 7.1])
    np.testing.assert_array_equal(interval_starts("interval", uneven, np.ones(6, bool), 20), [0, 0, 1, 1, 2.5, 2.5])
    assert interval_starts("auto", rng.exponential(size=500), np.ones(500, bool), 20) is None


def test_refit_learns_from_all_rows():
    path = SurvivalPath((0.0, 10.0), 2, hidden=(8,), epochs=30, learning_rate=1e-2).fit(DATA.x, DATA.y)
    chosen, again = path.select(), path.refit(DATA.x, DATA.y)
    epochs = round(np.mean(chosen.best_epoch_ + 1))
    assert again.history_.total.shape == (epochs, 2)
    assert again.get_params() == chosen.get_params()
    np.testing.assert_allclose(again.fitted_.members[0].standardizer.mean, DATA.x.mean(0))  # of all 300 rows
    assert not np.allclose(chosen.fitted_.members[0].standardizer.mean, DATA.x.mean(0))
    assert again.score(TEST.x, TEST.y) > 0.7
