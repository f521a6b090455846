"""`penalty_schedule=` of the estimators: a weight that rises while the temperature falls."""

import numpy as np
import pytest

from tests.estimators.simulate import survival_rows
from xcal import SurvivalModel, SurvivalPath, load
from xcal.estimators import decision as crossfit
from xcal.estimators import fitting

# The 200 rows of someone who tries the setting on little data.
ROWS = survival_rows(200)
SETTINGS = {"hidden": (8,), "epochs": 30, "patience": 5, "progress": False}


def test_a_weight_of_zero_is_the_same_model():
    plain, annealed = (
        SurvivalModel(penalty_schedule=schedule, **SETTINGS).fit(ROWS.x, ROWS.y) for schedule in ("constant", "anneal")
    )
    np.testing.assert_array_equal(annealed.predict_median(ROWS.x), plain.predict_median(ROWS.x))
    assert annealed.best_epoch_ == plain.best_epoch_


def test_a_path_is_annealed_and_can_be_saved(tmp_path):
    paths = {
        schedule: SurvivalPath((0, 100), 1, penalty_schedule=schedule, cross_fit=0, **SETTINGS).fit(ROWS.x, ROWS.y)
        for schedule in ("constant", "anneal")
    }
    one, other = (path.frontier_.set_index("lambda")["nll"] for path in paths.values())
    assert one[0.0] == other[0.0]
    assert one[100.0] != other[100.0]
    # Five epochs to rise, and five more that count: a model with a penalty is not stopped before.
    epochs = np.isfinite(paths["anneal"].fitted_[1].history.total).sum()
    assert epochs >= 10
    paths["anneal"].save(tmp_path / "path.xcal")
    assert load(tmp_path / "path.xcal").penalty_schedule == "anneal"


def test_networks_that_are_trained_once_more_rise_in_the_same_epochs(monkeypatch):
    """Trained for the epochs that are known: half of those would be another schedule."""
    seen = []
    plain = crossfit.train_on

    def watched(*arguments, **options):
        seen.append(options["config"])
        return plain(*arguments, **options)

    monkeypatch.setattr(crossfit, "train_on", watched)
    for schedule, rising in (("anneal", 5), ("constant", 0)):
        path = SurvivalPath((100.0,), 1, penalty_schedule=schedule, cross_fit=0, **SETTINGS).fit(ROWS.x, ROWS.y)
        path.refit(ROWS.x, ROWS.y)
        found = seen.pop()
        assert (found.rising_epochs, found.patience) == (rising, None)
        assert found.epochs == path.fitted_[0].best_epoch + 1


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match="penalty_schedule: expected one of 'constant', 'anneal', got 'rise'"):
        SurvivalModel(penalty_schedule="rise").fit(ROWS.x, ROWS.y)


@pytest.mark.parametrize("calibration", ["marginal", "conditional"])
def test_the_temperature_is_that_of_the_penalty_in_every_training(monkeypatch, tmp_path, calibration):
    seen = []
    plain = fitting.fit_path

    def watched(*arguments, **options):
        seen.append(options["penalty"])
        return plain(*arguments, **options)

    monkeypatch.setattr(fitting, "fit_path", watched)
    settings = SETTINGS | {"penalty_schedule": "anneal", "penalty_temperature": 0.1, "calibration": calibration}
    path = SurvivalPath((0, 100.0), 1, cross_fit=2, **settings).fit(ROWS.x, ROWS.y)
    path.refit(ROWS.x, ROWS.y)
    estimator = "bound" if calibration == "marginal" else "unbiased"
    assert len(seen) >= 2
    assert {(penalty.temperature, penalty.estimator) for penalty in seen} == {(0.1, estimator)}
    path.save(tmp_path / "path.xcal")
    assert load(tmp_path / "path.xcal").penalty_temperature == 0.1


def test_without_a_temperature_the_penalty_is_the_usual_one():
    """Bits of models trained before the setting existed."""
    one, other = (
        SurvivalModel(xcal_lambda=100.0, penalty_temperature=temperature, **SETTINGS).fit(ROWS.x, ROWS.y)
        for temperature in (None, 0.5)
    )
    np.testing.assert_array_equal(one.predict_median(ROWS.x), other.predict_median(ROWS.x))
    sharp = SurvivalModel(xcal_lambda=100.0, penalty_temperature=0.1, **SETTINGS).fit(ROWS.x, ROWS.y)
    assert not np.array_equal(sharp.predict_median(ROWS.x), one.predict_median(ROWS.x))


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, "sharp"])
def test_a_temperature_must_be_a_number_above_zero(temperature):
    with pytest.raises(ValueError, match="penalty_temperature: expected"):
        SurvivalModel(penalty_temperature=temperature).fit(ROWS.x, ROWS.y)
