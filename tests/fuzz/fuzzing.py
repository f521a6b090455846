"""Hostile input for every public function and every file format.

Claim: the outcome is a result, or one sentence that names the argument (ValueError, TypeError, or OSError for files).
No other exception, no NaN without a warning or a documented rule, no memory that a file's header asks for, no call
without end. `--inputs 10000` is the claim; the default takes minutes. Needs Linux.

Each call is a good one of which one to three arguments were spoilt. A file is a good one with bytes cut, flipped,
doubled or forged. The table counts outcomes, and gives the longest call in seconds of the processor. "As asked" is a
call that was stopped because 100,000 or more epochs, trials or draws were asked for. What is none of the allowed
outcomes is printed below the function, once for each kind, with the options that make this input again, alone.
"""

import argparse
import contextlib
import faulthandler
import os
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import torch

from tests.fuzz.outcomes import GOOD, OUTCOMES, Target, outcome_of
from tests.fuzz.spoiling import fixed_chance, hostile

MEMORY = 3 << 30  # bytes beyond those in use when the fuzzing begins
CHUNK = 250  # inputs that a process takes at a time


@dataclass(frozen=True)
class Problem:
    """An outcome that must not be."""

    target: str
    number: int
    outcome: str
    what: str
    arguments: str

    def __str__(self) -> str:
        again = f'--only "{self.target}" --first {self.number} --inputs 1'
        return f"    {self.outcome}: {self.what}\n        {self.arguments}\n        {again}"


@dataclass
class Tally:
    """Outcomes of one function, the first problem of each kind, and the longest call in seconds."""

    outcomes: Counter[str] = field(default_factory=Counter)
    problems: dict[str, Problem] = field(default_factory=dict)
    longest: float = 0.0

    def add(self, other: "Tally") -> None:
        """Take in what another process has seen."""
        self.outcomes += other.outcomes
        self.problems = other.problems | self.problems
        self.longest = max(self.longest, other.longest)

    def line(self, name: str) -> str:
        """Return a row of the table."""
        counts = "".join(f"{self.outcomes[outcome]:>12}" for outcome in OUTCOMES)
        return f"{name:<44}{counts}{self.longest:>9.1f}"


def fuzzed(target: Target, n: int, seed: int, first: int = 0) -> Tally:
    """Call one function with inputs `first` to `first + n - 1`."""
    with empty_folder():
        good, why = outcome_of(target, target.arguments)
    if good not in ("result", "warned"):
        raise RuntimeError(f"{target.name}: the good arguments are not good: {good} {why}")
    tally = Tally()
    for number in range(first, first + n):
        given, chosen = hostile(target.name, target.arguments, seed, number)
        shown = repr({name: given.get(name, "left out") for name in chosen})[:300]
        start = time.process_time()
        with fixed_chance(number), empty_folder():
            outcome, what = outcome_of(target, given)
        tally.longest = max(tally.longest, time.process_time() - start)
        tally.outcomes[outcome] += 1
        if outcome not in GOOD:
            # Messages that differ in numbers and quoted text are of one kind.
            kind = re.sub(r"0x\w+|\d+|'[^']*'|\"[^\"]*\"", "", what)[:60]
            tally.problems.setdefault(kind, Problem(target.name, number, outcome, what, shown))
    return tally


@contextlib.contextmanager
def empty_folder() -> Iterator[None]:
    """Work in a folder of this input alone: an argument may be the path of a file to write."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


def limit_memory() -> None:
    """Let a call have so much memory and no more: what a header asks for is then an error that is seen."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))


# --- several processes -----------------------------------------------------------------------------------------------

_targets: dict[str, Target] = {}  # of this process


def prepare(root: Path) -> None:
    """Make the good arguments and files of this process, and limit its memory."""
    from tests.fuzz.files import file_targets
    from tests.fuzz.functions import function_targets

    faulthandler.enable()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=root))
    _targets.update({target.name: target for target in (*function_targets(), *file_targets(folder))})
    limit_memory()


def chunk(root: Path, name: str, first: int, n: int, seed: int) -> tuple[str, Tally]:
    """Do a part of the inputs, and say meanwhile which: should the process die, it is one of these."""
    at_work = root / f"process-{os.getpid()}"
    at_work.write_text(f'--only "{name}" --first {first} --inputs {n}')
    found = fuzzed(_targets[name], n, seed, first)
    at_work.unlink()
    return name, found


def in_order(root: Path, wanted: list[tuple[str, int, int, int]], processes: int) -> Iterator[tuple[str, Tally]]:
    """Do all chunks, here or in several processes."""
    if processes == 1:
        yield from (chunk(root, *one) for one in wanted)
        return
    # Not forked: torch cannot train in a process and then in its fork.
    with ProcessPoolExecutor(processes, get_context("spawn"), prepare, (root,)) as pool:
        running = [pool.submit(chunk, root, *one) for one in wanted]
        try:
            yield from (done.result() for done in running)
        except BrokenProcessPool:
            left = "\n    ".join(sorted(path.read_text() for path in root.glob("process-*")))
            sys.exit(f"a process died, at one of\n    {left}")


def chosen_names(only: list[str]) -> list[str]:
    """Return the functions of exactly these names, or whose names have these in them; say what has to be left out."""
    missing = {target.needs for target in _targets.values() if target.needs and find_spec(target.needs) is None}
    chosen = {one: [one] if one in _targets else [name for name in _targets if one in name] for one in only}
    names = list(dict.fromkeys(name for found in chosen.values() for name in found))
    for name in names:
        if _targets[name].needs in missing:
            print(f"{name}: left out, as {_targets[name].needs} is not installed")
    return [name for name in names if _targets[name].needs not in missing]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=200, help="for each function and format")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="+", default=[""], help="functions of these names, or those that have one in their name"
    )
    parser.add_argument("--processes", type=int, default=1)
    options, _ = parser.parse_known_args()
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        prepare(root)
        names = chosen_names(options.only)
        end = options.first + options.inputs
        starts = range(options.first, end, CHUNK)
        wanted = [(name, at, min(CHUNK, end - at), options.seed) for name in names for at in starts]
        print(f"{'function or format':<44}" + "".join(f"{name:>12}" for name in OUTCOMES) + f"{'longest':>9}")
        for name, found in in_order(root, wanted, options.processes):
            tally = tallies.setdefault(name, Tally())
            tally.add(found)
            if tally.outcomes.total() == options.inputs:
                print(tally.line(name), *tally.problems.values(), sep="\n", flush=True)
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    print(total.line("all"))
    sys.exit(bool(total.problems))
