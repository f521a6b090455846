import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from xcal import load
from xcal.cli.app import app
from xcal.cli.demo import _rows


def run(*words):
    return CliRunner().invoke(app, ["demo", *map(str, words)], catch_exceptions=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return run("--out", folder, "--seeds", 1, "--epochs", 3, "--max-drop", 1), folder


def test_everything_is_saved(finished):
    result, folder = finished
    assert result.exit_code == 0
    names = ["frontier.csv", "frontier.png", "metrics.json", "model.safetensors", "path.safetensors"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert (folder / "frontier.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_chosen_model_is_the_one_that_is_shown_and_saved(finished):
    result, folder = finished
    model, path = load(folder / "model.safetensors"), load(folder / "path.safetensors")
    pd.testing.assert_frame_equal(pd.read_csv(folder / "frontier.csv"), path.frontier_)
    # Any drop in concordance is allowed, so the best calibrated model is chosen.
    lowest = path.candidates_.loc[path.candidates_["dcal"].idxmin()]
    assert model.xcal_lambda == lowest["lambda"]
    assert (model.fitted_.recalibration is not None) == lowest["recalibrated"]
    (line,) = [line for line in result.stdout.splitlines() if "chosen" in line and "│" in line]
    assert f" {model.xcal_lambda:g} " in line
    metrics = json.loads((folder / "metrics.json").read_text())
    _, _, x, y = _rows("simulated")
    own = metrics[f"lambda {model.xcal_lambda:g}" + ", recalibrated" * bool(lowest["recalibrated"])]
    assert own["concordance"] == pytest.approx(model.score(x, y))
    assert own["D-cal"] == pytest.approx(model.d_calibration(x, y).value)


def test_the_simulated_rows_are_always_the_same():
    one, other = _rows("simulated"), _rows("simulated")
    assert len(one[1]) == len(one[3]) == 6000
    np.testing.assert_array_equal(one[0], other[0])
    assert 0.3 < 1 - one[1]["event"].mean() < 0.5
