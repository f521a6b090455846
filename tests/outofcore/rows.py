"""Predictions in memory and as a folder of parquet files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.metrics.simulate import survival_data

HORIZONS = (0.25, 0.5, 1.0)


def predictions(n=3000, seed=0, grid=None):
    """Columns of a model whose hazards are 1.2 times too high."""
    data = survival_data(n, rng=np.random.default_rng(seed), grid=grid)
    hazard = 1.2 * data.rate
    columns = {
        "time": data.time,
        "event": data.event,
        "cdf": -np.expm1(-hazard * data.time),
        "risk": data.rate,
        "nll": hazard * data.time - data.event * np.log(hazard),
    }
    return columns | {f"S_{t:g}": np.exp(-hazard * t) for t in HORIZONS}


def written(folder, columns, shards=1, order=None, row_group_size=400):
    """Write the rows to so many files."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = np.arange(len(next(iter(columns.values())))) if order is None else order
    for k, part in enumerate(np.array_split(rows, shards)):
        table = pa.table({name: values[part] for name, values in columns.items()})
        pq.write_table(table, folder / f"part-{k:03d}.parquet", row_group_size=row_group_size)
    return folder
