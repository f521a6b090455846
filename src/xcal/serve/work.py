"""The tables and models that were dropped on the page: each in a folder of its own, its work in processes of its own.

A folder is deleted when the page says so (also as it is closed), when nothing was asked of it for some minutes, and
when the server ends. What is run is the command that the page shows, in that folder.
"""

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

from xcal._checks import fail
from xcal.estimators.persistence import MODEL_IN_FOLDER
from xcal.serve.tables import Asked, as_text, command

TABLES = (".csv", ".tsv", ".txt", ".gz", ".parquet", ".pq")
TABLES_FOLDER = "tables"
MODELS = (".safetensors", ".xcal")
_REFUSED = "a table (.csv, .tsv, also .gz, or .parquet) or a model that xcal saved (.safetensors, .xcal)"
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME, _LINES = 80, 40
_LONGEST_LINE = 1 << 20
_READING = 120.0  # seconds for which a file is read at most


@dataclass(frozen=True)
class Limits:
    """What one server takes on.

    Attributes
    ----------
    most_bytes : int
        Size of a file.
    most_files, at_once : int
        Files that are kept, and commands that run beside each other.
    keep, longest : float
        Seconds after which a file is deleted that nobody asks for, and that a command may run.
    """

    most_bytes: int = 100 << 20
    most_files: int = 50
    at_once: int = 2
    keep: float = 600.0
    longest: float = 3600.0


@dataclass(eq=False)
class Dropped:
    """One file that was dropped, and what became of it."""

    id: str
    folder: Path
    name: str
    state: str = "received"  # then "understood", "waiting", "running", "done" or "failed"
    understood: dict[str, Any] | None = None
    asked: Asked = field(default_factory=Asked)
    said: list[str] = field(default_factory=list)
    error: str = ""
    process: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None
    seen: float = field(default_factory=monotonic)
    model: Any = None

    @property
    def path(self) -> Path:
        """The file itself."""
        return self.folder / self.name

    @property
    def tables(self) -> Path:
        """The folder of tables and pictures, where they are asked for."""
        return self.folder / TABLES_FOLDER

    @property
    def words(self) -> list[str]:
        """Words of the command that is asked for."""
        return command(self.asked, self.name)

    def results(self) -> dict[str, Path]:
        """Return the files that can be downloaded, by the names that the page calls them."""
        run = self.folder / "run"
        places = {
            "report.html": [self.folder / "report.html", run / "audit.html"],
            "frontier.html": [run / "frontier.html"],
            "audit.json": [self.folder / "audit.json", run / "audit.json"],
            f"{TABLES_FOLDER}.zip": [self.tables.with_suffix(".zip")],
            MODEL_IN_FOLDER: [run / MODEL_IN_FOLDER],
        }
        return {name: path for name, known in places.items() for path in known if path.is_file()}

    def status(self) -> dict[str, Any]:
        """Return what the page shows."""
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "understood": self.understood,
            "command": as_text(self.words),
            "said": self.said[-_LINES:],
            "error": self.error,
            "results": sorted(self.results()) if self.state == "done" else [],
        }


def plain_name(name: str) -> str:
    """Return a file name of letters, digits, dots, lines and dashes, with the ending that tells what it is.

    Examples
    --------
    >>> plain_name("../my <b>table</b>.CSV"), plain_name("--out=x.csv")
    ('b_.csv', 'out_x.csv')
    """
    whole = _PLAIN.sub("_", re.split(r"[/\\]", name)[-1]).lstrip("._-")
    stem, dot, ending = whole.rpartition(".")
    if dot and f".{ending.lower()}" in (*TABLES, *MODELS) and stem:
        return f"{stem[-_LONGEST_NAME:].lstrip('._-') or 'table'}.{ending.lower()}"
    fail("file", _REFUSED, f"a file called {whole[:_LONGEST_NAME]}" if whole else "a file without a name")


