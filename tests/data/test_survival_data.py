"""`SurvivalData`: what it accepts, what it refuses, and the laws of picking, splitting and batching rows."""

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import xcal
from xcal.data import Surv, SurvivalData

N = 12
X = np.arange(N * 3, dtype=np.float32).reshape(N, 3)
TIME, EVENT = np.arange(1.0, N + 1), np.arange(N) % 3 > 0
GROUPS = np.repeat(np.arange(4), 3)


def made(kind="array", folder=None, **fields):
    """The same rows, with features of each kind."""
    values = {"weights": np.arange(N) + 1.0, "groups": GROUPS, "row_ids": [f"r{i}" for i in range(N)]}
    values |= {"extra": {"mean": TIME * 2}, "feature_names": ("a", "b", "c"), "time_unit": "days", "name": "toy"}
    return SurvivalData(features(kind, folder), TIME, EVENT, **values | fields)


def features(kind, folder):
    if kind == "tensor":
        return torch.from_numpy(X.copy())
    if kind == "map":
        np.save(folder / "x.npy", X)
        return np.load(folder / "x.npy", mmap_mode="r")
    return X


KINDS = ("array", "tensor", "map")


def test_the_public_names():
    assert xcal.SurvivalData is SurvivalData


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_kept_where_the_features_are(kind, tmp_path):
    data = made(kind, tmp_path)
    wanted = torch.Tensor if kind == "tensor" else np.ndarray
    assert all(isinstance(getattr(data, name), wanted) for name in ("x", "time", "event", "weights"))
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.time, TIME)
    np.testing.assert_array_equal(data.event, EVENT)
    np.testing.assert_array_equal(data.weights, np.arange(N) + 1.0)
    assert len(data) == data.n == N
    assert data.device == torch.device("cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_not_copied(kind, tmp_path):
    x = features(kind, tmp_path)
    data = SurvivalData(x, TIME, EVENT)
    if kind == "tensor":
        assert data.x.data_ptr() == x.data_ptr()
        assert data[2:5].x.data_ptr() == x[2:5].data_ptr()
        assert data.to("cpu").x.data_ptr() == x.data_ptr()
    else:
        assert np.shares_memory(data.x, x)
        assert np.shares_memory(data[2:5].x, x)
    if kind == "array":
        assert data.to("cpu").x.data_ptr() == x.ctypes.data


def test_times_are_the_datas_own():
    time = TIME.copy()
    data = SurvivalData(X, time, EVENT)
    time[0] = np.nan
    assert data.time[0] == 1.0
    with pytest.raises(FrozenInstanceError):
        data.time = TIME


def test_fields_of_a_target_can_go_to_torch():
    y = Surv(time=TIME[:1], event=EVENT[1:2])
    data = SurvivalData(X[:1], y["time"], y["event"]).to("cpu")
    assert data.time.tolist() == [1.0]
    assert data.event.tolist() == [True]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames_bring_their_names(frame):
    table = frame({"age": [50, 61], "dose": [0.5, 1.5]})
    data = SurvivalData(table, time=[1, 2], event=[True, False])
    assert data.feature_names == ("age", "dose")
    assert data.x.dtype == np.float64
    np.testing.assert_array_equal(data.x, [[50, 0.5], [61, 1.5]])


def changed(field, row, value):
    arrays = {"x": X.copy(), "time": TIME.copy(), "event": EVENT.astype(float), "weights": np.ones(N)}
    arrays[field][row] = value
    return arrays


NAN, INF = float("nan"), float("inf")
REFUSED = [
    (changed("x", (7, 1), NAN), "x: expected finite covariates, got nan at row 7"),
    (changed("x", (2, 0), -INF), "x: expected finite covariates, got -inf at row 2"),
    ({"x": X.astype(int)}, "x: expected float32 or float64 covariates, got dtype int64"),
    (
        {"x": torch.zeros(N, 2, dtype=torch.float16)},
        "x: expected float32 or float64 covariates, got dtype torch.float16",
    ),
    ({"x": X[:, 0]}, r"x: expected shape \(n, ...\), a row for each subject, got shape \(12,\)"),
    ({"x": X[:0], "time": [], "event": []}, "x: expected at least one row"),
    ({"x": pd.DataFrame({"a": ["m"] * N})}, "x: expected numbers"),
    ({"x": torch.zeros(N, 2, device="meta")}, "x: expected a device of this machine"),
    (changed("time", 5, -1.0), "time: expected finite times, zero or larger, got -1.0 at row 5"),
    (changed("time", 5, INF), "time: expected finite times, zero or larger, got inf at row 5"),
    ({"time": TIME[:-1]}, "time: expected 12 rows, as many as x has, got 11"),
    (
        changed("event", 4, 2.0),
        "event: expected True/False or 0/1, 1 meaning that the event happened, got 2.0 at row 4",
    ),
    ({"event": EVENT[:-1]}, "event: expected 12 rows, as many as x has, got 11"),
    (changed("weights", 3, -1.0), "weights: expected finite weights, zero or larger, got -1.0 at row 3"),
    ({"weights": np.zeros(N)}, "weights: expected a positive sum, got 0.0"),
    ({"weights": np.ones(3)}, "weights: expected 12 rows, as many as x has, got 3"),
    ({"groups": GROUPS[:3]}, "groups: expected 12 rows, as many as x has, got 3"),
    ({"groups": [*"abcdefghijk", None]}, "groups: expected a label in every row, got None at row 11"),
    ({"groups": [1.0, *[NAN] * 11]}, "groups: expected a label in every row, got nan at row 1"),
    (
        {"groups": np.array(["a", *range(11)], dtype=object)},
        "groups: expected all whole numbers or all text, .* at row 1",
    ),
    ({"groups": GROUPS.reshape(6, 2)}, r"groups: expected one label for each row, got shape \(6, 2\)"),
    ({"row_ids": [*range(11), 4]}, "row_ids: expected a different name for each row, got 4 a second time at row 11"),
    ({"extra": {"mean": TIME[:2]}}, r"extra\['mean'\]: expected 12 rows, as many as x has, got 2"),
    (
        {"feature_names": ("a", "b")},
        r"feature_names: expected one for each column of x, of shape \(12, 3\), got 2 names",
    ),
    ({"feature_names": "abc"}, "feature_names: expected a sequence of names, got 'abc'"),
    ({"feature_names": ("a", "b", "a")}, "feature_names: expected texts that are all different, got 'a' at position 2"),
    ({"time_unit": 3}, "time_unit: expected text, got 3"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_what_is_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        SurvivalData(**{"x": X, "time": TIME, "event": EVENT} | fields)


def test_bad_features_in_a_file_are_named_with_their_row(tmp_path, monkeypatch):
    monkeypatch.setattr("xcal.data.features._CHUNK", 9)  # three rows in one go
    np.save(tmp_path / "x.npy", changed("x", (7, 1), NAN)["x"])
    with pytest.raises(ValueError, match="x: expected finite covariates, got nan at row 7"):
        SurvivalData(np.load(tmp_path / "x.npy", mmap_mode="r"), TIME, EVENT)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (slice(5, 5), "rows: expected at least one row, got none in 5:5 of 12"),
        ([0, 12], "rows: expected row numbers below 12, got 12 at position 1"),
        (EVENT[:3], "rows: expected a mask of 12 rows with at least one of them, got 3"),
        (np.zeros(N, dtype=bool), "rows: expected a mask of 12 rows with at least one of them, got a mask without"),
        (3, r"rows: expected a slice, a mask or row numbers, at least one, got int64 of shape \(\)"),
        ([0.5], "rows: expected a slice, a mask or row numbers"),
    ],
)
def test_rows_that_cannot_be_picked(rows, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        made()[rows]


def columns(data):
    """Everything that belongs to the rows, as numpy arrays."""
    named = {name: getattr(data, name) for name in ("x", "time", "event", "weights", "groups", "row_ids")}
    return {name: np.asarray(values) for name, values in (named | dict(data.extra)).items()}


def assert_same(one, other):
    assert one.feature_names == other.feature_names
    assert (one.time_unit, one.name) == (other.time_unit, other.name)
    expected = columns(other)
    for name, values in columns(one).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


numbers = st.lists(st.integers(-N, N - 1), min_size=1, max_size=2 * N)
slices = st.slices(N).filter(lambda chosen: len(range(N)[chosen]) > 0)
masks = st.lists(st.booleans(), min_size=N, max_size=N).filter(any).map(np.array)


@pytest.mark.parametrize("kind", KINDS)
def test_picking_rows_is_picking_of_every_column(kind, tmp_path):
    data = made(kind, tmp_path)
    expected = columns(data)

    @given(numbers | slices | masks, st.data())
    @settings(deadline=None, max_examples=60)
    def law(rows, draw):
        once = data[rows]
        for name, values in columns(once).items():
            np.testing.assert_array_equal(values, expected[name][rows], err_msg=name)
        again = draw.draw(st.lists(st.integers(0, once.n - 1), min_size=1, max_size=N))
        for name, values in columns(once[again]).items():
            np.testing.assert_array_equal(values, expected[name][rows][again], err_msg=name)
        for name, values in columns(once.to("cpu")).items():
            np.testing.assert_array_equal(values, expected[name][rows], err_msg=name)

    law()


@pytest.mark.parametrize("kind", KINDS)
def test_batches_cover_all_rows_once(kind, tmp_path):
    data = made(kind, tmp_path)

    @given(st.integers(1, 2 * N), st.none() | st.integers(0, 99))
    @settings(deadline=None, max_examples=40)
    def law(size, seed):
        batches = list(data.batches(size, seed=seed))
        assert [batch.n for batch in batches[:-1]] == [min(size, N)] * (len(batches) - 1)
        assert all(type(batch.x) is (torch.Tensor if kind == "tensor" else np.ndarray) for batch in batches)
        together = {name: np.concatenate([columns(b)[name] for b in batches]) for name in columns(data)}
        order = np.argsort(together["time"])
        if seed is None:
            np.testing.assert_array_equal(order, np.arange(N))
        for name, values in together.items():
            np.testing.assert_array_equal(values[order], columns(data)[name], err_msg=name)

    law()


def test_batches_follow_the_seed():
    orders = [[batch.time.tolist() for batch in made().batches(5, seed=seed)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


shares = st.lists(st.integers(1, 20), min_size=2, max_size=4).map(lambda v: [part / sum(v) for part in v])


def rows_of(n, events, groups=None):
    return SurvivalData(
        np.zeros((n, 1)),
        np.ones(n),
        np.arange(n) < events,
        row_ids=np.arange(n),
        groups=groups,
        extra={"i": np.arange(n)},
    )


@given(st.integers(40, 120), st.integers(0, 40), shares, st.integers(0, 99), st.booleans())
@settings(deadline=None)
def test_a_split_is_a_partition_with_the_shares_asked_for(n, events, fractions, seed, by_event):
    parts = rows_of(n, events).split(fractions, seed=seed, by_event=by_event)
    assert sorted(np.concatenate([part.row_ids for part in parts])) == list(range(n))
    for part, share in zip(parts, fractions, strict=True):
        assert (np.diff(part.row_ids) > 0).all()
        # Rounding moves a part's two ends by half a row each, in both classes; an event for every part moves them on.
        assert abs(part.n - share * n) <= (2 + len(parts) if by_event else 1 + len(parts))
        if by_event and events >= len(parts):
            assert part.event.any()
            assert abs(part.event.sum() - share * events) <= len(parts)


@given(st.integers(1, 6), shares, st.integers(0, 99))
@settings(deadline=None)
def test_a_split_of_groups_keeps_them_whole(largest, fractions, seed):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(200), rng.integers(1, largest + 1, 200))
    parts = rows_of(groups.size, 50, groups).split(fractions, seed=seed, whole_groups=True)
    assert sorted(np.concatenate([part.row_ids for part in parts])) == list(range(groups.size))
    seen = [set(part.groups) for part in parts]
    assert len(set().union(*seen)) == sum(map(len, seen))
    for part, share in zip(parts, fractions, strict=True):
        assert share * groups.size - largest * len(parts) < part.n < share * groups.size + largest


def test_splits_follow_the_seed():
    data = rows_of(60, 30)
    one, same, other = (data.split((0.5, 0.5), seed=seed)[0].row_ids.tolist() for seed in (0, 0, 1))
    assert one == same != other


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fractions": (0.5, 0.4), "seed": 0}, "fractions: expected two or more shares above 0 that sum to 1"),
        ({"fractions": (1.0,), "seed": 0}, "fractions: expected two or more shares above 0 that sum to 1"),
        ({"fractions": 0.5, "seed": 0}, "fractions: expected a sequence of numbers, got 0.5"),
        ({"fractions": (0.5, 0.5), "seed": None}, "seed: expected an integer of 0 or more"),
        (
            {"fractions": (0.5, 0.5), "seed": 0, "whole_groups": True},
            "whole_groups: expected data with groups, got none",
        ),
        ({"fractions": (0.5, 0.5), "seed": 0, "by_event": "yes"}, "by_event: expected True or False"),
    ],
)
def test_bad_splits(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        rows_of(10, 5).split(**arguments)


def test_a_part_without_rows_is_said():
    with pytest.raises(
        ValueError, match=r"fractions: expected parts with at least one row, got none for a share of 0\.05"
    ):
        rows_of(6, 0).split((0.95, 0.05), seed=0, whole_groups=False, by_event=True)
    with pytest.raises(ValueError, match=r"none for a share of 0\.5 of 1 groups"):
        rows_of(6, 3, np.zeros(6)).split((0.5, 0.5), seed=0, whole_groups=True)


@given(st.integers(2, 8), st.integers(0, 99))
@settings(deadline=None)
def test_folds_of_groups_are_a_partition_that_keeps_them_whole(k, seed):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(20), rng.integers(1, 7, 20))
    data = rows_of(groups.size, 10, groups)
    folds = data.folds(k, seed, whole_groups=True)
    assert sorted(np.concatenate([fold.test for fold in folds])) == list(range(groups.size))
    for fold in folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])
        assert sorted([*fold.train, *fold.test]) == list(range(groups.size))
    sizes = [fold.test.size for fold in folds]
    assert max(sizes) - min(sizes) <= np.bincount(groups).max()


