"""Rules of single steps, on rows made by hand."""

import csv

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from xcal_paper.mimic3.files import block_path, read_columns, write_parquet
from xcal_paper.mimic3.steps import read_stays, write_instances, write_timeseries
from xcal_paper.mimic3.variable_list import cleaned, items

ALL_VARIABLES = sorted({item.variable for item in items()})


def silent(*_):
    """Report nothing."""


@pytest.mark.parametrize(
    ("item", "value", "unit", "expected"),
    [
        (51, "120", "mmHg", 120.0),
        (51, "120/80", None, 120.0),
        (8368, "120/80", None, 80.0),
        (51, "120/", None, None),
        (115, "Brisk", None, 0.0),
        (115, "Normal <3 secs", None, 0.0),
        (115, "Delayed", None, 1.0),
        (115, "Abnormal >3 secs", None, 1.0),
        (115, "Other/Remarks", None, None),
        (189, "40", "%", 0.4),
        (189, "0.4", None, 0.004),
        (189, "40", "Torr", 40.0),
        (50931, "97.", "mg/dL", 97.0),
        (50931, ".5", "mg/dL", 0.5),
        (50931, "1e2", "mg/dL", None),
        (50931, "ERROR", "mg/dL", None),
        (780, "7.35", None, 7.35),
        (646, "0.98", None, 98.0),
        (646, "1", None, 100.0),
        (646, "1.5", None, 1.5),
        (646, "-3", None, None),
        (678, "98.6", "Deg. F", (98.6 - 32) * 5 / 9),
        (678, "78.9", "?F", 78.9),
        (676, "79", "?C", (79.0 - 32) * 5 / 9),
        (763, "70", "kg", 70.0),
        (763, "160", "OZ", 160 / 16 * 0.453592),
        (763, "160", "lbs", 160 * 0.453592),
        (3581, "160", None, 160 * 0.453592),
        (3582, "160", "lb", 160 / 16 * 0.453592),
        (226707, "70", "Inch", 178.0),
        (226707, "70", "cm", 70.0),
        (1394, "70", None, 178.0),
        (226730, "inf", "cm", None),
    ],
)
def test_a_value_is_cleaned_as_the_benchmark_does(item, value, unit, expected):
    with duckdb.connect() as connection:
        connection.register("items", item_table())
        row = pa.table({"stay_id": [1], "subject_id": [1], "charttime": [0], "item_id": [item], "value": [value]})
        connection.register("staged", row.append_column("raw_unit", pa.array([unit], pa.string())))
        (found,) = connection.sql(f"SELECT number, text FROM ({cleaned('staged')})").fetchall()
    assert found == (expected, None)


@pytest.mark.parametrize("value", ["104", "None", "4 Spontaneously", "63.666698455810547", "1.0 ET/Trach"])
def test_a_variable_without_a_rule_keeps_its_text(value):
    with duckdb.connect() as connection:
        connection.register("items", item_table())
        row = {"stay_id": [1], "subject_id": [1], "charttime": [0], "item_id": [184], "value": [value]}
        connection.register("staged", pa.table(row | {"raw_unit": pa.array([None], pa.string())}))
        (found,) = connection.sql(f"SELECT number, text FROM ({cleaned('staged')})").fetchall()
    assert found == (None, value)


def item_table():
    names = ("item_id", "variable", "rule")
    return pa.table({name: [getattr(item, name) for item in items()] for name in names})


HOUR = np.timedelta64(3_600_000_000, "us")
DAY = np.datetime64("2150-01-01T00:00:00", "us")


def two_stays(folder, **changes):
    """One subject, two stays of ten hours, the second one twenty hours after the first began."""
    columns = {
        "stay_id": np.array([1, 2], np.int32),
        "subject_id": np.array([7, 7], np.int32),
        "intime": np.array([DAY, DAY + 20 * HOUR]),
        "outtime": np.array([DAY + 10 * HOUR, DAY + 30 * HOUR]),
        "los_hours": np.array([10.0, 10.0]),
        "died_in_unit": np.array([False, False]),
        "death_hours": np.array([np.nan, np.nan]),
        "split": np.array(["train", "train"]),
        "block": np.array([0, 0], np.int32),
    }
    write_parquet(folder / "stays.parquet", columns | changes)
    return read_stays(folder)


def timeseries_of(folder, events, **changes):
    """Rows of the two stays from events (stay, hour, variable, value)."""
    stays = two_stays(folder, **changes)
    stay, hour, variable, value = zip(*events, strict=True)
    columns = {
        "stay_id": pa.array(stay, pa.int32()),
        "subject_id": pa.array([7] * len(stay), pa.int32()),
        "charttime": np.array([DAY + np.timedelta64(int(h * 3.6e9), "us") for h in hour]),
        "variable": list(variable),
        "text": pa.array([v if isinstance(v, str) else None for v in value], pa.string()),
        "number": pa.array([None if isinstance(v, str) else v for v in value], pa.float64()),
    }
    write_parquet(block_path(folder / "events", "train", 0), columns)
    with duckdb.connect() as connection:
        write_timeseries(connection, stays, folder / "stays.parquet", folder / "events", folder / "timeseries", silent)
    return read_columns(block_path(folder / "timeseries", "train", 0))


