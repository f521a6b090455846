"""DuckDB within limits: memory, threads, a folder for what does not fit, and errors that repeat no row of the data."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xcal._checks import fail
from xcal.datasets.mimic3.raw_files import RawFile

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
    """Raise an error that says what to install where DuckDB or pyarrow is missing."""
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
