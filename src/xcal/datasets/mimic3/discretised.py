"""Last step, on demand: 76 numbers for each hour of a stay.

A continuous variable has one column, a categorical one a column per category (one-hot), and every variable a mask. The
last value of an hour wins. An hour without a value has zeros and a mask of zero; nothing is filled in.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal.datasets.mimic3.measurements import Measurements, read_measurements
from xcal.datasets.mimic3.parquet_files import block_path, blocks_of, write_parquet
from xcal.datasets.mimic3.reporting import Report
from xcal.datasets.mimic3.timeseries import SLACK
from xcal.datasets.mimic3.variables import categories, discretised_names, variables


def write_discretised(
    stays: dict[str, npt.NDArray[Any]], timeseries: Path, folder: Path, report: Report
) -> dict[str, int]:
    """Write the hours of every block into `folder`; returns how many there are."""
    pa: Any = import_module("pyarrow")
    blocks = list(blocks_of(stays))
    counts = {"hours": 0}
    for number, (split, block, _) in enumerate(blocks):
        source = block_path(timeseries, split, block)
        if source.is_file():
            measurements = read_measurements(source)
            stay, hour, values = discretise(measurements)
            columns = {
                "stay_id": measurements.stay_ids[stay],
                "subject_id": measurements.subject_ids[stay],
                "hour": hour.astype(np.int32),
            }
            columns |= {name: pa.array(values[:, place]) for place, name in enumerate(discretised_names())}
            counts["hours"] += write_parquet(block_path(folder, split, block), columns)
        report("discretised", number + 1, len(blocks))
    return counts


def discretise(
    measurements: Measurements,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Stay (from 0), hour and 76 values of every hour, from a stay's first hour to that of its last measurement."""
    # A value on the full hour belongs to the hour before it, the very first moment to hour 0: astype rounds to zero.
    hour_of_row = (measurements.hours - SLACK).astype(np.int64)
    last = np.zeros(len(measurements.stay_ids), np.int64)
    np.maximum.at(last, measurements.stay, hour_of_row)
    start = np.cumsum(last + 1) - (last + 1)
    stay = np.repeat(np.arange(len(last)), last + 1)
    hour = np.arange(len(stay)) - start[stay]
    bin_of_row = start[measurements.stay] + hour_of_row
    values = np.zeros((len(stay), len(discretised_names())), np.float32)
    column, mask = 0, len(discretised_names()) - len(variables())
    for name in variables():
        one = measurements.variables[name]
        bins = bin_of_row[one.rows]
        # Rows are in order of time, so the last one of a bin is the one before the next bin begins.
        final = np.flatnonzero(np.diff(bins, append=-1) != 0)
        width = len(categories().get(name, (None,)))
        values[bins[final], column + one.place[final]] = 1.0 if name in categories() else one.value[final]
        values[bins, mask] = 1.0
        column, mask = column + width, mask + 1
    return stay, hour, values
