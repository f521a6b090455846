"""``manifest.json``: what a folder was made from, which steps are finished and what they wrote.

A step writes into a folder under ``.work``. When it is whole, its files are brought to the disk, the folder is renamed,
and the manifest gets an entry with counts and checksums. A run that is stopped anywhere leaves finished steps and what
``.work`` holds; the next run goes on behind the last entry.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from xcal._checks import fail
from xcal._files import write_whole
from xcal.datasets.mimic3.raw_files import fingerprint

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
        """Whether a step is finished and its files are there. If not, it and all later steps are to be done again."""
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