class Desk:
    """All files that were dropped on one server."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.root = Path(tempfile.mkdtemp(prefix="xcal-serve-"))
        self.files: dict[str, Dropped] = {}
        self.turns = asyncio.Semaphore(limits.at_once)

    def find(self, key: str) -> Dropped:
        """Return a file by its id."""
        found = self.files.get(key)
        if found is None:
            fail("file", "one that was dropped here", "one that is gone: drop it once more")
        found.seen = monotonic()
        return found

    async def receive(self, name: str, body: AsyncIterator[bytes], announced: int = 0) -> Dropped:
        """Keep a file that comes piece by piece; one that is too large, or does not come to its end, leaves nothing."""
        plain = plain_name(name)
        if announced > self.limits.most_bytes:
            self._refuse_large()
        if len(self.files) >= self.limits.most_files:
            fail("file", f"at most {self.limits.most_files} files at a time", "one more: close another page first")
        new = Dropped(secrets.token_hex(8), Path(tempfile.mkdtemp(dir=self.root)), plain)
        self.files[new.id] = new
        try:
            size = 0
            with new.path.open("wb") as file:
                async for piece in body:
                    size += len(piece)
                    if size > self.limits.most_bytes:
                        self._refuse_large()
                    file.write(piece)
            if not size:
                fail("file", _REFUSED, "an empty file")
        except BaseException:
            await self.forget(new.id)
            raise
        return new

    def _refuse_large(self) -> NoReturn:
        fail("file", f"at most {self.limits.most_bytes >> 20} MB (xcal serve --most)", "a larger one")

    async def understand(self, one: Dropped, decimal: str = "") -> None:
        """Read a table in a process of its own; one that cannot be read is an error of one sentence, and is deleted."""
        try:
            async with self.turns:
                words = [sys.executable, "-m", "xcal.serve.tables", one.name, *([decimal] if decimal else [])]
                code, out, error = await self._run(one, words, _READING)
            if code:
                fail("file", "a table that can be read", _sentence(error) if error else "one that took too long")
        except BaseException:
            await self.forget(one.id)
            raise
        one.understood, one.state = json.loads(out), "understood"
        asked = one.understood["asked"]
        one.asked = Asked(**{**asked, "by": tuple(asked["by"])})

    def start(self, one: Dropped, asked: Asked) -> None:
        """Run the command that was asked for."""
        if one.state in ("waiting", "running"):
            fail("file", "a command that has ended before the next one", "one that still runs")
        for path in one.results().values():
            path.unlink()
        for made in (one.folder / "run", one.tables):
            shutil.rmtree(made, ignore_errors=True)
        one.asked, one.state, one.error, one.said, one.model = asked, "waiting", "", [], None
        one.task = asyncio.create_task(self._work(one))

    async def _work(self, one: Dropped) -> None:
        async with self.turns:
            one.state = "running"
            code, out, error = await self._run(one, [sys.executable, "-m", *one.words], self.limits.longest, one.said)
            if one.tables.is_dir() and not code:
                await asyncio.to_thread(shutil.make_archive, str(one.tables), "zip", one.tables)
        one.said = out.splitlines()
        one.state = "failed" if code else "done"
        if code:
            one.error = _sentence(error) if error else "The command was ended: it took too long."

    async def _run(
        self, one: Dropped, words: list[str], longest: float, said: list[str] | None = None
    ) -> tuple[int, str, str]:
        """Run a command in the folder of a file; `said` gets the lines that it says on its way."""
        environment = {
            **os.environ,
            "XCAL_MOST_INPUT": str(4 * self.limits.most_bytes),
            "XCAL_PROGRESS": "1",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "100",
        }
        given: dict[str, Any] = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=one.folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            limit=_LONGEST_LINE,
            **given,
        )
        one.process = process
        assert process.stdout is not None
        assert process.stderr is not None
        told: list[str] = []

        async def listen(stream: asyncio.StreamReader) -> None:
            while line := await stream.readline():
                told.append(line.decode("utf-8", errors="replace").rstrip())
                if said is not None:
                    said.append(told[-1])

        try:
            async with asyncio.timeout(longest):
                out, _ = await asyncio.gather(process.stdout.read(), listen(process.stderr))
                code = await process.wait()
        except TimeoutError:
            return 1, "", ""
        finally:
            _end(process)
            one.process = None
        return code, out.decode("utf-8", errors="replace"), "\n".join(told)

    async def cancel(self, one: Dropped) -> None:
        """End the command of a file."""
        if one.task is not None and not one.task.done():
            one.task.cancel()
            with suppress(asyncio.CancelledError):
                await one.task
            one.state, one.error = "failed", "The command was ended."

    async def forget(self, key: str) -> None:
        """End what is done for a file, and delete it."""
        one = self.files.pop(key, None)
        if one is not None:
            await self.cancel(one)
            if one.process is not None:
                _end(one.process)
            await asyncio.to_thread(shutil.rmtree, one.folder, ignore_errors=True)

    async def sweep(self) -> None:
        """Delete what nobody asks for any more, now and then, until the server ends."""
        while True:
            await asyncio.sleep(min(5.0, self.limits.keep / 2))
            for one in [one for one in self.files.values() if monotonic() - one.seen > self.limits.keep]:
                await self.forget(one.id)

    async def close(self) -> None:
        """Delete everything."""
        for key in list(self.files):
            await self.forget(key)
        shutil.rmtree(self.root, ignore_errors=True)


def read_asked(content: Any) -> Asked:
    """Read what the page asks for."""
    from xcal._files import read

    return read(Asked, content, "options")


def as_json(one: Any) -> dict[str, Any]:
    """Return a dataclass as JSON has it."""
    return asdict(one)


def _end(process: asyncio.subprocess.Process) -> None:
    """End a process and those that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()


def _sentence(error: str) -> str:
    """Return the sentence of an error, of all that a command said."""
    lines = [line for line in error.splitlines() if line.strip()]
    found = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "")
    return found.removeprefix("error: ")
