"""The side file of a run: what is finished, so that the same command resumes after Ctrl-C or a kill."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xcal._files import new_file
from xcal.metrics.streaming.accumulator import State

_HEADER = "header"
PASSES = 3  # at most


@dataclass
class Progress:
    """Finished pieces of each pass, and the states that they were merged to."""

    finished: list[set[int]] = field(default_factory=lambda: [set() for _ in range(PASSES)])
    states: list[State | None] = field(default_factory=lambda: [None] * PASSES)


class SideFile:
    """Keeps `Progress` in one file, written whole.

    Parameters
    ----------
    path : Path
    settings : mapping
        What the finished work belongs to: files with their fingerprints, columns, the pieces. Progress of any other
        settings does not count, so a file that has changed is counted anew.
    seconds : float
        Least time between two writes. One that takes long is made more rarely still.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, seconds: float) -> None:
        self.path, self._seconds = path, seconds
        # As JSON and back, so that what was read can be compared.
        self._settings = json.loads(json.dumps(settings))
        self._written = time.monotonic()
        self._took = 0.0

    def read(self) -> tuple[Progress, str | None]:
        """Return what is finished, and why something that is there does not count."""
        try:
            return self._read()
        except FileNotFoundError:
            return Progress(), None
        # What a damaged archive makes its readers raise is of many kinds. Whatever it is, the work can be done again.
        except Exception:
            return Progress(), "it cannot be read"

    def _read(self) -> tuple[Progress, str | None]:
        # Opened here: numpy leaves a damaged file open.
        with self.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            header = json.loads(str(stored[_HEADER]))
            arrays = {name: stored[name] for name in stored.files if name != _HEADER}
        if header["settings"] != self._settings:
            return Progress(), _difference(header["settings"], self._settings)
        progress = Progress([{int(piece) for piece in pieces} for pieces in header["finished"]])
        if len(progress.finished) != PASSES:
            raise ValueError("another number of passes")
        for k, finished in enumerate(progress.finished):
            own = {name[2:]: values for name, values in arrays.items() if name.startswith(f"{k}/")}
            progress.states[k] = own or None
            if bool(own) != bool(finished) or not finished <= set(range(self._settings["pieces"])):
                raise ValueError("pieces and their sums do not belong together")
        return progress, None

    @property
    def due(self) -> bool:
        """Whether it is time to write again."""
        return time.monotonic() - self._written >= max(self._seconds, 10 * self._took)

    def write(self, progress: Progress) -> None:
        """Write what is finished."""
        start = time.monotonic()
        header = {"settings": self._settings, "finished": [sorted(pieces) for pieces in progress.finished]}
        arrays: dict[str, Any] = {_HEADER: np.array(json.dumps(header))}
        for k, state in enumerate(progress.states):
            arrays |= {f"{k}/{name}": values for name, values in (state or {}).items()}
        with new_file(self.path) as part, part.open("wb") as file:
            np.savez(file, **arrays)
        self._written = time.monotonic()
        self._took = self._written - start

    def remove(self) -> None:
        """Remove the file: the run is complete."""
        self.path.unlink(missing_ok=True)


def _difference(stored: Any, present: Mapping[str, Any]) -> str:
    """Return why the work of another run does not count."""
    if not isinstance(stored, dict) or stored.keys() != present.keys():
        return "it is of another version"
    before, after = (dict(settings["files"]) for settings in (stored, present))
    changed = [name for name in after if before.get(name) != after[name]] or [k for k in before if k not in after]
    return f"{changed[0]} has changed" if changed else "it is of other settings"
