from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.training.simulate import N_INPUTS, same_state, simulated_rows, small_mlp
from xcal.data import map_parquet
from xcal.distributions import family
from xcal.training import TrainingConfig, fit_path

ROWS = simulated_rows(300)


def columns():
    named = {f"x{i}": ROWS.x[:, i].numpy() for i in range(N_INPUTS)}
    return {**named, "days": ROWS.time.numpy().astype(np.float64), "died": ROWS.event.numpy()}


def written(folder, table, **options):
    pq.write_table(pa.table(table), folder / "cohort.parquet", **options)
    return folder / "cohort.parquet"


def mapped(folder, table=None, **options):
    arguments = {"time": "days", "event": "died", "into": folder / "x.npy"} | options
    return map_parquet(written(folder, columns() if table is None else table), **arguments)


def test_the_numbers_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("xcal.data.parquet._ROWS", 70)
    data = mapped(tmp_path)
    assert isinstance(data.x, np.memmap)
    np.testing.assert_array_equal(data.x, ROWS.x.numpy())
    np.testing.assert_array_equal(data.time, ROWS.time.numpy())
    np.testing.assert_array_equal(data.event, ROWS.event.numpy())
    assert data.feature_names == ("x0", "x1", "x2", "x3")


def test_a_model_from_a_file_equals_the_model_from_memory(tmp_path):
    data, held_out = mapped(tmp_path), simulated_rows(100, seed=1)
    config = TrainingConfig(epochs=2, batch_size=100)
    streamed = fit_path(small_mlp, family("lognormal"), data, held_out, config=config)
    in_memory = fit_path(small_mlp, family("lognormal"), ROWS, held_out, config=config)
    assert same_state(streamed.state(0), in_memory.state(0))


def test_weights_groups_and_names_are_no_features(tmp_path):
    more = {"w": np.arange(300) + 1.0, "site": ["a", "b", "c"] * 100, "id": [f"p{i}" for i in range(300)]}
    data = mapped(tmp_path, columns() | more, weights="w", groups="site", row_ids="id", time_unit="days")
    assert data.feature_names == ("x0", "x1", "x2", "x3")
    np.testing.assert_array_equal(data.weights, more["w"])
    assert data.groups.tolist() == more["site"]
    assert data.row_ids.tolist() == more["id"]
    assert repr(data).endswith("days, weighted, 3 groups, features in a file)")


