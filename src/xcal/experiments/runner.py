"""Run what is missing of a table, job by job: train, measure, write the records.

All runs of a job are trained together, and records that exist already stay as they are: see `xcal.experiments.jobs`.
"""

import time
import warnings
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from xcal._checks import as_choice, fail
from xcal._devices import as_device, best_device
from xcal._engines import Engine, as_engine
from xcal._record_lines import Corrupt
from xcal.experiments.claims import Claims, RunKey
from xcal.experiments.data import PathLike, TableData, data_part, load_data
from xcal.experiments.job_records import JobRecords
from xcal.experiments.jobs import Job, unfinished_jobs
from xcal.experiments.progress_bar import ProgressBar
from xcal.experiments.records import Key, Record, RecordFile, is_trial
from xcal.experiments.spec import ModelSpec, Penalty, Spec, Variant
from xcal.experiments.spec_file import load_spec

_Outcome = tuple[int, int, bool]  # runs with a new record, runs trained beside them, whether interrupted


@dataclass(frozen=True)
class Summary:
    """What `reproduce` did.

    Attributes
    ----------
    path : Path
        The file of records.
    trained, kept : int
        Runs trained now, and runs that had a record already.
    missing : int
        Runs still without a record; above 0 only after an interruption, or where another process trains them.
    corrupt : tuple of Corrupt
        Lines that could not be read; their runs were trained again where they were asked for.
    other_data : int
        Records replaced because they were made on other data.
    seconds : float
    interrupted : bool
    trained_beside : int
        Runs that had a record already and were trained again because they share a job with a missing run. Their records
        stay as they were.
    elsewhere : tuple of str
        A sentence for each job that another process is training, and which was left to it.
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
    elsewhere: tuple[str, ...] = ()


def reproduce(
    table: str | Path,
    *,
    models: Iterable[str] | None = None,
    lambdas: Iterable[float] | None = None,
    seeds: Iterable[int] | None = None,
    variant: Variant | None = None,
    penalty: Penalty | None = None,
    epochs: int | str | None = None,
    device: str | None = None,
    results: PathLike = "results",
    data_dir: PathLike | None = None,
    progress: bool | None = None,
    engine: Engine = "local",
    rows: Iterable[str] | None = None,
) -> Summary:
    """Train and measure every run of a table that has no record yet.

    A run is one model of the table with one lambda and one seed. The runs of a job are trained together, and always all
    of them: where a record is missing, the whole job is trained again and only the missing record is written. The
    reason: with the paper's penalty, the metrics of a run depend on the runs that are trained beside it. `lambdas` and
    `seeds` make smaller jobs, and each record names the job it comes from.

    Parameters
    ----------
    table
        A name from `table_names`, or the path of a TOML file.
    models, lambdas, seeds
        Only these; by default all of the table's.
    variant : {"as-published", "corrected"}, optional
        By default the table's.
    penalty : {"paper", "ours", "annealed", "ramped"}, optional
        By default the paper's for "as-published" and ours for "corrected". The annealed one is ours with a temperature
        that falls from 2 bin widths to 0.1. With "ramped" it does so in the first half of the epochs, while the weight
        rises (`TrainingConfig`).
    epochs
        Another number of epochs than the table's, for all models, or the name of one of the table's trials. Such a run
        is a trial, and its record goes into a separate file.
    device
        By default the GPU if there is one.
    results
        Folder of the records.
    data_dir
        See `xcal.datasets.data_directory`; for MIMIC-III the folder that ``xcal mimic prepare`` has made. Records of
        its demo, or of other data of its shape, go to a folder of their own.
    progress
        True or False for a progress bar; by default one is shown on a terminal.
    engine : {"local", "ray"}
        Train the jobs here, one after another, or as tasks of a Ray cluster: this machine, or that of ``RAY_ADDRESS``.
        Every machine then loads the data from the same `data_dir`. Records are written by this process alone. A task
        whose machine dies is given to another one.
    rows
        Earlier name of `models`.

    Returns
    -------
    Summary
        Also after a keyboard interrupt. Records of finished jobs are kept; call the function again to resume.
    """
    if rows is not None:
        if models is not None:
            fail("rows", "nothing beside models, of which it is the earlier name", rows)
        warnings.warn("reproduce: the argument 'rows' is now 'models'", FutureWarning, stacklevel=2)
        models = rows
    full = load_spec(table)
    chosen, soft = full.chosen_variant(variant, penalty)
    spec = full.of_penalty(soft).narrowed(models=models, lambdas=lambdas, seeds=seeds, epochs=epochs)
    where = _device(as_engine(engine), device)
    part = data_part(spec, data_dir)
    records = JobRecords(spec, chosen, soft, where)
    files = {
        model.name: RecordFile.of(Path(results), spec, chosen, soft, trial=trial, part=part)
        for model, trial in ((m, is_trial(full, spec, m, chosen)) for m in spec.models)
    }
    asked = _Asked(engine, device, progress)
    return _Reproduction(spec, files, records, data_dir, asked).run()


def _device(engine: Engine, device: str | None) -> torch.device:
    """Return where this process works: with Ray, it only compares data."""
    if engine == "ray":
        as_choice("device", device, ("cpu", "cuda"), or_none=True)
        return torch.device("cpu")
    return best_device() if device is None else as_device(device)


@dataclass(frozen=True)
class _Asked:
    """How to train."""

    engine: Engine
    device: str | None
    progress: bool | None


@dataclass(frozen=True)
class _Reproduction:
    """One call of `reproduce`."""

    spec: Spec
    files: dict[str, RecordFile]  # by model
    job_records: JobRecords
    data_dir: PathLike | None
    asked: _Asked

    def run(self) -> Summary:
        """Train the jobs that have a run without a record."""
        start = time.perf_counter()
        done: dict[Key, Record] = {}
        corrupt: list[Corrupt] = []
        for file in set(self.files.values()):
            file.check_writable()
            records, unreadable = file.read()
            done, corrupt = done | records, corrupt + unreadable
        wanted = [(m, lam, seed) for m in self.spec.models for lam in self.spec.lambdas for seed in self.spec.seeds]
        found = {(m.name, lam, seed) for m, lam, seed in wanted if self._key(m, lam, seed) in done}
        data = self._load() if len(found) < len(wanted) else {}
        kept = found - self._made_on_other_data(done, found, data)
        missing = [(m, lam, seed) for m, lam, seed in wanted if (m.name, lam, seed) not in kept]
        claims = Claims(self.files, partial(self._counts, data=data))
        trained, beside, interrupted = self._train(missing, claims, data)
        missed = set() if trained == len(missing) else {(m.name, lam, s) for m, lam, s in missing} - claims.finished()
        return Summary(
            self._path(missing or wanted),
            trained,
            len(wanted) - trained - len(missed),
            len(missed),
            tuple(corrupt),
            len(found) - len(kept),
            time.perf_counter() - start,
            interrupted,
            beside,
            tuple(claims.elsewhere),
        )

    def _path(self, runs: list[tuple[ModelSpec, float, int]]) -> Path:
        """Return the file to name to a person: of the last model that was asked for, and trained if any was."""
        return self.files[runs[-1][0].name].path

    def _hash(self, model: ModelSpec) -> str:
        return self.spec.hash(model, self.job_records.variant, self.job_records.penalty)

    def _key(self, model: ModelSpec, lam: float, seed: int) -> Key:
        return (model.name, self._hash(model), lam, seed)

    def _load(self) -> dict[int, TableData]:
        """Load the data of every seed: one copy for all of them, unless seeds have their own rows."""
        variant, device = self.job_records.variant, self.job_records.device
        seeds = self.spec.seeds if self.spec.data.per_seed else self.spec.seeds[:1]
        loaded = {seed: load_data(self.spec, variant, seed, device, self.data_dir) for seed in seeds}
        return {seed: loaded.get(seed, loaded[seeds[0]]) for seed in self.spec.seeds}

    def _made_on_other_data(
        self, done: dict[Key, Record], found: set[RunKey], data: dict[int, TableData]
    ) -> set[RunKey]:
        """Return runs whose records must not stand beside new ones; nothing is compared where nothing is trained."""
        return {
            (name, lam, seed)
            for name, lam, seed in found
            if data and done[self._key(self.spec.model(name), lam, seed)].data_hash != data[seed].hash
        }

    def _counts(self, record: Record, data: dict[int, TableData]) -> bool:
        """Whether a record is one of this table, and made on these rows."""
        known = {m.name: self._hash(m) for m in self.spec.models}
        right = known.get(record.model) == record.spec_hash and record.seed in data
        return right and data[record.seed].hash == record.data_hash

    def _train(
        self, missing: list[tuple[ModelSpec, float, int]], claims: Claims, data: dict[int, TableData]
    ) -> _Outcome:
        """Train what is missing, job by job, and write the records of each as it is finished."""
        jobs = unfinished_jobs(self.spec, missing)
        trained, beside = 0, 0
        make = self._made_on_ray if self.asked.engine == "ray" else self._made_here
        with (
            ProgressBar(jobs, self.job_records.epochs, self.asked.progress) as bar,
            closing(make(jobs, claims, data, bar)) as made,
        ):
            try:
                for records in made:
                    there = claims.finished()
                    new = [record for record in records if (record.model, record.lam, record.seed) not in there]
                    if new:
                        self.files[new[0].model].add(new)
                    trained, beside = trained + len(new), beside + len(records) - len(new)
            except KeyboardInterrupt:
                return trained, beside, True
        return trained, beside, False

    def _made_here(
        self, jobs: list[Job], claims: Claims, data: dict[int, TableData], bar: ProgressBar
    ) -> Generator[list[Record]]:
        """Train one job after another; each is this process's from its begin until its records are written."""
        for job in jobs:
            with claims.claimed([job]) as free:
                for mine in free:
                    yield self.job_records.make(mine, data[mine.seeds[0]], self._hash(mine.model), bar)

    def _made_on_ray(
        self, jobs: list[Job], claims: Claims, data: dict[int, TableData], bar: ProgressBar
    ) -> Generator[list[Record]]:
        """Train all jobs on a cluster."""
        from xcal.experiments.ray_jobs import RayTask, ray_records

        with claims.claimed(jobs) as free:
            if not free:
                return
            tasks = [RayTask(job, self._hash(job.model), data[job.seeds[0]].hash) for job in free]
            for job, records in ray_records(self.job_records, self.data_dir, tasks, self.asked.device):
                bar.finish(job, self.job_records.epochs(job))
                yield records
