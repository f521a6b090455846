"""What is shown while a table is run."""

from typing import Any

from xcal.experiments.groups import Group
from xcal.training import EpochReport


class Bar:
    """Epochs of all models of all groups as one bar, with the time left; nothing where nobody looks."""

    def __init__(self, groups: list[Group], epochs: int, shown: bool | None) -> None:
        from tqdm import tqdm

        total = sum(group.n_models for group in groups) * epochs
        # disable=None: off unless the standard error is a terminal.
        disable = None if shown is None else not shown
        self.bar: Any = tqdm(total=total, unit="epoch", unit_scale=True, disable=disable, smoothing=0.05)
        self.groups, self.number = len(groups), 0

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *unused: object) -> None:
        self.bar.close()

    def begin(self, group: Group) -> None:
        """Say which group is trained now."""
        self.number += 1
        self.bar.set_description(f"{self.number}/{self.groups} {group.row.name}, {group.n_models} models")

    def epoch(self, report: EpochReport) -> None:
        """Count an epoch of the models that it was about."""
        self.bar.update(report.models.size)
