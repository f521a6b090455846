import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import train_test_split
from sksurv.util import Surv as SksurvSurv

from xcal.data import Surv, SurvivalData
from xcal.data.surv import read_outcome

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


def time_and_event(y, **given):
    found = read_outcome(y, **given)
    return found.time, found.event


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(form):
    found = read_outcome(FORMS[form])
    time, event = found.time, found.event
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
        read_outcome(y)


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
        read_outcome(y, X=X)


def test_an_index_that_counts_rows_says_nothing():
    for X in (LABELLED.reset_index(), LABELLED.to_numpy(), LABELLED, None):
        time = read_outcome(LABELLED, X=X).time
        np.testing.assert_array_equal(time, TIME)
    np.testing.assert_array_equal(read_outcome(LABELLED.reset_index(), X=TURNED).time, TIME)
    twice = pd.concat([LABELLED, LABELLED])
    assert read_outcome(twice, X=twice).n == 6


def test_surv_refuses_columns_of_different_orders():
    with pytest.raises(ValueError, match=r"event: expected rows with the index of time, in its order"):
        Surv(time=LABELLED["time"], event=TURNED["event"])
    with pytest.raises(ValueError, match="weights: expected rows with the index of x, in its order"):
        SurvivalData(LABELLED[["x"]], TIME, EVENT, TURNED["time"])


class TestLabelsOfATarget:
    FRAME = pd.DataFrame({"x": np.arange(8.0), "t": np.arange(1.0, 9.0), "e": [1, 0] * 4}, index=list("abcdefgh"))

    def test_rows_that_are_picked_keep_theirs(self):
        y = Surv(time=self.FRAME["t"], event=self.FRAME["e"])
        for picked in (y[2:5], y[[2, 3, 4]], y[np.isin(y["time"], [3, 4, 5])], y[np.array([2, 3, 4]), ...]):
            assert list(picked.index) == ["c", "d", "e"]
            np.testing.assert_array_equal(picked["time"], [3, 4, 5])
        left, _, left_y, _ = train_test_split(self.FRAME, y, random_state=0)
        assert left_y.index.equals(left.index)
        read_outcome(left_y, X=left)
        with pytest.raises(ValueError, match=r"y: expected .*index of X.*Surv of columns \.loc\[X\.index\]; .*asarray"):
            read_outcome(left_y, X=left.iloc[::-1])

    def test_it_is_an_array_like_any_other(self):
        y = Surv(time=self.FRAME["t"], event=self.FRAME["e"])
        plain = np.asarray(y)
        assert repr(y) == repr(plain)
        assert pickle.dumps(y) == pickle.dumps(plain)
        assert type(y["time"]) is type(plain["time"]) is np.ndarray
        assert type(y[["time"]]) is np.ndarray
        assert y[3] == plain[3]
        np.testing.assert_array_equal(np.sort(y, order="event"), np.sort(plain, order="event"))
        read_outcome(np.concatenate([y, y])[:8], X=self.FRAME.iloc[::-1])  # nothing is known of its rows
        read_outcome(plain, X=self.FRAME.iloc[::-1])


