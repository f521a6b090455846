"""Run what is missing of a table: train a group, measure it, write its records, go on.

Groups are trained whole, and records that are there stay as they are: see `xcal.experiments.groups`.
"""

import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch

import xcal
from xcal._checks import fail
from xcal._devices import as_device, best_device
from xcal.experiments.data import PathLike, TableData, load_data
from xcal.experiments.evaluation import Figures, test_figures
from xcal.experiments.groups import Group, missing_groups
from xcal.experiments.models import from_guess, make_family, make_network, make_objective
from xcal.experiments.progress import Bar
from xcal.experiments.records import Corrupt, Record, RecordFile
from xcal.experiments.spec import Penalty, Spec, Variant, default_penalty, load_spec, soft_bins
from xcal.experiments.studies import study_figures
from xcal.training import PathResult, fit_path


@dataclass(frozen=True)
class Summary:
    """What `reproduce` did.

    Attributes
    ----------
    path : Path
        The file of records.
    trained, kept : int
        Runs trained now, and runs that were there already.
    missing : int
        Runs still missing; above 0 only after an interruption.
    corrupt : tuple of Corrupt
        Lines that were no records; their runs were done again where they were asked for.
    other_data : int
        Records replaced because they were made on other rows.
    seconds : float
    interrupted : bool
    trained_beside : int
        Runs that were there already and were trained again, because a group is trained whole. Their records stay as
        they were.
    """

    path: Path
    trained: int
    kept: int
    missing: int
    corrupt: tuple[Corrupt, ...]
    other_data: int
    seconds: float
    interrupted: bool
    trained_beside: int


def reproduce(
    table: str | Path,
    *,
    rows: Iterable[str] | None = None,
    lambdas: Iterable[float] | None = None,
    seeds: Iterable[int] | None = None,
    variant: Variant | None = None,
    penalty: Penalty | None = None,
    epochs: int | None = None,
    device: str | None = None,
    results: PathLike = "results",
    data_dir: PathLike | None = None,
    progress: bool | None = None,
) -> Summary:
    """Train and measure every run of a table that has no record yet.

    Runs of a group are trained together, and always all of them: where a record is missing the whole group is trained
    again, and only what was missing is written. With the paper's penalty the figures of a run depend on the runs beside
    it. With `lambdas` or `seeds` the group is what was asked for; each record names its group.

    Parameters
    ----------
    table
        A name from `table_names`, or the path of a TOML file.
    rows, lambdas, seeds
        Only these; by default all of the table's.
    variant : {"as-published", "corrected"}, optional
        By default the table's.
    penalty : {"paper", "ours", "annealed"}, optional
        By default the paper's for "as-published" and ours for "corrected". The annealed one is ours with a temperature
        that falls from 2 bin widths to 0.1.
    epochs
        Other epochs than the table's: a trial, whose records are kept apart.
    device
        By default the GPU if there is one.
    results
        Folder of the records.
    data_dir
        See `xcal.datasets.data_directory`.
    progress
        True or False for a bar; by default one is shown on a terminal.

    Returns
    -------
    Summary
        Also after a keyboard interrupt: finished groups are kept, and the same call goes on from them.
    """
    full = load_spec(table)
    spec = full.narrowed(rows=rows, lambdas=lambdas, seeds=seeds, epochs=epochs)
    chosen, soft = chosen_variant(full, variant, penalty)
    where = best_device() if device is None else as_device(device)
    file = RecordFile.of(Path(results), spec, chosen, soft, trial=spec.training != full.training)
    return _Run(spec, chosen, soft, where, file, data_dir).all_groups(progress)


def chosen_variant(spec: Spec, variant: str | None, penalty: str | None) -> tuple[Variant, Penalty]:
    """Check variant and penalty, and fill in what was not given."""
    known: dict[str, Variant] = {"as-published": "as-published", "corrected": "corrected"}
    penalties: dict[str, Penalty] = {name: name for name in get_args(Penalty)}
    if variant is not None and variant not in known:
        fail("variant", " or ".join(known), repr(variant))
    if penalty is not None and penalty not in penalties:
        fail("penalty", " or ".join(penalties), repr(penalty))
    chosen = spec.variant if variant is None else known[variant]
    if spec.kind != "path":
        # Both studies are about the paper's membership.
        if penalty not in {None, "paper"}:
            fail("penalty", f"paper: {spec.table} is a study of the paper's penalty", repr(penalty))
        return chosen, "paper"
    return chosen, default_penalty(chosen) if penalty is None else penalties[penalty]