def test_some_columns_in_the_order_asked_for(tmp_path):
    data = mapped(tmp_path, features=["x2", "x0"])
    assert data.feature_names == ("x2", "x0")
    np.testing.assert_array_equal(data.x, ROWS.x.numpy()[:, [2, 0]])


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"time": "weeks"}, r"time: expected a column of the file \(x0, x1, x2, x3, days, died\), got 'weeks'"),
        ({}, {"event": "dead"}, "event: expected a column of the file"),
        ({}, {"features": ["x9"]}, "features: expected columns of the file .*, got 'x9'"),
        ({}, {"features": []}, "features: expected at least one column"),
        ({"x1": ["a"] * 300}, {}, r"x1: expected numbers \(encode categories first\), got type string"),
        ({"x1": [None, *[1.0] * 299]}, {}, "x1: expected a value in every row .*, got none at row 0"),
        ({"x1": np.where(np.arange(300) == 90, np.nan, 1.0)}, {}, "x1: expected finite numbers, .* got nan at row 90"),
        (
            {"x1": np.where(np.arange(300) == 90, 1e39, 1.0)},
            {},
            "x1: expected finite numbers, .* got 1e\\+39 at row 90",
        ),
        ({}, {"features": ["x0", "x0"]}, "features: expected columns that are all different, got x0, x0"),
        ({}, {"groups": "site"}, "groups: expected a column of the file"),
        ({"w": np.full(300, -1.0)}, {"weights": "w"}, "w: expected finite weights, zero or larger, got -1.0 at row 0"),
        ({"id": np.zeros(300)}, {"row_ids": "id"}, "id: expected a different name for each row, got 0.0 a second time"),
        ({"days": -ROWS.time.numpy()}, {}, "days: expected finite times, zero or larger, got .* at row 0"),
        ({"died": np.full(300, 2)}, {}, "died: expected True/False or 0/1"),
    ],
)
def test_bad_columns(tmp_path, change, options, message):
    with pytest.raises(ValueError, match=message):
        mapped(tmp_path, columns() | change, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["cohort.parquet"]


def test_files_that_are_no_tables(tmp_path):
    options = {"time": "days", "event": "died", "into": tmp_path / "x.npy"}
    with pytest.raises(FileNotFoundError, match=r"path: expected a parquet file, got .*none\.parquet, which does not"):
        map_parquet(tmp_path / "none.parquet", **options)
    (tmp_path / "broken.parquet").write_bytes(written(tmp_path, columns()).read_bytes()[:-20])
    with pytest.raises(ValueError, match="which cannot be read"):
        map_parquet(tmp_path / "broken.parquet", **options)
    with pytest.raises(ValueError, match="path: expected at least one row"):
        mapped(tmp_path, {name: values[:0] for name, values in columns().items()})


def test_rows_that_are_damaged_where_they_are_read(tmp_path, monkeypatch):
    """The end of the file is whole, and its columns have different lengths: known only when a piece is read."""

    def broken(*_, **__):
        yield from ()
        raise pa.ArrowInvalid("columns do not have the same size")

    whole = pq.ParquetFile(written(tmp_path, columns()))
    file = SimpleNamespace(schema_arrow=whole.schema_arrow, metadata=whole.metadata, iter_batches=broken)
    monkeypatch.setattr("xcal.data.parquet._opened", lambda source: file)
    with pytest.raises(ValueError, match=r"path: .*cohort\.parquet, which cannot be read: columns do not have"):
        map_parquet(tmp_path / "cohort.parquet", time="days", event="died", into=tmp_path / "x.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["cohort.parquet"]


def test_the_source_is_not_written_over(tmp_path):
    source = written(tmp_path, columns())
    before = source.read_bytes()
    with pytest.raises(ValueError, match="into: expected another file than path"):
        map_parquet(source, time="days", event="died", into=tmp_path / "." / "cohort.parquet")
    assert source.read_bytes() == before


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_the_parts_of_a_file_are_the_file(tmp_path, parts):
    """Row groups of 64 rows: 300 rows make five of them, the last one of 44."""
    source = written(tmp_path, columns(), row_group_size=64)
    found = [
        map_parquet(source, time="days", event="died", into=tmp_path / f"{k}.npy", part=(k, parts))
        for k in range(parts)
    ]
    np.testing.assert_array_equal(np.concatenate([part.x for part in found]), ROWS.x.numpy())
    np.testing.assert_array_equal(np.concatenate([part.event for part in found]), ROWS.event.numpy())
    sizes = [part.n for part in found]
    assert min(sizes) > 0
    assert max(sizes) <= 300 / parts + 64


def test_parts_that_a_file_has_not_got(tmp_path):
    source = written(tmp_path, columns() | {"x1": np.where(np.arange(300) == 290, np.nan, 1.0)}, row_group_size=64)
    options = {"time": "days", "event": "died", "into": tmp_path / "x.npy"}
    with pytest.raises(ValueError, match=r"x1: expected finite numbers, .* got nan at row 290"):
        map_parquet(source, **options, part=(4, 5))
    for part, message in (
        ((0, 6), r"part: expected at most 5 parts, the number of row groups of the file .*, got 6"),
        ((5, 5), r"part\[0\]: expected an integer from 0 to 4, got 5"),
        (3, r"part: expected \(k, m\): part k of m, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            map_parquet(source, **options, part=part)


def test_what_was_observed_in_part(tmp_path):
    """Entry, intervals and causes are columns of the file, too."""
    table = {"x": [1.0, 2.0, 3.0], "from": [0.0, 1.0, 2.0], "to": [4.0, 2.0, 5.0], "why": [2, 0, 1]}
    options = {"time": "to", "event": None, "cause": "why", "causes": ("relapse", "death"), "entry": "from"}
    data = mapped(tmp_path, table, **options)
    assert (data.cause.tolist(), data.entry.tolist(), data.causes) == ([2, 0, 1], [0, 1, 2], ("relapse", "death"))
    ends = pa.table({"x": [1.0, 2.0], "low": [1.0, 2.0], "high": pa.array([3.0, None])})
    options = {"time": None, "event": None, "lower": "low", "upper": "high"}
    data = mapped(tmp_path, ends, **options)
    assert (data.time.tolist(), data.event.tolist(), data.lower.tolist()) == ([3, 2], [True, False], [1, 2])
    with pytest.raises(ValueError, match=r"from: expected an entry before the time of the row, 1, got 1.0 at row 0"):
        mapped(tmp_path, {"x": [1.0], "from": [1.0], "to": [1.0], "died": [1]}, time="to", entry="from")
