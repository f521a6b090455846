"""From a CSV file of 200,000 rows and 30 columns to a model and its report: seconds and memory.

Claim: with one seed and five epochs (``--seeds 1 --epochs 5``) `xcal fit` needs about four minutes of processor time
and 3.2 GB for it. The file has numbers, categories, dates, missing values and an id. Printed are the seconds of the
clock and of the processor, and the largest memory, of the whole command with its start, reading and writing. Without
``--seeds`` and ``--epochs`` the defaults of the command are taken.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from xcal._devices import usable_threads

N_NUMBERS = 22


def patients(n: int) -> pd.DataFrame:
    """Make a table of `n` rows and 30 columns beside time and event."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(n, N_NUMBERS)).round(4)
    frame = pd.DataFrame(numbers, columns=[f"lab_{k}" for k in range(N_NUMBERS)])
    for k in range(4):
        frame.loc[rng.random(n) < 0.1, f"lab_{k}"] = np.nan
    for k, size in enumerate((2, 3, 5, 12)):
        frame[f"group_{k}"] = rng.choice([f"level {j}" for j in range(size)], n)
    frame["admitted"] = (pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3000, n), unit="D")).strftime(
        "%Y-%m-%d"
    )
    frame["smoker"], frame["age"] = rng.random(n) < 0.3, rng.normal(60, 12, n).round(1)
    frame["patient"] = [f"P{k:07d}" for k in range(n)]
    location = 0.5 * numbers[:, 5] - 0.4 * np.sin(2 * numbers[:, 6]) + (60 - frame["age"]) / 25
    happens = np.exp(location + 0.5 * rng.standard_t(4, n)) * 24
    leaves = rng.exponential(40, n)
    return frame.assign(months=np.minimum(happens, leaves).round(3), died=(happens <= leaves).astype(int))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int)
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "patients.csv"
        frame = patients(options.rows)
        frame.to_csv(file, index=False)
        size = file.stat().st_size / 2**20
        print(
            f"{len(frame):,} rows, {frame.shape[1] - 2} columns, {size:.0f} MB; {usable_threads()} threads", flush=True
        )
        words = [sys.executable, "-m", "xcal", "fit", str(file), "--time", "months", "--event", "died"]
        words += ["--out", str(Path(folder) / "run")]
        for name in ("epochs", "seeds"):
            if getattr(options, name) is not None:
                words += [f"--{name}", str(getattr(options, name))]
        before, clock = os.times(), time.perf_counter()
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - clock, os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        print(f"{wall:.0f} s, {used:.0f} s of the processor, {peak:.1f} GB", flush=True)


if __name__ == "__main__":
    main()
