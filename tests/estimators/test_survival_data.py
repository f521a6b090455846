"""An estimator fitted to `SurvivalData` is the one that is fitted to X and y."""

import numpy as np
import pandas as pd
import pytest
import torch

from tests.estimators.simulate import survival_rows
from xcal import Surv, SurvivalData
from xcal.estimators import SurvivalModel, SurvivalPath

DATA, OTHER = survival_rows(200), survival_rows(80, seed=1)
WEIGHTS = (np.arange(200) % 3).astype(float)
FAST = {"epochs": 2, "hidden": (4,), "random_state": 0}


def as_data(rows, weights=None, **others):
    return SurvivalData(rows.x, rows.y["time"], rows.y["event"], weights, **others)


def new(kind):
    return kind(**FAST) if kind is SurvivalModel else kind(lambdas=(0, 10), seeds=1, **FAST)


@pytest.mark.parametrize("kind", [SurvivalModel, SurvivalPath])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_the_same_model(kind, weights):
    expected = new(kind).fit(DATA.x, DATA.y, sample_weight=weights, validation_data=(OTHER.x, OTHER.y))
    found = new(kind).fit(as_data(DATA, weights), validation_data=as_data(OTHER))
    np.testing.assert_array_equal(found.predict(OTHER.x), expected.predict(OTHER.x))
    held_out = new(kind).fit(DATA.x, DATA.y, sample_weight=weights)
    np.testing.assert_array_equal(new(kind).fit(as_data(DATA, weights)).predict(OTHER.x), held_out.predict(OTHER.x))


def test_tensors_and_files_are_as_good_as_arrays(tmp_path):
    expected = new(SurvivalModel).fit(DATA.x, DATA.y).predict(OTHER.x)
    np.save(tmp_path / "x.npy", DATA.x)
    tensor, mapped = (
        SurvivalData(x, DATA.y["time"], DATA.y["event"])
        for x in (torch.from_numpy(DATA.x), np.load(tmp_path / "x.npy", mmap_mode="r"))
    )
    np.testing.assert_array_equal(new(SurvivalModel).fit(tensor).predict(OTHER.x), expected)
    # The means of a file are summed piece by piece, in another order than those of an array.
    np.testing.assert_allclose(new(SurvivalModel).fit(mapped).predict(OTHER.x), expected, rtol=1e-12)


def test_predictions_and_scores():
    model = new(SurvivalModel).fit(DATA.x, DATA.y)
    data = as_data(OTHER)
    np.testing.assert_array_equal(model.predict_cdf(data, [1.0]), model.predict_cdf(OTHER.x, [1.0]))
    assert model.score(data) == model.score(OTHER.x, OTHER.y)
    assert model.d_calibration(data).value == model.d_calibration(OTHER.x, OTHER.y).value


def test_feature_names_are_learnt_as_from_a_data_frame():
    model = new(SurvivalModel).fit(as_data(DATA, feature_names=("a", "b", "c")))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    frame = pd.DataFrame(OTHER.x, columns=["a", "b", "c"])
    np.testing.assert_array_equal(model.predict(frame), model.predict(as_data(OTHER, feature_names=("a", "b", "c"))))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c"]])


BESIDE = "expected nothing beside SurvivalData, which has times, events and weights, got ndarray"


def test_what_the_data_hold_is_not_given_twice():
    data = as_data(DATA)
    with pytest.raises(ValueError, match=f"^y: {BESIDE}"):
        new(SurvivalModel).fit(data, DATA.y)
    with pytest.raises(ValueError, match=f"^sample_weight: {BESIDE}"):
        new(SurvivalModel).fit(data, sample_weight=WEIGHTS)
    with pytest.raises(ValueError, match=f"^y: {BESIDE}"):
        new(SurvivalModel).fit(data).score(data, DATA.y)


def test_the_target_is_still_required():
    with pytest.raises(ValueError, match=r"^y: expected Surv\(time=..., event=...\), got None"):
        new(SurvivalModel).fit(DATA.x)


def test_numbers_that_leave_the_range_of_float32_are_named():
    far = OTHER.x.copy()
    far[5, 1] = 1e60
    with pytest.raises(ValueError, match=r"^X: expected features within the range of float32 .* at row 5"):
        new(SurvivalModel).fit(DATA.x, DATA.y, validation_data=(far, OTHER.y))
    late = Surv(time=np.where(np.arange(80) == 7, 1e60, OTHER.y["time"]), event=OTHER.y["event"])
    with pytest.raises(ValueError, match=r"^y: expected times within the range of float32 .* at row 7"):
        new(SurvivalModel).fit(DATA.x, DATA.y, validation_data=(OTHER.x, late))
