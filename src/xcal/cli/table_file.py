"""Tables in files, CSV or parquet, and errors that name the file, the column and the line.

A file is read once, as pandas reads it; a column is checked when it is asked for. Lines are counted as an editor counts
them, the header being line 1; parquet files have rows, counted from 1.
"""

import gzip
import re
import zlib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, fail, is_missing

Floats = npt.NDArray[np.float64]

PARQUET = (".parquet", ".pq")
_SPREADSHEETS = {".xlsx", ".xls", ".ods", ".numbers"}
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
# Two patterns that begin with a letter are found ten times as fast as one that begins with either.
_LONG_EXPONENTS = (re.compile(rb"e[+-]?[0-9]{9}"), re.compile(rb"E[+-]?[0-9]{9}"))
_PIECE = 1 << 24  # bytes of a file that are looked at together
# Different values that an error shows of a column.
_SHOWN = 6


@dataclass(frozen=True, eq=False, repr=False)
class TableFile:
    """A table that was read from a file.

    Attributes
    ----------
    path : Path
    frame : pandas.DataFrame
    lines : bool
        Whether rows are lines of a text.
    """

    path: Path
    frame: Any
    lines: bool

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.frame.shape[0])

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [str(name) for name in self.frame.columns]

    def fail(self, column: str, expected: str, got: object, row: int | None = None) -> NoReturn:
        """Refuse a value, by file, column and line."""
        fail(f"{self.path}, column {column!r}{'' if row is None else f', {self.place(row)}'}", expected, got)

    def place(self, row: int) -> str:
        """Name the place of a row, counted from 0."""
        return f"line {row + 2}" if self.lines else f"row {row + 1}"

    def column(self, name: str, option: str) -> Any:
        """Give a column as it is; `option` is the one that named it."""
        if name not in self.names:
            # Of many columns only some are listed, so the one that was meant stands first.
            meant = get_close_matches(name.lower(), [known.lower() for known in self.names], 1)
            likely = [known for known in self.names if meant and known.lower() == meant[0]]
            others = [known for known in self.names if known not in likely]
            several = [word.strip() for word in name.split(",")]
            hint = f" (did you mean {likely[0]!r}?)" if likely else ""
            if len(several) > 1 and {*several} <= {*self.names}:
                hint = f" (did you mean {' '.join(f'{option} {word}' for word in several)}?)"
            fail(f"{option}, {self.path}", f"one of the columns {listed_names(likely + others)}{hint}", repr(name))
        return self.frame[name]

    def numbers(self, name: str, option: str, *, what: str = "a number") -> Floats:
        """Read finite numbers, none missing."""
        column = self.column(name, option)
        if column.dtype.kind in "mM":
            self.fail(name, f"{what} ({_DATES})", f"dates such as {column.iloc[0]}", 0)
        if column.dtype.kind not in "iufb":
            self._refuse_text(name, column, what)
        values: Floats = column.to_numpy(dtype=np.float64, na_value=np.nan)
        bad = ~np.isfinite(values)
        if bad.any():
            row = int(np.argmax(bad))
            self.fail(name, what, "an empty cell" if np.isnan(values[row]) else values[row], row)
        return values

    def times(self, name: str, option: str) -> Floats:
        """Read times: numbers of zero or more."""
        values = self.numbers(name, option, what="a time, a number of zero or more")
        if (values < 0).any():
            row = int(np.argmax(values < 0))
            self.fail(name, "a time, a number of zero or more", values[row], row)
        return values

    def shares(self, name: str, option: str) -> Floats:
        """Read probabilities, and ask for those that look like per cent."""
        values = self.numbers(name, option, what="a probability, a number from 0 to 1")
        bad = (values < 0) | (values > 1)
        if bad.any():
            row = int(np.argmax(bad))
            percent = values.min() >= 0 and values.max() <= 100 and values.max() > 1.5
            hint = "; per cent? divide by 100" if percent else ""
            self.fail(name, f"a probability, a number from 0 to 1{hint}", f"{values[row]:g}", row)
        return values

    def labels(self, name: str, option: str) -> npt.NDArray[np.str_]:
        """Read labels as text, none missing."""
        column = self.column(name, option)
        missing = column.isna().to_numpy()
        if missing.any():
            self.fail(name, f"the group of every row ({option})", "an empty cell", int(np.argmax(missing)))
        return np.asarray(column.astype(str), dtype=np.str_)

    def events(self, name: str, option: str, value: str | None = None) -> BoolArray:
        """Read events: 0/1 or true/false, or the rows whose cell is `value`.

        An error shows the values that were found.
        """
        column = self.column(name, option)
        missing = column.isna().to_numpy()
        if missing.any():
            self.fail(name, "whether the event happened", "an empty cell", int(np.argmax(missing)))
        text = np.asarray([_cell(item) for item in column.unique()], dtype=np.str_)
        if value is not None:
            # TRUE and true in a file are read as True.
            wanted = value.strip().capitalize() if column.dtype.kind == "b" else _cell(_as_number_if_any(value))
            if wanted not in text:
                fail(f"--event-value, {self.path}", f"a value of column {name!r}: {listed_names(text)}", repr(value))
            return np.asarray(column.map(_cell) == wanted, dtype=np.bool_)
        if column.dtype.kind == "b":
            return np.asarray(column, dtype=np.bool_)
        if not {*text} <= {"0", "1"}:
            self.fail(name, "0 and 1, or --event-value with the value of an event", f"the values {listed_names(text)}")
        return np.asarray(column.map(_cell) == "1", dtype=np.bool_)

    def _refuse_text(self, name: str, column: Any, what: str) -> None:
        """Name the first cell that is no number."""
        for row, cell in enumerate(column):
            if isinstance(cell, str) and not is_number(cell):
                hint = f" ({_DATES})" if is_date(cell) else f" ({_COMMAS})" if has_decimal_comma(cell) else ""
                self.fail(name, f"{what}{hint}", repr(cell), row)
            if not isinstance(cell, str | int | float | np.number) and cell is not None:
                self.fail(name, what, f"{type(cell).__name__} {cell}", row)


