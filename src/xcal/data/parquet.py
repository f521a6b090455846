"""Tables larger than memory: a parquet file, read once piece by piece into a memory-mapped array."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray, as_event, as_time, fail
from xcal._files import new_file

_ROWS = 1 << 16  # of one piece


@dataclass(frozen=True, eq=False)
class MappedTable:
    """A table whose covariates stay in a file.

    Attributes
    ----------
    x : memmap of float32, shape (n, d)
        Give it to `xcal.training.Rows` as it is.
    time : ndarray of float64, shape (n,)
    event : ndarray of bool, shape (n,)
    feature_names : tuple of str
    """

    x: "np.memmap[Any, np.dtype[np.float32]]"
    time: FloatArray
    event: BoolArray
    feature_names: tuple[str, ...]


def map_parquet(
    path: str | Path, *, time: str, event: str, into: str | Path, features: Sequence[str] | None = None
) -> MappedTable:
    """Read a parquet file piece by piece; its covariates go to a file of float32 numbers and are never whole in memory.

    Training draws rows at random, which a parquet file cannot give and a memory-mapped array can.

    Parameters
    ----------
    path
        The parquet file.
    time, event
        Names of the columns of observed times and of event indicators (True or 1: the event happened).
    into
        File to write, in numpy's format. It is replaced if it is there, whole or not at all, and belongs to the caller.
    features
        Names of the covariates; all other columns if not given. They must be numbers without missing values.

    Returns
    -------
    MappedTable

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pa.table({"age": [50.0, 61.0], "days": [10.0, 20.0], "died": [True, False]})
    ...     pq.write_table(table, f"{folder}/cohort.parquet")
    ...     data = map_parquet(f"{folder}/cohort.parquet", time="days", event="died", into=f"{folder}/x.npy")
    >>> data.feature_names, data.x.shape
    (('age',), (2, 1))
    """
    if find_spec("pyarrow") is None:
        raise ImportError("reading parquet files needs pyarrow: pip install pyarrow")
    source, target = Path(path), Path(into)
    if not source.is_file():
        raise FileNotFoundError(f"path: expected a parquet file, got {source}, which does not exist")
    if target.resolve() == source.resolve():
        fail("into", "another file than path", repr(str(into)))
    parquet: Any = import_module("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(source)
    except Exception as error:  # whatever a broken file makes the reader raise
        raise ValueError(f"path: expected a parquet file, got {source}, which cannot be read: {error}") from error
    names = _features(file.schema_arrow.names, time, event, features)
    n = file.metadata.num_rows
    if n == 0:
        fail("path", "at least one row", f"{source}, which has none")
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_file(target) as part:
        columns = np.lib.format.open_memmap(part, "w+", np.float32, (n, len(names)))
        times, events = _copy(file, names, time, event, columns)
        observed, happened = as_time(times, name=time), as_event(events, n, reference=time, name=event)
        columns.flush()
    mapped: Any = np.load(target, mmap_mode="r")
    return MappedTable(mapped, observed, happened, names)


def _features(known: list[str], time: str, event: str, features: Sequence[str] | None) -> tuple[str, ...]:
    for argument, name in (("time", time), ("event", event)):
        if name not in known:
            fail(argument, f"a column of the file ({', '.join(known)})", repr(name))
    names = tuple(name for name in known if name not in {time, event}) if features is None else tuple(features)
    for name in names:
        if name not in known:
            fail("features", f"columns of the file ({', '.join(known)})", repr(name))
    if not names:
        fail("features", "at least one column beside time and event", "none")
    return names


def _copy(
    file: Any, names: tuple[str, ...], time: str, event: str, target: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Copy covariates into `target`; return times and events."""
    times, events, start = [], [], 0
    for piece in file.iter_batches(batch_size=_ROWS, columns=[*dict.fromkeys([*names, time, event])]):
        for position, name in enumerate([*names, time, event]):
            column = piece.column(name)
            if column.null_count:
                row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                fail(name, "a value in every row (fill in missing ones first)", "none", start + row)
            values = column.to_numpy(zero_copy_only=False)
            if values.dtype.kind not in "biuf":
                fail(name, "numbers (encode categories first)", f"type {column.type}")
            if name == time:
                times.append(values)
            elif name == event:
                events.append(values)
            if position < len(names):
                target[start : start + len(values), position] = values
        start += piece.num_rows
    return np.concatenate(times), np.concatenate(events)
