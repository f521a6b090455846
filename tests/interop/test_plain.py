"""Curves that come as numbers, frames and functions; classes that nobody knows."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from xcal.interop import read_model, register, supported
from xcal.interop.predictions import Rows
from xcal.interop.reading import curves_of_frame, read_cdf, read_risk, unregister

TIME = np.array([1.0, 2.0, 3.0])
EVENT = np.array([True, True, False])
CURVES = np.array([[0.9, 0.6], [0.8, 0.3], [1.0, 0.7]])
ROWS = Rows(TIME, EVENT)


def read(model, **options):
    return read_model(model, time=TIME, event=EVENT, **options)


def test_array_and_frames_are_the_same_curves():
    from_array = read(CURVES, times=[1.0, 2.0])
    by_row = pd.DataFrame(CURVES, columns=[1.0, 2.0])
    for frame in (by_row, by_row.rename(columns=str), by_row.T, pl.DataFrame(CURVES, schema=["1.0", "2"])):
        found = read(frame)
        assert np.array_equal(found.survival, from_array.survival)
        assert np.array_equal(found.times, [1.0, 2.0])


def test_a_frame_of_both_shapes_is_refused():
    square = pd.DataFrame(np.full((3, 3), 0.5), columns=[0, 1, 2])
    with pytest.raises(ValueError, match=r"labels tell rows from times \(give times="):
        read(square)
    named = pd.DataFrame(np.full((3, 3), 0.5), columns=[0, 1, 2], index=["a", "b", "c"])
    assert read(named).times.tolist() == [0.0, 1.0, 2.0]
    assert curves_of_frame(square, 3, [1, 2, 3])[1].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame(CURVES, columns=["a", "b"]), "increasing times as column names"),
        (pd.DataFrame(CURVES, columns=[2.0, 1.0]), "increasing times as column names"),
        (pd.DataFrame(CURVES[:2], columns=[1.0, 2.0]), "3 rows with increasing times"),
        (pd.DataFrame(CURVES[:, ::-1], columns=[1.0, 2.0]), "survival curves, which never rise"),
        (pd.DataFrame(CURVES * 100, columns=[1.0, 2.0]), "probabilities in"),
        (pd.DataFrame(np.where(CURVES > 0.95, np.nan, CURVES), columns=[1.0, 2.0]), "got nan at row"),
    ],
)
def test_frames_that_do_not_fit(frame, words):
    with pytest.raises(ValueError, match=words):
        read(frame)


def test_arrays_that_do_not_fit():
    with pytest.raises(ValueError, match="times: expected the times of the columns"):
        read(CURVES)
    with pytest.raises(ValueError, match="transpose it"):
        read(CURVES.T, times=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"cdf=, F at the observed time, or risk="):
        read(CURVES[:, 0], times=[1.0])


def test_reading_says_what_lies_past_the_end():
    found = read(CURVES, times=[1.0, 2.0])
    assert "Rows past it count as censored" in found.reading[-1]
    assert "no row needs" in read(CURVES, times=[1.0, 5.0]).reading[-1]


def test_functions_need_not_have_the_same_steps():
    from sksurv.functions import StepFunction

    steps = [
        StepFunction(np.array(x), np.array(y), domain=(0, 4))
        for x, y in [([1.0, 3.0], [0.9, 0.5]), ([2.0, 4.0], [0.8, 0.2]), ([1.0, 4.0], [0.7, 0.1])]
    ]
    found = read(steps)
    assert found.times.tolist() == [1.0, 2.0, 3.0, 4.0]
    for row, step in enumerate(steps):
        # Between its own first and last step, a function is what a call of it gives.
        inside = (found.times >= step.x[0]) & (found.times <= step.x[-1])
        assert found.survival[row][inside].tolist() == [step(t) for t in found.times[inside]]
    assert found.survival[1, 0] == 1.0
    assert found.survival[0, 3] == 0.5
    smooth = read([lambda t: np.exp(-t), lambda t: np.exp(-2 * t), lambda t: np.exp(-3 * t)], times=[1.0, 2.0])
    assert smooth.interpolation == "linear"
    assert np.allclose(smooth.survival[1], np.exp([-2.0, -4.0]))


def test_f_and_risks():
    assert read_cdf([0.1, 0.2, 0.3], ROWS).cdf.tolist() == [0.1, 0.2, 0.3]
    found = read_risk([0.1, 0.2, 0.3], 2, ROWS)
    assert (found.risk_horizon, found.survival) == (2.0, None)
    with pytest.raises(ValueError, match=r"percent\? divide by 100"):
        read_risk([10, 0.2, 0.3], 2, ROWS)
    with pytest.raises(ValueError, match=r"cdf: expected values in \[0, 1\], got nan at row 1"):
        read_cdf([0.1, np.nan, 0.3], ROWS)


class WithMethod:
    """A model of somebody's own."""

    def __init__(self, result, **others):
        self.result = result
        self.__dict__.update(others)

    def predict_survival_function(self, X):
        return self.result


def test_anything_with_the_method_is_read():
    X = np.zeros((3, 1))
    frame = pd.DataFrame(CURVES, columns=[1.0, 2.0])
    for model in (WithMethod(frame), WithMethod(CURVES, unique_times_=[1.0, 2.0])):
        found = read(model, X=X)
        assert np.array_equal(found.survival, CURVES)
        assert found.model == "WithMethod"
    assert np.array_equal(read(WithMethod(CURVES), X=X, times=[1.0, 2.0]).survival, CURVES)
    with pytest.raises(ValueError, match="give times="):
        read(WithMethod(CURVES), X=X)
    with pytest.raises(ValueError, match="X: expected the features"):
        read(WithMethod(CURVES))


def test_an_unknown_class_is_told_what_to_do():
    with pytest.raises(ValueError, match=r"lifelines.*predict_survival_function.*register.*got builtins.object"):
        read(object(), X=np.zeros((3, 1)))


def test_another_library_can_be_registered():
    class Theirs:
        pass

    register("theirs", lambda model, X, rows: (CURVES, [1.0, 2.0]), modules=(__name__,), models="Theirs")
    try:
        found = read(Theirs(), X=np.zeros((3, 1)))
        assert np.array_equal(found.survival, CURVES)
        assert supported().loc["theirs", "models"] == "Theirs"
    finally:
        unregister("theirs")
    with pytest.raises(ValueError, match="model: expected"):
        read(Theirs(), X=np.zeros((3, 1)))


@pytest.mark.ci
def test_supported_needs_no_other_library():
    import subprocess
    import sys

    others = ("lifelines", "sksurv", "pycox", "xgboost", "torchsurv", "hazardous")
    code = f"import sys, xcal.interop as i; i.supported(); print([m for m in {others} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
