"""What a run of ``xcal fit`` was asked for, and the folder that holds what it made."""

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from xcal import __version__
from xcal._checks import MIN_CELL, as_choice, as_count, as_number, fail
from xcal._files import check_writable, checked, parse_json, sole_user
from xcal.distributions.families import CONTINUOUS, DISCRETE
from xcal.estimators.model import SurvivalModel
from xcal.estimators.persistence import MODEL_IN_FOLDER
from xcal.estimators.settings import DEFAULTS, LAMBDAS, PATHS
from xcal.training.rows import digest, launched
from xcal.validation.arguments import LastSeen

# Which of day and month comes first in dates whose year is last.
DATES = ("day-first", "month-first")
# Written beside the settings: of which version, and of which bytes.
_FACTS = ("xcal", "data_sha256", "test_sha256")


@dataclass(frozen=True)
class FitSettings:
    """Settings of a run; the options of the command, with the names that they have in ``config.toml``."""

    # data, separator, decimal, dates, time, event, event_value: the file, how it is written (None: told by the file),
    # and the columns of the outcome
    data: str
    time: str | None = None
    event: str | None = None
    event_value: str | None = None
    # cause, causes, entry, lower, upper, id: columns of what else is known of rows, and the names of the causes
    cause: str | None = None
    causes: tuple[str, ...] = ()
    entry: str | None = None
    lower: str | None = None
    upper: str | None = None
    id: str | None = None
    separator: str | None = None
    decimal: str = "."
    dates: str | None = None
    # test, split, group, test_fraction: where the rows come from that no model sees: another file, a column, or chance;
    # `group` keeps rows together
    test: str | None = None
    split: str | None = None
    group: str | None = None
    test_fraction: float = 0.25
    # drop, keep: columns that are no features, and columns that are even if they look like an id or like the outcome
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    drop_duplicates: bool = False  # whether rows that repeat another one are left out
    # by, site, covariates: columns whose groups the report judges apart, that of sites, and columns that it asks "for
    # whom?" about
    by: tuple[str, ...] = ()
    site: str | None = None
    covariates: tuple[str, ...] = ()
    # distribution, lambdas, seeds, path, epochs: of the path
    distribution: str = DEFAULTS.distribution
    lambdas: tuple[float, ...] = LAMBDAS
    seeds: int = 3
    path: str = PATHS[0]
    epochs: int = DEFAULTS.epochs
    # horizons, landmarks, last_seen, time_unit, resamples, min_cell: of the reports; the last is the smallest number of
    # rows of which something is told
    horizons: tuple[float, ...] | None = None
    landmarks: tuple[float, ...] | None = None
    last_seen: str = "auto"
    time_unit: str = ""
    resamples: int | None = None
    min_cell: int = MIN_CELL
    seed: int = 0  # of split, training and resamples

    def __post_init__(self) -> None:
        as_number("--test-fraction", self.test_fraction, above=0, below=1)
        as_choice("--distribution", self.distribution, (*DISCRETE, *CONTINUOUS))
        as_choice("--dates", self.dates, DATES, or_none=True)
        as_choice("--path", self.path, PATHS)
        as_choice("--last-seen", self.last_seen, get_args(LastSeen))
        as_count("--seeds", self.seeds, at_least=1)
        as_count("--epochs", self.epochs, at_least=1)
        as_count("--seed", self.seed, at_least=0)
        as_count("--min-cell", self.min_cell, at_least=0)
        if self.resamples is not None:
            as_count("--resamples", self.resamples, at_least=0)
        given = [f"--{name}" for name in ("test", "split") if getattr(self, name) is not None]
        if len(given) > 1:
            fail("--test, --split", "one of them", "both")
        check_outcome(self.time, self.event, self.lower, self.upper, self.cause, self.causes, self.event_value)

    @property
    def outcome(self) -> dict[str, Any]:
        """Columns of what was observed, as `TableFile.outcome` takes them."""
        names = ("time", "event", "event_value", "cause", "causes", "entry", "lower", "upper")
        return {name: getattr(self, name) for name in names} | {"person": self.id}


