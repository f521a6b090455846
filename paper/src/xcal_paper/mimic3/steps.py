"""The first four steps: stays, events, time series, instances."""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import fail
from xcal._files import new_file, write_whole
from xcal_paper.mimic3.files import (
    EVENT_TABLES,
    SPLITS,
    RawFile,
    Report,
    bad_cell,
    batches,
    block_path,
    blocks_of,
    plain_errors,
    quoted,
    read_columns,
    typed_batches,
    write_parquet,
)
from xcal_paper.mimic3.variable_list import MISSING_TEXTS, cleaned, items, text_variables, variables

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


# ----------------------------------------------------------------------------------------------------------------------
# Second step: the measured values of the 17 variables, cleaned, in one file per block.
#
# The raw tables are read once, as a stream. Of each batch only the rows of the 17 variables that belong to a stay are
# kept; they go to one temporary file per raw table, so that a stopped run need not read a finished table again. Then
# DuckDB cleans and sorts them, on disk where memory does not suffice.


_EVENT_TYPES = {
    "SUBJECT_ID": "INTEGER",
    "HADM_ID": "INTEGER",
    "ICUSTAY_ID": "INTEGER",
    "ITEMID": "INTEGER",
    "CHARTTIME": "TIMESTAMP",
}
_STAGED = ("stay_id", "subject_id", "charttime", "item_id", "value", "raw_unit")
_COUNTED = (
    "rows",
    "events",
    "events_without_admission",
    "events_of_other_admissions",
    "events_without_stay",
    "events_of_another_stay",
)


def write_events(
    connection: Any,
    raw: dict[str, RawFile],
    stays: dict[str, npt.NDArray[Any]],
    folder: Path,
    work: Path,
    report: Report,
) -> dict[str, int]:
    """Write the blocks of cleaned events into `folder`; returns counts, those of the raw tables added up."""
    counts = dict.fromkeys(_COUNTED, 0)
    for table in EVENT_TABLES:
        found = _stage(connection, raw[table], stays, work, report)
        counts |= {name: counts[name] + found[name] for name in _COUNTED}
        counts[f"rows_{table.lower()}"] = found["rows"]
    staged = ", ".join(quoted(str(_staged_path(work, table))) for table in EVENT_TABLES)
    with plain_errors("events"):
        return counts | _write_sorted(connection, f"read_parquet([{staged}])", stays, folder, report)


def _staged_path(work: Path, table: str) -> Path:
    return work / f"{table}.parquet"


def _stage(
    connection: Any,
    file: RawFile,
    stays: dict[str, npt.NDArray[Any]],
    work: Path,
    report: Report,
) -> dict[str, int]:
    """Read one raw table and keep the rows that are used; nothing to do if a former run has done it."""
    parquet: Any = import_module("pyarrow.parquet")
    target, done = _staged_path(work, file.table), work / f"{file.table}.json"
    if done.is_file() and target.is_file():
        kept: dict[str, int] = json.loads(done.read_text())
        return kept
    counts = dict.fromkeys(_COUNTED, 0)
    with new_file(target) as part, parquet.ParquetWriter(part, _staged_schema(), compression="zstd") as writer:
        for batch in _used_rows(connection, file, stays, counts):
            report(file.table, counts["rows"], None)
            writer.write_batch(batch)
    write_whole(done, json.dumps(counts).encode())
    return counts


def _staged_schema() -> Any:
    pa: Any = import_module("pyarrow")
    types = (pa.int32(), pa.int32(), pa.timestamp("us"), pa.int32(), pa.string(), pa.string())
    return pa.schema(list(zip(_STAGED, types, strict=True)))


