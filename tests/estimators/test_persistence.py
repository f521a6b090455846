"""Saved and loaded: the same bits; anything else is refused with one clear error."""

import json
import os
import pickle
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.estimators.simulate import survival_rows
from xcal.estimators import SurvivalModel, SurvivalPath, load
from xcal.estimators.persistence import _digest

DATA = survival_rows(120)
FRAME = pd.DataFrame(DATA.x, columns=["age", "größe", "dose mg"])
TIMES = np.linspace(0, 20, 50)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    file = tmp_path_factory.mktemp("models") / "model.xcal"
    SurvivalModel(hidden=(4,), epochs=2).fit(FRAME, DATA.y).save(file)
    return file


def metadata_of(file):
    with safe_open(file, "pt") as content:
        return content.metadata()


def assert_same(one, other):
    assert type(one) is type(other)
    assert other.get_params() == one.get_params()
    assert other.n_features_in_ == one.n_features_in_
    np.testing.assert_array_equal(other.predict(FRAME), one.predict(FRAME))
    for p in (0.5, [0.1, 0.9]):
        expected = one.predict_quantile(FRAME, p, extrapolate=True)
        np.testing.assert_array_equal(other.predict_quantile(FRAME, p, extrapolate=True), expected)
    for method in ("predict_survival_function", "predict_cdf"):
        expected = getattr(one, method)(FRAME, TIMES, extrapolate=True)
        np.testing.assert_array_equal(getattr(other, method)(FRAME, TIMES, extrapolate=True), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"distribution": "mtlr"},
        {"distribution": "mtlr", "interpolation": "step", "dropout": 0.0},
        {"distribution": "categorical", "hidden": (8, 4)},
        {"distribution": "lognormal", "hidden": ()},
        {"distribution": "weibull", "hidden": [5], "learning_rate": np.float64(0.01)},
        {"distribution": "loglogistic", "objective": "scrps", "xcal_lambda": 0.1},
    ],
    ids=lambda o: o["distribution"],
)
def test_round_trip(tmp_path, options):
    model = SurvivalModel(**{"hidden": (4,), "epochs": 3} | options).fit(FRAME, DATA.y)
    model.save(tmp_path / "model.xcal")
    before = torch.get_rng_state()
    again = load(tmp_path / "model.xcal")
    assert torch.equal(before, torch.get_rng_state())
    model.set_params(hidden=tuple(model.hidden))
    assert_same(model, again)
    assert again.feature_names_in_.tolist() == FRAME.columns.tolist()
    assert again.best_epoch_ == model.best_epoch_
    np.testing.assert_array_equal(again.history_.dcal, model.history_.dcal)
    np.testing.assert_array_equal(again.edges_, model.edges_)
    assert os.listdir(tmp_path) == ["model.xcal"]


def test_a_path(tmp_path):
    path = SurvivalPath((0.0, 10.0), 2, path="always", hidden=(4,), epochs=2).fit(FRAME, DATA.y)
    path.save(tmp_path / "path.xcal")
    again = load(str(tmp_path / "path.xcal"))
    assert_same(path, again)
    pd.testing.assert_frame_equal(again.frontier_, path.frontier_, check_exact=True)
    assert_same(path.model(10.0, 1), again.model(10.0, 1))
    assert_same(path.select(max_dcal=1.0), again.select(max_dcal=1.0))


def test_loaded_and_saved_again_it_holds_the_same(tmp_path, saved):
    load(saved).save(tmp_path / "again.xcal")
    assert metadata_of(tmp_path / "again.xcal") == metadata_of(saved)  # the digest of all tensors among it


def test_a_loaded_model_can_be_fitted_again(saved):
    again = load(saved)
    np.testing.assert_array_equal(again.fit(FRAME, DATA.y).predict(FRAME), load(saved).predict(FRAME))


def test_without_column_names(tmp_path):
    SurvivalModel(hidden=(4,), epochs=1).fit(DATA.x, DATA.y).save(tmp_path / "model.xcal")
    assert not hasattr(load(tmp_path / "model.xcal"), "feature_names_in_")


def test_parameters_that_changed_after_the_fit(tmp_path):
    model = SurvivalModel(hidden=(4,), epochs=1).fit(DATA.x, DATA.y)
    model.set_params(hidden=(9, 9), dropout=0.5, distribution="weibull").save(tmp_path / "model.xcal")
    np.testing.assert_array_equal(load(tmp_path / "model.xcal").predict(DATA.x), model.predict(DATA.x))


