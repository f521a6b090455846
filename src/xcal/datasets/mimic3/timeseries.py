"""Third step: one row per stay and time, one column per variable.

Several values of one variable at one time: the largest is kept, by number, or by text where the variable stays text
("99" after "104"), as the benchmark sorts them. A stay has the rows that name it and all rows of its subject between
its first and its last minute, also those that name another stay.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.typing as npt

from xcal.datasets.mimic3.database import plain_errors, quoted
from xcal.datasets.mimic3.parquet_files import block_path, blocks_of, write_parquet
from xcal.datasets.mimic3.variables import text_variables, variables

# Hours by which a time may lie outside a period and still count, here and in the later steps.
SLACK = 1e-6


def write_timeseries(
    connection: Any,
    stays: dict[str, npt.NDArray[Any]],
    stays_file: Path,
    events: Path,
    folder: Path,
    report: Callable[[str, int, int | None], None],
) -> dict[str, int]:
    """Write the time series of every block into `folder`; returns how many stays and rows there are."""
    counts = {"stays_with_events": 0, "rows": 0}
    blocks = list(blocks_of(stays))
    for number, (split, block, _) in enumerate(blocks):
        source = block_path(events, split, block)
        if source.is_file():  # a block may have no value of the 17 variables
            with plain_errors("timeseries"):
                rows = connection.sql(_query(source, stays_file)).to_arrow_table()
            counts["rows"] += write_parquet(block_path(folder, split, block), rows)
            counts["stays_with_events"] += len(rows.column("stay_id").unique())
        report("timeseries", number + 1, len(blocks))
    return counts


def _query(events: Path, stays: Path) -> str:
    texts = text_variables()
    values = ", ".join(
        f"max({'text' if name in texts else 'number'}) FILTER (WHERE variable = {quoted(name)}) AS \"{name}\""
        for name in variables()
    )
    columns = ", ".join(f'"{name}"' for name in variables())
    # A time at which events name two stays gives two rows, as in the benchmark. Seconds are divided by 60 twice, which
    # can differ from one division by 3600 in the last digit.
    return f"""
        WITH events AS (SELECT * FROM read_parquet({quoted(str(events))})),
        wide AS (SELECT subject_id, charttime, {values} FROM events GROUP BY subject_id, charttime),
        named AS (SELECT DISTINCT subject_id, charttime, stay_id FROM events)
        SELECT stay_id, subject_id, hours, {columns} FROM (
            SELECT stays.stay_id, stays.subject_id, stays.los_hours, {columns},
                CAST(epoch(wide.charttime - stays.intime) AS DOUBLE) / 60e0 / 60e0 AS hours
            FROM wide JOIN named USING (subject_id, charttime)
            JOIN read_parquet({quoted(str(stays))}) AS stays ON stays.subject_id = wide.subject_id
                AND (named.stay_id = stays.stay_id OR wide.charttime BETWEEN stays.intime AND stays.outtime))
        WHERE hours > {-SLACK:e} AND hours < los_hours + {SLACK:e}
        ORDER BY stay_id, hours"""
