import io

import numpy as np
import pytest

from xcal.data import SurvivalData
from xcal.datasets import load_metabric, load_support, parse_hdf5, parse_table


@pytest.mark.parametrize(
    ("load", "rows", "features", "censored", "zeros", "unit"),
    [(load_metabric, 1904, 9, 801, 1, "months"), (load_support, 8873, 14, 2837, 0, "days")],
)
def test_tables(real_data, load, rows, features, censored, zeros, unit):
    table = load(real_data("benchmarks"))
    assert table.x.shape == (rows, features)
    assert table.feature_names == tuple(f"x{i}" for i in range(features))
    assert len(table) == rows
    assert (~table.event).sum() == censored
    assert np.isfinite(table.x).all()
    assert (table.time >= 0).all()
    assert (table.time == 0).sum() == zeros
    assert table.time_unit == unit
    told = f"SurvivalData({table.name}: {rows} rows of {features} features, {censored} censored, time from "
    assert repr(table).startswith(told)
    assert repr(table).endswith(f" {unit})")


def test_the_published_form_gives_the_same_table(real_data):
    h5py = pytest.importorskip("h5py", reason="needs h5py, to write a file in the published form")
    content = (real_data("benchmarks") / "benchmarks" / "metabric_deepsurv.csv").read_bytes()
    table = parse_table("METABRIC", content)
    file = io.BytesIO()
    with h5py.File(file, "w") as h5:
        for part, rows in (("train", slice(0, 1523)), ("test", slice(1523, None))):
            h5[f"{part}/x"] = table.x[rows]
            h5[f"{part}/t"] = table.time[rows].astype(np.float32)
            h5[f"{part}/e"] = table.event[rows].astype(np.int32)
    other = parse_hdf5("METABRIC", file.getvalue())
    np.testing.assert_array_equal(other.x, table.x)
    np.testing.assert_array_equal(other.time, table.time)
    np.testing.assert_array_equal(other.event, table.event)


def toy(n, events):
    event = np.arange(n) < events
    return SurvivalData(np.zeros((n, 1), np.float32), np.ones(n), event)


@pytest.mark.parametrize(("n", "events", "k"), [(20, 10, 5), (23, 7, 5), (11, 0, 3), (10, 10, 10), (1000, 333, 7)])
def test_folds_partition_the_rows_and_share_the_events(n, events, k):
    table = toy(n, events)
    folds = table.folds(k, seed=0)
    assert len(folds) == k
    np.testing.assert_array_equal(np.sort(np.concatenate([fold.test for fold in folds])), np.arange(n))
    for fold in folds:
        np.testing.assert_array_equal(np.sort(np.concatenate([fold.train, fold.test])), np.arange(n))
    sizes = [len(fold.test) for fold in folds]
    shares = [int(table.event[fold.test].sum()) for fold in folds]
    assert max(sizes) - min(sizes) <= 1
    assert max(shares) - min(shares) <= 1


def test_folds_follow_the_seed():
    table = toy(100, 40)
    one, same, other = (table.folds(5, seed=seed)[0].test for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("k", "seed", "message"),
    [
        (1, 0, "k: expected an integer of 2 or more, got 1"),
        (11, 0, "k: expected at most 10"),
        (2, None, "seed: expected"),
    ],
)
def test_bad_folds(k, seed, message):
    with pytest.raises(ValueError, match=message):
        toy(10, 5).folds(k, seed=seed)
