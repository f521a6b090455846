"""First step: which ICU stays are used, and in which split and block each of them is.

Kept are stays without a transfer between units or wards, in admissions with exactly one such stay, of adults.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import fail
from xcal.datasets.mimic3.parquet_files import SPLITS, read_columns, write_parquet
from xcal.datasets.mimic3.raw_files import RawFile
from xcal.datasets.mimic3.typed_rows import bad_cell, typed_batches

STAYS_PER_BLOCK = 256
# As in the benchmark, whose list has 5,070 of 33,798 subjects.
_TEST_SHARE = 0.15
# Days. An instance is made for every hour of a stay, so a LOS with digits too many would fill the disk.
_LONGEST = 3_650

_TYPES = {
    "ICUSTAYS": {
        "SUBJECT_ID": "INTEGER",
        "HADM_ID": "INTEGER",
        "ICUSTAY_ID": "INTEGER",
        "FIRST_CAREUNIT": "VARCHAR",
        "LAST_CAREUNIT": "VARCHAR",
        "FIRST_WARDID": "INTEGER",
        "LAST_WARDID": "INTEGER",
        "INTIME": "TIMESTAMP",
        "OUTTIME": "TIMESTAMP",
        "LOS": "DOUBLE",
    },
    "ADMISSIONS": {"SUBJECT_ID": "INTEGER", "HADM_ID": "INTEGER", "DEATHTIME": "TIMESTAMP"},
    "PATIENTS": {"SUBJECT_ID": "INTEGER", "DOB": "TIMESTAMP", "DOD": "TIMESTAMP"},
}
_FILLED = ("SUBJECT_ID", "HADM_ID", "ICUSTAY_ID", "INTIME", "DOB")

# Each filter is a table of its own, so that its count can be reported.
_FILTERS = {
    "all": "SELECT * FROM icustays",
    "without_transfers": """
        SELECT * FROM stays_all WHERE FIRST_WARDID = LAST_WARDID AND FIRST_CAREUNIT = LAST_CAREUNIT""",
    "one_per_admission": """
        SELECT * FROM stays_without_transfers
        JOIN admissions USING (SUBJECT_ID, HADM_ID) JOIN patients USING (SUBJECT_ID)
        QUALIFY count(*) OVER (PARTITION BY HADM_ID) = 1""",
    "adults": """
        SELECT *, CASE WHEN years < 0 THEN 90 ELSE years END AS age FROM (
            SELECT *, epoch(INTIME - DOB) / 3600 / 24 / 365 AS years FROM stays_one_per_admission)
        WHERE CASE WHEN years < 0 THEN 90 ELSE years END >= 18""",
}
# BETWEEN with an empty time is no match, as it should be.
_RESULT = """
    SELECT ICUSTAY_ID AS stay_id, SUBJECT_ID AS subject_id, HADM_ID AS admission_id,
        CAST(row_number() OVER (PARTITION BY SUBJECT_ID ORDER BY INTIME, OUTTIME NULLS LAST) AS INTEGER) AS episode,
        age, INTIME AS intime, OUTTIME AS outtime, LOS * 24::DOUBLE AS los_hours,
        coalesce(DOD BETWEEN INTIME AND OUTTIME, false) OR coalesce(DEATHTIME BETWEEN INTIME AND OUTTIME, false)
            AS died_in_unit,
        CASE WHEN DEATHTIME BETWEEN INTIME AND OUTTIME THEN epoch(DEATHTIME - INTIME) / 3600 END AS death_hours
    FROM stays_adults ORDER BY subject_id, episode"""


def write_stays(
    connection: Any, raw: dict[str, RawFile], folder: Path, *, test_subjects: Path | None, seed: int
) -> dict[str, int]:
    """Write ``stays.parquet`` into `folder`; returns the counts of every filter and split."""
    pa: Any = import_module("pyarrow")
    for table, types in _TYPES.items():
        filled = [name for name in _FILLED if name in types]
        rows = pa.Table.from_batches(typed_batches(connection, raw[table], types, filled=filled), _schema(pa, types))
        if table == "ICUSTAYS":
            _check_lengths(raw[table], rows)
        connection.register(table.lower(), rows)
    counts: dict[str, int] = {}
    for name, query in _FILTERS.items():
        connection.execute(f"CREATE OR REPLACE TEMP TABLE stays_{name} AS {query}")
        (three,) = connection.execute(
            f"SELECT count(DISTINCT ICUSTAY_ID), count(DISTINCT HADM_ID), count(DISTINCT SUBJECT_ID) FROM stays_{name}"
        ).fetchall()
        counts |= {f"{unit}_{name}": n for unit, n in zip(("stays", "admissions", "subjects"), three, strict=True)}
    result = connection.sql(_RESULT).to_arrow_table()
    if result.num_rows == 0:
        fail("raw_dir", "stays of adults without transfers", "none")
    subjects = result.column("subject_id").to_numpy()
    split, unlisted = _splits(subjects, test_subjects, seed)
    block = _blocks(subjects, split, seed)
    result = result.append_column("split", pa.array(split)).append_column("block", pa.array(block))
    write_parquet(folder / "stays.parquet", result)
    if test_subjects is not None:
        counts["subjects_not_in_test_list"] = unlisted
    for name in SPLITS:
        counts[f"subjects_{name}"] = len(np.unique(subjects[split == name]))
    return counts


def _check_lengths(file: RawFile, rows: Any) -> None:
    too_long = np.flatnonzero(rows.column("LOS").to_numpy() > _LONGEST)
    if len(too_long):
        bad_cell(file, "LOS", f"at most {_LONGEST:,} days", int(too_long[0]))


def _schema(pa: Any, types: dict[str, str]) -> Any:
    arrow = {
        "INTEGER": pa.int32(),
        "DOUBLE": pa.float64(),
        "VARCHAR": pa.string(),
        "TIMESTAMP": pa.timestamp("us"),
    }
    return pa.schema([(name, arrow[type_]) for name, type_ in types.items()])


def read_stays(folder: Path) -> dict[str, npt.NDArray[Any]]:
    """Columns of ``stays.parquet``."""
    return read_columns(folder / "stays.parquet")


def _splits(subjects: npt.NDArray[np.int32], test_subjects: Path | None, seed: int) -> tuple[npt.NDArray[np.str_], int]:
    """Split of every stay, and how many subjects a given list does not name."""
    unique = np.unique(subjects)
    unlisted = 0
    if test_subjects is None:
        shuffled = np.random.default_rng([seed, 0]).permutation(unique)
        test = shuffled[: round(_TEST_SHARE * len(unique))]
    else:
        listed = read_test_subjects(test_subjects)
        test = np.array([subject for subject in unique if listed.get(int(subject))], np.int32)
        # The benchmark trains on subjects that its list does not name; they are counted, so that it can be seen.
        unlisted = sum(int(subject) not in listed for subject in unique)
    others = np.random.default_rng([seed, 1]).permutation(np.setdiff1d(unique, test))
    validation = others[: len(others) // 2]
    split = np.full(len(subjects), "train", dtype="<U10")
    split[np.isin(subjects, validation)] = "validation"
    split[np.isin(subjects, test)] = "test"
    return split, unlisted


def _blocks(subjects: npt.NDArray[np.int32], split: npt.NDArray[np.str_], seed: int) -> npt.NDArray[np.int32]:
    """Block of every stay: subjects of a split in random order, cut after about `STAYS_PER_BLOCK` stays."""
    block = np.zeros(len(subjects), np.int32)
    for number, name in enumerate(SPLITS):
        unique, stays = np.unique(subjects[split == name], return_counts=True)
        order = np.random.default_rng([seed, 2, number]).permutation(len(unique))
        before = np.cumsum(stays[order]) - stays[order]
        of_subject = dict(zip(unique[order].tolist(), (before // STAYS_PER_BLOCK).tolist(), strict=True))
        rows = np.flatnonzero(split == name)
        block[rows] = [of_subject[subject] for subject in subjects[rows].tolist()]
    return block


def read_test_subjects(path: Path) -> dict[int, bool]:
    """Read a list of subjects, two columns without a header: subject id, and 1 for a subject of the test set."""
    if not path.is_file():
        raise FileNotFoundError(f"test_subjects: expected a file, got {path}, which does not exist")
    listed: dict[int, bool] = {}
    # Of another encoding only what is no digit is lost, and that is refused.
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 2 or not re.fullmatch("[0-9]{1,18}", cells[0]) or cells[1] not in {"0", "1"}:
            raise ValueError(
                f"{path.name}: expected a subject id and 0 or 1 (1: test), without a header, got something else "
                f"at line {number}"
            )
        listed[int(cells[0])] = cells[1] == "1"
    if not any(listed.values()):
        fail(path.name, "at least one subject of the test set", "none")
    return listed
