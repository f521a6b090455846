"""Tables in files, CSV or parquet, and errors that name the file, the column and the line, but no cell of the data.

A file is read once, as pandas reads it; a column is checked when it is asked for. Lines are counted as an editor counts
them, the header being line 1; parquet files have rows, counted from 1.
"""

import bz2
import csv
import gzip
import io
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt

from xcal._checks import (
    MIN_CELL,
    MOST_CAUSES,
    BoolArray,
    FloatArray,
    IntArray,
    as_cause_names,
    as_count,
    as_number,
    fail,
    is_missing,
)
from xcal.data.surv import Outcome, as_intervals

PARQUET = (".parquet", ".pq")
_SPREADSHEETS = {".xlsx", ".xls", ".ods", ".numbers"}
# What may stand between columns: the first is taken where several fit as well. Bytes that are looked at to tell.
_SEPARATORS, _HEAD = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}, 1 << 15
# Bytes of text that are read, and for how many of them one cell. A packed file of 1 MB can hold 1 GB of text, and a
# cell takes about 35 bytes of memory while it is read: the largest file takes 4 GB. The variable sets another number.
_MOST, _BYTES_PER_CELL, _MOST_VARIABLE = 10**9, 10, "XCAL_MOST_INPUT"
# Two patterns that begin with a letter are found ten times as fast as one that begins with either.
_LONG_EXPONENTS = (re.compile(rb"e[+-]?[0-9]{9}"), re.compile(rb"E[+-]?[0-9]{9}"))
_PIECE = 1 << 24  # bytes of a file that are looked at together
# Different values that an error shows of a column.
_SHOWN = 6


