"""What comes out for the open demo equals what the public benchmark gives: the strongest proof that we have."""

import csv
import gzip
import hashlib
from collections import defaultdict

import pandas as pd
import pyarrow.parquet as pq
import pytest

from xcal_paper.mimic3 import write_benchmark_csv


@pytest.fixture(scope="module")
def as_csv(demo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("csv")
    assert write_benchmark_csv(demo.folder, folder) == 113
    return folder


def expected_rows(demo_files, name):
    with gzip.open(demo_files / "demo_expected" / name, "rt", newline="") as file:
        return list(csv.DictReader(file))


def table_hash(path):
    """The benchmark's hash of a table: numbers with one decimal, sorted by the first column without repetitions."""

    def shown(cell):
        try:
            return f"{float(cell):.1f}"
        except ValueError:
            return cell

    # "None" is a value of the eye opening.
    table = pd.read_csv(path, index_col=False, keep_default_na=False, na_values=[""])
    for column in table.columns:
        table[column] = table[column].map(shown)
    for column in table.columns:
        if table[column].nunique(dropna=False) == len(table):
            table = table.sort_values(by=column).reset_index(drop=True)
            break
    return hashlib.md5(table.to_string().encode()).hexdigest()


def test_all_113_time_series_have_the_published_hash(as_csv, demo_files):
    with (demo_files / "demo_expected" / "published_md5_demo_subset.csv").open() as file:
        published = {row["file"]: row["published_md5"] for row in csv.DictReader(file)}
    assert len(published) == 113
    assert {name: table_hash(as_csv / name) for name in published} == published


def test_time_series_equal_the_benchmarks_value_for_value(as_csv, demo_files):
    expected = defaultdict(list)
    for row in expected_rows(demo_files, "los_timeseries.csv.gz"):
        expected[f"{row.pop('partition')}/{row.pop('stay')}"].append(row)
    written = {f"{path.parent.name}/{path.name}" for path in as_csv.glob("*/*_timeseries.csv")}
    assert written == set(expected)
    for name, rows in expected.items():
        with (as_csv / name).open(newline="") as file:
            assert list(csv.DictReader(file)) == rows, name


@pytest.mark.parametrize(("part", "number"), [("train", 9042), ("test", 1899)])
def test_instances_equal_the_benchmarks_list(as_csv, demo_files, part, number):
    expected = [tuple(row.values()) for row in expected_rows(demo_files, f"los_listfile_{part}.csv.gz")]
    with (as_csv / part / "listfile.csv").open(newline="") as file:
        found = [tuple(row.values()) for row in csv.DictReader(file)]
    assert len(expected) == number
    # Hours are sorted as numbers there and here.
    assert sorted(found) == sorted(expected)


def test_counts_of_every_step_are_those_that_are_known(demo):
    stays = demo.counts["stays"]
    for filter_, known in {
        "all": (136, 129, 100),
        "without_transfers": (126, 120, 94),
        "one_per_admission": (115, 115, 90),
        "adults": (114, 114, 89),
    }.items():
        assert tuple(stays[f"{unit}_{filter_}"] for unit in ("stays", "admissions", "subjects")) == known
    assert stays["subjects_test"] == 15
    assert stays["subjects_train"] == stays["subjects_validation"] == 37
    events = demo.counts["events"]
    assert events["events"] == 747_793
    assert events["events_without_admission"] == 13_184
    assert events["events_of_other_admissions"] == 86_481
    assert events["events_without_stay"] == 45_336
    assert events["events_of_another_stay"] == 1_200
    assert events["rows_chartevents"] == 758_355
    assert demo.counts["timeseries"] == {"stays_with_events": 113, "rows": 16_839}
    assert demo.counts["features"]["rows"] == 9_042 + 1_899
    assert demo.notes == ()


def test_no_subject_is_in_two_splits(demo):
    stays = pq.read_table(demo.folder / "stays" / "stays.parquet").to_pandas()
    assert (stays.groupby("subject_id").split.nunique() == 1).all()
    for split in ("train", "validation", "test"):
        rows = pq.read_table(demo.folder / "features" / f"split={split}", columns=["subject_id"])
        inside = set(stays.subject_id[stays.split == split])
        assert set(rows.column("subject_id").to_pylist()) <= inside
