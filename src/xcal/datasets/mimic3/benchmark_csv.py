"""Time series in the CSV form of the public benchmark, value for value, to compare with it or to feed its models."""

import csv
import io
from importlib import import_module
from pathlib import Path
from typing import Any

from xcal._checks import fail
from xcal._files import write_whole
from xcal.datasets.mimic3.parquet_files import block_path, blocks_of
from xcal.datasets.mimic3.stays import read_stays
from xcal.datasets.mimic3.variables import variables


def write_benchmark_csv(prepared: str | Path, folder: str | Path) -> int:
    """Write every time series of a prepared folder as the public benchmark does, and its lists of instances.

    Parameters
    ----------
    prepared
        Folder that `prepare` has written.
    folder
        Where to write ``train/<subject>_episode<n>_timeseries.csv``, ``test/...`` and, in each, ``listfile.csv``.
        Validation stays go to ``train``, as in the benchmark. The lists are sorted by stay and hour.

    Returns
    -------
    int
        How many time series were written.
    """
    source, target = Path(prepared), Path(folder)
    if not (source / "timeseries").is_dir():
        fail("prepared", "a folder with timeseries/, as `xcal mimic prepare` writes it", source)
    parquet: Any = import_module("pyarrow.parquet")
    stays = read_stays(source / "stays")
    name_of = {
        int(stay): f"{subject}_episode{episode}_timeseries.csv"
        for stay, subject, episode in zip(stays["stay_id"], stays["subject_id"], stays["episode"], strict=True)
    }
    written = 0
    lists: dict[str, list[tuple[str, float, float]]] = {"train": [], "test": []}
    for part in lists:
        (target / part).mkdir(parents=True, exist_ok=True)
    for split, block, _ in blocks_of(stays):
        part = "test" if split == "test" else "train"
        series, instances = (block_path(source / step, split, block) for step in ("timeseries", "instances"))
        if series.is_file():
            for stay, text in _texts(parquet.ParquetFile(series).read()):
                write_whole(target / part / name_of[stay], text.encode())
                written += 1
        if instances.is_file():
            columns = parquet.ParquetFile(instances).read(columns=["stay_id", "period_length", "remaining"])
            rows = zip(*(column.to_pylist() for column in columns.columns), strict=True)
            lists[part] += [(name_of[stay], hours, remaining) for stay, hours, remaining in rows]
    for part, found in lists.items():
        lines = [f"{name},{hours:.6f},{remaining:.6f}\n" for name, hours, remaining in sorted(found)]
        write_whole(target / part / "listfile.csv", "".join(["stay,period_length,y_true\n", *lines]).encode())
    return written


def _texts(table: Any) -> list[tuple[int, str]]:
    """Text of the CSV file of each stay. Python writes a float as the shortest text that reads back the same."""
    stay = table.column("stay_id").to_pylist()
    columns = [table.column(name).to_pylist() for name in ("hours", *variables())]
    found: dict[int, io.StringIO] = {}
    for number, cells in zip(stay, zip(*columns, strict=True), strict=True):
        if number not in found:
            found[number] = io.StringIO()
            csv.writer(found[number], lineterminator="\n").writerow(("Hours", *variables()))
        csv.writer(found[number], lineterminator="\n").writerow(cells)
    return [(number, file.getvalue()) for number, file in found.items()]
