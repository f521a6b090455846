"""One small record a run, kept in one file of JSON lines for each table, variant and penalty.

A file is rewritten whole: a temporary file beside it takes its place in one move, so that a reader, or a process killed
at any moment, sees the old records or the new ones. A few hundred lines are written in milliseconds, and the result is
one readable file to look at or commit, where a file a run would be hundreds. Each line ends with a checksum of itself;
a line that does not match is reported and counts as missing.
"""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from xcal.experiments.spec import Penalty, Spec, Variant

Key = tuple[str, str, float, int]

# Fields whose values are figures. JSON has no NaN and no infinity: they are written as words.
_NUMBERS = ("figures", "validation", "recalibrated")


@dataclass(frozen=True)
class Record:
    """Figures of one trained model, and what they came from.

    Attributes
    ----------
    table, variant, penalty, row : str
    lam : float
    seed : int
    spec_hash, data_hash : str
        Of everything that decides the numbers but lambda and seed; of the rows.
    epochs, best_epoch : int
        Epochs trained, and the one (from 0) whose weights were kept.
    figures : dict
        On the test rows (studies: on the training rows).
    validation : dict
        Objective and D-calibration of the best epoch.
    recalibrated : dict
        Figures after recalibration; empty unless lambda is 0.
    failure : str
        Where the loss stopped being a number; empty where it did not.
    versions : dict
    device : str
    group_models : int
    group_seconds : float
        Models that were trained together with this one, and the time that took, evaluation included.
    written : str
        Date and time, UTC.
    """

    table: str
    variant: str
    penalty: str
    row: str
    lam: float
    seed: int
    spec_hash: str
    data_hash: str
    epochs: int
    best_epoch: int
    figures: dict[str, float]
    validation: dict[str, float]
    recalibrated: dict[str, float] = field(default_factory=dict)
    failure: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    device: str = ""
    group_models: int = 1
    group_seconds: float = 0.0
    written: str = ""

    @property
    def key(self) -> Key:
        """What a file holds one record of."""
        return (self.row, self.spec_hash, self.lam, self.seed)

    def line(self) -> str:
        """Return the record as one line of JSON that carries its own checksum."""
        content = {
            name: {key: _json(number) for key, number in value.items()} if name in _NUMBERS else value
            for name, value in asdict(self).items()
        }
        return json.dumps(content | {"check": _check(content)}, allow_nan=False)


@dataclass(frozen=True)
class Corrupt:
    """A line that cannot be read."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}; its run counts as missing"


@dataclass(frozen=True)
class RecordFile:
    """The records of one table, variant and penalty."""

    path: Path

    @classmethod
    def of(cls, results: Path, spec: Spec, variant: Variant, penalty: Penalty, *, trial: bool) -> "RecordFile":
        """Return the file's place; runs with other epochs than the spec's are trials and have a folder of their own."""
        folder = results / spec.table / "trial" if trial else results / spec.table
        return cls(folder / f"{variant}.{penalty}.jsonl")

    def read(self) -> tuple[dict[Key, Record], list[Corrupt]]:
        """Return records by key, and the lines that are none. No file is no records."""
        records: dict[Key, Record] = {}
        corrupt: list[Corrupt] = []
        if not self.path.exists():
            return records, corrupt
        for number, line in enumerate(self.path.read_bytes().splitlines(), start=1):
            try:
                record = _parse(line)
            except ValueError as error:
                corrupt.append(Corrupt(self.path, number, str(error)))
            else:
                records[record.key] = record
        return records, corrupt

    def check_writable(self) -> None:
        """Find out before hours of training whether records can be written at all."""
        self._write_beside(b"")[1].unlink()

    def add(self, new: Iterable[Record]) -> None:
        """Write the old records and the new ones, all or nothing; a new one replaces an old one of the same key.

        The file is read again first: what another process has added since is kept.
        """
        records = self.read()[0] | {record.key: record for record in new}
        lines = [record.line() for record in sorted(records.values(), key=lambda r: r.key)]
        target, part = self._write_beside(("\n".join(lines) + "\n").encode())
        try:
            os.replace(part, target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise _unwritable(self.path, error) from error

    def _write_beside(self, content: bytes) -> tuple[Path, Path]:
        part: Path | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.", suffix=".part")
            part = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if part is not None:
                part.unlink(missing_ok=True)
            raise _unwritable(self.path, error) from error
        # A temporary file is for its owner alone; a record is for every reader the folder lets in.
        part.chmod(0o644)
        return self.path, part


def _unwritable(path: Path, error: OSError) -> OSError:
    message = f"results: expected a folder that can be written, got {path.parent}: {error.strerror or error}"
    return type(error)(f"{message} (earlier records are as they were)")


def _check(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _parse(line: bytes) -> Record:
    try:
        content = json.loads(line)
    except ValueError as error:
        raise ValueError("not a whole line of JSON") from error
    if not isinstance(content, dict) or "check" not in content:
        raise ValueError("no record")
    found = content.pop("check")
    if found != _check(content):
        raise ValueError("the checksum does not match")
    if set(content) != {f.name for f in fields(Record)}:
        raise ValueError("the record of another version")
    for name in _NUMBERS:
        content[name] = {key: float(value) for key, value in content[name].items()}
    return Record(**content)


def _json(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)
