"""Second step: the measured values of the 17 variables, cleaned, in one file per block.

The raw tables are read once, as a stream. Of each batch only the rows of the 17 variables that belong to a stay are
kept; they go to one temporary file per raw table, so that a stopped run need not read a finished table again. Then
DuckDB cleans and sorts them, on disk where memory does not suffice.
"""

import json
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._files import new_file, write_whole
from xcal.datasets.mimic3.cleaning import MISSING_TEXTS, cleaned
from xcal.datasets.mimic3.database import batches, plain_errors, quoted
from xcal.datasets.mimic3.parquet_files import SPLITS, block_path, write_parquet
from xcal.datasets.mimic3.raw_files import EVENT_TABLES, RawFile
from xcal.datasets.mimic3.reporting import Report
from xcal.datasets.mimic3.typed_rows import bad_cell, typed_batches
from xcal.datasets.mimic3.variables import items, variables

_TYPES = {
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
    types = {name: type_ for name, type_ in _TYPES.items() if name in file.columns}
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
