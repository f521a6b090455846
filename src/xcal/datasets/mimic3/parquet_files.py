"""Parquet files of one block each, written the same way by every step."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
