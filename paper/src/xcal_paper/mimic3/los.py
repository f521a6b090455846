"""Prepared MIMIC-III folders as rows to train on, in a file that is never read whole."""

import errno
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from xcal._checks import as_choice, as_event, as_time, fail, first_row
from xcal._files import check_writable, new_file, only_writer
from xcal.data import SurvivalData
from xcal.data.features import MappedFeatures, with_masks
from xcal_paper.mimic3.files import SPLITS
from xcal_paper.mimic3.preparation import Death, read_manifest
from xcal_paper.mimic3.variable_list import feature_names
from xcal_paper.simulated import SurvivalDataset

Source = Literal["full", "demo", "other"]

_FORMAT = 1  # of the files that are made here
_ROWS = 8_192  # of one piece
_CACHE = "training"
# Stays, admissions and subjects of the raw tables: they tell the open demo and the full data from all other folders.
_SOURCES: dict[tuple[int, int, int], Source] = {(136, 129, 100): "demo", (61_532, 57_786, 46_476): "full"}
_NAMES: dict[Source, str] = {
    "full": "MIMIC-III length of stay",
    "demo": "MIMIC-III length of stay, demo of 100 patients",
    "other": "MIMIC-III length of stay, other data",
}
# Columns of an instance beside its features, and the type in which they are kept.
_COLUMNS = {
    "remaining": np.float64,
    "event": np.bool_,
    "subject_id": np.int64,
    "stay_id": np.int64,
    "period_length": np.float64,
}


def load_mimic_los(
    folder: str | Path, *, death: Death | None = None, cache: str | Path | None = None
) -> SurvivalDataset:
    """Return the length-of-stay task of a folder that ``xcal mimic prepare`` has made; its features stay in a file.

    Training draws rows at random, which parquet cannot give. The first call therefore writes the 714 statistics of
    every row, piece by piece, to a memory-mapped file (half of what the 1,428 features take: masks follow from what is
    missing). Later calls open it, and need neither the parquet files nor pyarrow. Rows are in random order, block by
    block, and `fit_path` draws every batch from all of them, so that a batch mixes stays.

    Parameters
    ----------
    folder
        A prepared folder.
    death : {"event", "censor"}, optional
        How deaths in the unit are to have been treated; a folder that was prepared otherwise is refused. By default
        as it was prepared.
    cache
        Folder for the memory-mapped files, by default ``training`` in `folder`. They can be deleted at any time.

    Returns
    -------
    SurvivalDataset
        `x` has 714 standardised statistics, 0 where one is not defined, and 714 masks, 1 where it is. `time` is the
        remaining stay in hours. `groups` are the subjects: give them as `clusters` to `xcal.evaluate`. `extra` has
        ``period_length`` (hours since admission to the unit) and ``stay_id``.
    """
    where = Path(folder)
    manifest = read_manifest(where)
    if not manifest["finished"]:
        fail("folder", "a folder whose preparation is finished", f"{where}: run xcal mimic prepare again to resume")
    prepared = manifest["settings"]["death"]
    if death is not None and as_choice("death", death, ("event", "censor")) != prepared:
        expected = f"a folder prepared with --death {death}"
        fail("folder", expected, f"{where}, prepared with --death {prepared}; prepare another one")
    target = (where / _CACHE if cache is None else Path(cache)) / _key(manifest)
    splits = {split: _files(manifest, split) for split in SPLITS}
    for split, files in splits.items():
        if not files:
            fail("folder", f"instances of every split (train, validation, test), in {where}", f"none of {split}")
    _make(where, target, splits)
    name = _NAMES[data_source(manifest)] + (", deaths censored" if prepared == "censor" else "")
    return SurvivalDataset(name, *(_opened(target, split, name) for split in SPLITS))


def data_source(manifest: Mapping[str, Any]) -> Source:
    """Return which data a prepared folder was made from: the full MIMIC-III, the open demo, or something else."""
    counts = manifest["steps"].get("stays", {}).get("counts", {})
    stays, admissions, subjects = (counts.get(f"{what}_all", -1) for what in ("stays", "admissions", "subjects"))
    return _SOURCES.get((stays, admissions, subjects), "other")


def _key(manifest: Mapping[str, Any]) -> str:
    """Name of the folder of memory-mapped files: another one for other features."""
    content = {"format": _FORMAT, "files": manifest["steps"]["features"]["files"]}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _files(manifest: Mapping[str, Any], split: str) -> dict[str, int]:
    """Paths of the feature files of a split, and the rows of each."""
    files = manifest["steps"]["features"]["files"]
    return {path: entry["rows"] for path, entry in sorted(files.items()) if f"/split={split}/" in path}


