"""Files of records: lines of JSON, each with a checksum of itself, rewritten whole under a lock.

What a record holds is its owner's affair (`xcal.tuning.trials`, the records of the paper): it has a `key`, a `line`,
and a function that reads a line's content again. A line that does not match its checksum is reported, and its record
counts as missing.
"""

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from xcal._files import check_writable, only_writer, reason, write_whole


class Recorded(Protocol):
    """What a file of records holds."""

    @property
    def key(self) -> Any:
        """What tells the records of one file apart; the order of the lines."""

    def line(self) -> str:
        """One line of JSON that carries its own checksum: `as_line`."""


_Record = TypeVar("_Record", bound=Recorded)
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Corrupt:
    """A line that cannot be read."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}; its run counts as missing"


def as_line(content: dict[str, Any]) -> str:
    """Write a record as one line with its checksum, the last of its values."""
    return json.dumps(content | {"check": _check(content)}, allow_nan=False)


def content_of(line: bytes) -> dict[str, Any]:
    """Read a line that `as_line` wrote; a ValueError says what is wrong with another."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        # A recursion error is JSON nested too deeply for anything that we wrote.
        raise ValueError("not a whole line of JSON") from error
    if not isinstance(content, dict) or "check" not in content:
        raise ValueError("no record")
    found = content.pop("check")
    try:
        expected = _check(content)
    except (ValueError, RecursionError) as error:
        raise ValueError("not a whole line of JSON") from error
    if found != expected:
        raise ValueError("the checksum does not match")
    return content


def _check(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def read_lines(
    path: Path, read: Callable[[dict[str, Any]], _Found], key: Callable[[_Found], Hashable]
) -> tuple[dict[Any, _Found], list[Corrupt]]:
    """Return the records of a file by their keys, and the lines that cannot be read. Without a file there are none."""
    records: dict[Any, _Found] = {}
    corrupt: list[Corrupt] = []
    if not path.exists():
        return records, corrupt
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            record = read(content_of(line))
        except ValueError as error:
            corrupt.append(Corrupt(path, number, str(error)))
        else:
            records[key(record)] = record
    return records, corrupt


def add_lines(path: Path, read: Callable[[dict[str, Any]], _Record], new: Iterable[_Record], name: str) -> None:
    """Write the old records and the new ones, all or nothing; a new record replaces an old one with the same key.

    The file is read again first, and other writers wait until it is written: what another thread or process has added
    is kept. `name` is the argument that named the file, for the message where it cannot be written.
    """
    added = {record.key: record for record in new}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with only_writer(path):
            records = read_lines(path, read, lambda record: record.key)[0] | added
            lines = [records[key].line() for key in sorted(records)]
            write_whole(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise _unwritable(name, path, error) from error


def check_place(path: Path, name: str) -> None:
    """Find out before hours of training whether records can be written at all."""
    try:
        check_writable(path.parent)
    except OSError as error:
        raise _unwritable(name, path, error) from error


def _unwritable(name: str, path: Path, error: OSError) -> OSError:
    message = f"{name}: expected a folder that can be written, got {path.parent}: {reason(error)}"
    told = type(error)(f"{message} (earlier records are as they were)")
    told.errno = error.errno  # a caller can still tell a full disk from a folder that is read-only
    return told