@dataclass(frozen=True, eq=False, repr=False)
class TableFile:
    """A table that was read from a file."""

    path: Path
    frame: Any
    lines: bool  # whether rows are lines of a text
    notes: tuple[str, ...] = ()  # what was guessed, a sentence each

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
        """Return a column as it is; `option` is the one that named it."""
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

    def numbers(self, name: str, option: str, *, what: str = "a number") -> FloatArray:
        """Read finite numbers, none missing."""
        column = self.column(name, option)
        if column.dtype.kind in "mM":
            self.fail(name, f"{what} ({_DATES})", "dates")
        if column.dtype.kind not in "iufb":
            self._refuse_text(name, column, what)
        values: FloatArray = column.to_numpy(dtype=np.float64, na_value=np.nan)
        self._check(
            *(name, what, ~np.isfinite(values)),
            lambda row: "an empty cell" if np.isnan(values[row]) else "an infinite number",
        )
        return values

    def times(self, name: str, option: str) -> FloatArray:
        """Read times: numbers of zero or more."""
        what = "a time, a number of zero or more"
        values = self.numbers(name, option, what=what)
        self._check(name, what, values < 0, lambda _: "a negative number")
        return values

    def weights(self, name: str, option: str) -> FloatArray:
        """Read sampling weights: numbers above zero."""
        what = "a weight, a number above zero"
        values = self.numbers(name, option, what=what)
        self._check(name, what, values <= 0, lambda row: "a negative number" if values[row] < 0 else "zero")
        return values

    def shares(self, name: str, option: str) -> FloatArray:
        """Read probabilities, and ask for those that look like per cent."""
        values = self.numbers(name, option, what="a probability, a number from 0 to 1")
        percent = values.min() >= 0 and 1.5 < values.max() <= 100
        what = f"a probability, a number from 0 to 1{'; per cent? divide by 100' if percent else ''}"
        out = (values < 0) | (values > 1)
        self._check(name, what, out, lambda row: "a negative number" if values[row] < 0 else "a number above 1")
        return values

    def labels(self, name: str, option: str) -> npt.NDArray[np.str_]:
        """Read labels as text, none missing."""
        column = self.column(name, option)
        self._check(name, f"the group of every row ({option})", column.isna().to_numpy(), lambda _: "an empty cell")
        return np.asarray(column.astype(str), dtype=np.str_)

    def events(self, name: str, option: str, value: str | None = None) -> BoolArray:
        """Read events: 0/1 or true/false, or the rows whose cell is `value`.

        An error shows the values that many rows have: others may be names, or the numbers of patients.
        """
        column = self.column(name, option)
        self._check(name, "whether the event happened", column.isna().to_numpy(), lambda _: "an empty cell")
        text = np.asarray([_cell(item) for item in column.unique()], dtype=np.str_)
        if value is not None:
            # TRUE and true in a file are read as True.
            number = float(value) if is_number(value) else value
            wanted = value.strip().capitalize() if column.dtype.kind == "b" else _cell(number)
            if wanted not in text:
                fail(f"--event-value, {self.path}", f"a value of column {name!r}: {_common(column)}", repr(value))
            return np.asarray(column.map(_cell) == wanted, dtype=np.bool_)
        if column.dtype.kind == "b":
            return np.asarray(column, dtype=np.bool_)
        if not {*text} <= {"0", "1"}:
            known = "0 and 1 (of several causes: --cause), or --event-value with the value of an event"
            self.fail(name, known, f"the values {_common(column)}")
        return np.asarray(column.map(_cell) == "1", dtype=np.bool_)

    def causes(self, name: str, names: Sequence[str] = ()) -> IntArray:
        """Read causes: 0 or censored, or the number of a cause from 1 on, or one of the names."""
        column = self.column(name, "--cause")
        what = "0 for a censored row, or a cause: 1, 2, ..., or a name that was given for it"
        if names:
            as_cause_names(names)
            what = f"0 or censored, or a cause: {', '.join(names)}, or its number"
        self._check(name, what, column.isna().to_numpy(), lambda _: "an empty cell")
        known = {"censored": 0} | {one: k for k, one in enumerate(names, 1)} if names else {}
        text = column.map(_cell)
        most = len(names) or MOST_CAUSES
        known |= {str(k): k for k in range(most + 1)}
        self._check(name, what, ~text.isin(known).to_numpy(), lambda _: "another value")
        return np.asarray(text.map(known), dtype=np.int64)

    def outcome(
        self,
        time: str | None,
        event: str | None,
        event_value: str | None = None,
        *,
        cause: str | None = None,
        causes: Sequence[str] = (),
        entry: str | None = None,
        lower: str | None = None,
        upper: str | None = None,
        person: str | None = None,
    ) -> Outcome:
        """Read times and events, or intervals, and what else there is; at least two rows, and one event."""
        if lower is not None and upper is not None:
            last, found = upper, self._intervals(lower, upper)
        elif cause is not None:
            assert time is not None
            codes, event = self.causes(cause, causes), cause
            several = tuple(causes) or tuple(str(k) for k in range(1, max(1, int(codes.max())) + 1))
            last, found = time, Outcome(self.times(time, "--time"), codes > 0)
            if len(several) > 1:
                found = replace(found, cause=codes, causes=several)
        else:
            assert time is not None
            assert event is not None
            last, found = time, Outcome(self.times(time, "--time"), self.events(event, "--event", event_value))
        if entry is not None:
            start = self.times(entry, "--entry")
            before = f"a time before that of column {last!r}"
            self._check(entry, before, start >= found.time, lambda _: "one that is not before it")
            if found.lower is not None:
                by = f"a time by that of column {lower!r}"
                self._check(entry, by, start > found.lower, lambda _: "one that is after it")
            found = found.entered(start)
        if person is not None:
            found = self._of_people(found, person, entry, event)
        if self.n < 2:
            fail(str(self.path), "at least 2 rows", self.n)
        if not found.event.any():
            self.fail(event or last, "at least one event", f"{self.n} rows without one")
        for k, label in enumerate(found.causes, 1):
            if not np.any(found.cause == k):
                self.fail(str(cause), f"at least one event of cause {label!r}", f"{self.n} rows without one")
        return found

    def _intervals(self, lower: str, upper: str) -> Outcome:
        """Read the ends of the interval in which each event lies; an empty or infinite upper end is an open one."""
        low, column = self.times(lower, "--lower"), self.column(upper, "--upper")
        if column.dtype.kind not in "iuf":
            self._refuse_text(upper, column, "a time, or an empty cell where the row is censored")
        high = column.to_numpy(dtype=np.float64, na_value=np.nan)
        expected = f"a time that is not before that of column {lower!r}, or an empty cell where the row is censored"
        self._check(upper, expected, high < low, lambda _: "one that is before it")
        return as_intervals(low, high)

    def _of_people(self, found: Outcome, person: str, entry: str | None, event: str | None) -> Outcome:
        """Add whose row each is, with rows of one person checked by line."""
        labels = self.labels(person, "--id")
        _, codes = np.unique(labels, return_inverse=True)
        before, after = replace(found, id=codes.astype(np.int64)).next_rows()
        start = np.zeros(found.n) if found.entry is None else found.entry
        overlap, ended = np.zeros((2, found.n), dtype=np.bool_)
        overlap[after] = start[after] < found.time[before]
        ended[before] = found.event[before]
        earlier = dict(zip(after.tolist(), before.tolist(), strict=True))
        if overlap.any() and entry is None:
            expected = "the column of the start of each row (--entry), where people have several"
            fail("--id", expected, f"none, and several rows of one label in column {person!r}")
        rows = f"rows of one label of column {person!r}"
        self._check(
            *(str(entry), f"{rows} that do not overlap", overlap),
            lambda row: f"a start before the end of {self.place(earlier[row])}",
        )
        self._check(str(event), f"an event in the last of the {rows}", ended, lambda _: "one in an earlier row")
        return found.of_people(labels)

    def _check(self, name: str, expected: str, bad: BoolArray, got: Callable[[int], str]) -> None:
        """Refuse the first of the bad rows."""
        if bad.any():
            row = int(np.argmax(bad))
            self.fail(name, expected, got(row), row)

    def _refuse_text(self, name: str, column: Any, what: str) -> None:
        """Name the first cell that is no number."""
        for row, cell in enumerate(column):
            if isinstance(cell, str) and not is_number(cell):
                hint = f" ({_DATES})" if is_date(cell) else f" ({_COMMAS})" if has_decimal_comma(cell) else ""
                self.fail(name, f"{what}{hint}", "text", row)
            if not isinstance(cell, str | int | float | np.number) and cell is not None:
                self.fail(name, what, f"a cell of type {type(cell).__name__}", row)


