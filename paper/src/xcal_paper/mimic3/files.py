"""Files of the MIMIC-III pipeline: the raw ones, DuckDB that reads them, typed rows, and the parquet files we write.

No message repeats anything from a row of these files: only the file, the column and the line.
"""

import errno
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

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


# ----------------------------------------------------------------------------------------------------------------------
# DuckDB within limits: memory, threads, a folder for what does not fit, and errors that repeat no row of the data.


_UNITS = {"MB": 10**6, "GB": 10**9, "MIB": 2**20, "GIB": 2**30}
_LEAST = 10**9
# DuckDB's part of the memory. The rest is for one block of features, for batches on their way and for Python itself.
_SHARE = 0.6


def bytes_of(memory: str) -> int:
    """Return the number of bytes in a text such as "8GB".

    Examples
    --------
    >>> bytes_of("8GB"), bytes_of("6 GiB")
    (8000000000, 6442450944)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B)\s*", str(memory), re.IGNORECASE)
    unit = match and _UNITS.get(match[2].upper())
    if not match or not unit:
        fail("memory", 'a size such as "8GB" or "6GiB"', repr(memory))
    size = int(float(match[1]) * unit)
    if size < _LEAST:
        fail("memory", "at least 1GB", repr(memory))
    return size


def check_installed() -> None:
    """Raise an error that names what to install where DuckDB or pyarrow is missing."""
    missing = [name for name in ("duckdb", "pyarrow") if find_spec(name) is None]
    if missing:
        raise ImportError(f'preparing MIMIC-III needs {" and ".join(missing)}: pip install "xcal[mimic]"')


@contextmanager
def connected(memory: int, threads: int, spill: Path) -> Iterator[Any]:
    """Open a DuckDB connection that keeps to its part of `memory`; what does not fit goes to the folder `spill`."""
    duckdb: Any = import_module("duckdb")
    spill.mkdir(parents=True, exist_ok=True)
    settings = {
        "memory_limit": f"{int(memory * _SHARE)}B",
        "threads": threads,
        "temp_directory": str(spill),
        # Rows come in the order of the file, so that an error can name the line.
        "preserve_insertion_order": "true",
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")
        yield connection


def batches(connection: Any, query: str, rows: int = 1 << 17) -> Iterator[Any]:
    """Record batches of a query's result, in order, while it is still being computed."""
    yield from connection.sql(query).to_arrow_reader(rows)


def csv_source(file: RawFile) -> str:
    """Build the table function that reads a raw file, every column as text."""
    columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in file.columns)
    return (
        f"read_csv({quoted(str(file.path))}, auto_detect = false, header = true, columns = {{{columns}}}, "
        f"delim = ',', quote = '\"', escape = '\"', nullstr = '', encoding = 'utf-8', "
        f"compression = '{'gzip' if file.path.suffix.lower() == '.gz' else 'none'}')"
    )


