"""From the raw files of MIMIC-III to the folder that training reads: all steps, in order, each at most once."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from xcal._checks import as_choice, as_count, fail
from xcal._files import check_writable, only_writer
from xcal.datasets.mimic3.database import bytes_of, check_installed, connected, no_space
from xcal.datasets.mimic3.discretised import write_discretised
from xcal.datasets.mimic3.events import write_events
from xcal.datasets.mimic3.features import write_features
from xcal.datasets.mimic3.instances import write_instances
from xcal.datasets.mimic3.manifest import NAME, WORK, Manifest
from xcal.datasets.mimic3.parquet_files import SPLITS
from xcal.datasets.mimic3.raw_files import RawFile, find_raw_files, fingerprint
from xcal.datasets.mimic3.reporting import Report, silent
from xcal.datasets.mimic3.stays import read_stays, read_test_subjects, write_stays
from xcal.datasets.mimic3.timeseries import write_timeseries
from xcal.datasets.mimic3.variables import feature_names

Death = Literal["event", "censor"]


@dataclass(frozen=True)
class Prepared:
    """What `prepare` has done.

    Attributes
    ----------
    folder
        The output folder.
    counts
        Counts of every step, as in ``manifest.json``.
    resumed
        Steps that were finished before and were not done again.
    notes
        What a reader of the results should know: values that could not be read, subjects that no list names.
    """

    folder: Path
    counts: dict[str, dict[str, int]]
    resumed: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Run:
    """Everything that the steps need."""

    raw: dict[str, RawFile]
    out: Path
    test_subjects: Path | None
    seed: int
    death: str
    discretised: bool
    memory: int
    threads: int
    report: Report

    @property
    def work(self) -> Path:
        return self.out / WORK

    def steps(self) -> dict[str, Callable[[Path], dict[str, int]]]:
        """Return the steps in their order: name, and what fills the folder of that name."""
        steps: dict[str, Callable[[Path], dict[str, int]]] = {
            "stays": self._stays,
            "events": self._events,
            "timeseries": self._timeseries,
            "instances": self._instances,
            "features": self._features,
        }
        if self.discretised:
            steps["discretised"] = self._discretised
        return steps

    def _stays(self, folder: Path) -> dict[str, int]:
        with self._database() as connection:
            return write_stays(connection, self.raw, folder, test_subjects=self.test_subjects, seed=self.seed)

    def _events(self, folder: Path) -> dict[str, int]:
        with self._database() as connection:
            return write_events(connection, self.raw, self._read_stays(), folder, self.work, self.report)

    def _timeseries(self, folder: Path) -> dict[str, int]:
        with self._database() as connection:
            source = self.out / "stays" / "stays.parquet"
            return write_timeseries(connection, self._read_stays(), source, self.out / "events", folder, self.report)

    def _instances(self, folder: Path) -> dict[str, int]:
        return write_instances(
            self._read_stays(), self.out / "timeseries", folder, self.report, death=self.death, seed=self.seed
        )

    def _features(self, folder: Path) -> dict[str, int]:
        return write_features(
            self._read_stays(), self.out / "timeseries", self.out / "instances", folder, self.work, self.report
        )

    def _discretised(self, folder: Path) -> dict[str, int]:
        return write_discretised(self._read_stays(), self.out / "timeseries", folder, self.report)

    def _read_stays(self) -> dict[str, Any]:
        return read_stays(self.out / "stays")

    @contextmanager
    def _database(self) -> Iterator[Any]:
        with connected(self.memory, self.threads, self.work / "spill") as connection:
            yield connection


def prepare(
    raw_dir: str | Path,
    out_dir: str | Path,
    *,
    test_subjects: str | Path | None = None,
    seed: int = 0,
    death: Death = "event",
    discretised: bool = False,
    memory: str = "8GB",
    threads: int | None = None,
    report: Report = silent,
) -> Prepared:
    """Turn the raw files of MIMIC-III into the length-of-stay task, out of core; stopped, it resumes.

    Parameters
    ----------
    raw_dir
        Folder with ICUSTAYS, ADMISSIONS, PATIENTS, CHARTEVENTS, LABEVENTS and OUTPUTEVENTS, each as ``.csv`` or
        ``.csv.gz``, with headers in upper or lower case.
    out_dir
        Folder to write: empty, new, or that of an earlier run with the same settings and files, which is resumed.
        The README beside this module describes it.
    test_subjects
        File with the subjects of the test set: two columns without a header, subject id and 0 or 1 (1: test). Without
        it, 15 % of the subjects are drawn by `seed`. Half of the other subjects are for validation.
    seed
        Decides about the splits and the order of instances.
    death
        "event": a stay that ends with death in the unit is an ordinary stay, as in the benchmark. "censor": it is
        censored at death.
    discretised
        Also write 76 numbers for each hour of a stay.
    memory
        Memory to keep to, such as "8GB"; at least 1GB.
    threads
        Threads of DuckDB; as many as there are processors if not given.
    report
        Called now and then with what is being done, how much is done and how much there is (None: not known).

    Returns
    -------
    Prepared
    """
    check_installed()
    chosen = None if test_subjects is None else Path(test_subjects)
    if not isinstance(discretised, bool):
        fail("discretised", "True or False", repr(discretised))
    out = Path(out_dir)
    run = _Run(
        raw=find_raw_files(Path(raw_dir)),
        out=out,
        test_subjects=chosen,
        seed=as_count("seed", seed, at_least=0),
        death=as_choice("death", death, ("event", "censor")),
        discretised=discretised,
        memory=bytes_of(memory),
        threads=as_count("threads", threads or os.cpu_count() or 1, at_least=1),
        report=report,
    )
    if chosen is not None:
        read_test_subjects(chosen)
    if out.exists() and not out.is_dir():
        fail("out_dir", "a folder", f"{out}, which is a file")
    check_writable(out)
    with only_writer(out / NAME):
        return _prepared(run)


def _prepared(run: _Run) -> Prepared:
    raw = {}
    for number, (table, file) in enumerate(run.raw.items()):
        raw[table] = fingerprint(file.path)
        run.report("checksums", number + 1, len(run.raw))
    settings = {
        "seed": run.seed,
        "death": run.death,
        "discretised": run.discretised,
        "test_subjects": None if run.test_subjects is None else fingerprint(run.test_subjects)["sha256"],
    }
    manifest = Manifest(run.out, settings, raw)
    resumed = []
    for name, write in run.steps().items():
        if manifest.done(name):
            resumed.append(name)
            continue
        with _full_disk_said_plainly(name):
            if name == "features":
                _check_space(run.out, manifest.counts()["instances"])
            manifest.run(name, write)
    if not manifest.finished:
        manifest.finish()
    counts = manifest.counts()
    return Prepared(run.out, counts, tuple(resumed), tuple(_notes(counts)))


def _check_space(folder: Path, instances: dict[str, int]) -> None:
    """Refuse to start on the features where they might not fit: they are by far the largest folder."""
    rows = sum(instances[f"instances_{split}"] for split in SPLITS)
    # Statistics as float32, once in a temporary file and once in the result, with masks of one bit. Compression makes
    # both smaller, by how much depends on the data.
    needed = rows * (2 * 4 * len(feature_names()) + len(feature_names()) // 8)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"{folder}: expected {needed / 1e9:.1f} GB of free disk space for the features of {rows} instances, "
            f"got {free / 1e9:.1f} GB; make room, then run the same command to resume",
        )


@contextmanager
def _full_disk_said_plainly(step: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # pyarrow gives the words of the system without its number.
        if error.errno == errno.ENOSPC or "No space left on device" in str(error):
            if "resume" in str(error):  # said already
                raise
            raise no_space(step) from None
        raise


def _notes(counts: dict[str, dict[str, int]]) -> Iterator[str]:
    unlisted = counts["stays"].get("subjects_not_in_test_list", 0)
    if unlisted:
        yield f"{unlisted} subjects are not in the list of test subjects; they are for training and validation"
    for step, kind in (("events", "unreadable_values"), ("features", "unknown_texts")):
        for name, number in counts[step].items():
            if name.startswith(kind) and number:
                variable = name.removeprefix(f"{kind} ")
                yield f"{number} values of {variable} are no numbers and count as not measured"
