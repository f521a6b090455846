"""The features of survival data: what kind each column is, an array, a tensor, or a file read some rows at a time."""

import datetime
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import BoolArray, FloatArray, as_numpy, fail, is_missing
from xcal._devices import as_device

# --- What a column of a table holds, and whether it tells the outcome: one rule each, for models, files and audits.


ColumnKind = Literal["number", "flag", "duration", "date", "category"]


_OF_TYPE: dict[str, ColumnKind] = {
    **dict.fromkeys("iufc", "number"),
    "b": "flag",
    "m": "duration",
    "M": "date",
}


def column_kind(values: Any) -> ColumnKind:
    """Return what a column of a data frame or an array holds, by its type, and where that says nothing by its cells.

    A column of pandas' type "category" is one, whatever its labels are. What a flag or a duration is used as, the
    caller says: True is 1 for a model, and a label where subgroups are asked about.

    Examples
    --------
    >>> import pandas as pd
    >>> column_kind(pd.Series([1, None, 2.5], dtype=object)), column_kind(pd.Series(["a", "b"]))
    ('number', 'category')
    >>> column_kind(np.array([True, False])), column_kind(np.array([True, None]))
    ('flag', 'flag')
    """
    if getattr(values.dtype, "name", "") == "category":
        return "category"
    if (kind := getattr(values.dtype, "kind", np.asarray(values).dtype.kind)) in _OF_TYPE:
        return _OF_TYPE[kind]
    cells = np.asarray(values).tolist()

    def are(*kinds: type) -> bool:
        return all(isinstance(cell, kinds) for cell in cells if not is_missing(cell))

    if are(Real, Decimal, np.number, np.bool_):
        return "flag" if are(bool, np.bool_) else "number"
    return "date" if are(datetime.date) else "category"


def tells_event(values: npt.NDArray[Any], event: BoolArray, *, most: int) -> bool:
    """Whether rows of the same value all have the event, or none of them has; of at most so many different values."""
    distinct, place = np.unique(values, return_inverse=True)
    if distinct.size > most or event.all() or not event.any():
        return False
    share = np.bincount(place, weights=event) / np.bincount(place)
    return bool(np.isin(share, (0.0, 1.0)).all())


def follows_time(values: FloatArray, time: FloatArray, *, above: float | None) -> bool:
    """Whether values order the rows as their times do, upwards or downwards.

    Parameters
    ----------
    values, time : arrays of shape (n,)
    above : float or None
        Rank correlation above which they do. None: only if the values never go back as time goes on, so that a coarser
        time does too, and one row out of place is enough for a no.
    """
    if above is not None:
        return abs(rank_correlation(values, time)) > above
    upwards, downwards = (values[np.lexsort((sign * values, time))] for sign in (1, -1))
    return bool((np.diff(upwards) >= 0).all() or (np.diff(downwards) <= 0).all())


def rank_correlation(first: FloatArray, second: FloatArray) -> float:
    """Correlation of the ranks; 0 where one of the two is constant."""
    from scipy.stats import rankdata

    ranks = rankdata(first), rankdata(second)
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


# --- The features of survival data: an array, a tensor, or a file that is read some rows at a time.


_DTYPES = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}


_CHUNK = 1 << 24  # numbers looked at in one go, so that a check needs little memory and a file is never read whole


RowChange = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


