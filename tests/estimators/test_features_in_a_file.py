"""Estimators on `SurvivalData` whose features stay in a file: the same models."""

import numpy as np
import pytest

from xcal import SurvivalModel, SurvivalPath
from xcal.data import SurvivalData, features
from xcal.data.features import MappedFeatures, with_masks
from xcal.estimators.fitted import Standardizer

FAST = {"hidden": (8,), "epochs": 3, "batch_size": 100, "random_state": 0, "device": "cpu"}


def data_in_file(path, n, seed, *, weights=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)).astype(np.float32)
    x[:, 3] = 2.5
    time = rng.exponential(np.exp(0.5 * x[:, 0]))
    x[::7, 1] = np.nan
    np.save(path, x)
    mapped = MappedFeatures(np.load(path, mmap_mode="r"), change=with_masks)
    names = [f"f{i}" for i in range(8)]
    w = rng.random(n) + 0.1 if weights else None
    return SurvivalData(mapped, time, rng.random(n) < 0.8, w, feature_names=names)


def in_memory(data):
    return data.replaced(x=data.x[:])


@pytest.fixture
def pair(tmp_path):
    """Training and validation rows in files."""
    return data_in_file(tmp_path / "a.npy", 400, 0), data_in_file(tmp_path / "b.npy", 200, 1)


def test_a_path_is_the_one_of_rows_in_memory(pair):
    train, validation = pair
    ours = SurvivalPath(lambdas=(0, 10), seeds=1, **FAST).fit(train, validation_data=validation)
    other = SurvivalPath(lambdas=(0, 10), seeds=1, **FAST).fit(in_memory(train), validation_data=in_memory(validation))
    # The means of the features are summed in another order.
    columns = ["nll", "dcal", "concordance"]
    np.testing.assert_allclose(ours.frontier_[columns], other.frontier_[columns], rtol=1e-4, atol=1e-6)
    assert list(ours.feature_names_in_) == list(train.feature_names)


def test_a_model_predicts_from_a_file(pair):
    train, validation = pair
    model = SurvivalModel(**FAST).fit(train)  # split by the model itself
    np.testing.assert_array_equal(model.predict(validation), model.predict(in_memory(validation)))
    assert model.d_calibration(validation).value == model.d_calibration(in_memory(validation)).value


@pytest.mark.parametrize("weights", [False, True])
def test_scaling_is_that_of_rows_in_memory(tmp_path, monkeypatch, weights):
    monkeypatch.setattr(features, "_CHUNK", 8 * 33)
    data = data_in_file(tmp_path / "x.npy", 200, 3, weights=weights)
    x = data.x[:].astype(np.float64)
    found, expected = Standardizer.of(data), Standardizer.of(data.replaced(x=x))
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.factor, expected.factor, rtol=1e-12)
    assert (found.factor == 0).sum() == 4  # the constant feature, and masks of what is never missing


def test_names_are_compared(pair):
    train, validation = pair
    model = SurvivalModel(**FAST).fit(train)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(validation.replaced(feature_names=tuple("abcdefgh")))