def test_of_several_values_at_one_time_the_largest_is_kept_texts_by_letters(tmp_path):
    events = [(1, 2, "Heart Rate", "99"), (1, 2, "Heart Rate", "104"), (1, 2, "pH", 7.3), (1, 2, "pH", 7.4)]
    rows = timeseries_of(tmp_path, events)
    assert rows["Heart Rate"].tolist() == ["99"]
    assert rows["pH"].tolist() == [7.4]
    assert np.isnan(rows["Weight"]).all()


def test_a_stay_has_events_that_name_it_or_fall_into_it_within_its_length(tmp_path):
    events = [
        (1, -0.5, "pH", 1.0),  # names stay 1, before it
        (1, 0, "pH", 2.0),
        (1, 10, "pH", 3.0),
        (1, 10.5, "pH", 4.0),  # after it
        (1, 22, "pH", 5.0),  # names stay 1 and falls into stay 2
        (2, 25, "pH", 6.0),
    ]
    rows = timeseries_of(tmp_path, events)
    found = list(zip(rows["stay_id"].tolist(), rows["hours"].tolist(), rows["pH"].tolist(), strict=True))
    assert found == [(1, 0.0, 2.0), (1, 10.0, 3.0), (2, 2.0, 5.0), (2, 5.0, 6.0)]


def test_a_time_at_which_events_name_two_stays_gives_two_rows(tmp_path):
    rows = timeseries_of(tmp_path, [(1, 22, "pH", 5.0), (2, 22, "Weight", 70.0)])
    assert rows["stay_id"].tolist() == [2, 2]
    assert rows["pH"].tolist() == [5.0, 5.0]
    assert rows["Weight"].tolist() == [70.0, 70.0]


def test_a_stay_of_unknown_length_has_no_rows(tmp_path):
    rows = timeseries_of(
        tmp_path, [(1, 2, "pH", 7.0), (2, 22, "pH", 7.0)], los_hours=pa.array([None, 10.0], pa.float64())
    )
    assert rows["stay_id"].tolist() == [2]


def test_an_open_end_leaves_a_stay_with_the_events_that_name_it(tmp_path):
    open_end = pa.array([DAY + 10 * HOUR, None], pa.timestamp("us"))
    rows = timeseries_of(tmp_path, [(1, 22, "pH", 5.0), (2, 23, "pH", 6.0)], outtime=open_end)
    assert (rows["stay_id"].tolist(), rows["pH"].tolist()) == ([2], [6.0])


def instances_of(folder, death, first=0.5, **changes):
    stays = two_stays(folder, **changes)
    columns = {"stay_id": np.array([1, 2], np.int32), "hours": np.array([first, first])}
    write_parquet(block_path(folder / "timeseries", "train", 0), columns)
    counts = write_instances(stays, folder / "timeseries", folder / "instances", silent, death=death, seed=0)
    found = read_columns(block_path(folder / "instances", "train", 0))
    order = np.lexsort([found["period_length"], found["stay_id"]])
    return counts, {name: values[order] for name, values in found.items()}


def test_instances_begin_after_four_hours_and_after_the_first_value(tmp_path):
    _, found = instances_of(tmp_path, "event")
    assert found["period_length"].tolist() == [5, 6, 7, 8, 9, 10] * 2
    assert found["remaining"].tolist() == [5, 4, 3, 2, 1, 0] * 2
    assert found["event"].all()
    _, late = instances_of(tmp_path, "event", first=7.0)
    assert late["period_length"].tolist() == [8, 9, 10] * 2


def test_a_death_censors_only_where_that_is_asked_for(tmp_path):
    dead = {"died_in_unit": np.array([True, False]), "death_hours": np.array([7.5, np.nan])}
    _, plain = instances_of(tmp_path, "event", **dead)
    assert plain["event"].all()
    assert plain["remaining"].tolist() == [5, 4, 3, 2, 1, 0] * 2
    counts, found = instances_of(tmp_path, "censor", **dead)
    first = found["stay_id"] == 1
    assert found["period_length"][first].tolist() == [5, 6, 7]
    assert found["remaining"][first].tolist() == [2.5, 1.5, 0.5]
    assert not found["event"][first].any()
    assert found["event"][~first].all()
    assert found["remaining"][~first].tolist() == [5, 4, 3, 2, 1, 0]
    assert counts["instances_censored"] == 3
    assert counts["instances_after_death"] == 3


def test_a_death_known_by_the_day_only_censors_at_the_end_of_the_stay(tmp_path):
    _, found = instances_of(tmp_path, "censor", died_in_unit=np.array([True, False]))
    assert found["remaining"].tolist() == [5, 4, 3, 2, 1, 0] * 2
    assert found["event"].tolist() == [False] * 6 + [True] * 6


def test_a_stay_of_less_than_five_hours_gives_no_instance(tmp_path):
    _, found = instances_of(tmp_path, "event", los_hours=np.array([10.0, 4.5]))
    assert set(found["stay_id"].tolist()) == {1}


def test_the_item_table_is_that_of_the_benchmark(demo_files):
    with (demo_files / "benchmark_resources" / "itemid_to_variable_map.csv").open() as file:
        ready = [row for row in csv.DictReader(file) if row["STATUS"] == "ready" and row["LEVEL2"]]
    expected = {int(row["ITEMID"]): row["LEVEL2"] for row in ready if int(row["COUNT"] or 0) > 0}
    assert len(expected) == 114
    assert {item.item_id: item.variable for item in items()} == expected
    assert len(ALL_VARIABLES) == 17