_COMMAS = "a decimal comma? write numbers with a point"
_DATES = "a date? give the time since the start as a number, in days for instance"


def has_decimal_comma(cell: str) -> bool:
    """Whether a cell is a number with a comma in place of the point."""
    return cell.count(",") == 1 and is_number(cell.replace(",", "."))


def read_table_file(path: Path, *, separator: str = ",") -> TableFile:
    """Read a CSV file, also one that is packed (.gz), or a parquet file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file, got {'a folder' if path.is_dir() else 'none by that name'}")
    if path.suffix.lower() in _SPREADSHEETS:
        fail(str(path), "a CSV or parquet file (in a spreadsheet: save as CSV UTF-8)", f"{path.suffix}")
    if is_parquet(path):
        frame = _parquet(path)
    else:
        frame = _csv(path, "\t" if ".tsv" in path.suffixes and separator == "," else separator)
    if frame.shape[0] == 0:
        fail(str(path), "at least one row", "an empty table")
    repeated = [str(name) for name in frame.columns[frame.columns.duplicated()]]
    if repeated:
        fail(str(path), "columns with different names", f"{repeated[0]!r} twice")
    return TableFile(path, frame, not is_parquet(path))


def is_parquet(path: Path) -> bool:
    """Whether a file is a parquet file, by its name."""
    return path.suffix.lower() in PARQUET


def _csv(path: Path, separator: str) -> Any:
    import pandas as pd

    # utf-8-sig: a mark that Excel writes before the first name is no part of it. Blank lines keep their number.
    options: dict[str, Any] = {"sep": separator, "encoding": "utf-8-sig", "skip_blank_lines": False}
    try:
        header = pd.read_csv(path, header=None, nrows=1, dtype=str, **options)
        names = ["" if is_missing(name) else str(name) for name in header.iloc[0]]
        _check_separator(path, names, separator)
        options["float_precision"] = _number_reader(path)
        frame = pd.read_csv(path, header=None, skiprows=1, low_memory=False, **options)
    except pd.errors.EmptyDataError:
        got = "a header alone" if path.stat().st_size else "an empty file"
        fail(str(path), "a header and at least one row", got)
    except UnicodeDecodeError as error:
        known = "iconv -f latin1 -t utf-8 FILE > NEW, or in Excel: CSV UTF-8"
        fail(str(path), f"text in UTF-8 (to convert it: {known})", f"other bytes at position {error.start}")
    # A packed file can be damaged in three ways: its ending, its checksum, its codes.
    except (pd.errors.ParserError, EOFError, OSError, zlib.error) as error:
        fail(str(path), "a table of columns of one length", str(error).split(":")[-1].strip())
    if frame.shape[1] != len(names):
        fail(str(path), f"{len(names)} values in each line, as the header has", f"{frame.shape[1]}")
    frame.columns = pd.Index(names)
    for place in [k for k, kind in enumerate(frame.dtypes) if kind.kind == "O"]:
        frame.isetitem(place, _trimmed(frame.iloc[:, place]))
    filled = np.flatnonzero(frame.notna().any(axis=1).to_numpy())
    # Blank lines at the end are no rows.
    return frame.iloc[: filled[-1] + 1] if filled.size else frame.iloc[:0]


def _trimmed(column: Any) -> Any:
    """Take away blanks around texts, which nobody sees: "f " is "f", and a cell of blanks alone is empty."""
    texts = [cell for cell in column.unique() if isinstance(cell, str)]
    changed: dict[str, Any] = {cell: cell.strip() or np.nan for cell in texts if cell != cell.strip()}
    if not changed:
        return column
    return column.map(lambda cell: changed.get(cell, cell) if isinstance(cell, str) else cell)


def _number_reader(path: Path) -> str | None:
    """Choose how pandas reads numbers: its own way, or Python's, which is slower.

    Its own way ends the process at an exponent of ten digits, such as that of the identifier 12e4567890123.
    """
    packed = path.suffix.lower()
    if packed in {".bz2", ".zip", ".xz", ".zst", ".tar"}:
        return "round_trip"
    with gzip.open(path, "rb") if packed == ".gz" else path.open("rb") as file:
        before = b""
        while piece := file.read(_PIECE):
            if any(pattern.search(before + piece) for pattern in _LONG_EXPONENTS):
                return "round_trip"
            before = piece[-16:]
    return None


def _check_separator(path: Path, names: list[str], separator: str) -> None:
    other = [mark for mark in _SEPARATORS if mark != separator and mark in names[0]] if len(names) == 1 else []
    if other:
        words = f"--separator {other[0]!r}" if other[0] != "\t" else "--separator $'\\t'"
        fail(str(path), f"columns with {separator!r} between them ({words}?)", f"one column {names[0]!r}")


def _parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
        from pyarrow import ArrowException
    except ImportError as error:
        raise ImportError('parquet files need pyarrow: pip install "xcal[parquet]"') from error
    try:
        return pq.read_table(path).to_pandas()
    # Text that is no text, sizes without end and damaged notes of pandas come as errors of Python.
    except (ArrowException, OSError, ValueError, TypeError, LookupError, MemoryError, OverflowError) as error:
        fail(str(path), "a parquet file", (str(error) or type(error).__name__).splitlines()[0])


def _as_number_if_any(text: str) -> Any:
    return float(text) if is_number(text) else text


def is_number(text: str) -> bool:
    """Whether a cell is written as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_date(text: str) -> bool:
    """Whether a cell looks like a date: three numbers between dashes, dots or slashes."""
    day = text.strip().split(" ")[0].split("T")[0]
    return any(len(parts) == 3 and all(part.isdigit() for part in parts) for parts in map(day.split, "-./"))


def _cell(value: Any) -> str:
    """Write a cell so that 1, 1.0 and "1" are the same, and so are True and "True"."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    return f"{value:g}" if isinstance(value, int | float | np.number) else str(value).strip()


def listed_names(names: Any) -> str:
    """Write the first names, and how many more there are."""
    shown = ", ".join(repr(str(name)) for name in list(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