def with_masks(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values ``(m, d)`` that may be missing (NaN) as ``(m, 2 d)``: 0 for a missing one, then 1 where it is there.

    Examples
    --------
    >>> with_masks(np.array([[1.5, np.nan]]))
    array([[1.5, 0. , 1. , 0. ]])
    """
    missing = np.isnan(values)
    both = np.empty((len(values), 2 * values.shape[1]), values.dtype)
    both[:, : values.shape[1]] = np.where(missing, 0, values)
    both[:, values.shape[1] :] = ~missing
    return both


class MappedFeatures:
    """Some rows of a memory-mapped array ``(n, ...)``, read when they are asked for.

    Parameters
    ----------
    array
        Memory-mapped float32 or float64.
    device
        Where rows go that are read, as tensors. None: they are numpy arrays.
    kept
        Row numbers of the array, where not all are used.
    change
        What is done to rows ``(m, ...)`` when they are read, such as `with_masks`. It gives as many rows, of float32 or
        float64 numbers, and never sees the whole file.
    """

    def __init__(
        self, array: Any, device: torch.device | None = None, kept: Any = None, change: RowChange | None = None
    ) -> None:
        self.array, self.device, self.kept, self.change = array, device, kept, change
        example = array[:0] if change is None else change(np.zeros((1, *array.shape[1:]), array.dtype))
        self.shape = torch.Size((array.shape[0] if kept is None else len(kept), *example.shape[1:]))
        self.numpy_dtype: np.dtype[Any] = example.dtype
        self.dtype = example.dtype if device is None else _DTYPES[example.dtype]

    @property
    def ndim(self) -> int:
        """Number of dimensions, the rows included."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """Read rows, by a slice or by their numbers."""
        found = self._read(rows)
        return found if self.device is None else torch.from_numpy(found).to(self.device)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("rows of a file cannot be an array without a copy")
        return self._read(slice(None)).astype(self.numpy_dtype if dtype is None else dtype, copy=False)

    def only(self, rows: Any) -> "MappedFeatures":
        """Keep some rows, given as a numpy array of numbers or a slice; nothing is read."""
        if self.kept is None and isinstance(rows, slice):
            return MappedFeatures(self.array[rows], self.device, change=self.change)
        kept = rows if self.kept is None else self.kept[rows]
        return MappedFeatures(self.array, self.device, kept, self.change)

    def to(self, device: torch.device) -> "MappedFeatures":
        """Send rows to a device when they are read; nothing is read now."""
        return MappedFeatures(self.array, device, self.kept, self.change)

    def changed(self, change: RowChange) -> "MappedFeatures":
        """Change rows once more when they are read; nothing is read now."""
        before = self.change
        both = change if before is None else lambda rows: change(before(rows))
        return MappedFeatures(self.array, self.device, self.kept, both)

    def select(self, index: Tensor) -> Tensor:
        """Read the rows of an index ``(S, b)``, in page-locked memory where they go to a GPU."""
        found = torch.from_numpy(self._read(index.cpu().numpy().reshape(-1))).view(*index.shape, *self.shape[1:])
        return found.pin_memory() if self.device is not None and self.device.type == "cuda" else found

    def stream(self, order: Tensor) -> Iterator[Tensor]:
        """Batches ``(S, b, ...)`` on the device in the given order, the next one always being read meanwhile."""
        indices = order.cpu()
        with ThreadPoolExecutor(max_workers=1) as reader:
            ahead: Future[Tensor] = reader.submit(self.select, indices[0])
            for number in range(len(indices)):
                x = ahead.result()
                if number + 1 < len(indices):
                    ahead = reader.submit(self.select, indices[number + 1])
                yield x.to(self.device, non_blocking=True)

    def _read(self, rows: Any) -> npt.NDArray[Any]:
        found = self.array[rows if self.kept is None else self.kept[rows]]
        if self.change is not None:
            return np.ascontiguousarray(self.change(np.asarray(found)))
        # A slice of a memory map is a window on the file; row numbers have made a copy already.
        return np.array(found) if isinstance(rows, slice) and self.kept is None else np.asarray(found)


Features = npt.NDArray[Any] | Tensor | MappedFeatures


def read_features(name: str, values: Any) -> tuple[Features, tuple[str, ...]]:
    """Check features and return them as they are, with the column names of a data frame.

    Nothing is copied, unless it is a data frame or a list.
    """
    columns: tuple[str, ...] = ()
    if isinstance(values, Tensor):
        values = values.detach()
        as_device(values.device, name=name)
        if values.layout != torch.strided:
            fail(name, "a tensor whose values can be read", f"one of layout {values.layout}")
    elif hasattr(values, "columns") and hasattr(values, "to_numpy"):
        columns = tuple(map(str, values.columns))
        values = as_numpy(name, values.to_numpy()).astype(np.float64, copy=False)
    elif isinstance(values, list | tuple):
        values = as_numpy(name, values).astype(np.float64)
    elif not isinstance(values, np.memmap | MappedFeatures):
        values = as_numpy(name, values)
    if values.dtype not in (torch.float32, torch.float64, *_DTYPES):
        fail(name, "float32 or float64 covariates", f"dtype {values.dtype}")
    if values.ndim < 2:
        fail(name, "shape (n, ...), a row for each subject", f"shape {tuple(values.shape)}")
    if values.shape[0] == 0:
        fail(name, "at least one row", "none")
    _check_finite(name, values)
    return values, columns


def _check_finite(name: str, x: Features) -> None:
    start = 0
    for piece in pieces(x):
        flat = piece.reshape(piece.shape[0], -1)
        finite = torch.isfinite(flat) if isinstance(flat, Tensor) else np.isfinite(flat)
        bad: Any = ~finite.all(1)
        if bool(bad.any()):
            row = int(bad.nonzero()[0] if isinstance(bad, Tensor) else np.argmax(bad))
            fail(name, "finite covariates", float(flat[row][~finite[row]][0]), start + row)
        start += piece.shape[0]


def pieces(x: Features) -> Iterator[Any]:
    """All rows, some at a time."""
    step = max(1, _CHUNK // max(1, int(np.prod(x.shape[1:]))))
    return (x[start : start + step] for start in range(0, x.shape[0], step))


def chosen_features(x: Features, rows: Any) -> Features:
    """Pick rows by a slice or a numpy array of row numbers; a file is not read."""
    if isinstance(x, Tensor):
        return x[rows if isinstance(rows, slice) else torch.as_tensor(rows, device=x.device)]
    if isinstance(x, MappedFeatures):
        return x.only(rows)
    if isinstance(x, np.memmap) and not isinstance(rows, slice):
        return MappedFeatures(x).only(rows)
    picked: npt.NDArray[Any] = x[rows]
    return picked


def moved_features(x: Features, device: torch.device) -> Tensor | MappedFeatures:
    """Put features on a device; those of a file go there when they are read."""
    if isinstance(x, Tensor):
        return x.to(device)
    if isinstance(x, np.memmap | MappedFeatures):
        return (x if isinstance(x, MappedFeatures) else MappedFeatures(x)).to(device)
    # torch has no negative steps, which reversed rows have.
    return torch.as_tensor(np.ascontiguousarray(x) if min(x.strides) < 0 else x).to(device)


def loaded_features(x: Features) -> npt.NDArray[Any] | Tensor:
    """Read the rows of a file; others are in memory already."""
    if isinstance(x, np.memmap | MappedFeatures):
        found: npt.NDArray[Any] | Tensor = (x if isinstance(x, MappedFeatures) else MappedFeatures(x))[:]
        return found
    return x