def test_more_folds_than_groups():
    with pytest.raises(ValueError, match="k: expected at most 2, the number of groups, got 3"):
        rows_of(6, 3, [0, 0, 0, 1, 1, 1]).folds(3, 0, whole_groups=True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_person_reads(kind, tmp_path):
    told = "SurvivalData(toy: 12 rows of 3 features, 4 censored, time from 1 to 12 days, weighted, 4 groups"
    assert repr(made(kind, tmp_path)) == told + (", features in a file)" if kind == "map" else ")")
    images = SurvivalData(np.zeros((1, 1, 28, 28)), [0.5], [True])
    assert repr(images) == "SurvivalData(1 row of 1 x 28 x 28 features, 0 censored, time from 0.5 to 0.5)"


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_a_copy_through_pickle(kind):
    assert_same(pickle.loads(pickle.dumps(made(kind))), made(kind))


def test_features_in_a_file_are_not_read_to_pick_split_or_move(tmp_path, monkeypatch):
    data = made("map", tmp_path)
    monkeypatch.setattr("xcal.data.features.MappedFeatures._read", lambda *_: pytest.fail("the file was read"))
    for part in (*data.split((0.5, 0.5), seed=0), data[[3, 1]], data[2:8], data[::2], data.to("cpu")):
        part[:2].to("cpu")


class TestSeenInPart:
    """Rows of delayed entry, with intervals, and several of one person."""

    def test_what_is_known_travels_with_the_rows(self):
        data = SurvivalData(
            np.zeros((4, 1)), time=[2, 5, 4, 3], event=[0, 1, 1, 0], entry=[0, 2, 1, 0], id=list("aabc")
        )
        part = data[[1, 0]].to("cpu")
        assert part.entry.tolist() == [2, 0]
        assert part.outcome.id.tolist() == [0, 0]
        assert not data.plain
        both = SurvivalData(np.zeros((3, 1)), lower=[1, 2, 3], upper=[4, 2, np.inf], entry=[0, 1, 0])
        assert (both.time.tolist(), both.event.tolist(), both.lower.tolist()) == ([4, 2, 3], [1, 1, 0], [1, 2, 3])
        assert both[[2, 0]].entry is not None
        with pytest.raises(ValueError, match=r"lower, upper: expected both ends .*, got time too"):
            SurvivalData(np.zeros((3, 1)), [1, 2, 3], lower=[1, 2, 3], upper=[4, 2, 5])

    @pytest.mark.parametrize("by_event", [True, False])
    def test_people_stay_whole(self, by_event):
        person = np.repeat(np.arange(30), 3)
        entry = np.tile([0.0, 1.0, 2.0], 30)
        event = (np.arange(90) % 3 == 2) & (person % 2 == 0)
        data = SurvivalData(np.zeros((90, 1)), entry + 1, event, entry=entry, id=person, groups=person // 10)
        parts = data.split((0.5, 0.3, 0.2), seed=1, by_event=by_event)
        assert sum(part.n for part in parts) == 90
        assert sum(np.unique(part.id).size for part in parts) == 30
        folds = data.folds(5, seed=2)
        assert all(not set(person[fold.train]) & set(person[fold.test]) for fold in folds)
        # Fifteen people have the event: three in each fold of six.
        assert [int(event[fold.test].sum()) for fold in folds] == [3] * 5
        assert [np.unique(person[fold.test]).size for fold in folds] == [6] * 5
        with pytest.raises(ValueError, match="k: expected at most 30, the number of people, got 31"):
            data.folds(31, seed=0)
        torn = SurvivalData(np.zeros((90, 1)), entry + 1, event, entry=entry, id=person, groups=np.arange(90))
        with pytest.raises(ValueError, match=r"groups: expected all rows of one id in one group, .* row 0 at row 1"):
            torn.split((0.5, 0.5), seed=0, whole_groups=True)
