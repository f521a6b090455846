"""The folder of a run: its files, written whole, and read again."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from xcal._checks import fail
from xcal._files import check_writable
from xcal._locks import sole_user
from xcal.cli.workflow.settings import FitSettings, read_config, write_config
from xcal.estimators import SurvivalModel
from xcal.estimators.persistence import MODEL_IN_FOLDER
from xcal.training.across import launched
from xcal.training.fingerprint import digest

MODEL, PATH, CONFIG = MODEL_IN_FOLDER, "path.safetensors", "config.toml"
FRONTIER_PAGE, FRONTIER_TABLE = "frontier.html", "frontier.csv"
AUDIT_PAGE, AUDIT_NUMBERS, SUMMARY = "audit.html", "audit.json", "summary.json"
# All of them are written by every run. The config file comes last.
FILES = (
    MODEL,
    PATH,
    FRONTIER_PAGE,
    FRONTIER_TABLE,
    AUDIT_PAGE,
    AUDIT_NUMBERS,
    SUMMARY,
    CONFIG,
)
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
    config = {key: value for key, value in read_config(folder / CONFIG).items() if key in _SETTINGS}
    model = load(folder / MODEL)
    if not isinstance(model, SurvivalModel) or not hasattr(model, "encoding_"):
        fail(str(folder / MODEL), "the model of a run of xcal fit", type(model).__name__)
    return model, FitSettings(**config)


def read_summary(folder: Path) -> dict[str, Any]:
    """Read the summary of a run."""
    try:
        content = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        fail(str(folder / SUMMARY), "the summary of a run, JSON", f"a file that cannot be read ({error})")
    if not isinstance(content, dict):
        fail(str(folder / SUMMARY), "the summary of a run", type(content).__name__)
    return content


_SETTINGS = FitSettings.__dataclass_fields__
