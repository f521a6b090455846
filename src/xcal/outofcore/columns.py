"""Which columns of a folder of parquet files are what."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xcal._checks import fail

_PATTERN = re.compile(r"[sS]_(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)")
_SUFFIXES = {".parquet", ".pq"}


@dataclass(frozen=True)
class Columns:
    """Names of the columns: outcome, weight, and what a model says.

    Attributes
    ----------
    time, event : str
    weight, cdf, risk, nll : str or None
        Whole numbers that say how often a row counts; F at the observed time; a number that is larger where the event
        is expected sooner; negative log-likelihood.
    survival : tuple of (float, str)
        Times, increasing, and columns of the survival probabilities there.
    """

    time: str
    event: str
    weight: str | None
    cdf: str | None
    risk: str | None
    nll: str | None
    survival: tuple[tuple[float, str], ...]

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        single = [self.time, self.event, self.weight, self.cdf, self.risk, self.nll]
        return [name for name in single if name is not None] + [name for _, name in self.survival]

    @property
    def horizons(self) -> tuple[float, ...]:
        """Times of the survival probabilities."""
        return tuple(time for time, _ in self.survival)


def parquet_files(folder: Path) -> list[Path]:
    """Parquet files of a folder and of those in it, in the order of their names."""
    if folder.is_file():
        raise NotADirectoryError(f"{folder}: expected a folder of parquet files, got a file: give the folder it is in")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: expected a folder of parquet files, got no folder by that name")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    # Files that other programs are still writing, and their notes, have names that begin so.
    found = [path for path in found if not path.name.startswith((".", "_"))]
    if not found:
        fail(str(folder), "parquet files (*.parquet)", "none")
    return found


def find_columns(
    files: list[Path], schemas: list[Any], time: str, event: str, horizons: tuple[float, ...] | None
) -> Columns:
    """Find the columns in the first file, and check that the others have them too, all of them numbers."""
    known = schemas[0].names
    survival = _survival(files[0], known, horizons)
    extra = {role: role if role in known else None for role in ("weight", "cdf", "risk", "nll")}
    columns = Columns(time=time, event=event, survival=survival, **extra)
    if not (survival or columns.cdf or columns.risk or columns.nll):
        fail(str(files[0]), "predictions: columns cdf, risk, nll or S_12 (survival at time 12)", ", ".join(known))
    for path, schema in zip(files, schemas, strict=True):
        for name in columns.names:
            if name not in schema.names:
                fail(str(path), f"a column {name!r}, as in {files[0].name}", f"the columns {', '.join(schema.names)}")
            kind = str(schema.field(name).type)
            if not kind.startswith(("float", "double", "halffloat", "int", "uint", "bool")):
                fail(f"{path}, column {name!r}", "numbers", f"type {kind}")
    return columns


def _survival(path: Path, known: list[str], horizons: tuple[float, ...] | None) -> tuple[tuple[float, str], ...]:
    """Columns of survival probabilities by their times; all of them, or those at the horizons asked for."""
    found: dict[float, str] = {}
    for name in known:
        if match := _PATTERN.fullmatch(name):
            time = float(match[1])
            if time in found:
                fail(str(path), "one column for each time", f"{found[time]!r} and {name!r}")
            found[time] = name
    if horizons is not None:
        for time in horizons:
            if time not in found:
                fail(f"horizons, {path}", f"a column S_{time:g}", f"the times {', '.join(f'{t:g}' for t in found)}")
        found = {time: found[time] for time in horizons}
    return tuple(sorted(found.items()))
