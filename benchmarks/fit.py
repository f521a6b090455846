"""`xcal fit`, from a CSV file to a model and its reports: seconds and memory, beside a short script with lifelines.

Claims: with default settings a file of 3,200 rows and 51 columns takes seconds, not minutes. With one seed and five
epochs (``--rows 200000 --columns 30 --seeds 1 --epochs 5``) a large one needs about four minutes of processor time and
3.2 GB. The file has numbers, categories, dates, missing values and an id. Printed are the seconds of the clock and of
the processor, and the largest memory, of the whole process with its start, reading and writing. Without ``--seeds`` and
``--epochs`` the defaults of the command are taken.

The peer is what a person might write by hand: pandas reads the file, categories become indicators, missing values the
median, lifelines fits a Cox model to three quarters of the rows and gives its concordance on the others. It asks
nothing about calibration, and has no report.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measure import users_environment
from xcal._devices import usable_threads

OTHERS = 8  # columns that are no plain numbers
SCRIPT = """
import sys
import numpy as np, pandas as pd
from lifelines import CoxPHFitter
frame = pd.read_csv(sys.argv[1], parse_dates=["admitted"]).drop(columns="patient")
frame["admitted"] = (frame["admitted"] - frame["admitted"].min()).dt.days
frame = pd.get_dummies(frame, drop_first=True).astype(float)
frame = frame.fillna(frame.median())
order = np.random.default_rng(0).permutation(len(frame))
train, test = (frame.iloc[part] for part in np.split(order, [3 * len(frame) // 4]))
model = CoxPHFitter(penalizer=0.01).fit(train, "months", "died")
model.summary.to_csv("cox.csv")
print(model.score(test, scoring_method="concordance_index"))
"""


def patients(n: int, columns: int) -> pd.DataFrame:
    """Make a table of `n` rows and so many columns beside time and event."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(n, columns - OTHERS)).round(4)
    frame = pd.DataFrame(numbers, columns=[f"lab_{k}" for k in range(columns - OTHERS)])
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


def measured(words: list[str], folder: str) -> tuple[float, float, float]:
    """Seconds of clock and processor, and GB, of a process; the largest of all processes so far."""
    before, clock = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, cwd=folder, env=users_environment())
    wall, after = time.perf_counter() - clock, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, used, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3200)
    parser.add_argument("--columns", type=int, default=51)
    parser.add_argument("--distributions", nargs="*", default=["mtlr", "weibull"])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int)
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "patients.csv"
        frame = patients(options.rows, options.columns)
        frame.to_csv(file, index=False)
        size = file.stat().st_size / 2**20
        print(f"{len(frame):,} rows, {frame.shape[1] - 2} columns, {size:.1f} MB; {usable_threads()} threads")
        runs = {"Cox model by lifelines": ["-c", SCRIPT, str(file)]} if find_spec("lifelines") else {}
        for distribution in options.distributions:
            words = ["-m", "xcal", "fit", str(file), "--time", "months", "--event", "died", "--out", distribution]
            for name in ("epochs", "seeds"):
                if getattr(options, name) is not None:
                    words += [f"--{name}", str(getattr(options, name))]
            runs[f"xcal fit, {distribution}"] = [*words, "--distribution", distribution]
        unit = None
        for name, words in runs.items():
            wall, used, peak = measured(words, folder)
            unit = used if unit is None else unit
            told = f"{wall:6.1f} s, {used:6.1f} s of the processor ({used / unit:.1f} of the first), {peak:.1f} GB"
            print(f"{name:>24}: {told}", flush=True)


if __name__ == "__main__":
    main()