def check_outcome(
    time: str | None,
    event: str | None,
    lower: str | None,
    upper: str | None,
    cause: str | None = None,
    causes: Sequence[str] = (),
    event_value: str | None = None,
) -> None:
    """Check that either times with events or causes, or both ends of intervals were named."""
    if (lower is None) != (upper is None):
        fail("--lower, --upper", "both ends of every interval", "--lower" if upper is None else "--upper")
    given = [f"--{name}" for name, own in (("time", time), ("event", event), ("cause", cause)) if own is not None]
    if lower is not None:
        if given:
            fail("--lower, --upper", "intervals alone, in place of --time with --event or --cause", given[0])
    elif time is None or (event is None) == (cause is None):
        got = " and ".join(given) or "none"
        fail("--time", "a column of times, with one of --event and --cause (or --lower with --upper)", got)
    if causes and cause is None:
        fail("--causes", "it with --cause, the column of the causes", "--causes alone")
    if event_value is not None and event is None:
        fail("--event-value", "it with --event, the column of the event", "it without")


SETTINGS = tuple(field.name for field in dataclasses.fields(FitSettings))


def merged(config: Path | None, given: Mapping[str, Any]) -> FitSettings:
    """Read the settings of a config file, with what the command line says in place of what the file says.

    Files that the config file names must be those that it was written for; a file of the command line may be another.
    """
    written = {} if config is None else read_config(config)
    values = {name: value for name, value in written.items() if name not in _FACTS} | dict(given)
    # A new way to split takes the place of the old one.
    for name, other in (("test", "split"), ("split", "test")):
        if name in given and other not in given:
            values.pop(other, None)
    # So has an outcome that is told in another way.
    if {"lower", "upper"} & {*given}:
        for name in ("time", "event", "event_value", "cause", "causes"):
            values = values if name in given else {key: value for key, value in values.items() if key != name}
    told = {"lower", "upper", "cause"} & {*values}
    missing = [name for name in ("data", "time", "event") if name not in values and (name == "data" or not told)]
    if missing:
        option = "a file" if missing[0] == "data" else f"--{missing[0]}"
        fail("xcal fit", f"{option}, or --config with the settings of a run", "none")
    for name in ("data", "test"):
        known = written.get(f"{name}_sha256")
        if known is not None and name not in given and name in values:
            _check_bytes(Path(values[name]), str(known), config)
    return FitSettings(**values)


def read_config(path: Path) -> dict[str, Any]:
    """Read a config file; an unknown key or a value of another kind is an error that names it."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a config file of a run, got none by that name")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(str(path), "a TOML file", str(error))
    for key in content:
        if key not in SETTINGS and key not in _FACTS:
            fail(f"{path}, {key}", f"one of the keys {', '.join(SETTINGS)}", "it")
    # The type hints of the settings are the rules of the file; the facts beside them are texts.
    hints = get_type_hints(FitSettings)
    return {key: checked(f"{path}, {key}", value, hints.get(key, str)) for key, value in content.items()}


def write_config(settings: FitSettings) -> str:
    """Write all settings as TOML, with checksums of the files they name."""
    values: dict[str, Any] = {"xcal": __version__}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is None:
            continue
        values[field.name] = value
        if field.name in ("data", "test"):
            values[f"{field.name}_sha256"] = checksum(Path(value))
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    return "\n".join(["# Runs again: xcal fit --config THIS_FILE --out ANOTHER_FOLDER", *lines]) + "\n"


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_bytes(path: Path, known: str, config: Path | None) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected the file that {config} names, got none by that name")
    if checksum(path) != known:
        expected = f"the bytes of which {config} was written (to take this file as it is now, name it on the command)"
        fail(str(path), expected, "others")


def _toml(value: Any) -> str:
    """Write one value; a JSON text is a TOML text, but for the one control character that JSON leaves as it is."""
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value).lower() if isinstance(value, bool) else repr(value)


# --- The folder of a run: its files, written whole, and read again.


MODEL, PATH, CONFIG = MODEL_IN_FOLDER, "path.safetensors", "config.toml"
FRONTIER_PAGE, FRONTIER_TABLE = "frontier.html", "frontier.csv"
AUDIT_PAGE, AUDIT_NUMBERS, SUMMARY = "audit.html", "audit.json", "summary.json"
# All of them are written by every run. The config file comes last.
FILES = (MODEL, PATH, FRONTIER_PAGE, FRONTIER_TABLE, AUDIT_PAGE, AUDIT_NUMBERS, SUMMARY, CONFIG)
# Where models are kept until the whole run is written.
UNFINISHED = "unfinished"
# Files on their way: while they are written, and when all of them are there.
_PART, _READY = ".part-", ".ready"


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Check before any work that a run can be written to the folder."""
    if folder.exists() and not folder.is_dir():
        fail("--out", "a folder", f"the file {folder}")
    settle(folder)
    found = [name for name in FILES if (folder / name).exists()]
    if found and not overwrite:
        fail("--out", "a new folder, or --overwrite to replace the run that is there", f"{folder} with {found[-1]}")
    check_writable(folder)


