"""The groups of an audit: which rows, and which are large enough to judge."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from xcal._checks import BoolArray
from xcal.validation.measurements import Skipped
from xcal.validation.rows import Rows, labels_in_order
from xcal.validation.sample import Sample

# A group with fewer events says next to nothing about calibration: its O/E alone is off by a factor of two either way.
MIN_EVENTS = 10
# Nor do fewer clusters, of which whole ones are drawn.
MIN_CLUSTERS = 10


@dataclass(frozen=True, eq=False)
class Subgroup:
    """One group: its variable, its name "variable = label", which rows belong to it, and these rows."""

    variable: str
    name: str
    members: BoolArray
    rows: Rows


def subgroups(sample: Sample, rows: Rows) -> tuple[list[Subgroup], list[Skipped]]:
    """Find the groups to judge, and the names of those that are too small with what is lacking."""
    judged, skipped = [], []
    for variable, name, own in rows_of_groups(sample, rows):
        n_events = int(np.count_nonzero(rows.event[own]))
        if n_events < MIN_EVENTS:
            count = f"{n_events} event{'' if n_events == 1 else 's'} in {np.count_nonzero(own):,} rows"
            why = f"{count}: too few to judge, at least {MIN_EVENTS} are needed"
            skipped.append(Skipped("group", why, group=name))
            continue
        members = rows.take(own)
        if members.clusters is not None and members.clusters.count < MIN_CLUSTERS:
            count = f"{members.clusters.count} clusters of rows"
            why = f"{count}: too few to judge, at least {MIN_CLUSTERS} are needed"
            skipped.append(Skipped("group", why, group=name))
            continue
        judged.append(Subgroup(variable, name, own, members))
    return judged, skipped


def rows_of_groups(sample: Sample, rows: Rows) -> Iterator[tuple[str, str, BoolArray]]:
    """Return variable, name and rows of every group, whatever its size."""
    for variable, labels in sample.groups.items():
        of_row = labels_in_order(rows, labels)
        for label in np.unique(of_row):
            yield variable, f"{variable} = {label}", of_row == label