def quoted(text: str) -> str:
    """Text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """Turn DuckDB's errors, which show the line that they stumbled on, into ours, which do not.

    Parameters
    ----------
    what
        Name of the file that is read, or of the step.
    """
    duckdb: Any = import_module("duckdb")
    pa: Any = import_module("pyarrow")
    try:
        yield
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
        # A mistake in our SQL; its message quotes that, not the data.
        raise
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        # An error in the middle of a stream reaches us through Arrow, as one of its own or of the system.
        if not isinstance(error, duckdb.Error) and not re.match(r"[A-Z][A-Za-z ]* Error: ", str(error)):
            raise
        raise _translated(what, str(error)) from None


def _translated(what: str, text: str) -> Exception:
    if "No space left" in text or "failed to offload" in text or "max_temp_directory_size" in text:
        return no_space(what)
    if re.search("gzip (stream|header|footer)", text, re.IGNORECASE):
        return ValueError(f"{what}: expected a whole gzip file, got one that is cut off or damaged")
    if text.startswith("Out of Memory"):
        return ValueError(f"memory: expected enough for {what}, got too little; try a larger --memory")
    line = re.search(r"Line:? (\d+)", text)
    if line:
        columns = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
        expected, got = ("a line of CSV", "something else")
        if columns:
            expected, got = f"{columns[1]} columns in every line", columns[2]
        return ValueError(f"{what}: expected {expected}, got {got} at line {line[1]}")
    return ValueError(f"{what}: expected a file that DuckDB can read, got {text.partition(':')[0]}")


def no_space(what: str) -> OSError:
    """Build the error of a full disk, which says how to go on."""
    return OSError(
        errno.ENOSPC, f"no space left on the disk while writing {what}; make room, then run the same command to resume"
    )


# ----------------------------------------------------------------------------------------------------------------------
# Rows of a raw file with types: text becomes numbers and dates, or an error that names file, column and line.


# Text as a value, or null. Finite numbers, and years of four digits: with others, later steps would stop in SQL.
_VALUE = {
    "INTEGER": 'TRY_CAST("{0}" AS INTEGER)',
    "DOUBLE": 'CASE WHEN isfinite(TRY_CAST("{0}" AS DOUBLE)) THEN TRY_CAST("{0}" AS DOUBLE) END',
    "TIMESTAMP": """CASE WHEN TRY_CAST("{0}" AS TIMESTAMP) BETWEEN TIMESTAMP '1000-01-01' AND TIMESTAMP '9999-12-31'
        THEN TRY_CAST("{0}" AS TIMESTAMP) END""",
    "VARCHAR": '"{0}"',
}
_EXPECTED = {
    "INTEGER": "a whole number",
    "DOUBLE": "a number",
    "TIMESTAMP": "a date and time such as 2101-10-20 19:08:00",
}


def typed_batches(
    connection: Any,
    file: RawFile,
    types: Mapping[str, str],
    *,
    filled: Collection[str] = (),
    expressions: Mapping[str, str] | None = None,
    hidden: Collection[str] = (),
) -> Iterator[Any]:
    """Read a raw file once, in its order, and check every row.

    Parameters
    ----------
    types
        SQL type of each column that is wanted; the result has these columns, under upper-case names.
    filled
        Columns that may not be empty.
    expressions
        Further columns: name and SQL, in which a raw column is written as its upper-case name.
    hidden
        Raw columns that only the expressions use.

    Yields
    ------
    pyarrow.RecordBatch
    """
    typed = [name for name, type_ in types.items() if type_ != "VARCHAR"]
    raw = ", ".join(f'"{name}"' for name in (*types, *hidden))
    value = {name: _VALUE[type_].format(name) for name, type_ in types.items()}
    wanted = [f'{sql} AS "{name}"' for name, sql in value.items()]
    wanted += [f'{sql} AS "{name}"' for name, sql in (expressions or {}).items()]
    # Number of the first column whose text is no value of its type: 0 where all are.
    # The text itself is asked for too: DuckDB reads a column that is only ever cast as one of that type, and then fails
    # with an error of its own.
    tests = [
        f'WHEN {"" if name in filled else "NOT"} "{name}" IS NULL '
        f"{'OR' if name in filled else 'AND'} {value[name]} IS NULL THEN {number}"
        for number, name in enumerate(typed, start=1)
    ]
    query = f"""
        SELECT {", ".join(wanted)}, CASE {" ".join(tests)} ELSE 0 END AS problem
        FROM (SELECT {raw} FROM {csv_source(file)})"""
    seen = 0
    with plain_errors(file.path.name):
        for batch in batches(connection, query):
            problem = batch.column("problem").to_numpy()
            if problem.any():
                row = int(np.argmax(problem != 0))
                name = typed[problem[row] - 1]
                bad_cell(file, name, _EXPECTED[types[name]], seen + row)
            seen += batch.num_rows
            yield batch.drop_columns(["problem"])


def bad_cell(file: RawFile, column: str, expected: str, row: int) -> NoReturn:
    """Refuse what one cell holds. Its content is a patient's and is not shown.

    Parameters
    ----------
    row
        Number of the row, from 0; the first one stands in line 2 of the file.
    """
    raise ValueError(f"{file.path.name}, column {column}: expected {expected}, got something else at line {row + 2}")


# ----------------------------------------------------------------------------------------------------------------------
# Parquet files of one block each, written the same way by every step.


SPLITS = ("train", "validation", "test")
ROW_GROUP = 16_384


def block_path(folder: Path, split: str, block: int) -> Path:
    """File of a block within the folder of a step."""
    return folder / f"split={split}" / f"block-{block:05d}.parquet"


def write_parquet(path: Path, columns: Any) -> int:
    """Write an Arrow table, or a mapping of arrays, as one file; returns its number of rows.

    Steps write into temporary folders, which are renamed when the step is whole, so the file needs no name of its own.
    """
    pa: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    table = pa.table(dict(columns)) if isinstance(columns, Mapping) else columns
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path, row_group_size=ROW_GROUP, compression="zstd", compression_level=1)
    return int(table.num_rows)


def read_columns(path: Path, names: list[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Columns of a parquet file as numpy arrays; a null among numbers becomes NaN, a null among texts None."""
    parquet: Any = import_module("pyarrow.parquet")
    table = parquet.ParquetFile(path).read(columns=names)
    return {name: table.column(name).to_numpy() for name in table.column_names}


def blocks_of(stays: Mapping[str, npt.NDArray[Any]]) -> Iterator[tuple[str, int, npt.NDArray[np.intp]]]:
    """Split, number and rows of every block of the stays, train first."""
    for split in SPLITS:
        inside = stays["split"] == split
        for block in np.unique(stays["block"][inside]):
            yield split, int(block), np.flatnonzero(inside & (stays["block"] == block))


# ----------------------------------------------------------------------------------------------------------------------
# How a step says how far it is.


# Called with what is being done, how much of it is done, and how much there is to do (None: not known).
Report = Callable[[str, int, int | None], None]


def silent(doing: str, done: int, total: int | None) -> None:
    """Report nothing."""
