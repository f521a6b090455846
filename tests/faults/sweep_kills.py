"""What random kills do to a sweep on Ray: nothing that shows in its records.

Claim: 50 random SIGKILLs of workers and of the first process over a sweep of small paths (`--kills 50`). The records
are complete, none is there twice, and all are equal to those of a run that nobody killed. Needs Linux.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.faults.victims import without_times
from tests.small_table import small_table

OTHERS = 10
DRIVER = """
import sys
from xcal_paper import reproduce
reproduce(sys.argv[1], results=sys.argv[2], engine="ray", progress=False)
"""


def descendants(process: int) -> dict[int, str]:
    """Process numbers below a process, with what they call themselves."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            names[int(entry.name)] = (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        except (ValueError, OSError, IndexError):
            continue
    below = {process}
    for _ in range(6):
        below |= {child for child, parent in parents.items() if parent in below}
    return {number: names.get(number, "") for number in below - {process}}


def workers(process: int) -> list[int]:
    """Process numbers of the workers of a sweep.

    Not those of Ray's own agents, which have such names too: without one of them Ray ends the whole machine's part.
    """
    named = descendants(process).items()
    # Not those without a task: Ray waits a minute or more for a worker that dies while it starts.
    idle = ("Agent", "IDLE")
    return [number for number, name in named if name.startswith("ray::") and not name.endswith(idle)]


@dataclass
class Sweep:
    """A sweep on Ray that is killed and started again until it is done."""

    spec: Path
    results: Path
    rng: random.Random
    workers: int = 0
    drivers: int = 0
    others: int = 0  # first processes that died by themselves, with a part of Ray that a busy machine kept waiting

    def run(self, kills: int, pause: float, drivers: float = 0.2) -> None:
        """Go on until the sweep is done, dealing at most so many kills, a share of them to the first process."""
        while True:
            command_line = [sys.executable, "-c", DRIVER, str(self.spec), str(self.results)]
            driver = subprocess.Popen(command_line, stderr=subprocess.PIPE, text=True)
            killed = False
            while driver.poll() is None and self.workers + self.drivers < kills:
                time.sleep(self.rng.uniform(0, pause))
                at_work = workers(driver.pid)
                if not at_work:
                    continue
                killed = self.rng.random() < drivers
                self._kill(driver.pid if killed else self.rng.choice(at_work), driver=killed)
                if killed:
                    break
            told = driver.communicate()[1]
            if driver.returncode == 0:
                return
            self.others += not killed
            if self.others > OTHERS:
                raise RuntimeError(f"the sweep ended by itself: {told[-2000:]}")

    def _kill(self, number: int, *, driver: bool) -> None:
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.drivers, self.workers = self.drivers + driver, self.workers + (not driver)


def sweeps(kills: int, rng: random.Random, root: Path, size: dict[str, int], pause: float) -> dict[str, int]:
    """Kill workers and first processes of sweeps, as many sweeps as it takes, and look at all records."""
    from xcal_paper import RecordFile
    from xcal_paper import reproduce as run

    spec = root / "small.toml"
    spec.write_text(small_table(job="run", **size))
    whole = run(spec, results=root / "whole", device="cpu", progress=False).path
    wanted = len(whole.read_bytes().splitlines())
    found = {
        "sweeps": 0,
        "workers": 0,
        "drivers": 0,
        "others": 0,
        "records": 0,
        "missing": 0,
        "twice": 0,
        "different": 0,
    }
    while found["workers"] + found["drivers"] < kills:
        results = root / f"sweep{found['sweeps']}"
        sweep = Sweep(spec, results, rng)
        sweep.run(kills - found["workers"] - found["drivers"], pause)
        path = results / "small" / whole.name
        records_, corrupt = RecordFile(path).read()
        lines = len(path.read_bytes().splitlines())
        found["sweeps"] += 1
        found["workers"] += sweep.workers
        found["drivers"] += sweep.drivers
        found["others"] += sweep.others
        found["records"] += lines
        found["missing"] += wanted - len(records_) + len(corrupt)
        found["twice"] += lines - len(records_) - len(corrupt)
        found["different"] += without_times(path) != without_times(whole)
        print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=3, help="of workers and of first processes (50 for the claim)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=3.0, help="longest time between two kills, in seconds")
    options, _ = parser.parse_known_args()
    # One thread, as the workers have: sums in another order would differ in their last digits.
    torch.set_num_threads(1)
    size = {"lambdas": 4, "seeds": 6, "n": 1000, "epochs": 10}
    with tempfile.TemporaryDirectory() as folder:
        found = sweeps(options.kills, random.Random(options.seed), Path(folder), size, options.pause)
    for name, value in found.items():
        print(f"{name:<10} {value:>6}")


if __name__ == "__main__":
    main()