def checkpoint(folder: Path, settings: FitSettings) -> Path | None:
    """Folder in which a run that torchrun started keeps the state of its training, to resume when it is restarted."""
    if not launched():
        return None
    return folder / f".training-{digest(write_config(settings).encode())[:12]}"


@contextmanager
def new_run(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write to; at the end of the block its files take the places of those in `folder`.

    After an error in the block, or a kill, the folder is as it was. When all files are written their folder gets the
    name ``.ready`` in one step; from then on the new run counts. A kill while its files are moved is made up for by the
    next command that reads or writes the folder. Who calls this holds the folder (`sole_run`).
    """
    for left in folder.glob(f"{_PART}*"):  # by a kill
        shutil.rmtree(left, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=_PART, dir=folder))
    try:
        yield part
        os.replace(part, folder / _READY)
        settle(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def settle(folder: Path) -> None:
    """Move the files of a run that was written whole to their places, where a kill has left them on the way."""
    ready = folder / _READY
    if not ready.is_dir():
        return
    for name in FILES:
        # Another process may be moving them too; a file that is there no more has been moved.
        with suppress(FileNotFoundError):
            os.replace(ready / name, folder / name)
    shutil.rmtree(ready, ignore_errors=True)


def sole_run(folder: Path) -> AbstractContextManager[None]:
    """Keep the folder for one run of ``xcal fit``."""
    folder.mkdir(parents=True, exist_ok=True)
    return sole_user("--out", folder)


def read_run(folder: Path) -> tuple[SurvivalModel, FitSettings]:
    """Read the model and the settings of a run."""
    from xcal import load

    settle(folder)
    if not (folder / CONFIG).is_file():
        got = "no folder by that name" if not folder.is_dir() else f"one without {CONFIG}"
        if (folder / UNFINISHED).is_dir():
            got = "a run that was not finished: the same xcal fit finishes it"
        raise FileNotFoundError(f"{folder}: expected the folder of a run (xcal fit ... --out {folder}), got {got}")
    config = {key: value for key, value in read_config(folder / CONFIG).items() if key in SETTINGS}
    model = load(folder / MODEL)
    if not isinstance(model, SurvivalModel) or not hasattr(model, "encoding_"):
        fail(str(folder / MODEL), "the model of a run of xcal fit", type(model).__name__)
    return model, FitSettings(**config)


def read_summary(folder: Path) -> dict[str, Any]:
    """Read the summary of a run."""
    name = str(folder / SUMMARY)
    content: dict[str, Any] = checked(name, parse_json(name, (folder / SUMMARY).read_bytes()), dict[str, Any])
    return content