class TestPeople:
    """Several rows of one person, each a stretch of time."""

    def test_rows_in_any_order_with_gaps(self):
        y = Surv(entry=[2, 0, 0, 7], time=[5, 2, 4, 9], event=[0, 0, 0, 1], id=["b", "b", "a", "b"])
        assert y["id"].tolist() == [1, 1, 0, 1]
        found = read_outcome(y, entry=True, people=True)
        before, after = found.next_rows()
        assert (before.tolist(), after.tolist()) == ([1, 0], [0, 3])
        assert found.take([1, 3]).id.tolist() == [1, 1]

    def test_ids_that_are_all_different_say_nothing(self):
        assert Surv(time=[1, 2], event=[1, 0], id=[7, 8]).dtype.names == ("event", "time")

    def test_a_mapping_with_entry_has_ids(self):
        given = {"time": [2.0, 5.0], "event": [0, 1], "entry": [0.0, 2.0], "id": [4, 4]}
        assert read_outcome(given, entry=True, people=True).id.tolist() == [0, 0]
        with pytest.raises(ValueError, match=r"y\['entry'\]: expected rows of one id that do not overlap"):
            read_outcome({**given, "entry": [0.0, 0.0]}, entry=True)
        with pytest.raises(ValueError, match=r"y: expected one row for each person.*, got several rows of one id"):
            read_outcome(given, entry=True)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                {"entry": [0, 1, 0], "id": [1, 1, 2]},
                "entry: expected rows of one id that do not overlap: 2 or later, where row 0 .*, got 1 at row 1",
            ),
            ({"id": [1, 1, 2]}, "entry: expected rows of one id that do not overlap: 2 or later.* got 0 at row 1"),
            (
                {"entry": [0, 2, 0], "event": [1, 0, 0], "id": [1, 1, 2]},
                "event: expected an event in the last row of an id alone, got one before row 1 of the same id at row 0",
            ),
            ({"entry": [0, 2, 0], "id": [1, 1]}, "id: expected 3 rows, as many as time has, got 2"),
            ({"entry": [0, 2, 0], "id": ["a", None, "b"]}, "id: expected a label for every row, got None at row 1"),
            ({"event": None, "cause": [0, 1, 0], "id": [1, 1, 2]}, "id: expected None beside cause"),
        ],
    )
    def test_bad_rows(self, given, message):
        with pytest.raises(ValueError, match=message):
            Surv(**{"time": [2, 5, 4], "event": [0, 1, 0], **given})


class TestIntervals:
    def test_with_entry(self):
        y = Surv(lower=[2, 3, 4], upper=[5, 3, np.inf], entry=[2, 0, 1])
        found = read_outcome(y, entry=True, intervals=True)
        assert found.lower.tolist() == [2, 3, 4]
        assert found.entry.tolist() == [2, 0, 1]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"entry": [3, 0]}, "entry: expected an entry by the lower end of the row, 2, got 3.0 at row 0"),
            ({"entry": [0, 4]}, "entry: expected an entry before the time of the row, 4, got 4.0 at row 1"),
            ({"id": [1, 1]}, "lower, upper: expected both ends .*, got id too"),
            (
                {"upper": [1, 4]},
                "upper: expected the end of an interval that starts at 2, infinite .*, got 1.0 at row 0",
            ),
        ],
    )
    def test_bad_rows(self, given, message):
        with pytest.raises(ValueError, match=message):
            Surv(**{"lower": [2, 4], "upper": [5, np.inf], **given})


ROWS = {"time": [2.0, 5.0], "event": [0, 1]}
ENDS = {"lower": [1.0, 2.0], "upper": [3.0, np.nan]}


class TestNothingIsIgnored:
    """Columns of a table that say something of the rows are read, or refused."""

    @pytest.mark.parametrize("form", [dict, pd.DataFrame])
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (ROWS | {"id": [4, 4]}, r"y\['entry'\]: expected rows of one id that do not overlap.* at row 1"),
            (ENDS | {"id": [4, 4]}, r"y\['lower'\], y\['upper'\]: expected both ends .*, got id too"),
            (ENDS | ROWS, r"y\['lower'\], y\['upper'\]: expected both ends .*, got time too"),
            ({"lower": [1.0, 2.0]}, r"y\['lower'\], y\['upper'\]: expected both ends .*, got one of them"),
            ({"time": [2.0, 5.0], "cause": [0, 2], "id": [4, 4]}, r"y\['id'\]: expected None beside y\['cause'\]"),
            (ROWS | {"cause": [0, 0]}, r"y\['event'\]: expected False, as y\['cause'\] says, got True at row 1"),
        ],
    )
    def test_what_does_not_mix(self, form, given, message):
        with pytest.raises(ValueError, match=message):
            read_outcome(form(given), entry=True, intervals=True, people=True)

    def test_a_table_made_of_an_array_is_read_as_the_array(self):
        y = Surv(time=[2, 5, 4], cause=[2, 0, 1], entry=[1, 0, 0])
        found = read_outcome(pd.DataFrame(y), entry=True)
        assert (found.cause.tolist(), found.entry.tolist()) == ([2, 0, 1], [1, 0, 0])