_DIFFERENT = "columns with different names"
_COMMAS = "a decimal comma? --decimal , reads it"
_DATES = "a date? give the time since the start as a number, in days for instance"


def has_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number with a comma in place of the point."""
    return cell.count(",") == 1 and is_number(cell.replace(",", "."))


def read_table_file(path: Path, *, separator: str | None = None, decimal: str = ".") -> TableFile:
    """Read a CSV file, also one that is packed (.gz), or a parquet file.

    Without `separator` it is told by the first lines, and a note says so unless it is a comma. `decimal` is the mark
    within numbers.
    """
    separator = _checked_separator(separator)
    if decimal not in {".", ","}:
        fail("--decimal", "a point or a comma", repr(decimal))
    if decimal == separator:
        fail("--decimal", "another mark than the one between columns (--separator)", repr(decimal))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file, got {'a folder' if path.is_dir() else 'none by that name'}")
    if path.suffix.lower() in _SPREADSHEETS:
        fail(str(path), "a CSV or parquet file (in a spreadsheet: save as CSV UTF-8)", f"{path.suffix}")
    notes: tuple[str, ...] = ()
    if is_parquet(path):
        frame = _parquet(path)
    else:
        frame, used = _csv(path, separator, decimal)
        if separator is None and used != "," and ".tsv" not in path.suffixes:
            notes = (f"{path.name}: columns are separated by {_SEPARATORS[used]} (--separator gives another mark)",)
    if frame.shape[0] == 0:
        fail(str(path), "at least one row", "an empty table")
    repeated = [str(name) for name in frame.columns[frame.columns.duplicated()]]
    if repeated:
        fail(str(path), _DIFFERENT, f"{repeated[0]!r} twice")
    return TableFile(path, frame, not is_parquet(path), notes)


def _checked_separator(separator: str | None) -> str | None:
    """Check that one character stands between columns; a tab may be written as it is in a program."""
    found = {"\\t": "\t", "tab": "\t"}.get(separator or "", separator)
    if found is not None and (len(found) != 1 or found in '"\n\r'):
        fail("--separator", "one character, such as ';' or '\\t' for a tab", repr(separator))
    return found


def _guessed_separator(path: Path, decimal: str) -> str:
    """Return what stands between columns: the mark that divides the first lines, all alike, into the most columns."""
    with _unpacked(path) as file:
        head = file.read(_HEAD + 1)
    text = head.decode("utf-8-sig", errors="replace")
    found = {",": 1}
    for mark in _SEPARATORS:
        try:
            rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if row]
        except csv.Error:
            continue
        # The last line may be cut.
        widths = {len(row) for row in (rows[:-1] if len(head) > _HEAD else rows)}
        if len(widths) == 1 and mark != decimal:
            found[mark] = widths.pop()
    return max(found, key=lambda mark: found[mark])


def is_parquet(path: Path) -> bool:
    """Return whether a file is a parquet file, by its name."""
    return path.suffix.lower() in PARQUET


def _csv(path: Path, separator: str | None, decimal: str) -> tuple[Any, str]:
    import pandas as pd

    # utf-8-sig: a mark that Excel writes before the first name is no part of it. Blank lines keep their number.
    options: dict[str, Any] = {"encoding": "utf-8-sig", "skip_blank_lines": False, "decimal": decimal}
    try:
        options["float_precision"], lines = _number_reader(path)
        tabs = "\t" if ".tsv" in path.suffixes else None
        options["sep"] = separator or tabs or _guessed_separator(path, decimal)
        header = pd.read_csv(path, header=None, nrows=1, dtype=str, **options)
        names = ["" if is_missing(name) else str(name) for name in header.iloc[0]]
        if separator is not None and len(names) == 1 and any(mark in names[0] for mark in _SEPARATORS):
            told = f"columns with {separator!r} between them (without --separator the first lines tell the mark)"
            fail(str(path), told, f"one column {names[0]!r}")
        _check_cells(path, lines * len(names))
        frame = pd.read_csv(path, header=None, skiprows=1, low_memory=False, **options)
    except pd.errors.EmptyDataError:
        got = "a header alone" if path.stat().st_size else "an empty file"
        fail(str(path), "a header and at least one row", got)
    except UnicodeDecodeError as error:
        known = "iconv -f latin1 -t utf-8 FILE > NEW, or in Excel: CSV UTF-8"
        fail(str(path), f"text in UTF-8 (to convert it: {known})", f"other bytes at position {error.start}")
    # A packed file can be damaged in three ways: its ending, its checksum, its codes.
    except (pd.errors.ParserError, EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        fail(str(path), "a table of columns of one length", str(error).split(":")[-1].strip())
    if frame.shape[1] != len(names):
        fail(str(path), f"{len(names)} values in each line, as the header has", f"{frame.shape[1]}")
    frame.columns = pd.Index(names)
    for place in [k for k, kind in enumerate(frame.dtypes) if kind.kind == "O"]:
        frame.isetitem(place, _changed(frame.iloc[:, place], str.strip))
        if decimal == ",":  # of a column with a word in it, whose numbers are texts
            with_point = _changed(
                frame.iloc[:, place], lambda cell: cell.replace(",", ".") if has_decimal_comma(cell) else cell
            )
            frame.isetitem(place, with_point)
    filled = np.flatnonzero(frame.notna().any(axis=1).to_numpy())
    # Blank lines at the end are no rows.
    return frame.iloc[: filled[-1] + 1] if filled.size else frame.iloc[:0], options["sep"]


def _changed(column: Any, change: Callable[[str], str]) -> Any:
    """Change texts, as by taking away blanks around them, which nobody sees; a cell of nothing is empty then."""
    texts = [cell for cell in column.unique() if isinstance(cell, str)]
    changed: dict[str, Any] = {cell: change(cell) or np.nan for cell in texts if cell != change(cell)}
    if not changed:
        return column
    return column.map(lambda cell: changed.get(cell, cell) if isinstance(cell, str) else cell)


def _number_reader(path: Path) -> tuple[str | None, int]:
    """Choose how pandas reads numbers, its own way, or Python's, which is slower; and count the lines.

    Its own way ends the process at an exponent of ten digits, such as that of the identifier 12e4567890123. On the way
    the text is measured, before pandas takes memory for it.
    """
    reader, seen, most, before, lines = None, 0, most_input(), b"", 0
    with _unpacked(path) as file:
        while piece := file.read(_PIECE):
            seen += len(piece)
            if seen > most:
                refuse_large(path, f"more than {most:,} bytes")
            lines += piece.count(b"\n")
            if any(pattern.search(before + piece) for pattern in _LONG_EXPONENTS):
                reader = "round_trip"
            before = piece[-16:]
    return reader, lines


def _check_cells(path: Path, cells: int) -> None:
    """Refuse a table that takes much memory, however small its file is."""
    if cells > most_input() // _BYTES_PER_CELL:
        refuse_large(path, f"{cells:,} cells")


def most_input() -> int:
    """Bytes of text that are read at most."""
    given = os.environ.get(_MOST_VARIABLE, "").strip()
    if not given:
        return _MOST
    try:
        return as_count(_MOST_VARIABLE, int(float(given)), at_least=1)
    except (ValueError, OverflowError):
        fail(_MOST_VARIABLE, "a number of bytes, such as 4e9", repr(given))


def refuse_large(path: Path, got: str) -> NoReturn:
    """Refuse a file that would fill the memory, with how to read it all the same."""
    most, more = most_input(), f"{4 * most_input():.0e}".replace("e+0", "e")
    expected = f"at most {most:,} bytes of text, and {most // _BYTES_PER_CELL:,} cells"
    fail(str(path), f"{expected} (to read more: set the variable {_MOST_VARIABLE}={more})", got)


def _unpacked(path: Path) -> BinaryIO:
    """Open the text of a file, packed or not."""
    packed: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zip": _only_member}
    kind = path.suffix.lower()
    if kind in {".zst", ".tar"}:
        fail(str(path), "a CSV file as it is, or packed as .gz", kind)
    opened: BinaryIO = packed.get(kind, open)(path, "rb")
    return opened


def _only_member(path: Path, _: str) -> Any:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(names) != 1:
            fail(str(path), "one file in the archive", len(names))
        return archive.open(names[0])


def _parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
        from pyarrow import ArrowException
    except ImportError as error:
        raise ImportError('parquet files need pyarrow: pip install "xcal[parquet]"') from error
    # Text that is no text, sizes without end and damaged notes of pandas come as errors of Python.
    damaged = (ArrowException, OSError, ValueError, TypeError, LookupError, MemoryError, OverflowError)
    try:
        file = pq.ParquetFile(path)
        names, cells = file.schema_arrow.names, file.metadata.num_rows * file.metadata.num_columns
    except damaged as error:
        fail(str(path), "a parquet file", (str(error) or type(error).__name__).splitlines()[0])
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        fail(str(path), _DIFFERENT, f"{twice!r} twice")
    _check_cells(path, cells)
    try:
        return file.read().to_pandas()
    except damaged as error:
        fail(str(path), "a parquet file", (str(error) or type(error).__name__).splitlines()[0])


def is_number(text: str) -> bool:
    """Return whether a cell is written as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_date(text: str) -> bool:
    """Return whether a cell looks like a date: three numbers between dashes, dots or slashes."""
    day = text.strip().split(" ")[0].split("T")[0]
    return any(len(parts) == 3 and all(part.isdigit() for part in parts) for parts in map(day.split, "-./"))


