"""The folder of a run: its files, written whole, and read again."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xcal._checks import fail
from xcal._files import check_writable
from xcal.cli.workflow.settings import FitSettings, read_config, write_config
from xcal.estimators import SurvivalModel
from xcal.training.across import launched
from xcal.training.fingerprint import digest

MODEL, PATH, CONFIG = "model.safetensors", "path.safetensors", "config.toml"
FRONTIER_PAGE, FRONTIER_TABLE = "frontier.html", "frontier.csv"
AUDIT_PAGE, AUDIT_NUMBERS, SUMMARY = "audit.html", "audit.json", "summary.json"
# The config file comes last: a folder that has one has everything else.
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


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Check before any work that a run can be written to the folder."""
    if folder.exists() and not folder.is_dir():
        fail("--out", "a folder", f"the file {folder}")
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
    """Give an empty folder to write to; at the end of the block its files take the places of those in `folder`.

    After an error in the block the folder is as it was. The old config file goes first and the new one comes last, so
    that a folder with a config file never holds files of two runs.
    """
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
    try:
        yield part
        (folder / CONFIG).unlink(missing_ok=True)
        for name in FILES:
            if (part / name).exists():
                os.replace(part / name, folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_run(folder: Path) -> tuple[SurvivalModel, FitSettings]:
    """Read the model and the settings of a run."""
    from xcal import load

    if not (folder / CONFIG).is_file():
        got = "no folder by that name" if not folder.is_dir() else f"one without {CONFIG}"
        raise FileNotFoundError(f"{folder}: expected the folder of a run (xcal fit ... --out {folder}), got {got}")
    config = {key: value for key, value in read_config(folder / CONFIG).items() if key in _SETTINGS}
    model = load(folder / MODEL)
    if not isinstance(model, SurvivalModel) or not hasattr(model, "encoding_"):
        fail(str(folder / MODEL), "the model of a run of xcal fit", type(model).__name__)
    return model, FitSettings(**config)


def read_summary(folder: Path) -> dict[str, Any]:
    """Read the summary of a run."""
    content = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        fail(str(folder / SUMMARY), "the summary of a run", type(content).__name__)
    return content


_SETTINGS = FitSettings.__dataclass_fields__