def _used_rows(
    connection: Any, file: RawFile, stays: dict[str, npt.NDArray[Any]], counts: dict[str, int]
) -> Iterator[Any]:
    """Rows of the 17 variables that belong to a stay, batch by batch; `counts` is added to."""
    pa: Any = import_module("pyarrow")
    types = {name: type_ for name, type_ in _EVENT_TYPES.items() if name in file.columns}
    known = ", ".join(str(item.item_id) for item in items())
    missing = ", ".join(quoted(text) for text in MISSING_TEXTS)
    wanted = f"TRY_CAST(ITEMID AS INTEGER) IN ({known})"
    expressions = {
        "value": f"CASE WHEN {wanted} AND VALUE NOT IN ({missing}) THEN VALUE END",
        "raw_unit": f"CASE WHEN {wanted} AND VALUEUOM NOT IN ({missing}) THEN VALUEUOM END",
    }
    admissions = _Admissions(stays)
    rows = typed_batches(
        connection,
        file,
        types,
        filled=("SUBJECT_ID", "ITEMID"),
        expressions=expressions,
        hidden=("VALUE", "VALUEUOM"),
    )
    for batch in rows:
        stay = admissions.stay_of(batch, counts)
        used = np.flatnonzero((stay >= 0) & batch.column("value").is_valid().to_numpy(zero_copy_only=False))
        no_time = batch.column("CHARTTIME").is_null().to_numpy(zero_copy_only=False)[used]
        if no_time.any():
            bad_cell(file, "CHARTTIME", "a time", counts["rows"] + int(used[np.argmax(no_time)]))
        counts["rows"] += batch.num_rows
        chosen = batch.take(pa.array(used))
        columns = [
            pa.array(stay[used].astype(np.int32)),
            *(chosen.column(name) for name in ("SUBJECT_ID", "CHARTTIME", "ITEMID", "value", "raw_unit")),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_staged_schema())


class _Admissions:
    """Finds the stay of an event by its admission: every admission that is used has exactly one."""

    def __init__(self, stays: dict[str, npt.NDArray[Any]]) -> None:
        order = np.argsort(stays["admission_id"])
        self._admission = stays["admission_id"][order]
        self._subject = stays["subject_id"][order]
        self._stay = stays["stay_id"][order]
        self._subjects = np.unique(stays["subject_id"])

    def stay_of(self, batch: Any, counts: dict[str, int]) -> npt.NDArray[np.int64]:
        """Stay of every event, -1 where it has none. An event without a stay's id gets that of its admission."""
        subject = batch.column("SUBJECT_ID").to_numpy()
        admission = _numbers(batch, "HADM_ID")
        named = _numbers(batch, "ICUSTAY_ID")
        ours = self._subjects[_places(self._subjects, subject)] == subject
        place = _places(self._admission, admission)
        found = ours & (self._admission[place] == admission) & (self._subject[place] == subject)
        stay = self._stay[place]
        other = found & (named >= 0) & (named != stay)
        counts["events"] += int(ours.sum())
        counts["events_without_admission"] += int((ours & (admission < 0)).sum())
        counts["events_of_other_admissions"] += int((ours & (admission >= 0) & ~found).sum())
        counts["events_without_stay"] += int((found & (named < 0)).sum())
        counts["events_of_another_stay"] += int(other.sum())
        return np.where(found & ~other, stay, -1)


def _numbers(batch: Any, name: str) -> npt.NDArray[np.int64]:
    """Column of ids, -1 where there is none."""
    if name not in batch.schema.names:
        return np.full(batch.num_rows, -1)
    filled: npt.NDArray[np.int64] = batch.column(name).fill_null(-1).to_numpy()
    return filled


