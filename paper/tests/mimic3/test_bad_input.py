"""One clear error that names the file and the column, without a word of what a patient's row holds."""

import errno
import gzip
import shutil
from collections import namedtuple

import pytest

from paper.tests.mimic3.conftest import lines_of, write_lines
from xcal_paper.mimic3 import features, prepare, write_benchmark_csv
from xcal_paper.mimic3.files import bytes_of

USAGE = namedtuple("USAGE", "total used free")
SECRET = "a secret of a patient"


def refused(raw, out, error, words, **settings):
    """Check that `prepare` fails with these words, shows nothing of a row and leaves no unfinished folder."""
    with pytest.raises(error) as caught:
        prepare(raw, out, threads=1, **settings)
    message = str(caught.value)
    for word in words:
        assert word in message
    assert SECRET not in message
    # No earlier error, which might quote a line, is printed with it.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    steps = {"events", "timeseries", "instances", "features"}
    assert not steps & {entry.name for entry in out.iterdir()} if out.exists() else True
    return message


def changed(raw, table, line, column, text):
    """Put a text into one cell; lines are counted as an editor does, the header being line 1."""
    lines = lines_of(raw, table)
    place = lines[0].replace('"', "").split(",").index(column)
    cells = lines[line - 1].split(",")
    cells[place] = text
    lines[line - 1] = ",".join(cells)
    write_lines(raw, table, lines)


@pytest.mark.parametrize("table", ["ICUSTAYS", "ADMISSIONS", "PATIENTS", "CHARTEVENTS", "LABEVENTS", "OUTPUTEVENTS"])
def test_a_missing_file(raw, tmp_path, table):
    (raw / f"{table}.csv.gz").unlink()
    refused(raw, tmp_path / "out", FileNotFoundError, [f"{table}.csv.gz or {table}.csv", str(raw)])


def test_a_missing_folder(tmp_path):
    refused(tmp_path / "nowhere", tmp_path / "out", ValueError, ["raw_dir", "nowhere"])


@pytest.mark.parametrize("table", ["ICUSTAYS", "CHARTEVENTS", "OUTPUTEVENTS"])
@pytest.mark.parametrize("share", [0.5, 0.98])
def test_a_gzip_file_that_is_cut_off(raw, tmp_path, table, share):
    path = raw / f"{table}.csv.gz"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    refused(raw, tmp_path / "out", ValueError, [f"{table}.csv.gz: expected a whole gzip file"])


def test_a_file_that_is_no_gzip_file(raw, tmp_path):
    (raw / "LABEVENTS.csv.gz").write_bytes(b"<html>Not found</html>\n")
    refused(raw, tmp_path / "out", ValueError, ["LABEVENTS.csv.gz: expected a whole gzip file"])


def test_a_damaged_gzip_file(raw, tmp_path):
    path = raw / "CHARTEVENTS.csv.gz"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(200)
    path.write_bytes(content)
    refused(raw, tmp_path / "out", ValueError, ["CHARTEVENTS.csv.gz: expected"])


def plain(raw, table):
    """Unpack a table."""
    path = raw / f"{table}.csv"
    with gzip.open(raw / f"{table}.csv.gz", "rb") as file:
        path.write_bytes(file.read())
    (raw / f"{table}.csv.gz").unlink()
    return path


def test_a_plain_file_that_is_cut_off(raw, tmp_path):
    path = plain(raw, "LABEVENTS")
    path.write_bytes(path.read_bytes()[:-5])
    refused(raw, tmp_path / "out", ValueError, ["LABEVENTS.csv: expected whole lines"])


def test_an_empty_file(raw, tmp_path):
    plain(raw, "LABEVENTS").write_bytes(b"")
    refused(raw, tmp_path / "out", ValueError, ["LABEVENTS.csv: expected a header line"])


def test_a_table_that_is_there_twice(raw, tmp_path):
    shutil.copy(raw / "LABEVENTS.csv.gz", tmp_path / "kept")
    plain(raw, "LABEVENTS")
    shutil.copy(tmp_path / "kept", raw / "LABEVENTS.csv.gz")
    refused(raw, tmp_path / "out", ValueError, ["LABEVENTS.csv.gz and LABEVENTS.csv"])


