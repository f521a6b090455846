"""The runs of one table that a call asks for: which have a record, which are missing, and how a record is written."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from xcal._record_lines import Corrupt
from xcal.experiments.claims import Claims, RunKey
from xcal.experiments.data import PathLike, TableData, data_part, load_data
from xcal.experiments.job_records import JobRecords
from xcal.experiments.jobs import Job, unfinished_jobs
from xcal.experiments.records import Key, Record, RecordFile, is_trial
from xcal.experiments.spec import ModelSpec, Penalty, Variant
from xcal.experiments.spec_file import load_spec


@dataclass(frozen=True)
class Request:
    """What to train of a table, and where its records and its data are; `reproduce` has the meaning of each."""

    table: str | Path
    models: Iterable[str] | None = None
    lambdas: Iterable[float] | None = None
    seeds: Iterable[int] | None = None
    variant: Variant | None = None
    penalty: Penalty | None = None
    epochs: int | str | None = None
    results: PathLike = "results"
    data_dir: PathLike | None = None


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


class TableRuns:
    """One table of one call: reads its records, loads its data if something is missing, and writes new records.

    Parameters
    ----------
    request
        What to train.
    device
        Where to train.
    """

    def __init__(self, request: Request, device: torch.device) -> None:
        full = load_spec(request.table)
        variant, penalty = full.chosen_variant(request.variant, request.penalty)
        self.spec = full.of_penalty(penalty).narrowed(
            models=request.models, lambdas=request.lambdas, seeds=request.seeds, epochs=request.epochs
        )
        self.data_dir = request.data_dir
        self.job_records = JobRecords(self.spec, variant, penalty, device)
        self.hashes = {model.name: self.spec.hash(model, variant, penalty) for model in self.spec.models}
        part = data_part(self.spec, request.data_dir)
        self.files = {
            model.name: RecordFile.of(Path(request.results), self.spec, variant, penalty, trial=trial, part=part)
            for model, trial in ((m, is_trial(full, self.spec, m, variant)) for m in self.spec.models)
        }
        self.data: dict[int, TableData] = {}
        self.claims = Claims(self.files, self._counts)
        self._trained, self._beside, self._other_data = 0, 0, 0
        self._corrupt: list[Corrupt] = []

    def read(self) -> None:
        """Read the records, and find out which runs have none."""
        self._start = time.perf_counter()
        self._done: dict[Key, Record] = {}
        for file in set(self.files.values()):
            file.check_writable()
            records, unreadable = file.read()
            self._done |= records
            self._corrupt += unreadable
        self._wanted = [
            (m, lam, seed) for m in self.spec.models for lam in self.spec.lambdas for seed in self.spec.seeds
        ]
        self.missing = [run for run in self._wanted if self._key(*run) not in self._done]

    def load(self, device: torch.device) -> None:
        """Load the data if something is missing; records that were made on other data are missing too."""
        if not self.missing:
            return
        variant = self.job_records.variant
        # One copy for all seeds, unless they have their own rows.
        seeds = self.spec.seeds if self.spec.data.per_seed else self.spec.seeds[:1]
        loaded = {seed: load_data(self.spec, variant, seed, device, self.data_dir) for seed in seeds}
        self.data = {seed: loaded.get(seed, loaded[seeds[0]]) for seed in self.spec.seeds}
        there = {key for key, record in self._done.items() if self._counts(record)}
        missing = [run for run in self._wanted if self._key(*run) not in there]
        self._other_data = len(missing) - len(self.missing)
        self.missing = missing

    @property
    def jobs(self) -> list[Job]:
        """Jobs of which a run is missing."""
        return unfinished_jobs(self.spec, self.missing)

    def write(self, records: list[Record]) -> None:
        """Write the records of a job that is finished; those that are there already stay as they are."""
        there = self.claims.finished()
        new = [record for record in records if (record.model, record.lam, record.seed) not in there]
        if new:
            self.files[new[0].model].add(new)
        self._trained, self._beside = self._trained + len(new), self._beside + len(records) - len(new)

    def summary(self, *, interrupted: bool) -> Summary:
        """Return what was done."""
        missed: set[RunKey] = set()
        if self._trained < len(self.missing):
            missed = {(m.name, lam, seed) for m, lam, seed in self.missing} - self.claims.finished()
        # The file to name to a person: of the last model that was asked for, and trained if any was.
        last = (self.missing or self._wanted)[-1][0]
        return Summary(
            self.files[last.name].path,
            self._trained,
            len(self._wanted) - self._trained - len(missed),
            len(missed),
            tuple(self._corrupt),
            self._other_data,
            time.perf_counter() - self._start,
            interrupted,
            self._beside,
            tuple(self.claims.elsewhere),
        )

    def _key(self, model: ModelSpec, lam: float, seed: int) -> Key:
        return (model.name, self.hashes[model.name], lam, seed)

    def _counts(self, record: Record) -> bool:
        """Whether a record is one of this table, and made on these rows."""
        right = self.hashes.get(record.model) == record.spec_hash and record.seed in self.data
        return right and self.data[record.seed].hash == record.data_hash
