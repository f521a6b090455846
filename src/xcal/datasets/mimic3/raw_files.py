"""The raw files of MIMIC-III: where they are, whether they are whole and of the right version.

No message repeats anything from a row of these files: only the file, the column and the line.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from xcal._checks import fail

STAY_TABLES = ("ICUSTAYS", "ADMISSIONS", "PATIENTS")
EVENT_TABLES = ("CHARTEVENTS", "LABEVENTS", "OUTPUTEVENTS")

# Columns that are read. LABEVENTS has no ICUSTAY_ID.
_EVENT_COLUMNS = ("SUBJECT_ID", "HADM_ID", "ITEMID", "CHARTTIME", "VALUE", "VALUEUOM")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "ICUSTAYS": (
        "SUBJECT_ID",
        "HADM_ID",
        "ICUSTAY_ID",
        "FIRST_CAREUNIT",
        "LAST_CAREUNIT",
        "FIRST_WARDID",
        "LAST_WARDID",
        "INTIME",
        "OUTTIME",
        "LOS",
    ),
    "ADMISSIONS": ("SUBJECT_ID", "HADM_ID", "DEATHTIME"),
    "PATIENTS": ("SUBJECT_ID", "DOB", "DOD"),
    "CHARTEVENTS": (*_EVENT_COLUMNS, "ICUSTAY_ID"),
    "LABEVENTS": _EVENT_COLUMNS,
    "OUTPUTEVENTS": (*_EVENT_COLUMNS, "ICUSTAY_ID"),
}

_READ = frozenset(name for columns in COLUMNS.values() for name in columns)
# Columns that only MIMIC-IV has.
_MIMIC_IV = frozenset({"STAY_ID", "ANCHOR_AGE"})


@dataclass(frozen=True)
class RawFile:
    """One raw table: its file, and its columns in their order.

    Columns that are read have their name in upper case, as MIMIC-III has it and its demo has not; others their place.
    """

    table: str
    path: Path
    columns: tuple[str, ...]


def find_raw_files(folder: Path) -> dict[str, RawFile]:
    """Find the six tables that are read and check their headers; reads one line of each."""
    if not folder.is_dir():
        fail("raw_dir", "the folder with the CSV files of MIMIC-III", f"{folder}, which is no folder")
    for name in ("hosp", "icu"):
        if (folder / name).is_dir():
            _refuse_mimic_iv(f"{folder}, which holds a folder {name}")
    present = {entry.name.upper(): entry for entry in folder.iterdir() if entry.is_file()}
    # The version before what is missing: half of the tables of MIMIC-IV have names of MIMIC-III.
    for table in COLUMNS:
        for path in _files(table, present):
            for mark in _MIMIC_IV & set(_header(path)):
                _refuse_mimic_iv(f"{path.name} with a column {mark.lower()}")
    return {table: _find(folder, table, present) for table in COLUMNS}


def _files(table: str, present: Mapping[str, Path]) -> list[Path]:
    """Files of a table: none, one or, where it is packed and unpacked, two."""
    return [present[name] for name in (f"{table}.CSV.GZ", f"{table}.CSV") if name in present]


def _find(folder: Path, table: str, present: Mapping[str, Path]) -> RawFile:
    found = _files(table, present)
    if not found:
        raise FileNotFoundError(f"{table}: expected {table}.csv.gz or {table}.csv in {folder}, got neither")
    if len(found) > 1:
        fail(table, "one file", f"both {found[0].name} and {found[1].name}: remove one of them from {folder}")
    path = found[0]
    columns = _header(path)
    for name in COLUMNS[table]:
        if columns.count(name) != 1:
            # Not the names themselves: the first line of a file without a header is a patient's.
            got = f"{columns.count(name) or 'none'} among the {len(columns)} columns in its first line"
            fail(path.name, f"one column {name}", got)
    _check_end(path)
    # What else a header says is no part of our SQL.
    named = (name if columns.count(name) == 1 and name in _READ else f"column {k}" for k, name in enumerate(columns))
    return RawFile(table, path, tuple(named))


def _refuse_mimic_iv(got: str) -> NoReturn:
    fail("raw_dir", "the CSV files of MIMIC-III (version 1.4)", f"{got}: that is MIMIC-IV")


def _header(path: Path) -> tuple[str, ...]:
    """Names in the first line, in upper case."""
    first: bytes | None = None
    open_ = gzip.open if path.suffix.lower() == ".gz" else open
    with suppress(EOFError, gzip.BadGzipFile, zlib.error), open_(path, "rb") as file:
        first = file.readline(1 << 20)
    if first is None:
        fail(path.name, "a whole gzip file", "one that is cut off or damaged")
    text = first.decode("utf-8-sig", errors="replace").strip()
    if not text:
        fail(path.name, "a header line", "an empty file")
    return tuple(name.strip().strip('"').upper() for name in text.split(","))


def _check_end(path: Path) -> None:
    """Refuse a plain CSV file that was cut off within a line; of a gzip file its reader notices."""
    if path.suffix.lower() == ".gz":
        return
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) not in {b"\n", b"\r"}:
            fail(path.name, "whole lines", "a last line without an end: the file is cut off")


def fingerprint(path: Path) -> dict[str, int | str]:
    """Size and sha256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
