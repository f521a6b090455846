"""`make demo` from an empty folder: seconds of installation, of the demo, and of both.

Claim: what the README asks of a newcomer takes about a minute where packages come fast, most of it the installation of
torch. The repository is cloned into a temporary folder without its environment, so that everything is installed anew;
pip takes packages from its cache where it has them.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "xcal"
        subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(copy)], check=True)
        taken = {}
        # The path of packages of whoever runs this is not that of a newcomer.
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}
        for name, target in (("installation", ".venv/.stamp-datasets"), ("demo", "demo")):
            before, clock = os.times(), time.perf_counter()
            subprocess.run(["make", "--silent", target], cwd=copy, env=clean, check=True, stdout=subprocess.DEVNULL)
            wall, after = time.perf_counter() - clock, os.times()
            used = after.children_user + after.children_system - before.children_user - before.children_system
            taken[name] = wall, used
    for name, (wall, used) in taken.items():
        print(f"{name:>12}: {wall:5.1f} s, {used:5.1f} s of the processor")
    both = [sum(pair) for pair in zip(*taken.values(), strict=True)]
    share = taken["installation"][0] / both[0]
    print(f"{'both':>12}: {both[0]:5.1f} s, {both[1]:5.1f} s of the processor; {share:.0%} of the time is installation")


if __name__ == "__main__":
    main()
