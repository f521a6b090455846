"""Records: one small record per run, kept in one file of JSON lines for each table, variant and penalty.

A file is rewritten whole and replaced in one move (`xcal._files`). A reader sees the old records or the new ones, also
after a crash in the middle of writing. Writers take turns: each reads, adds and writes under a lock, and none undoes
what another has added. A few hundred lines are written in milliseconds, and the result is one readable file to look at
or commit; one file per run would be hundreds of files. Each line ends with a checksum of itself
(`xcal._files`). A line that does not match its checksum, or holds values of the wrong kind, is reported, and its
run counts as missing.

Below: which runs are trained together, as a job, and which process trains a job.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from xcal._files import BusyError, Corrupt, add_lines, as_line, check_place, read_lines, sole_user
from xcal_paper.spec import ModelSpec, Penalty, Spec, Variant

Key = tuple[str, str, float, int]
Metrics = dict[str, float]

# Names that some fields have in the file. Committed records have them, so they stay; the names in Python say more.
_IN_FILE = {
    "model": "row",
    "metrics": "figures",
    "job_runs": "group_models",
    "job_seconds": "group_seconds",
    "job_lambdas": "group_lambdas",
    "job_seeds": "group_seeds",
}
_IN_PYTHON = {in_file: name for name, in_file in _IN_FILE.items()}
# Fields that hold metrics. JSON has no NaN and no infinity: they are written as words.
_METRICS = ("metrics", "validation", "recalibrated")
_WORDS = {"nan", "inf", "-inf"}
# Fields that older records do not have; without a value they are left out of the line, so that old lines stay as they
# are when a file is rewritten. Those of one group came together: a line has all of them or none.
_LATER = (("job_lambdas", "job_seeds"), ("data",))


@dataclass(frozen=True)
class Record:
    """Metrics of one run, and where they come from.

    Attributes
    ----------
    table, variant, penalty : str
    model : str
        Name of the model in the spec; ``row`` in the file, as it is a row of the paper's table.
    lam : float
    seed : int
    spec_hash, data_hash : str
        Of everything that decides the numbers except lambda and seed; of the data.
    epochs, best_epoch : int
        Epochs trained, and the one (from 0) whose weights were kept.
    metrics : dict
        On the test rows (studies: on the training rows); ``figures`` in the file.
    validation : dict
        Objective and D-calibration of the best epoch.
    recalibrated : dict
        Metrics after recalibration; empty unless lambda is 0.
    failure : str
        Where the loss stopped being a number; empty where it did not.
    versions : dict
    device : str
    job_runs : int
    job_seconds : float
        Number of runs that were trained together, this one included, and the time that took with the evaluation;
        ``group_models`` and ``group_seconds`` in the file.
    written : str
        Date and time, UTC.
    job_lambdas, job_seeds : tuple
        Lambdas and seeds of the runs that were trained together; ``group_lambdas`` and ``group_seeds`` in the file. A
        penalty as sharp as the paper's makes the metrics depend on them. Empty in records that were written before this
        was kept.
    data : str
        Name of the data, where a table can be made on several: the full MIMIC-III, its demo.
    """

    table: str
    variant: str
    penalty: str
    model: str
    lam: float
    seed: int
    spec_hash: str
    data_hash: str
    epochs: int
    best_epoch: int
    metrics: Metrics
    validation: Metrics
    recalibrated: Metrics = field(default_factory=dict)
    failure: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    device: str = ""
    job_runs: int = 1
    job_seconds: float = 0.0
    written: str = ""
    job_lambdas: tuple[float, ...] = ()
    job_seeds: tuple[int, ...] = ()
    data: str = ""

    @property
    def key(self) -> Key:
        """What tells the records of one file apart."""
        return (self.model, self.spec_hash, self.lam, self.seed)

    def line(self) -> str:
        """Return the record as one line of JSON that carries its own checksum."""
        content = {
            _IN_FILE.get(name, name): _as_json(value) if name in _METRICS else value
            for name, value in asdict(self).items()
            if value or all(name not in group for group in _LATER)
        }
        return as_line(content)


@dataclass(frozen=True)
class RecordFile:
    """The records of one table, variant and penalty."""

    path: Path

    @classmethod
    def of(
        cls, results: Path, spec: Spec, variant: Variant, penalty: Penalty, *, trial: bool, part: str = ""
    ) -> "RecordFile":
        """Return the file of a table.

        Runs with other epochs or scores than the spec's are trials and have their own folder. So have runs on a part of
        the data (see `xcal_paper.data.data_part`). A model that a trial leaves as it is has its records in the table's
        own file.
        """
        folder = results / spec.table / part / ("trial" if trial else "")
        return cls(folder / f"{variant}.{penalty}.jsonl")

    def read(self) -> tuple[dict[Key, Record], list[Corrupt]]:
        """Return records by key, and the lines that cannot be read. Without a file there are no records."""
        return read_lines(self.path, _record, lambda record: record.key)

    def check_writable(self) -> None:
        """Find out before hours of training whether records can be written at all."""
        check_place(self.path, "results")

    def add(self, new: Iterable[Record]) -> None:
        """Write the old records and the new ones, all or nothing; a new record replaces an old one with the same key.

        The file is read again first, and other writers wait until it is written: what another thread or process has
        added is kept.
        """
        add_lines(self.path, _record, new, "results")


def is_trial(full: Spec, asked: Spec, model: ModelSpec, variant: Variant) -> bool:
    """Return whether a model is to be trained for other epochs, or by another score, than the table's spec says."""
    other_score = model.objective != full.model(model.name).objective
    return other_score or asked.training_of(model, variant) != full.training_of(model, variant)


