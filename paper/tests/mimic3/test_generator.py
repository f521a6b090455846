"""Made-up folders: the shape and the quirks of the real files, and the whole way through."""

import csv
import gzip

import numpy as np
import pyarrow.parquet as pq
import pytest

from paper.tests.mimic3.conftest import lines_of, manifest_of
from xcal_paper.mimic3 import generate, prepare


def rows_of(folder, table):
    with gzip.open(folder / f"{table}.csv.gz", "rt", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("generated") / "raw"
    rows = generate(path, scale=0.4, seed=1)
    assert {table: len(lines_of(path, table)) - 1 for table in rows} == rows
    return path


def test_a_demo_sized_folder_has_about_as_many_events_as_the_demo():
    from xcal_paper.mimic3.generator import _PER_HOUR

    # The demo: 758,355 chart events and 76,074 laboratory values; 136 stays of 4.45 days on average.
    hours = 136 * 4.45 * 24
    assert _PER_HOUR["CHARTEVENTS"] * hours == pytest.approx(758_355, rel=0.05)
    assert _PER_HOUR["LABEVENTS"] * hours == pytest.approx(76_074, rel=0.05)


def test_the_columns_that_are_read_are_those_of_the_real_files(folder, demo_files):
    for path in folder.iterdir():
        with gzip.open(demo_files / "demo" / path.name, "rt") as file:
            real = {name.upper() for name in file.readline().strip().split(",")}
        assert set(rows_of(folder, path.name.removesuffix(".csv.gz"))[0]) <= real


def test_the_quirks_are_there(folder):
    chart = rows_of(folder, "CHARTEVENTS")
    values = {row["VALUE"] for row in chart}
    assert {"None", "ERROR", "120/80", "0.98", "Arm, Right Lower", 'said "no"', ""} <= values
    assert {"torr", "?F", "Deg. F", "lb", "oz", "Inch"} <= {row["VALUEUOM"] for row in chart}
    stays = {row["ICUSTAY_ID"] for row in rows_of(folder, "ICUSTAYS")}
    assert any(row["ICUSTAY_ID"] == "" for row in chart)
    assert {row["ICUSTAY_ID"] for row in chart} - stays - {""}
    lab = rows_of(folder, "LABEVENTS")
    assert "ICUSTAY_ID" not in lab[0]
    assert 0.1 < np.mean([row["HADM_ID"] == "" for row in lab]) < 0.25
    assert any(row["DEATHTIME"] for row in rows_of(folder, "ADMISSIONS"))


def test_the_same_seed_gives_the_same_bytes(made_up, tmp_path):
    generate(tmp_path / "again", scale=0.08, seed=5)
    generate(tmp_path / "other", scale=0.08, seed=6)
    for path in made_up.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    assert (tmp_path / "other" / "PATIENTS.csv.gz").read_bytes() != (made_up / "PATIENTS.csv.gz").read_bytes()


@pytest.mark.parametrize("death", ["event", "censor"])
def test_the_whole_way(folder, tmp_path, death):
    prepared = prepare(folder, tmp_path / "los", death=death, discretised=True, threads=2)
    stays = prepared.counts["stays"]
    order = ["all", "without_transfers", "one_per_admission", "adults"]
    numbers = [stays[f"stays_{name}"] for name in order]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) == 4  # every filter finds something
    events = prepared.counts["events"]
    assert all(events[name] > 0 for name in ("events_without_admission", "events_of_another_stay", "values"))
    files = [str(path) for path in sorted((tmp_path / "los" / "features").glob("*/*.parquet"))]
    features = pq.read_table(files).to_pandas()
    assert len(features) == prepared.counts["features"]["rows"] > 1000
    assert (features.remaining >= 0).all()
    assert features["heart_rate.all.mean.defined"].mean() > 0.95
    assert bool((~features.event).any()) is (death == "censor")
    assert manifest_of(tmp_path / "los")["finished"]


def test_files_in_lower_case_and_unpacked_give_the_same(made_up, tmp_path):
    """Headers in upper or lower case, names of files too, packed or not: the same rows."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for path in made_up.iterdir():
        lines = lines_of(made_up, path.name.removesuffix(".csv.gz"))
        lines[0] = lines[0].lower().replace('"', "")
        (raw / path.name.lower().removesuffix(".gz")).write_text("".join(f"{line}\n" for line in lines))
    prepare(made_up, tmp_path / "packed", threads=1)
    prepare(raw, tmp_path / "plain", threads=1)
    assert manifest_of(tmp_path / "plain")["steps"] == manifest_of(tmp_path / "packed")["steps"]


def test_a_folder_in_use_is_refused(made_up):
    with pytest.raises(ValueError, match="folder: expected a new or empty folder"):
        generate(made_up)


@pytest.mark.parametrize("scale", [0, -1, float("nan"), "big"])
def test_a_scale_that_is_none(tmp_path, scale):
    with pytest.raises(ValueError, match="scale: expected"):
        generate(tmp_path / "raw", scale)
