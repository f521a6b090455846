"""What SIGKILL at random moments destroys: nothing that was finished.

Claim: `fit_path` with checkpoints, `xcal reproduce`, `xcal.tune`, `xcal fit`, and `xcal evaluate` of a file and of a
folder are killed at random moments, again and again (`--kills 100`). After every kill what was finished can be read,
and nothing is half written. When the same command is let to its end, its results are those of a run that nobody
killed: the same bytes, apart from times of day.

`python -m tests.faults.sweep_kills` does the same to a sweep on Ray.

A child process is forked from one that has imported everything, so that moments are spread over the work and not over
the imports. `--shell 5` adds five kills of each command as a shell starts it, imports included. Needs Linux.
"""

import argparse
import contextlib
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.victims import VICTIMS, Victim


@dataclass
class Count:
    """What happened to a victim."""

    name: str
    kills: int = 0
    ends: int = 0
    unreadable: int = 0
    lost: int = 0
    different: int = 0

    def line(self) -> str:
        """Return a row of the table."""
        counts = (self.kills, self.ends, self.unreadable, self.lost, self.different)
        return f"{self.name:<24}" + "".join(f"{count:>11}" for count in counts)


def forked(work: Callable[[], object]) -> int:
    """Start the work in a child process that prints nothing but its errors."""
    child = os.fork()
    if child:
        return child
    shown, silence = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        work()
    except BaseException:
        os.dup2(shown, 2)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def finish(name: str, work: Callable[[], object]) -> float:
    """Let the work come to its end in a child process, and return its seconds."""
    start = time.monotonic()
    _, status = os.waitpid(forked(work), 0)
    if status:
        raise RuntimeError(f"{name}: what nobody kills fails")
    return time.monotonic() - start


def warm_up(victim: Victim, folder: Path) -> None:
    """Import here what the command imports, so that no later child has to.

    To run the command here would be simpler, but torch cannot train in a process and then in its fork.
    """

    def work() -> None:
        victim.run(folder)
        (folder / "modules").write_text("\n".join(sys.modules))

    finish(victim.name, work)
    modules = folder / "modules"
    for name in modules.read_text().splitlines() if modules.exists() else ():  # none where a shell did the work
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def in_shell(victim: Victim) -> Victim:
    """Return the same victim as a command that a shell starts."""

    def run(folder: Path) -> None:
        os.dup2(os.open(folder / "printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        command_line = [sys.executable, "-W", "ignore", "-m", "xcal", *map(str, victim.arguments(folder))]
        os.execv(sys.executable, command_line)

    return replace(victim, name=f"{victim.name}, shell", run=run)


def strike(victim: Victim, kills: int, rng: random.Random, root: Path) -> Count:
    """Kill a command so often, and compare what it makes with that of one that nobody killed."""

    def new_folder() -> Path:
        return Path(tempfile.mkdtemp(dir=root))

    def copy() -> Path:
        return Path(shutil.copytree(prepared, new_folder(), dirs_exist_ok=True))

    prepared = new_folder()
    finish(victim.name, lambda: victim.prepare(prepared))
    warm_up(victim, copy())
    whole = copy()
    seconds, expected = finish(victim.name, lambda: victim.run(whole)), victim.essence(whole)
    count = Count(victim.name)
    while count.kills < kills:
        struck_down(victim, copy(), count, lambda: rng.uniform(0.0, seconds) if count.kills < kills else None, expected)
    return count


def struck_down(victim: Victim, folder: Path, count: Count, moment: Callable[[], float | None], expected: str) -> None:
    """Kill one run at each of the moments, start it again each time, and look at what it has made in the end."""
    before = 0
    while True:
        child = forked(lambda: victim.run(folder))
        wait = moment()
        if wait is not None:
            time.sleep(wait)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            break
        count.kills += 1
        try:
            after = victim.finished(folder)
        except Exception as error:
            print(f"{victim.name}: {error!r}")
            count.unreadable += 1
            continue
        count.lost += after < before
        before = after
    count.ends += 1
    count.different += bool(status) or victim.essence(folder) != expected
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each command (100 for the claim)")
    parser.add_argument("--shell", type=int, default=0, help="besides, so many of each command started by a shell")
    names = ",".join(victim.name for victim in VICTIMS)
    parser.add_argument("--only", default=names, help=f"these commands, with commas: {names}")
    parser.add_argument("--seed", type=int, default=0)
    options, _ = parser.parse_known_args()
    wanted = [victim for victim in VICTIMS if victim.name in options.only.split(",")]
    struck = [(victim, options.kills) for victim in wanted]
    struck += [(in_shell(victim), options.shell) for victim in wanted if victim.arguments is not None and options.shell]
    print(f"{'command':<24}" + "".join(f"{word:>11}" for word in ["kills", "ends", "unreadable", "lost", "different"]))
    with tempfile.TemporaryDirectory() as folder:
        for victim, kills in struck:
            # Each command has moments of its own, whichever others are killed.
            rng = random.Random(f"{options.seed} {victim.name}")
            print(strike(victim, kills, rng, Path(folder)).line(), flush=True)


if __name__ == "__main__":
    main()
