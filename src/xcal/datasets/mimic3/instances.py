"""Fourth step: one instance per full hour of a stay, from the fifth hour on.

An instance sees what was measured until its hour, and its target is the time that remains. With ``death="censor"`` a
stay that ends with death is censored at death; hours after the death are no instances then.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal.datasets.mimic3.parquet_files import SPLITS, block_path, blocks_of, read_columns, write_parquet
from xcal.datasets.mimic3.reporting import Report
from xcal.datasets.mimic3.timeseries import SLACK

_SHORTEST = 4.0  # hours; instances are later than that


def write_instances(
    stays: dict[str, npt.NDArray[Any]],
    timeseries: Path,
    folder: Path,
    report: Report,
    *,
    death: str,
    seed: int,
) -> dict[str, int]:
    """Write the instances of every block into `folder`, in random order; returns counts."""
    counts = {f"instances_{name}": 0 for name in SPLITS} | {"instances_censored": 0, "instances_after_death": 0}
    blocks = list(blocks_of(stays))
    for number, (split, block, rows) in enumerate(blocks):
        source = block_path(timeseries, split, block)
        if source.is_file():
            chosen = {name: values[rows] for name, values in stays.items()}
            found, after_death = _instances(chosen, read_columns(source, ["stay_id", "hours"]), death)
            counts["instances_after_death"] += after_death
            if len(found["stay_id"]):
                rng = np.random.default_rng([seed, 3, SPLITS.index(split), block])
                order = rng.permutation(len(found["stay_id"]))
                found = {name: values[order] for name, values in found.items()}
                counts[f"instances_{split}"] += write_parquet(block_path(folder, split, block), found)
                counts["instances_censored"] += int((~found["event"]).sum())
        report("instances", number + 1, len(blocks))
    return counts


def _instances(
    stays: dict[str, npt.NDArray[Any]], series: dict[str, npt.NDArray[Any]], death: str
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Instances of some stays, and how many hours after a death were left out."""
    # The series are sorted by stay and hours, so the first row of a stay is its first measurement.
    measured, first_row = np.unique(series["stay_id"], return_index=True)
    first = dict(zip(measured.tolist(), series["hours"][first_row].tolist(), strict=True))
    seen = np.flatnonzero(np.isin(stays["stay_id"], measured))
    hours_of = []
    for k in seen:
        every = np.arange(0.0, stays["los_hours"][k] + SLACK)
        hours_of.append(every[(every > _SHORTEST) & (every > first[int(stays["stay_id"][k])])])
    row = np.repeat(seen, [len(hours) for hours in hours_of])
    hours = np.concatenate([np.empty(0), *hours_of])
    end = stays["los_hours"][row].astype(np.float64)
    event = np.ones(len(row), np.bool_)
    if death == "censor":
        event = ~stays["died_in_unit"][row].astype(bool)
        # DEATHTIME has minutes. A stay that is known for a death only by the day (DOD) is censored at its end.
        end = np.fmin(end, stays["death_hours"][row].astype(np.float64))
    alive = hours < end + SLACK
    columns = {
        "stay_id": stays["stay_id"][row],
        "subject_id": stays["subject_id"][row],
        "period_length": hours,
        # The slack lets an hour lie beyond the end by rounding; nothing remains then.
        "remaining": np.maximum(end - hours, 0.0),
        "event": event,
    }
    return {name: values[alive] for name, values in columns.items()}, int((~alive).sum())
