"""From the raw files of MIMIC-III to the folder that training reads: all steps, in order, each at most once.

First the manifest, which knows the finished steps; then the steps in order; last the CSV form of the benchmark.
"""

import csv
import errno
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from xcal._checks import as_choice, as_count, fail
from xcal._files import check_writable, only_writer, write_whole
from xcal_paper.mimic3.features import write_discretised, write_features
from xcal_paper.mimic3.files import (
    SPLITS,
    RawFile,
    Report,
    block_path,
    blocks_of,
    bytes_of,
    check_installed,
    connected,
    find_raw_files,
    fingerprint,
    no_space,
    silent,
)
from xcal_paper.mimic3.steps import (
    read_stays,
    read_test_subjects,
    write_events,
    write_instances,
    write_stays,
    write_timeseries,
)
from xcal_paper.mimic3.variable_list import feature_names, variables

FORMAT = 1
NAME = "manifest.json"
WORK = ".work"


def versions() -> dict[str, str]:
    """Versions of what decides about the bytes that are written."""
    return {name: import_module(name).__version__ for name in ("xcal", "duckdb", "pyarrow", "numpy")}


class Manifest:
    """The manifest of one output folder, read at the start and written after every step."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], raw: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder = folder
        self._content: dict[str, Any] = {
            "format": FORMAT,
            "finished": False,
            "settings": dict(settings),
            "raw": {name: dict(entry) for name, entry in raw.items()},
            "versions": versions(),
            "steps": {},
        }
        former = read_manifest(folder) if (folder / NAME).is_file() else None
        if former is None:
            _refuse_other_files(folder)
            self._write()
        else:
            _refuse_other_run(folder, former, self._content)
            self._content = former

    @property
    def finished(self) -> bool:
        """Whether every step is done."""
        return bool(self._content["finished"])

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the counts of every finished step."""
        return {name: dict(step["counts"]) for name, step in self._content["steps"].items()}

    def done(self, step: str) -> bool:
        """Return whether a step is finished and its files are there; if not, all later steps are done again too."""
        entry = self._content["steps"].get(step)
        if entry is not None and all(_is_there(self._folder / name, file) for name, file in entry["files"].items()):
            return True
        names = list(self._content["steps"])
        if entry is not None:
            for later in names[names.index(step) :]:
                del self._content["steps"][later]
            self._content["finished"] = False
            self._write()
        return False

    def run(self, step: str, write: Callable[[Path], dict[str, int]]) -> None:
        """Do a step: `write` fills the folder that it is given and returns counts."""
        part, target = self._folder / WORK / f"{step}.part", self._folder / step
        for old in (part, target):
            shutil.rmtree(old, ignore_errors=True)
        part.mkdir(parents=True)
        counts = write(part)
        files = {}
        for path in sorted(part.rglob("*")):
            if path.is_file():
                _bring_to_disk(path)
                files[f"{step}/{path.relative_to(part).as_posix()}"] = {**fingerprint(path), **_rows(path)}
        os.replace(part, target)
        self._content["steps"][step] = {"counts": counts, "files": files}
        self._write()

    def finish(self) -> None:
        """Remove what only an unfinished run needs, then say that all is done."""
        shutil.rmtree(self._folder / WORK, ignore_errors=True)
        self._content["finished"] = True
        self._write()

    def _write(self) -> None:
        write_whole(self._folder / NAME, (json.dumps(self._content, indent=1) + "\n").encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a prepared folder."""
    path = folder / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected the manifest of a prepared folder, got no such file") from None
    except (ValueError, RecursionError):  # text that is not UTF-8 or not JSON, or lists within lists without end
        content = None
    if not isinstance(content, dict) or "steps" not in content or "settings" not in content:
        fail(str(path), "the manifest of a prepared folder", "another file")
    if content.get("format") != FORMAT:
        fail(str(path), f"format {FORMAT}", content.get("format"))
    return content


def _refuse_other_files(folder: Path) -> None:
    others = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    if others:
        fail("out_dir", "an empty folder, or one of an earlier run", f"{folder}, which holds {others[0]}")


def _refuse_other_run(folder: Path, former: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse a folder that was made with other settings or from other files, naming the first difference."""
    parts = ["settings", "raw"] if former["finished"] else ["settings", "raw", "versions"]
    for part in parts:
        for key in sorted({*former[part], *ours[part]}):
            theirs, own = former[part].get(key), ours[part].get(key)
            if theirs != own:
                name = f"{key}" if part == "settings" else f"{part} {key}"
                shown = (own, theirs) if part != "raw" else ("this file", "another one")
                fail(
                    "out_dir",
                    f"a folder of a run with {name}: {shown[0]}",
                    f"{folder}, made with {shown[1]}; choose another folder",
                )


def _is_there(path: Path, entry: Mapping[str, Any]) -> bool:
    return path.is_file() and path.stat().st_size == entry["bytes"]


def _rows(path: Path) -> dict[str, int]:
    """Return the number of rows, if it is a parquet file."""
    if path.suffix != ".parquet":
        return {}
    parquet: Any = import_module("pyarrow.parquet")
    return {"rows": int(parquet.read_metadata(path).num_rows)}


def _bring_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


# ----------------------------------------------------------------------------------------------------------------------
# From the raw files of MIMIC-III to the folder that training reads: all steps, in order, each at most once.


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


# ----------------------------------------------------------------------------------------------------------------------
# Time series in the CSV form of the public benchmark, value for value, to compare with it or to feed its models.


def write_benchmark_csv(prepared: str | Path, folder: str | Path) -> int:
    """Write every time series of a prepared folder as the public benchmark does, and its lists of instances.

    Parameters
    ----------
    prepared
        Folder that `prepare` has written.
    folder
        Where to write ``train/<subject>_episode<n>_timeseries.csv``, ``test/...`` and, in each, ``listfile.csv``.
        Validation stays go to ``train``, as in the benchmark. The lists are sorted by stay and hour.

    Returns
    -------
    int
        How many time series were written.
    """
    source, target = Path(prepared), Path(folder)
    if not (source / "timeseries").is_dir():
        fail("prepared", "a folder with timeseries/, as `xcal mimic prepare` writes it", source)
    parquet: Any = import_module("pyarrow.parquet")
    stays = read_stays(source / "stays")
    name_of = {
        int(stay): f"{subject}_episode{episode}_timeseries.csv"
        for stay, subject, episode in zip(stays["stay_id"], stays["subject_id"], stays["episode"], strict=True)
    }
    written = 0
    lists: dict[str, list[tuple[str, float, float]]] = {"train": [], "test": []}
    for part in lists:
        (target / part).mkdir(parents=True, exist_ok=True)
    for split, block, _ in blocks_of(stays):
        part = "test" if split == "test" else "train"
        series, instances = (block_path(source / step, split, block) for step in ("timeseries", "instances"))
        if series.is_file():
            for stay, text in _texts(parquet.ParquetFile(series).read()):
                write_whole(target / part / name_of[stay], text.encode())
                written += 1
        if instances.is_file():
            columns = parquet.ParquetFile(instances).read(columns=["stay_id", "period_length", "remaining"])
            rows = zip(*(column.to_pylist() for column in columns.columns), strict=True)
            lists[part] += [(name_of[stay], hours, remaining) for stay, hours, remaining in rows]
    for part, found in lists.items():
        lines = [f"{name},{hours:.6f},{remaining:.6f}\n" for name, hours, remaining in sorted(found)]
        write_whole(target / part / "listfile.csv", "".join(["stay,period_length,y_true\n", *lines]).encode())
    return written


def _texts(table: Any) -> list[tuple[int, str]]:
    """Text of the CSV file of each stay. Python writes a float as the shortest text that reads back the same."""
    stay = table.column("stay_id").to_pylist()
    columns = [table.column(name).to_pylist() for name in ("hours", *variables())]
    found: dict[int, io.StringIO] = {}
    for number, cells in zip(stay, zip(*columns, strict=True), strict=True):
        if number not in found:
            found[number] = io.StringIO()
            csv.writer(found[number], lineterminator="\n").writerow(("Hours", *variables()))
        csv.writer(found[number], lineterminator="\n").writerow(cells)
    return [(number, file.getvalue()) for number, file in found.items()]