@pytest.mark.parametrize(
    ("table", "column"), [("CHARTEVENTS", "VALUE"), ("ICUSTAYS", "LOS"), ("PATIENTS", "DOB"), ("ADMISSIONS", "HADM_ID")]
)
def test_a_missing_column(raw, tmp_path, table, column):
    lines = lines_of(raw, table)
    write_lines(raw, table, [lines[0].replace(f'"{column}"', '"X"'), *lines[1:]])
    refused(raw, tmp_path / "out", ValueError, [f"{table}.csv.gz: expected one column {column}, got none among the"])


@pytest.mark.parametrize(("table", "column"), [("CHARTEVENTS", "VALUE"), ("PATIENTS", "DOB")])
def test_a_column_that_is_there_twice(raw, tmp_path, table, column):
    lines = lines_of(raw, table)
    write_lines(raw, table, [f'{lines[0]},"{column.lower()}"', *(f"{line},1" for line in lines[1:])])
    refused(raw, tmp_path / "out", ValueError, [f"{table}.csv.gz: expected one column {column}, got 2 among the"])


def test_names_of_other_columns_do_not_matter(raw, tmp_path):
    lines = lines_of(raw, "PATIENTS")
    others = ['"ROW_ID"', '"row_id"', "''", '"a;b(c)"', '"x""y"', "", "", "LOS", "LOS"]
    ones = ",1" * len(others)
    write_lines(raw, "PATIENTS", [",".join([lines[0], *others]), *(f"{line}{ones}" for line in lines[1:])])
    assert prepare(raw, tmp_path / "out", threads=1).counts["stays"]["stays_all"] > 0


def test_a_file_without_its_header_shows_no_row(raw, tmp_path):
    lines = lines_of(raw, "LABEVENTS")
    cells = lines[1].split(",")
    write_lines(raw, "LABEVENTS", [",".join([SECRET, *cells[1:]]), *lines[2:]])
    message = refused(raw, tmp_path / "out", ValueError, ["LABEVENTS.csv.gz: expected one column SUBJECT_ID, got none"])
    assert cells[1] not in message


@pytest.mark.parametrize("folder", ["hosp", "icu"])
def test_the_folder_of_mimic_iv(tmp_path, folder):
    (tmp_path / "raw" / folder).mkdir(parents=True)
    refused(tmp_path / "raw", tmp_path / "out", ValueError, ["MIMIC-III", "MIMIC-IV"])