def _make(folder: Path, target: Path, splits: Mapping[str, Mapping[str, int]]) -> None:
    """Write the files of every split that is not there yet; of several processes one writes and the others wait."""
    if all(_is_there(target, split) for split in SPLITS):
        return
    try:
        check_writable(target)
    except OSError as error:
        told = f"cache: expected a folder that can be written, got {target}: {error.strerror or error}"
        raise type(error)(error.errno, told) from error
    with only_writer(target / "files"):
        missing = {split: files for split, files in splits.items() if not _is_there(target, split)}
        _check_space(target, sum(sum(files.values()) for files in missing.values()))
        for split, files in missing.items():
            _write(folder, target, split, files)


def _is_there(target: Path, split: str) -> bool:
    # The rows are written last.
    return (target / f"{split}.rows.npz").is_file() and (target / f"{split}.npy").is_file()


def _check_space(target: Path, rows: int) -> None:
    needed, free = rows * (4 * len(feature_names()) + 40), shutil.disk_usage(target).free
    if free < needed:
        told = f"{needed / 1e9:.1f} GB of free disk space for {rows} rows, got {free / 1e9:.1f} GB"
        raise OSError(errno.ENOSPC, f"cache: expected {told} in {target}; make room or choose another cache")


def _write(folder: Path, target: Path, split: str, files: Mapping[str, int]) -> None:
    """Copy the statistics of a split to one file, piece by piece, and then what is beside them."""
    names, n = feature_names(), sum(files.values())
    rows: dict[str, list[npt.NDArray[Any]]] = {column: [] for column in _COLUMNS}
    with new_file(target / f"{split}.npy") as part, part.open("wb") as out:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n, len(names))}
        np.lib.format.write_array_header_1_0(out, header)
        for path, expected in files.items():
            found = _copy(folder / path, names, out, rows)
            if found != expected:
                fail(path, f"{expected} rows, as manifest.json says", found)
    kept = {column: np.concatenate(pieces) for column, pieces in rows.items()}
    as_time(kept["remaining"], name="remaining")
    as_event(kept["event"], n, reference="features")
    with new_file(target / f"{split}.rows.npz") as part, part.open("wb") as out:
        np.savez(out, **kept)  # type: ignore[arg-type]  # the stubs take the names of arrays for other arguments


def _copy(path: Path, names: tuple[str, ...], out: BinaryIO, rows: Mapping[str, list[npt.NDArray[Any]]]) -> int:
    """Append the statistics of one block to `out`; returns its number of rows."""
    done = 0
    for piece in _pieces(path, [*names, *_COLUMNS]):
        statistics = np.empty((piece.num_rows, len(names)), "<f4")
        for position, name in enumerate(names):
            statistics[:, position] = _values(path, piece, name, done)
        infinite = np.isinf(statistics)
        if infinite.any():
            row, place = (int(number) for number in np.argwhere(infinite)[0])
            fail(f"{path.name}, column {names[place]}", "finite numbers or NaN", "an infinite one", done + row)
        out.write(statistics.tobytes())
        for column, kind in _COLUMNS.items():
            rows[column].append(_values(path, piece, column, done).astype(kind))
        done += piece.num_rows
    return done


def _pieces(path: Path, columns: list[str]) -> Iterator[Any]:
    # Only here: files that were made elsewhere can be opened without it.
    if find_spec("pyarrow") is None:
        raise ImportError('reading a prepared folder for the first time needs pyarrow: pip install "xcal[mimic]"')
    parquet: Any = import_module("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected a file of the prepared folder, got no such file") from None
    except Exception as error:  # whatever a broken file makes the reader raise
        fail(str(path), "a parquet file", f"one that cannot be read ({type(error).__name__})")
    known = set(file.schema_arrow.names)
    for name in columns:
        if name not in known:
            fail(str(path), f"a column {name!r}", "none")
    yield from file.iter_batches(batch_size=_ROWS, columns=columns)


def _values(path: Path, piece: Any, name: str, start: int) -> npt.NDArray[Any]:
    column = piece.column(name)
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        fail(f"{path.name}, column {name}", "a value in every row", "none", start + first_row(null))
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _opened(target: Path, split: str, name: str) -> SurvivalData:
    """Rows of a split whose files are there."""
    with np.load(target / f"{split}.rows.npz") as kept:
        rows = {column: kept[column] for column in _COLUMNS}
    statistics = np.load(target / f"{split}.npy", mmap_mode="r")
    if statistics.shape != (rows["event"].size, len(feature_names())):
        fail(str(target), "files as this version writes them (delete the folder)", f"shape {statistics.shape}")
    return SurvivalData.trusted(
        MappedFeatures(statistics, change=with_masks),
        rows["remaining"],
        rows["event"],
        groups=rows["subject_id"],
        extra={column: rows[column] for column in ("period_length", "stay_id")},
        feature_names=feature_names(masks=True),
        time_unit="hours",
        name=name,
    )