def test_objects_among_the_parameters_are_not_kept(tmp_path):
    model = SurvivalModel(hidden=(4,), epochs=1, random_state=np.random.RandomState(0), progress=lambda report: None)
    model.fit(DATA.x, DATA.y).save(tmp_path / "model.xcal")
    again = load(tmp_path / "model.xcal")
    assert again.random_state is None
    assert again.progress is None


def test_the_folder_of_a_run_has_its_model(tmp_path, saved):
    with pytest.raises(ValueError, match=r"or the folder of a run with model\.safetensors, got .* without it"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(saved.read_bytes())
    np.testing.assert_array_equal(load(tmp_path).predict(FRAME), load(saved).predict(FRAME))


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, saved):
    file = tmp_path / "model.xcal"
    file.write_bytes(saved.read_bytes())

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(saved).save(file)
    assert file.read_bytes() == saved.read_bytes()
    assert os.listdir(tmp_path) == ["model.xcal"]


def test_threads_may_save_to_one_path(tmp_path, saved):
    model, file, errors = load(saved), tmp_path / "model.xcal", []

    def save():
        try:
            for _ in range(20):
                model.save(file)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=save) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert_same(model, load(file))
    assert os.listdir(tmp_path) == ["model.xcal"]


def rewritten(saved, file, **changes):
    """The saved file with other metadata."""
    save_file(load_file(saved), file, metadata_of(saved) | changes)


def flip(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: flip(content, len(content) - 1),
        lambda content: flip(content, len(content) - 2000),
        lambda content: flip(content, content.index(b"n_features") + 14),
        lambda content: b"not a model",
        lambda content: pickle.dumps({"model": 1}),
    ],
    ids=["empty", "half", "a byte less", "a byte more", "last bit", "a bit", "a bit of the header", "text", "pickle"],
)  # fmt: skip
def test_damaged_files(tmp_path, saved, damage):
    file = tmp_path / "model.xcal"
    file.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(ValueError, match=r"path: expected a file that SurvivalModel.save .* wrote, got"):
        load(file)


def test_foreign_files(tmp_path, saved):
    save_file({"weight": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(ValueError, match=r"path: expected .*, got .*foreign, a safetensors file of another kind"):
        load(tmp_path / "foreign")
    rewritten(saved, tmp_path / "newer", version="2")
    with pytest.raises(ValueError, match=r"path: expected a file of format version 1 or older, got .* of version 2"):
        load(tmp_path / "newer")
    rewritten(saved, tmp_path / "odd", version="one")
    with pytest.raises(ValueError, match=r"path: expected a file of format version 1 or older, got .* of version one"):
        load(tmp_path / "odd")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent")


def test_another_class_is_refused(tmp_path, saved):
    class Other(SurvivalModel):
        pass

    Namesake = type("SurvivalModel", (SurvivalModel,), {})
    for kind in (Other, Namesake):
        other = kind(hidden=(4,), epochs=1).fit(DATA.x, DATA.y)
        with pytest.raises(
            ValueError, match=r"save: expected a SurvivalModel or SurvivalPath itself, .*, got the subclass"
        ):
            other.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    header = metadata_of(saved)["header"].replace('"class": "SurvivalModel"', '"class": "Other"')
    rewritten(saved, tmp_path / "other", header=header, digest=_digest(header, load_file(saved)))
    with pytest.raises(
        ValueError, match=r"path: expected .*class: expected SurvivalModel or SurvivalPath, got 'Other'"
    ):
        load(tmp_path / "other")


def test_the_header_is_json_that_anyone_can_read(saved):
    metadata = metadata_of(saved)
    assert metadata["format"] == "xcal-estimator"
    assert metadata["version"] == "1"
    assert json.loads(metadata["header"])["parameters"]["hidden"] == [4]


def test_a_model_has_one_file(saved, tmp_path):
    model, written = load(saved), {saved.read_bytes()}
    for number in range(8):  # safetensors alone would write its metadata in a random order
        model.save(tmp_path / f"{number}.xcal")
        written.add((tmp_path / f"{number}.xcal").read_bytes())
    assert len(written) == 1