def test_the_tables_about_units_of_mimic_iv(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    write_lines(raw, "icustays", ["subject_id,hadm_id,stay_id,first_careunit,last_careunit,intime,outtime,los"])
    refused(raw, tmp_path / "out", ValueError, ["icustays.csv.gz", "stay_id", "MIMIC-IV"])


def test_the_tables_about_the_hospital_of_mimic_iv(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    write_lines(raw, "patients", ["subject_id,gender,anchor_age,anchor_year,anchor_year_group,dod"])
    refused(raw, tmp_path / "out", ValueError, ["patients.csv.gz", "anchor_age", "MIMIC-IV"])


@pytest.mark.parametrize(
    ("table", "line", "column", "expected"),
    [
        ("CHARTEVENTS", 2, "CHARTTIME", "a date and time"),
        ("CHARTEVENTS", 20_000, "CHARTTIME", "a date and time"),
        ("LABEVENTS", 1234, "CHARTTIME", "a date and time"),
        ("LABEVENTS", 77, "ITEMID", "a whole number"),
        ("OUTPUTEVENTS", 5, "ICUSTAY_ID", "a whole number"),
        ("ICUSTAYS", 3, "INTIME", "a date and time"),
        ("ICUSTAYS", 4, "OUTTIME", "a date and time"),
        ("ICUSTAYS", 5, "LOS", "a number"),
        ("ADMISSIONS", 6, "DEATHTIME", "a date and time"),
        ("PATIENTS", 7, "DOB", "a date and time"),
    ],
)
def test_a_cell_that_cannot_be_read(raw, tmp_path, table, line, column, expected):
    changed(raw, table, line, column, SECRET)
    words = [f"{table}.csv.gz, column {column}: expected {expected}", f"at line {line}"]
    message = refused(raw, tmp_path / "out", ValueError, words)
    assert message.endswith(f"at line {line}")


@pytest.mark.parametrize(
    ("table", "column", "text"),
    [
        ("LABEVENTS", "CHARTTIME", "290000-01-01 00:00:00"),
        ("CHARTEVENTS", "CHARTTIME", "infinity"),
        ("ICUSTAYS", "INTIME", "0001-01-01 00:00:00"),
        ("ICUSTAYS", "LOS", "inf"),
        ("ICUSTAYS", "LOS", "NaN"),
        ("ICUSTAYS", "LOS", "1e9"),
    ],
)
def test_a_value_that_no_stay_can_have(raw, tmp_path, table, column, text):
    changed(raw, table, 3, column, text)
    refused(raw, tmp_path / "out", ValueError, [f"{table}.csv.gz, column {column}: expected", "at line 3"])


@pytest.mark.parametrize(
    ("table", "column"), [("CHARTEVENTS", "SUBJECT_ID"), ("ICUSTAYS", "INTIME"), ("PATIENTS", "DOB")]
)
def test_an_empty_cell_where_a_value_is_needed(raw, tmp_path, table, column):
    changed(raw, table, 3, column, "")
    refused(raw, tmp_path / "out", ValueError, [f"{table}.csv.gz, column {column}", "at line 3"])


def test_an_event_without_a_time_that_would_be_used(raw, tmp_path):
    lines = lines_of(raw, "CHARTEVENTS")
    names = lines[0].replace('"', "").split(",")
    for number, line in enumerate(lines[1:], start=2):
        cells = dict(zip(names, line.split(","), strict=False))
        if cells["ITEMID"] in {"211", "220045"} and cells["VALUE"]:  # a heart rate
            cells["CHARTTIME"] = ""
            lines[number - 1] = ",".join(cells.values())
    write_lines(raw, "CHARTEVENTS", lines)
    refused(raw, tmp_path / "out", ValueError, ["CHARTEVENTS.csv.gz, column CHARTTIME: expected a time", "at line"])


def test_a_line_with_too_many_cells(raw, tmp_path):
    lines = lines_of(raw, "LABEVENTS")
    lines[99] += f',"{SECRET}"'
    write_lines(raw, "LABEVENTS", lines)
    refused(
        raw, tmp_path / "out", ValueError, ["LABEVENTS.csv.gz: expected 8 columns in every line, got 9 at line 100"]
    )


def test_the_folder_of_a_run_with_other_settings(raw, tmp_path):
    out = tmp_path / "out"
    prepare(raw, out, threads=1)
    for settings, word in [
        ({"seed": 1}, "seed: 1"),
        ({"death": "censor"}, "death: censor"),
        ({"discretised": True}, "discretised"),
    ]:
        with pytest.raises(ValueError, match=f"out_dir: expected a folder of a run with {word}.*choose another folder"):
            prepare(raw, out, threads=1, **settings)


def test_the_folder_of_a_run_on_other_files(raw, tmp_path):
    out = tmp_path / "out"
    prepare(raw, out, threads=1)
    lines = lines_of(raw, "LABEVENTS")
    write_lines(raw, "LABEVENTS", lines[:-1])
    with pytest.raises(ValueError, match="out_dir: expected a folder of a run with raw LABEVENTS: this file, got"):
        prepare(raw, out, threads=1)


def test_a_folder_with_other_things(raw, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.doc").write_text("")
    with pytest.raises(ValueError, match=r"out_dir: expected an empty folder, or one of an earlier .*thesis\.doc"):
        prepare(raw, out, threads=1)


def test_a_manifest_that_is_none(raw, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "manifest.json").write_text("[1, 2")
    with pytest.raises(ValueError, match="expected the manifest of a prepared folder, got another file"):
        prepare(raw, out, threads=1)


def test_a_disk_that_is_too_small_is_noticed_before_the_features(raw, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: USAGE(10**9, 10**9 - 1000, 1000))
    with pytest.raises(OSError, match=r"GB of free disk space for the features of .* run the same command to resume"):
        prepare(raw, out, threads=1)
    assert not (out / "features").exists()
    monkeypatch.undo()
    assert prepare(raw, out, threads=1).resumed == ("stays", "events", "timeseries", "instances")


@pytest.mark.parametrize("full", [OSError(errno.ENOSPC, "No space left on device"), OSError("No space left on device")])
def test_a_disk_that_fills_up(raw, tmp_path, monkeypatch, full):
    out = tmp_path / "out"

    def write(path, columns):
        raise full

    monkeypatch.setattr(features, "write_parquet", write)
    with pytest.raises(OSError, match=r"no space left on the disk while writing features; make room.*resume") as caught:
        prepare(raw, out, threads=1)
    assert caught.value.errno == errno.ENOSPC
    assert not (out / "features").exists()
    monkeypatch.undo()
    prepare(raw, out, threads=1)


@pytest.mark.parametrize("memory", ["8", "8 apples", "500MB", "", "1KB"])
def test_memory_that_is_no_size(memory):
    with pytest.raises(ValueError, match="memory: expected"):
        bytes_of(memory)


@pytest.mark.parametrize(("settings", "word"), [({"death": "ignore"}, "death"), ({"seed": -1}, "seed")])
def test_settings_that_are_none(raw, tmp_path, settings, word):
    refused(raw, tmp_path / "out", ValueError, [f"{word}: expected"], **settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("subject,test\n10000,1\n", ["at line 1"]),
        ("10000,1\n10001,2\n", ["at line 2"]),
        ("10000,0\n", ["at least one subject of the test set"]),
    ],
)
def test_a_list_of_test_subjects_that_is_none(raw, tmp_path, text, words):
    listed = tmp_path / "testset.csv"
    listed.write_text(text)
    refused(raw, tmp_path / "out", ValueError, ["testset.csv: expected", *words], test_subjects=listed)


def test_a_missing_list_of_test_subjects(raw, tmp_path):
    refused(raw, tmp_path / "out", FileNotFoundError, ["test_subjects"], test_subjects=tmp_path / "none.csv")


def test_subjects_that_the_list_does_not_name_are_counted(raw, tmp_path):
    listed = tmp_path / "testset.csv"
    listed.write_text("10000,1\n10001,1\n10002,0\n")
    prepared = prepare(raw, tmp_path / "out", test_subjects=listed, threads=1)
    unlisted = prepared.counts["stays"]["subjects_not_in_test_list"]
    assert unlisted > 0
    assert prepared.notes == (
        f"{unlisted} subjects are not in the list of test subjects; they are for training and validation",
    )


def test_values_that_are_no_numbers_are_counted_and_said(raw, tmp_path):
    lines = lines_of(raw, "CHARTEVENTS")
    spoiled = {"211": "very fast", "220045": "very fast", "678": "warm", "198": "16"}
    names = lines[0].replace('"', "").split(",")
    for number, line in enumerate(lines):
        cells = line.split(",")
        item = cells[names.index("ITEMID")]
        if item in spoiled:
            cells[names.index("VALUE")] = spoiled[item]
            lines[number] = ",".join(cells)
    write_lines(raw, "CHARTEVENTS", lines)
    prepared = prepare(raw, tmp_path / "out", threads=1)
    assert prepared.counts["events"]["unreadable_values Temperature"] > 0
    assert prepared.counts["features"]["unknown_texts Heart Rate"] > 0
    assert prepared.counts["features"]["unknown_texts Glascow coma scale total"] > 0
    for variable in ("Temperature", "Heart Rate", "Glascow coma scale total"):
        assert any(f"values of {variable} are no numbers" in note for note in prepared.notes)


def test_missing_libraries_are_named(monkeypatch, raw, tmp_path):
    monkeypatch.setattr("xcal_paper.mimic3.files.find_spec", lambda name: None if name == "duckdb" else name)
    with pytest.raises(ImportError, match=r'needs duckdb: pip install "xcal\[mimic\]"'):
        prepare(raw, tmp_path / "out")


def test_csv_of_a_folder_that_was_not_prepared(tmp_path):
    with pytest.raises(ValueError, match="prepared: expected a folder with timeseries/"):
        write_benchmark_csv(tmp_path, tmp_path / "csv")
