"""Tables larger than memory: a parquet file, read once piece by piece into a memory-mapped array."""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from xcal._checks import as_count, fail, first_row
from xcal._files import new_file
from xcal.data.surv import outcome_given
from xcal.data.survival import SurvivalData, read_ids, read_labels, read_weights

_ROWS = 1 << 16  # of one piece
# How columns are read that stand beside what was observed.
_BESIDE: dict[str, Callable[[str, Any, int], npt.NDArray[Any]]] = {
    "weights": read_weights,
    "groups": read_labels,
    "row_ids": read_ids,
}


def map_parquet(
    path: str | Path,
    *,
    time: str | None = None,
    event: str | None = None,
    into: str | Path,
    features: Sequence[str] | None = None,
    cause: str | None = None,
    causes: Sequence[str] | None = None,
    entry: str | None = None,
    lower: str | None = None,
    upper: str | None = None,
    id: str | None = None,
    weights: str | None = None,
    groups: str | None = None,
    row_ids: str | None = None,
    time_unit: str = "",
    part: tuple[int, int] | None = None,
) -> SurvivalData:
    """Read a parquet file piece by piece; its features go to a file of float32 numbers and are never whole in memory.

    Training draws rows at random, which a parquet file cannot give and a memory-mapped array can.

    Parameters
    ----------
    path
        The parquet file.
    time, event, cause, entry, lower, upper, id
        Names of the columns that hold what was observed of each row: `time` and `event`, or others of these, as in
        `xcal.Surv`.
    into
        File to write, in numpy's format. It is replaced if it is there, whole or not at all, and belongs to the caller.
    features
        Names of the features; all columns that no other argument names if not given. They must be numbers without
        missing values.
    causes
        Names of causes 1, 2, ..., as in `xcal.Surv`.
    weights, groups, row_ids
        Names of further columns; see `SurvivalData`.
    time_unit
        Unit of the times, such as "days".
    part
        ``(k, m)``: read part k (from 0) of m parts of the file's row groups, neighbours and about equally large. All
        parts one after another are the file. For processes that each hold a part of the rows
        (``fit_path(..., distributed="shards")``); `into` must be another file for each.

    Returns
    -------
    SurvivalData
        Its `x` is a memory-mapped array of float32 numbers.

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
    source, target = Path(path), Path(into)
    file = _opened(source)
    if target.resolve() == source.resolve():
        fail("into", "another file than path", repr(str(into)))
    observed = {"time": time, "event": event, "cause": cause, "entry": entry, "lower": lower, "upper": upper, "id": id}
    given = {**observed, "weights": weights, "groups": groups, "row_ids": row_ids}
    columns = {role: column for role, column in given.items() if column is not None}
    names = _features(file.schema_arrow.names, columns, features)
    sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    pieces_of_file, first = _part(sizes, part)
    n = sum(sizes[k] for k in pieces_of_file)
    if n == 0:
        fail("path", "at least one row", f"{source}, which has none")
    others = list(dict.fromkeys(columns.values()))
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_file(target) as unfinished:
        x = _empty_features(unfinished, (n, len(names)), source)
        wanted = [*dict.fromkeys([*names, *others])]
        pieces = file.iter_batches(batch_size=_ROWS, row_groups=pieces_of_file, columns=wanted)
        found = _copied(pieces, first, source, names, (others, {upper}), x)
        known = {role: found[columns[role]] for role in observed if role in columns}
        outcome = outcome_given(known, causes, name=lambda role: columns.get(role, role))
        beside = {
            role: read(columns[role], found[columns[role]], n) for role, read in _BESIDE.items() if role in columns
        }
        x.flush()
    mapped: Any = np.load(target, mmap_mode="r")
    rows = SurvivalData.trusted(mapped, None, None, **beside, feature_names=names, time_unit=time_unit)
    return rows.with_outcome(outcome)


def _unreadable(source: Path, error: Exception) -> NoReturn:
    said = " ".join(str(error).split()) or type(error).__name__
    raise ValueError(f"path: expected a parquet file, got {source}, which cannot be read: {said[:300]}") from error


def _opened(source: Path) -> Any:
    """Open the file, or say why not."""
    if find_spec("pyarrow") is None:
        raise ImportError("reading parquet files needs pyarrow: pip install pyarrow")
    if not source.is_file():
        raise FileNotFoundError(f"path: expected a parquet file, got {source}, which does not exist")
    parquet: Any = import_module("pyarrow.parquet")
    try:
        return parquet.ParquetFile(source)
    except Exception as error:  # whatever a broken file makes the reader raise
        _unreadable(source, error)


def _features(known: list[str], columns: dict[str, str], features: Sequence[str] | None) -> tuple[str, ...]:
    for argument, name in columns.items():
        if name not in known:
            fail(argument, f"a column of the file ({', '.join(known)})", repr(name))
    others = set(columns.values())
    names = tuple(name for name in known if name not in others) if features is None else tuple(features)
    for name in names:
        if name not in known:
            fail("features", f"columns of the file ({', '.join(known)})", repr(name))
    if not names:
        fail("features", "at least one column beside time and event", "none")
    if len(set(names)) < len(names):
        fail("features", "columns that are all different", ", ".join(names))
    return names


def _part(sizes: list[int], part: tuple[int, int] | None) -> tuple[list[int], int]:
    """Row groups of a part, and the number of its first row in the file."""
    if part is None:
        return list(range(len(sizes))), 0
    try:
        k, m = part
    except (TypeError, ValueError):
        fail("part", "(k, m): part k of m", repr(part))
    m = as_count("part[1]", m, at_least=1)
    k = as_count("part[0]", k, at_least=0, below=m)
    if m > len(sizes):
        expected = f"at most {len(sizes)} parts, the number of row groups of the file"
        fail("part", f"{expected} (write it with a smaller row_group_size)", m)
    # A part ends with the group that brings it nearest to its share of the rows, and has at least one group.
    ends = np.cumsum(sizes)
    edges = [0]
    for share in range(1, m):
        nearest = int(np.abs(ends - ends[-1] * share / m).argmin()) + 1
        edges.append(min(max(nearest, edges[-1] + 1), len(sizes) - (m - share)))
    edges.append(len(sizes))
    return list(range(edges[k], edges[k + 1])), int(sum(sizes[: edges[k]]))


def _empty_features(part: Path, shape: tuple[int, int], source: Path) -> Any:
    """Make the file for the features; one that the header asks for may be larger than anything there is."""
    try:
        return np.lib.format.open_memmap(part, "w+", np.float32, shape)
    except (ValueError, OverflowError, MemoryError) as error:
        _unreadable(source, error)


def _copied(
    pieces: Iterable[Any],
    first: int,
    source: Path,
    names: tuple[str, ...],
    others: tuple[list[str], set[str | None]],
    target: npt.NDArray[np.float32],
) -> dict[str, npt.NDArray[Any]]:
    """Copy the file, or say that it is damaged: pieces of it are looked at only when they are read."""
    try:
        found, n = _copy(pieces, first, names, others, target)
    except import_module("pyarrow").ArrowException as error:
        _unreadable(source, error)
    except OSError as error:
        if error.errno is not None:  # of the file that is written
            raise
        _unreadable(source, error)
    if n != len(target):
        fail("path", f"{len(target)} rows, as the end of {source} says", n)
    return found


def _copy(
    pieces: Iterable[Any],
    first: int,
    names: tuple[str, ...],
    others: tuple[list[str], set[str | None]],
    target: npt.NDArray[np.float32],
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Copy features into `target`; return the other columns, and how many rows there were.

    Of the other columns some, named after all, may have missing values. `first` is the number of the first row in the
    file.
    """
    beside, with_gaps = others
    found: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in beside}
    start = 0
    for piece in pieces:
        for name, values in found.items():
            values.append(_values(piece.column(name), name, first + start, gaps=name in with_gaps))
        for position, name in enumerate(names):
            target[start : start + piece.num_rows, position] = _single(piece.column(name), name, first + start)
        start += piece.num_rows
    return {name: np.concatenate(values) if values else np.empty(0) for name, values in found.items()}, start


def _values(column: Any, name: str, start: int, *, gaps: bool = False) -> npt.NDArray[Any]:
    """One piece of a column, in which nothing may be missing but for `gaps`; `start` is the number of its first row."""
    if column.null_count and not gaps:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        fail(name, "a value in every row (fill in missing ones first)", "none", start + row)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _single(column: Any, name: str, start: int) -> npt.NDArray[np.float32]:
    """One piece of a feature as float32 numbers."""
    values = _values(column, name, start)
    if values.dtype.kind not in "biuf":
        fail(name, "numbers (encode categories first)", f"type {column.type}")
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    bad = ~np.isfinite(single)
    if bad.any():
        fail(name, "finite numbers, within the range of float32", values[first_row(bad)], start + first_row(bad))
    return single
