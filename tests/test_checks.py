"""The checks of one value: which values pass, and that every room gives the same answer."""

import json
import math
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import torch

import xcal
from xcal._checks import as_choice, as_count, as_event, as_number
from xcal.calibration import DCalibration, SoftBins, d_calibration, xcal_penalty
from xcal.calibration.bins import bin_edges
from xcal.distributions import quantile_edges
from xcal.metrics import evaluate
from xcal.networks import MLP
from xcal.recalibration import KaplanMeierRecalibration
from xcal.training import TrainingConfig
from xcal_paper import load_gamma

F, EVENT = np.linspace(0.05, 0.95, 40), np.ones(40)
ROWS = {"time": np.arange(1.0, 41), "event": EVENT, "cdf": F}

# Every integer argument of a public function: how to give it.
COUNTS = {
    "bin_edges": bin_edges,
    "d_calibration.n_bins": lambda n: d_calibration(F, EVENT, n_bins=n),
    "d_calibration.n_simulations": lambda n: d_calibration(F, EVENT, p_value="simulated", n_simulations=n),
    "d_calibration.seed": lambda n: d_calibration(F, EVENT, seed=n),
    "DCalibration.grid_cells": lambda n: DCalibration(n_bins=2, method="km", grid_cells=n),
    "xcal_penalty.n_groups": lambda n: xcal_penalty(
        torch.from_numpy(F), EVENT, groups=torch.zeros(40, dtype=torch.int64), n_groups=n
    ),
    "quantile_edges": lambda n: quantile_edges(ROWS["time"], EVENT, n),
    "MLP.n_inputs": lambda n: MLP(n, 2),
    "MLP.hidden": lambda n: MLP(3, 2, hidden=(n,)),
    "TrainingConfig.epochs": lambda n: TrainingConfig(epochs=n),
    "TrainingConfig.patience": lambda n: TrainingConfig(patience=n),
    "TrainingConfig.warm_up": lambda n: TrainingConfig(warm_up=n),
    "gamma.seed": lambda n: load_gamma(censored=True, n=(5, 5, 5), seed=n),
    "evaluate.n_bins": lambda n: evaluate(**ROWS, n_bins=n),
    "recalibration.n_pieces": lambda n: KaplanMeierRecalibration.fit(F, EVENT, n_pieces=n),
    "SurvivalModel.calibration_bins": lambda n: _settings(calibration_bins=n),
}


def _settings(**options):
    from xcal.estimators.settings import Settings

    return Settings.of(xcal.SurvivalModel(**options))


@pytest.mark.parametrize("give", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("kind", [int, np.int32, np.int64, np.uint8])
def test_integers_of_python_and_numpy_are_welcome_everywhere(give, kind):
    give(kind(30))


@pytest.mark.parametrize("give", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("value", [2.5, "3", True, -1])
def test_what_is_no_count_is_refused_everywhere_in_the_same_words(give, value):
    with pytest.raises(ValueError, match=r"expected an integer of \d+ or more, got "):
        give(value)


@pytest.mark.parametrize("value", [True, np.True_, 1.0, np.float64(1), "1", None, [1], np.array([1])])
def test_a_count_is_an_integer(value):
    with pytest.raises(ValueError, match="n: expected an integer of 1 or more, got "):
        as_count("n", value, at_least=1)


def test_a_count_has_limits_and_becomes_an_int():
    assert type(as_count("n", np.int64(1), at_least=1)) is int
    with pytest.raises(ValueError, match="n: expected an integer from 0 to 4, got 5"):
        as_count("n", 5, at_least=0, below=5)
    assert as_count("n", 4, at_least=0, below=5) == 4


@pytest.mark.parametrize("value", [True, np.True_, math.nan, math.inf, -math.inf, "1", None, 1j, [1.0], 10**400, 0, -1])
def test_a_number_is_finite_and_within_its_limits(value):
    with pytest.raises(ValueError, match="x: expected a finite number above 0, got "):
        as_number("x", value, above=0)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.float64(0.5), np.int64(2), np.float16(0.5)])
def test_numbers_of_python_and_numpy_are_welcome(value):
    got = as_number("x", value, above=0)
    assert type(got) is float
    assert got == value


@pytest.mark.parametrize(
    ("limits", "words", "welcome", "refused"),
    [
        ({}, "a finite number", -3, math.nan),
        ({"at_least": 0}, "a finite number of 0 or more", 0, -1e-9),
        ({"above": 0, "below": 1}, "a number between 0 and 1", 0.5, 1),
        ({"at_least": 0, "below": 1}, "a number from 0 to below 1", 0, 1),
        ({"below": 1}, "a number below 1", -5, 1),
    ],
)
def test_words_for_the_limits(limits, words, welcome, refused):
    assert as_number("x", welcome, **limits) == welcome
    with pytest.raises(ValueError, match=f"^x: expected {words}, got "):
        as_number("x", refused, **limits)


@pytest.mark.parametrize("value", ["c", "", None, 5, ["a"], np.array(["a", "b"]), {}])
def test_a_choice_is_one_of_the_words(value):
    with pytest.raises(ValueError, match=r"^way: expected one of 'a', 'b', got "):
        as_choice("way", value, ("a", "b"))
    assert as_choice("way", "b", ("a", "b")) == "b"


def test_none_is_a_choice_where_it_is_said():
    assert as_choice("way", None, ("a", "b"), or_none=True) is None
    with pytest.raises(ValueError, match=r"^way: expected one of 'a', 'b' or None, got 'c'"):
        as_choice("way", "c", ("a", "b"), or_none=True)


def test_settings_from_numpy_can_be_written_as_json():
    """A checkpoint writes them so; a grid search makes numbers of numpy's types."""
    config = TrainingConfig(epochs=np.int64(3), warm_up=np.int32(1), learning_rate=np.float32(0.5), patience=np.int8(2))
    assert json.loads(json.dumps(asdict(config)))["epochs"] == 3
    assert json.loads(json.dumps(asdict(SoftBins(temperature=np.float32(0.25)))))["temperature"] == 0.25


def test_events_that_are_words():
    expected = r"event: expected True/False or 0/1: say which word is the event, as in status == 'alive', got the words"
    for words in (["dead", "alive"], np.array(["dead", "alive"]), pd.Series(["dead", "alive"], dtype="category")):
        with pytest.raises(ValueError, match=expected + " 'alive', 'dead'"):
            as_event(words, 2)


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
def test_an_event_that_is_missing_names_its_row(gap):
    with pytest.raises(ValueError, match=r"event: expected .* in every row, got a missing value .* at row 1"):
        as_event(pd.Series([True, gap, False], dtype=object), 3)
    with pytest.raises(ValueError, match=r"event: expected .* in every row, got a missing value .* at row 1"):
        as_event(pd.array([True, pd.NA, False], dtype="boolean"), 3)
