import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from xcal import load
from xcal.cli.app import app
from xcal.cli.demo import _rows, _story

NAMES = ["over-fitted", "penalty", "recalibrated", "penalty, recalibrated"]


def run(*words):
    return CliRunner().invoke(app, ["demo", *map(str, words)], catch_exceptions=False)


def few_rows(dataset):
    """A part of the rows: enough for every page."""
    x, y, new_x, new_y = _rows(dataset)
    return x[:600], y[:600], new_x[:900], new_y[:900]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("xcal.cli.demo._rows", few_rows)
        return run("--out", folder, "--seeds", 1, "--epochs", 3, "--max-drop", 1), folder


@pytest.fixture(scope="module")
def metrics(finished):
    return json.loads((finished[1] / "metrics.json").read_text())


def test_everything_is_saved(finished):
    result, folder = finished
    assert result.exit_code == 0
    names = {path.name for path in folder.iterdir()}
    expected = {"comparison.html", "frontier.csv", "frontier.html", "frontier.png", "metrics.json"}
    assert names == expected | {"model.safetensors", "path.safetensors"}
    assert (folder / "frontier.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "over-fitted" in (folder / "comparison.html").read_text()
    assert "comparison.html and" in " ".join(result.stdout.split())


def test_the_chosen_model_is_the_one_that_is_shown_and_saved(finished, metrics):
    result, folder = finished
    model, path = load(folder / "model.safetensors"), load(folder / "path.safetensors")
    pd.testing.assert_frame_equal(pd.read_csv(folder / "frontier.csv"), path.frontier_)
    # Any drop in concordance is allowed, so the best calibrated model is chosen.
    lowest = path.candidates_.loc[path.candidates_["dcal"].idxmin()]
    assert model.xcal_lambda == lowest["lambda"]
    assert (model.fitted_.recalibration is not None) == lowest["recalibrated"]
    name = f"path: lambda {model.xcal_lambda:g}" + ", recalibrated" * bool(lowest["recalibrated"])
    assert list(metrics) == [*NAMES, name]
    _, _, x, y = few_rows("simulated")
    assert metrics[name]["concordance"] == pytest.approx(model.score(x, y))
    assert metrics[name]["D-cal"] == pytest.approx(model.d_calibration(x, y).value)
    assert f"{metrics[name]['D-cal']:.5f}" in result.stdout


def test_a_map_of_the_probabilities_hardly_changes_the_order(metrics):
    assert metrics["recalibrated"]["concordance"] == pytest.approx(metrics["over-fitted"]["concordance"], abs=0.01)


def values(dcal, ibs, outer):
    return {
        "concordance": 0.8,
        "integrated Brier score": ibs,
        "D-cal": dcal,
        "D-cal of a perfect model": 0.001,
        "p-value of D-calibration": 0.5,
        "rows in the outer tenths": outer,
    }


def test_the_words_follow_the_numbers():
    remedies = {
        "penalty": values(0.002, 0.13, 0.2),
        "recalibrated": values(0.001, 0.11, 0.2),
        "path": values(0.001, 0.1, 0.2),
    }
    first, penalty, recalibrated, path = _story({"over-fitted": values(0.03, 0.12, 0.35), **remedies}, 400)
    assert "is over-confident: 35% of the new rows" in first
    assert "30 times that of a perfect model" in first
    assert "from 30 to 2.0 times" in penalty
    assert "+0.0100 (worse)" in penalty
    assert "400 rows" in recalibrated
    assert "-0.0100 (better)" in recalibrated
    assert "-0.0200 (better)" in path
    assert "not over-confident here" in _story({"over-fitted": values(0.03, 0.12, 0.15), **remedies}, 400)[0]


def test_the_simulated_rows_are_always_the_same():
    one, other = _rows("simulated"), _rows("simulated")
    assert (len(one[1]), len(one[3])) == (2000, 6000)
    np.testing.assert_array_equal(one[0], other[0])
    assert 0.3 < 1 - one[1]["event"].mean() < 0.5
