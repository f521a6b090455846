"""The groups of an audit: which rows, and which are large enough to judge."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from xcal._checks import BoolArray
from xcal.metrics.small_cells import is_small, told
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
    """Find the groups to judge, and the names of those that are too small with what is lacking.

    The name of a group of very few rows may itself be that of a person: such groups are counted, and not named.
    """
    judged, skipped, unnamed = [], [], 0
    for variable, name, own in rows_of_groups(sample, rows):
        n, n_events = int(np.count_nonzero(own)), int(np.count_nonzero(rows.event[own]))
        if is_small(n, sample.min_cell):
            unnamed += 1
            continue
        if n_events < MIN_EVENTS:
            known = sample.min_cell < 2 or (n_events > 0 and told(n_events, n, sample.min_cell) is not None)
            events = f"{n_events} event{'' if n_events == 1 else 's'}" if known else f"fewer than {MIN_EVENTS} events"
            why = f"{events} in {n:,} rows: too few to judge, at least {MIN_EVENTS} are needed"
            skipped.append(Skipped("group", why, group=name))
            continue
        members = rows.take(own)
        if members.clusters is not None and members.clusters.count < MIN_CLUSTERS:
            count = f"{members.clusters.count} clusters of rows"
            why = f"{count}: too few to judge, at least {MIN_CLUSTERS} are needed"
            skipped.append(Skipped("group", why, group=name))
            continue
        judged.append(Subgroup(variable, name, own, members))
    if unnamed:
        groups = f"{unnamed} group{'' if unnamed == 1 else 's'} of fewer than {sample.min_cell} rows"
        why = "so few rows could be one person: neither names nor numbers are shown (min_cell=0 or --min-cell 0 does)"
        skipped.append(Skipped("group", why, group=groups))
    return judged, skipped


def rows_of_groups(sample: Sample, rows: Rows) -> Iterator[tuple[str, str, BoolArray]]:
    """Return variable, name and rows of every group, whatever its size."""
    for variable, labels in sample.groups.items():
        of_row = labels_in_order(rows, labels)
        for label in np.unique(of_row):
            yield variable, f"{variable} = {label}", of_row == label
