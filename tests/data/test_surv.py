import numpy as np
import pandas as pd
import pytest
import torch
from sksurv.util import Surv as SksurvSurv

from xcal.data import Surv, SurvivalData
from xcal.data.surv import time_and_event

TIME, EVENT = [5.0, 3.0, 8.0], [True, False, True]
FORMS = {
    "ours": Surv(time=TIME, event=EVENT),
    "scikit-survival": SksurvSurv.from_arrays(EVENT, TIME),
    "other order and names": np.array(list(zip(TIME, EVENT, strict=True)), dtype=[("days", "f4"), ("died", "?")]),
    "integer times": np.array(list(zip(EVENT, [5, 3, 8], strict=True)), dtype=[("e", "?"), ("t", "i8")]),
    "dict": {"time": TIME, "event": [1, 0, 1]},
    "pandas": pd.DataFrame({"event": [1, 0, 1], "time": TIME, "other": 0}, index=[7, 7, 9]),
    "tuple": (TIME, EVENT),
    "tuple of columns": (pd.Series(TIME, index=[2, 0, 1]), pd.Series(EVENT, index=[2, 0, 1])),
    "torch": {"time": torch.tensor(TIME), "event": torch.tensor(EVENT)},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(form):
    time, event = time_and_event(FORMS[form])
    np.testing.assert_array_equal(time, TIME)
    np.testing.assert_array_equal(event, EVENT)
    assert (time.dtype, event.dtype) == (np.float64, np.bool_)


def test_scikit_survival_takes_ours():
    from sksurv.util import check_y_survival

    event, time = check_y_survival(Surv(time=TIME, event=EVENT))
    np.testing.assert_array_equal(time, TIME)
    np.testing.assert_array_equal(event, EVENT)


NAN = float("nan")


@pytest.mark.parametrize(
    ("time", "event", "message"),
    [
        ([1.0, NAN], [1, 0], "time: expected finite times, zero or larger, got nan at row 1"),
        ([1.0, -1.0], [1, 0], "time: expected finite times, zero or larger, got -1.0 at row 1"),
        ([1.0, 2.0], [1, 2], "event: expected True/False or 0/1.*, got 2 at row 1"),
        ([1.0, 2.0], [1], "event: expected 2 rows, as many as time has, got 1"),
        ([], [], "time: expected at least one row, got an empty array"),
        ([[1.0]], [1], "time: expected a one-dimensional array"),
        (["a"], [1], "time: expected an array of numbers"),
    ],
)
def test_bad_rows(time, event, message):
    with pytest.raises(ValueError, match=message):
        Surv(time=time, event=event)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.ones(3), r"y: expected Surv\(time=..., event=...\) or a data frame .*, got ndarray of shape \(3,\)"),
        ([(1, 2)], r"y: expected Surv\(time=..., event=...\) .*, got list"),
        (None, "y: expected Surv.*, got NoneType"),
        (pd.DataFrame({"time": [1.0], "died": [1]}), "y: expected columns time and event, got columns time, died"),
        (np.zeros(2, dtype=[("a", "f8"), ("b", "f8")]), r"y: expected one boolean field .*, got a \(float64\), b"),
        ({"time": [1.0, NAN], "event": [1, 1]}, r"y\['time'\]: expected finite times.* at row 1"),
        ({"time": [1.0, 2.0], "event": [1, 5]}, r"y\['event'\]: expected True/False or 0/1.* got 5 at row 1"),
    ],
)
def test_bad_targets(y, message):
    with pytest.raises(ValueError, match=message):
        time_and_event(y)


LABELS = list("abc")
LABELLED = pd.DataFrame({"x": 0.0, "time": TIME, "event": EVENT}, index=LABELS)
TURNED = LABELLED.loc[["c", "a", "b"]]
WRONG = {
    "time and event in different orders": (LABELLED, (LABELLED["time"], TURNED["event"])),
    "both in another order than X": (LABELLED, (TURNED["time"], TURNED["event"])),
    "a frame in another order than X": (LABELLED, TURNED),
    "columns of a mapping": (None, {"time": LABELLED["time"], "event": TURNED["event"]}),
    "numbers in another order": (LABELLED.reset_index(), TURNED.set_axis([2, 0, 1])),
    "other rows": (LABELLED, TURNED.set_axis(["d", "e", "f"])),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_index_that_contradicts_the_order_is_refused(case):
    X, y = WRONG[case]
    with pytest.raises(ValueError, match=r"y\['(time|event)'\]: expected rows with the index of .* labels"):
        time_and_event(y, X=X)


def test_an_index_that_counts_rows_says_nothing():
    for X in (LABELLED.reset_index(), LABELLED.to_numpy(), LABELLED, None):
        time, _ = time_and_event(LABELLED, X=X)
        np.testing.assert_array_equal(time, TIME)
    np.testing.assert_array_equal(time_and_event(LABELLED.reset_index(), X=TURNED)[0], TIME)
    twice = pd.concat([LABELLED, LABELLED])
    assert time_and_event(twice, X=twice)[0].size == 6


def test_surv_refuses_columns_of_different_orders():
    with pytest.raises(ValueError, match=r"event: expected rows with the index of time, in its order"):
        Surv(time=LABELLED["time"], event=TURNED["event"])
    with pytest.raises(ValueError, match="weights: expected rows with the index of x, in its order"):
        SurvivalData(LABELLED[["x"]], TIME, EVENT, TURNED["time"])