def _cell(value: Any) -> str:
    """Write a cell so that 1, 1.0 and "1" are the same, and so are True and "True"."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    return f"{value:g}" if isinstance(value, int | float | np.number) else str(value).strip()


def common_labels(column: Any) -> list[str]:
    """Return the values that many rows of a column have, the most frequent first."""
    counted = column.dropna().map(_cell).value_counts()
    return [str(label) for label in counted.index[counted >= MIN_CELL]]


def _common(column: Any) -> str:
    """Write the values that many rows of a column have, and how many others there are."""
    common, different = common_labels(column), column.map(_cell).nunique()
    others = different - min(len(common), _SHOWN)
    if not common:
        return f"({others:,}, each in fewer than {MIN_CELL} rows)"
    return ", ".join(map(repr, common[:_SHOWN])) + (f" and {others:,} more" if others else "")


def listed_names(names: Any) -> str:
    """Write the first names, and how many more there are."""
    shown = ", ".join(repr(str(name)) for name in list(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def curve_columns(table: TableFile, pattern: str, option: str = "--curves") -> dict[float, str]:
    """Columns of survival curves by their times: with "s_*", the column "s_12" is that of time 12."""
    if pattern.count("*") != 1:
        fail(option, 'a pattern with one star for the time, such as "s_*"', repr(pattern))
    before, after = pattern.split("*")
    found: dict[float, str] = {}
    for name in table.names:
        middle = name[len(before) : len(name) - len(after)]
        if not (name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)):
            continue
        if not is_number(middle):
            fail(f"{option}, {table.path}", f"columns {pattern} with a time in place of the star", repr(name))
        time = as_number(f"{option}, time of column {name!r}", float(middle), at_least=0)
        if time in found:
            fail(f"{option}, {table.path}", "one column for each time", f"{found[time]!r} and {name!r}")
        found[time] = name
    if not found:
        fail(f"{option}, {table.path}", f"columns {pattern}", f"the columns {listed_names(table.names)}")
    return dict(sorted(found.items()))
