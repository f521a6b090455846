"""Records: written whole or not at all, checked line by line."""

import errno
import math
import os
from dataclasses import replace

import pytest

from xcal.experiments import Record, RecordFile

RECORD = Record(
    table="small",
    variant="as-published",
    penalty="paper",
    row="mtlr-i",
    lam=10.0,
    seed=0,
    spec_hash="a",
    data_hash="b",
    epochs=2,
    best_epoch=1,
    figures={"nll": 0.1 + 0.2, "dcal": math.inf},
    validation={"objective": 1e-300, "dcal": math.nan},
)


@pytest.fixture
def file(tmp_path):
    return RecordFile(tmp_path / "results" / "small.jsonl")


def test_records_come_back_to_the_last_bit(file):
    file.add([RECORD])
    records, corrupt = file.read()
    assert not corrupt
    found = records[RECORD.key]
    assert found.figures == RECORD.figures
    assert math.isnan(found.validation["dcal"])
    assert replace(found, validation=RECORD.validation) == RECORD


def test_records_add_up_and_a_new_one_replaces_its_own_key_only(file):
    other = replace(RECORD, seed=1)
    file.add([RECORD, other])
    newer = replace(RECORD, best_epoch=0)
    file.add([newer])
    records, _ = file.read()
    assert len(records) == 2
    assert records[RECORD.key].best_epoch == 0
    assert records[other.key].best_epoch == 1


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda line: line.replace(b'"best_epoch": 1', b'"best_epoch": 2'), "checksum"),
        (lambda line: line[: len(line) // 2], "not a whole line of JSON"),
        (lambda line: b"\x00\xff" * 10, "not a whole line of JSON"),
        (lambda line: b'{"table": 3}', "no record"),
        (lambda line: b"[]", "no record"),
    ],
)
def test_a_corrupt_line_is_reported_and_the_others_are_kept(file, damage, reason):
    file.add([RECORD, replace(RECORD, seed=1), replace(RECORD, seed=2)])
    lines = file.path.read_bytes().splitlines()
    lines[1] = damage(lines[1])
    file.path.write_bytes(b"\n".join(lines) + b"\n")
    records, corrupt = file.read()
    assert {key[-1] for key in records} == {0, 2}
    assert corrupt[0].line == 2
    assert reason in str(corrupt[0])


def test_a_full_disk_leaves_earlier_records_as_they_were(file, monkeypatch):
    file.add([RECORD])
    before = file.path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*earlier records are as they were"):
        file.add([replace(RECORD, seed=1)])
    assert file.path.read_bytes() == before
    assert [path.name for path in file.path.parent.iterdir()] == ["small.jsonl"]


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "results").write_text("a file in the way")
    with pytest.raises(OSError, match="results: expected a folder that can be written, got"):
        RecordFile(tmp_path / "results" / "small.jsonl").check_writable()


def test_looking_whether_records_can_be_written_leaves_nothing_behind(file):
    file.check_writable()
    assert list(file.path.parent.iterdir()) == []


def test_other_readers_may_read_a_record(file):
    file.add([RECORD])
    assert file.path.stat().st_mode & 0o044 == 0o044
