"""Records: written whole or not at all, checked line by line."""

import errno
import json
import math
import os
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.processes import together

from xcal._files import _check, content_of
from xcal_paper import Record, RecordFile
from xcal_paper.records import _record

RECORD = Record(
    table="small",
    variant="as-published",
    penalty="paper",
    model="mtlr-i",
    lam=10.0,
    seed=0,
    spec_hash="a",
    data_hash="b",
    epochs=2,
    best_epoch=1,
    metrics={"nll": 0.1 + 0.2, "dcal": math.inf},
    validation={"objective": 1e-300, "dcal": math.nan},
)
IN_JOB = replace(RECORD, seed=1, job_lambdas=(0.0, 10.0), job_seeds=(0, 1))


@pytest.fixture
def file(tmp_path):
    return RecordFile(tmp_path / "results" / "small.jsonl")


def test_records_come_back_to_the_last_bit(file):
    file.add([RECORD])
    records, corrupt = file.read()
    assert not corrupt
    found = records[RECORD.key]
    assert found.metrics == RECORD.metrics
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


def add_from_two_threads(rank, _, path):
    file = RecordFile(path)

    def add(start):
        for seed in range(start, start + 25):
            file.add([replace(RECORD, seed=seed)])

    threads = [threading.Thread(target=add, args=(50 * rank + 25 * k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_no_record_is_lost_between_writers(file):
    together(4, add_from_two_threads, file.path)
    records, corrupt = file.read()
    assert not corrupt
    assert sorted(key[-1] for key in records) == list(range(200))


def test_a_reader_beside_a_writer_sees_whole_records(file):
    file.add([replace(RECORD, seed=seed) for seed in range(50)])
    writer = threading.Thread(target=lambda: [file.add([replace(RECORD, seed=k)]) for k in range(50, 80)])
    writer.start()
    seen = []
    while writer.is_alive():
        records, corrupt = file.read()
        assert not corrupt
        seen.append(len(records))
    writer.join()
    assert seen == sorted(seen)
    assert set(seen) <= set(range(50, 81))


def forged(**changes):
    """A line with other values and a checksum that is right."""
    content = {name: value for name, value in json.loads(RECORD.line()).items() if name != "check"} | changes
    return json.dumps(content | {"check": _check(content)}).encode()  # as_line refuses NaN


@pytest.mark.parametrize(
    "line",
    [
        forged(lam="10"),
        forged(lam=[10.0]),
        forged(lam=True),
        forged(lam=float("nan")),
        forged(lam=float("inf")),
        forged(lam=10**400),
        forged(seed=0.5),
        forged(seed=None),
        forged(seed=2**63),
        forged(row=None),
        forged(row=["mtlr-i"]),
        forged(spec_hash={}),
        forged(figures=None),
        forged(figures=[1.0]),
        forged(figures={"nll": None}),
        forged(figures={"nll": "one"}),
        forged(figures={"nll": 10**400}),
        forged(figures={"nll": {"nll": 1.0}}),
        forged(versions={"torch": 2}),
        forged(group_models="4"),
        forged(group_lambdas=[0.0]),
        forged(group_lambdas=[0.0], group_seeds="0"),
        forged(group_lambdas=["0"], group_seeds=[0]),
        forged(another=1),
        b"[" * 200_000,
        b'{"check": ' * 200_000,
        b'{"check": "", "row": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"check": 1e999}',
        b"1" * 5000,
        b"null",
        b'"check"',
        b"\xff\xfe",
        b"",
    ],
    ids=lambda line: line[:40].decode(errors="replace") if len(line) < 600 else str(len(line)),
)
def test_a_line_of_any_content_is_a_corrupt_line_at_worst(file, line):
    file.add([RECORD, replace(RECORD, seed=1)])
    whole = file.path.read_bytes()
    file.path.write_bytes(line + b"\n" + whole)
    records, corrupt = file.read()
    assert len(records) == 2
    assert [found.line for found in corrupt] == [1]
    file.add([RECORD])
    assert file.path.read_bytes() == whole


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(name=st.sampled_from(sorted(set(json.loads(IN_JOB.line())) - {"check"})), value=VALUES)
def test_a_forged_value_is_a_corrupt_line_or_a_record_that_can_be_written(name, value):
    try:
        record = _record(content_of(forged(**{name: value})))
    except ValueError:
        return
    hash(record.key)
    assert _record(content_of(record.line().encode())).line() == record.line()


def test_the_job_is_kept_and_a_record_without_one_has_no_word_of_it(file):
    file.add([RECORD, IN_JOB])
    records, corrupt = file.read()
    assert not corrupt
    assert records[IN_JOB.key].job_lambdas == (0.0, 10.0)
    assert records[IN_JOB.key].job_seeds == (0, 1)
    assert records[RECORD.key].job_seeds == ()
    first, second = (json.loads(line) for line in file.path.read_text().splitlines())
    assert "group_seeds" not in first
    assert second["group_seeds"] == [0, 1]


def test_a_full_disk_leaves_earlier_records_as_they_were(file, monkeypatch):
    file.add([RECORD])
    before = file.path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*earlier records are as they were"):
        file.add([replace(RECORD, seed=1)])
    assert file.path.read_bytes() == before
    assert {path.name for path in file.path.parent.iterdir()} == {"small.jsonl", ".small.jsonl.lock"}


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
