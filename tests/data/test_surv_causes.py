"""Outcomes with causes: what `Surv` takes, what keeps them, and what is refused."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

from xcal import Surv, SurvivalData
from xcal.data.surv import Outcome, read_outcome

NAMES = ("recurrence", "death")


def read(y, **given):
    found = read_outcome(y, **given)
    return found.time.tolist(), found.event.tolist(), found.cause.tolist(), found.causes


class TestSurv:
    def test_numbers_and_names_are_the_same_outcome(self):
        one = Surv(time=[1, 2, 3], cause=[2, 0, 1], causes=NAMES)
        other = Surv(time=[1, 2, 3], cause=["death", "censored", "recurrence"], causes=NAMES)
        mixed = Surv(time=[1, 2, 3], cause=pd.Series(["death", 0, "recurrence"]), causes=NAMES)
        assert read(one) == read(other) == read(mixed) == ([1, 2, 3], [True, False, True], [2, 0, 1], NAMES)

    def test_causes_without_names_are_called_by_their_numbers(self):
        assert read(Surv(time=[1, 2, 3], cause=[3, 0, 1])) == (
            [1, 2, 3],
            [True, False, True],
            [3, 0, 1],
            ("1", "2", "3"),
        )

    @pytest.mark.parametrize(
        "kept",
        [lambda y: y, copy.deepcopy, lambda y: pickle.loads(pickle.dumps(y))],
    )
    def test_rows_keep_the_names_of_their_causes(self, kept):
        y = kept(Surv(time=[1, 2, 3], cause=[2, 0, 1], causes=NAMES))[[2, 0]]
        assert read(y) == ([3, 1], [True, True], [1, 2], NAMES)

    def test_splits_of_scikit_learn_and_joined_rows_keep_them(self):
        y = Surv(time=np.arange(1, 21), cause=np.arange(20) % 3, causes=NAMES)
        a, b = train_test_split(y, random_state=0)
        assert read_outcome(np.concatenate([a, b])).causes == NAMES

    def test_readers_of_one_event_refuse_several_causes(self):
        y = Surv(time=[1, 2, 3], cause=[2, 0, 1], causes=NAMES)
        with pytest.raises(ValueError, match=r"y: expected events of one kind.*, got the causes 'recurrence', 'death'"):
            read_outcome(y, causes=False)
        assert read_outcome(Surv(time=[1, 2], cause=[1, 0]), causes=False).event.tolist() == [True, False]

    def test_a_table_with_a_column_cause(self):
        table = pd.DataFrame({"time": [1.0, 2.0, 3.0], "cause": [1, 0, 2]}, index=list("abc"))
        assert read(table) == ([1, 2, 3], [True, False, True], [1, 0, 2], ("1", "2"))
        with pytest.raises(ValueError, match=r"rows with the index of X"):
            read_outcome(table, X=pd.DataFrame({"x": [1, 2, 3]}, index=list("bac")))

    def test_one_cause_is_an_event(self):
        outcome = read_outcome(Surv(time=[1, 2, 3], cause=[1, 0, 1]))
        assert (outcome.event == (outcome.cause == 1)).all()
        assert outcome.of_cause(1).event.tolist() == [True, False, True]


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({}, r"event, cause: expected one of them, got neither"),
            ({"event": [1, 0, 1], "cause": [1, 0, 1]}, r"event, cause: expected one of them, got both"),
            ({"event": [1, 0, 1], "causes": NAMES}, r"causes: expected None without cause="),
            ({"cause": [1, 3, 0], "causes": NAMES}, r"'recurrence', 'death', got 3 at row 1"),
            ({"cause": [1, 0.5, 0], "causes": NAMES}, r"got 0\.5 at row 1"),
            ({"cause": [1, None, 0], "causes": NAMES}, r"cause: expected .* in every row|cause: .* row 1"),
            ({"cause": [1, np.nan, 0]}, r"cause: .*, got nan at row 1"),
            (
                {"cause": ["death", "relapse", 0], "causes": NAMES},
                r"'recurrence', 'death', got 'relapse' at row 1",
            ),
            ({"cause": ["death", "relapse", "death"]}, r"cause: .*causes=\('first', 'second'\) gives names"),
            ({"cause": [1, 0], "causes": NAMES}, r"cause: expected 3 rows, as many as time has, got 2"),
            ({"cause": [1, 0, 2], "causes": "death"}, r"causes: expected a sequence of names"),
            ({"cause": [1, 0, 2], "causes": ("a", "a")}, r"causes: expected different names"),
            ({"cause": [1, 0, 2], "causes": ("a", "censored")}, r"causes: .*'censored'"),
            ({"cause": [1, 0, -1]}, r"cause: .* got -1 at row 2"),
        ],
    )
    def test_words(self, given, message):
        with pytest.raises(ValueError, match=message):
            Surv(time=[1, 2, 3], **given)

    def test_a_table_of_causes_without_times(self):
        with pytest.raises(ValueError, match=r"y: expected a column time, got columns cause"):
            read_outcome({"cause": [1, 0]})


class TestSurvivalData:
    def test_causes_travel_with_the_rows(self):
        data = SurvivalData(np.arange(6.0)[:, None], time=np.arange(1, 7), cause=[1, 2, 0, 1, 2, 0], causes=NAMES)
        part = data[[4, 0]].to("cpu")
        assert part.cause.tolist() == [2, 1]
        assert part.event.tolist() == [True, True]
        assert part.causes == NAMES
        assert isinstance(part.outcome, Outcome)
        assert part.outcome.cause.tolist() == [2, 1]
        assert sum(batch.cause.tolist() == [1, 2] for batch in data.batches(2)) == 1
        assert all(half.causes == NAMES for half in data.split((0.5, 0.5), seed=0))

    def test_event_or_cause(self):
        with pytest.raises(ValueError, match=r"event, cause: expected one of them, got neither"):
            SurvivalData(np.zeros((2, 1)), time=[1, 2])
        with pytest.raises(ValueError, match=r"cause: .* got 3 at row 1"):
            SurvivalData(np.zeros((2, 1)), time=[1, 2], cause=[1, 3], causes=NAMES)