def _places(ordered: npt.NDArray[np.int32], wanted: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Place of each wanted number in the ordered ones, or of some other number if it is not there."""
    return np.minimum(np.searchsorted(ordered, wanted.astype(ordered.dtype)), len(ordered) - 1)


def _write_sorted(
    connection: Any,
    staged: str,
    stays: dict[str, npt.NDArray[Any]],
    folder: Path,
    report: Report,
) -> dict[str, int]:
    """Clean the staged rows, sort them by block and write one file per block."""
    pa: Any = import_module("pyarrow")
    table = pa.table(
        {
            "item_id": pa.array([item.item_id for item in items()], pa.int32()),
            "variable": [item.variable for item in items()],
            "rule": [item.rule for item in items()],
        }
    )
    # Blocks of all splits in one order.
    number = np.array([SPLITS.index(name) for name in stays["split"]]) * 1_000_000 + stays["block"]
    connection.register("items", table)
    connection.register("places", pa.table({"stay_id": stays["stay_id"], "place": number.astype(np.int32)}))
    values = f"({cleaned(staged)})"
    present = "(text IS NOT NULL OR number IS NOT NULL)"
    unreadable = connection.execute(
        f"SELECT variable, count(*) FROM {values} WHERE NOT {present} AND NOT may_be_no_number GROUP BY variable"
    ).fetchall()
    query = f"""
        SELECT place, stay_id, subject_id, charttime, variable, text, number
        FROM {values} JOIN places USING (stay_id) WHERE {present}
        ORDER BY place, subject_id, charttime, stay_id, variable, text, number"""
    counts = {"values": 0} | dict.fromkeys((f"unreadable_values {name}" for name in variables()), 0)
    counts |= {f"unreadable_values {variable}": n for variable, n in unreadable}
    for place, rows in _by_place(batches(connection, query)):
        split = SPLITS[place // 1_000_000]
        counts["values"] += write_parquet(block_path(folder, split, place % 1_000_000), rows)
        report("events", counts["values"], None)
    return counts


def _by_place(rows: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """Cut batches that are sorted by place into one table for each place."""
    pa: Any = import_module("pyarrow")
    waiting: list[Any] = []
    current = -1
    for batch in rows:
        place = batch.column("place").to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), batch.num_rows]
        for start, stop in pairwise(starts):
            if start == stop:
                continue
            if waiting and place[start] != current:
                yield current, pa.Table.from_batches(waiting).drop_columns(["place"])
                waiting = []
            current = int(place[start])
            waiting.append(batch.slice(start, stop - start))
    if waiting:
        yield current, pa.Table.from_batches(waiting).drop_columns(["place"])


# ----------------------------------------------------------------------------------------------------------------------
# Third step: one row per stay and time, one column per variable.
#
# Several values of one variable at one time: the largest is kept, by number, or by text where the variable stays text
# ("99" after "104"), as the benchmark sorts them. A stay has the rows that name it and all rows of its subject between
# its first and its last minute, also those that name another stay.


# Hours by which a time may lie outside a period and still count, here and in the later steps.
SLACK = 1e-6


def write_timeseries(
    connection: Any,
    stays: dict[str, npt.NDArray[Any]],
    stays_file: Path,
    events: Path,
    folder: Path,
    report: Report,
) -> dict[str, int]:
    """Write the time series of every block into `folder`; returns how many stays and rows there are."""
    counts = {"stays_with_events": 0, "rows": 0}
    blocks = list(blocks_of(stays))
    for number, (split, block, _) in enumerate(blocks):
        source = block_path(events, split, block)
        if source.is_file():  # a block may have no value of the 17 variables
            with plain_errors("timeseries"):
                rows = connection.sql(_query(source, stays_file)).to_arrow_table()
            counts["rows"] += write_parquet(block_path(folder, split, block), rows)
            counts["stays_with_events"] += len(rows.column("stay_id").unique())
        report("timeseries", number + 1, len(blocks))
    return counts


def _query(events: Path, stays: Path) -> str:
    texts = text_variables()
    values = ", ".join(
        f'max({"text" if name in texts else "number"}) FILTER (WHERE variable = {quoted(name)}) AS "{name}"'
        for name in variables()
    )
    columns = ", ".join(f'"{name}"' for name in variables())
    # A time at which events name two stays gives two rows, as in the benchmark. Seconds are divided by 60 twice, which
    # can differ from one division by 3600 in the last digit.
    return f"""
        WITH events AS (SELECT * FROM read_parquet({quoted(str(events))})),
        wide AS (SELECT subject_id, charttime, {values} FROM events GROUP BY subject_id, charttime),
        named AS (SELECT DISTINCT subject_id, charttime, stay_id FROM events)
        SELECT stay_id, subject_id, hours, {columns} FROM (
            SELECT stays.stay_id, stays.subject_id, stays.los_hours, {columns},
                CAST(epoch(wide.charttime - stays.intime) AS DOUBLE) / 60e0 / 60e0 AS hours
            FROM wide JOIN named USING (subject_id, charttime)
            JOIN read_parquet({quoted(str(stays))}) AS stays ON stays.subject_id = wide.subject_id
                AND (named.stay_id = stays.stay_id OR wide.charttime BETWEEN stays.intime AND stays.outtime))
        WHERE hours > {-SLACK:e} AND hours < los_hours + {SLACK:e}
        ORDER BY stay_id, hours"""


# ----------------------------------------------------------------------------------------------------------------------
# Fourth step: one instance per full hour of a stay, from the fifth hour on.
#
# An instance sees what was measured until its hour, and its target is the time that remains. With ``death="censor"`` a
# stay that ends with death is censored at death; hours after the death are no instances then.


_SHORTEST = 4.0  # hours; instances are later than that


def write_instances(
    stays: dict[str, npt.NDArray[Any]],
    timeseries: Path,
    folder: Path,
    report: Report,
    *,
    death: str,
    seed: int,
) -> dict[str, int]:
    """Write the instances of every block into `folder`, in random order; returns counts."""
    counts = {f"instances_{name}": 0 for name in SPLITS} | {"instances_censored": 0, "instances_after_death": 0}
    blocks = list(blocks_of(stays))
    for number, (split, block, rows) in enumerate(blocks):
        source = block_path(timeseries, split, block)
        if source.is_file():
            chosen = {name: values[rows] for name, values in stays.items()}
            found, after_death = _instances(chosen, read_columns(source, ["stay_id", "hours"]), death)
            counts["instances_after_death"] += after_death
            if len(found["stay_id"]):
                rng = np.random.default_rng([seed, 3, SPLITS.index(split), block])
                order = rng.permutation(len(found["stay_id"]))
                found = {name: values[order] for name, values in found.items()}
                counts[f"instances_{split}"] += write_parquet(block_path(folder, split, block), found)
                counts["instances_censored"] += int((~found["event"]).sum())
        report("instances", number + 1, len(blocks))
    return counts


def _instances(
    stays: dict[str, npt.NDArray[Any]], series: dict[str, npt.NDArray[Any]], death: str
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Instances of some stays, and how many hours after a death were left out."""
    # The series are sorted by stay and hours, so the first row of a stay is its first measurement.
    measured, first_row = np.unique(series["stay_id"], return_index=True)
    first = dict(zip(measured.tolist(), series["hours"][first_row].tolist(), strict=True))
    seen = np.flatnonzero(np.isin(stays["stay_id"], measured))
    hours_of = []
    for k in seen:
        every = np.arange(0.0, stays["los_hours"][k] + SLACK)
        hours_of.append(every[(every > _SHORTEST) & (every > first[int(stays["stay_id"][k])])])
    row = np.repeat(seen, [len(hours) for hours in hours_of])
    hours = np.concatenate([np.empty(0), *hours_of])
    end = stays["los_hours"][row].astype(np.float64)
    event = np.ones(len(row), np.bool_)
    if death == "censor":
        event = ~stays["died_in_unit"][row].astype(bool)
        # DEATHTIME has minutes. A stay that is known for a death only by the day (DOD) is censored at its end.
        end = np.fmin(end, stays["death_hours"][row].astype(np.float64))
    alive = hours < end + SLACK
    columns = {
        "stay_id": stays["stay_id"][row],
        "subject_id": stays["subject_id"][row],
        "period_length": hours,
        # The slack lets an hour lie beyond the end by rounding; nothing remains then.
        "remaining": np.maximum(end - hours, 0.0),
        "event": event,
    }
    return {name: values[alive] for name, values in columns.items()}, int((~alive).sum())