def _record(content: dict[str, Any]) -> Record:
    expected = {_IN_FILE.get(f.name, f.name) for f in fields(Record)}
    for group in _LATER:
        names = {_IN_FILE.get(name, name) for name in group}
        if not names & set(content):
            expected -= names
    if set(content) != expected:
        raise ValueError("the record of another version")
    return Record(**{_in_python(name): _field(name, value) for name, value in content.items()})


def _in_python(in_file: str) -> str:
    return _IN_PYTHON.get(in_file, in_file)


def _field(in_file: str, value: Any) -> Any:
    """Check a value of a record against the type of its field: the checksum of a forged line can be right."""
    right, make = _KINDS[_HINTS[_in_python(in_file)]]
    if not right(value):
        raise ValueError(f"a value of the wrong kind for {in_file!r}")
    return make(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _is_metric(value: Any) -> bool:
    """Return whether this is a number as records have them; those that JSON cannot write are words."""
    return _is_number(value) or _is_whole(value) or (isinstance(value, str) and value in _WORDS)


def _table_of(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda values: isinstance(values, dict) and all(map(right, values.values()))


def _list_of(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda values: isinstance(values, list) and all(map(right, values))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _same(value: Any) -> Any:
    return value


# For the type of each field: a check of the value that was read from the file, and a function that gives it that type.
_KINDS: dict[Any, tuple[Callable[[Any], bool], Callable[[Any], Any]]] = {
    str: (_is_text, _same),
    int: (_is_whole, _same),
    float: (_is_number, _same),
    dict[str, str]: (_table_of(_is_text), _same),
    dict[str, float]: (_table_of(_is_metric), lambda values: {key: float(value) for key, value in values.items()}),
    tuple[float, ...]: (_list_of(_is_number), tuple),
    tuple[int, ...]: (_list_of(_is_whole), tuple),
}
_HINTS = get_type_hints(Record)


def _as_json(metrics: Metrics) -> dict[str, float | str]:
    return {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()}


# ----------------------------------------------------------------------------------------------------------------------
# Which runs are trained together.
#
# A penalty as sharp as the paper's enlarges differences in the last digits of a model, and the last digits depend on
# how many runs share a matrix product. So all runs of a job are always trained, even where only one record is missing:
# that run then gives the same record as before (on the same machine and with the same versions).


@dataclass(frozen=True)
class Job:
    """Runs of one model that are trained together: all pairs of these lambdas and seeds."""

    model: ModelSpec
    lambdas: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def n_runs(self) -> int:
        """Number of runs."""
        return len(self.lambdas) * len(self.seeds)

    def holds(self, lam: float, seed: int) -> bool:
        """Return whether the run with this lambda and seed belongs to the job."""
        return lam in self.lambdas and seed in self.seeds


def jobs_of(spec: Spec, model: ModelSpec) -> list[Job]:
    """Return the jobs of a model.

    A job is one run (``job = "run"`` in the spec), all lambdas of a seed that has its own rows, or all lambdas and
    seeds. Lambdas beyond the paper's are apart, so that jobs with the paper's are the same without them.
    """
    if spec.job == "run":
        return [Job(model, (lam,), (seed,)) for lam in spec.lambdas for seed in spec.seeds]
    together = [(seed,) for seed in spec.seeds] if spec.data.per_seed else [spec.seeds]
    larger = tuple(lam for lam in spec.lambdas if lam in spec.larger_lambdas)
    table = tuple(lam for lam in spec.lambdas if lam not in larger)
    return [Job(model, lambdas, seeds) for lambdas in (table, larger) if lambdas for seeds in together]


def unfinished_jobs(spec: Spec, missing: list[tuple[ModelSpec, float, int]]) -> list[Job]:
    """Return the jobs of which at least one run is missing, each with all its runs."""
    return [
        job
        for model in spec.models
        for job in jobs_of(spec, model)
        if any(m is model and job.holds(lam, seed) for m, lam, seed in missing)
    ]


# ----------------------------------------------------------------------------------------------------------------------
# Which process trains a job, where several work on the same records.
#
# A job belongs to the process that has its lock. The others leave it out and say so, and a job that was finished in the
# meantime is not trained a second time. Locks end with their process (`xcal._files`).


RunKey = tuple[str, float, int]  # model, lambda, seed


@dataclass(frozen=True)
class Claims:
    """The jobs of one call, and who has them.

    Attributes
    ----------
    files : mapping
        File of records of each model.
    counts : function
        Whether a record of the file counts for this call: of this spec and made on these rows.
    elsewhere : list of str
        A sentence for each job that another process has.
    """

    files: Mapping[str, RecordFile]
    counts: Callable[[Record], bool]
    elsewhere: list[str] = field(default_factory=list)

    @contextmanager
    def claimed(self, jobs: list[Job]) -> Iterator[list[Job]]:
        """Keep those of the jobs that are free for this block, and give them: without those that are finished now."""
        with ExitStack() as kept:
            free = []
            for job in jobs:
                try:
                    kept.enter_context(sole_user(f"job of {job.model.name}", self._place(job)))
                except BusyError as busy:
                    self.elsewhere.append(str(busy))
                else:
                    free.append(job)
            done = self.finished()
            yield [job for job in free if not runs_of(job) <= done]

    def finished(self) -> set[RunKey]:
        """Return the runs that have a record by now."""
        return {
            (r.model, r.lam, r.seed)
            for file in set(self.files.values())
            for r in file.read()[0].values()
            if self.counts(r)
        }

    def _place(self, job: Job) -> Path:
        named = repr((job.model.name, job.lambdas, job.seeds)).encode()
        file = self.files[job.model.name].path
        return file.with_name(f"{file.name}.{hashlib.sha256(named).hexdigest()[:8]}")


def runs_of(job: Job) -> set[RunKey]:
    """Return all runs of a job."""
    return {(job.model.name, lam, seed) for lam in job.lambdas for seed in job.seeds}
