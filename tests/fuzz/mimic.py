"""Raw tables of MIMIC-III, a few made-up rows each, for `tests.fuzz` to damage."""

import gzip
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.outcomes import Target
from tests.fuzz.spoiling import Table

# In every id, text and date of a row, and in nothing that a message may say.
SECRET = "77177"
PACKED = ("ICUSTAYS", "CHARTEVENTS")
_MEASURED = {
    "CHARTEVENTS": (("211", "88", "BPM"), ("678", "98.6", "F"), ("51", "120/80", "mmHg"), ("184", "None", "")),
    "LABEVENTS": (("50931", "101", "mg/dL"), ("50820", "7.31", "units")),
    "OUTPUTEVENTS": (("40055", "200", "ml"),),
}  # fmt: skip


def mimic_targets(folder: Path) -> Iterator[Target]:
    """Return `prepare` with each of its six tables damaged in turn, two of them packed too."""
    tables = raw_tables()
    for name, table in tables.items():
        yield _target(folder, tables, f"{name}.csv", table)
        if name in PACKED:
            yield _target(folder, tables, f"{name}.csv.gz", gzip.compress(table, mtime=0))


def raw_tables() -> dict[str, Table]:
    """Return four adults with one stay of eight hours each, one of whom died."""
    people = range(4)
    day = [f"21{k}1-07-17" for k in people]
    ids = [f"{SECRET}{k}00,{SECRET}{k}01" for k in people]
    stays = [f'{k},{ids[k]},{SECRET}{k}02,"MICU","MICU",7,7,{day[k]} 00:00:00,{day[k]} 08:00:00,0.3333' for k in people]
    dead = [f"{day[k]} 07:30:00" if k == 0 else "" for k in people]
    return {
        "ICUSTAYS": _table(
            "SUBJECT_ID HADM_ID ICUSTAY_ID FIRST_CAREUNIT LAST_CAREUNIT FIRST_WARDID LAST_WARDID INTIME OUTTIME LOS",
            stays,
        ),
        "ADMISSIONS": _table("SUBJECT_ID HADM_ID DEATHTIME", [f"{k},{ids[k]},{dead[k]}" for k in people]),
        "PATIENTS": _table(
            "SUBJECT_ID DOB DOD", [f"{k},{ids[k].split(',')[0]},20{k}1-01-01 00:00:00,{dead[k][:10]}" for k in people]
        ),
    } | {name: _events(name, ids, day) for name in _MEASURED}


def _events(table: str, ids: list[str], day: list[str]) -> Table:
    stay = table != "LABEVENTS"
    lines = [
        f'{hour},{ids[k]},{f"{SECRET}{k}02," if stay else ""}{item},{day[k]} 0{hour}:10:00,"{value}","{unit}"'
        for k in range(len(ids))
        for hour in (1, 3, 6)
        for item, value, unit in _MEASURED[table]
    ]
    return _table(f"SUBJECT_ID HADM_ID {'ICUSTAY_ID ' if stay else ''}ITEMID CHARTTIME VALUE VALUEUOM", lines)


def _table(columns: str, lines: list[str]) -> Table:
    header = ",".join(f'"{name}"' for name in ("ROW_ID", *columns.split()))
    return Table("".join(f"{line}\n" for line in (header, *lines)).encode())


def _target(folder: Path, tables: dict[str, Table], name: str, content: bytes) -> Target:
    raw = folder / f"raw-{name}"
    raw.mkdir()
    for other, table in tables.items():
        if other != name.partition(".")[0]:
            (raw / f"{other}.csv").write_bytes(table)

    def call(content: bytes) -> Any:
        (raw / name).write_bytes(content)
        out = tempfile.mkdtemp(dir=folder)
        try:
            return _prepared(raw, Path(out))
        finally:
            shutil.rmtree(out)

    return Target(f"file: {name}", call, {"content": content}, frozenset({name, "raw_dir"}), slow=20, needs="duckdb")


def _prepared(raw: Path, out: Path) -> Any:
    """Return hours and target of all instances. No NaN without its mask, and no message with a part of a row."""
    from xcal_paper.mimic3 import prepare
    from xcal_paper.mimic3.files import read_columns

    try:
        prepare(raw, out, threads=1, memory="1GB", death="censor", discretised=True)
    except Exception as error:
        if SECRET in str(error).replace(str(raw), ""):
            raise AssertionError("a message repeats a part of a row") from None
        raise
    for path in (out / "features").rglob("*.parquet"):
        columns = read_columns(path)
        for name in (name for name in columns if f"{name}.defined" in columns):
            if not np.array_equal(np.isfinite(columns[name]), columns[f"{name}.defined"]):
                raise AssertionError(f"{name}: a mask that does not say what is finite")
    return [read_columns(path, ["period_length", "remaining"]) for path in (out / "instances").rglob("*.parquet")]