@dataclass(frozen=True)
class _Run:
    """One call of `reproduce`."""

    spec: Spec
    variant: Variant
    penalty: Penalty
    device: torch.device
    file: RecordFile
    data_dir: PathLike | None

    def all_groups(self, progress: bool | None) -> Summary:
        """Do what is missing, group by group."""
        start = time.perf_counter()
        self.file.check_writable()
        done, corrupt = self.file.read()
        hashes = {row.name: self.spec.hash(row, self.variant, self.penalty) for row in self.spec.rows}
        data: dict[int, TableData] = {}
        wanted = [(r, lam, seed) for r in self.spec.rows for lam in self.spec.lambdas for seed in self.spec.seeds]
        kept = {(r.name, lam, seed) for r, lam, seed in wanted if (r.name, hashes[r.name], lam, seed) in done}
        other = 0
        if len(kept) < len(wanted):
            # The rows are needed anyway: records of other rows must not stand beside new ones.
            for seed in self.spec.seeds:
                self._load(data, seed)
            stale = {
                (name, lam, seed)
                for name, lam, seed in kept
                if done[name, hashes[name], lam, seed].data_hash != data[seed].hash
            }
            kept, other = kept - stale, len(stale)
        groups = missing_groups(
            self.spec, [(r, lam, seed) for r, lam, seed in wanted if (r.name, lam, seed) not in kept]
        )
        trained, beside, interrupted = 0, 0, False
        with Bar(groups, self.spec.training.epochs, progress) as bar:
            try:
                for group in groups:
                    records = self._group(group, data[group.seeds[0]], hashes[group.row.name], bar)
                    new = [record for record in records if (record.row, record.lam, record.seed) not in kept]
                    self.file.add(new)
                    trained, beside = trained + len(new), beside + len(records) - len(new)
            except KeyboardInterrupt:
                interrupted = True
        missing = len(wanted) - len(kept) - trained
        seconds = time.perf_counter() - start
        return Summary(self.file.path, trained, len(kept), missing, tuple(corrupt), other, seconds, interrupted, beside)

    def _load(self, data: dict[int, TableData], seed: int) -> None:
        first = next(iter(data.values()), None)
        if first is not None and not self.spec.data.per_seed:
            data[seed] = first
        else:
            data[seed] = load_data(self.spec, self.variant, seed, self.device, self.data_dir)

    def _group(self, group: Group, data: TableData, spec_hash: str, bar: Bar) -> list[Record]:
        """Train and measure one group."""
        start = time.perf_counter()
        bar.begin(group)
        row, settings = group.row, self.spec.variants[self.variant]
        family = make_family(row, self.variant, data.edges)
        make = make_network(row, settings, tuple(data.train.x.shape[1:]), family.n_outputs)
        if settings.first_guess:
            # From times in single precision, as the models see them.
            make = partial(from_guess, make, family.initial(data.train.time.float(), data.train.event))
        penalty = soft_bins(self.penalty, row)
        path = fit_path(
            make,
            family,
            data.train,
            data.validation,
            lambdas=group.lambdas,
            seeds=group.seeds,
            objective=make_objective(row, self.variant),
            penalty=penalty,
            calibration_bins=self.spec.calibration_bins,
            config=self.spec.training.config(self.penalty),
            device=self.device,
            progress=bar.epoch,
        )
        if path.interrupted:
            # A path that is cut short is no result of the spec.
            raise KeyboardInterrupt
        bins = self.spec.calibration_bins
        mended: dict[int, Figures] = {}
        if self.spec.kind == "path":
            zero = group.lambdas.index(0.0) if 0.0 in group.lambdas else None
            figures, mended = test_figures(path, data, self.variant, bins, zero)
        else:
            figures = study_figures(self.spec.kind, path, data, self.variant, bins, penalty)
        shared: dict[str, Any] = {
            "table": self.spec.table,
            "variant": self.variant,
            "penalty": self.penalty,
            "row": row.name,
            "spec_hash": spec_hash,
            "data_hash": data.hash,
            "epochs": self.spec.training.epochs,
            "versions": _versions(),
            "device": _device_name(self.device),
            "group_models": group.n_models,
            "group_lambdas": group.lambdas,
            "group_seeds": group.seeds,
            "group_seconds": round(time.perf_counter() - start, 3),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return _records(path, figures, mended, shared)


def _records(
    path: PathResult, figures: list[Figures], mended: dict[int, Figures], shared: dict[str, Any]
) -> list[Record]:
    best = path.best()
    failures = {failure.model: str(failure) for failure in path.failures}
    return [
        Record(
            lam=float(path.lambdas[k]),
            seed=int(path.seeds[k]),
            best_epoch=int(path.best_epoch[k]),
            figures=_short(figures[k]),
            validation=_short({"objective": best.objective[0, k], "dcal": best.dcal[0, k]}),
            recalibrated=_short(mended.get(k, {})),
            failure=failures.get(k, ""),
            **shared,
        )
        for k in range(path.n_models)
    ]


def _short(figures: Figures) -> Figures:
    """Seven digits, what single precision holds: a record is for reading too."""
    return {name: float(f"{value:.7g}") for name, value in figures.items()}


def _versions() -> dict[str, str]:
    return {"xcal": xcal.__version__, "torch": torch.__version__, "python": platform.python_version()}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
