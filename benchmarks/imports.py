"""Import time, in processor seconds of a new process.

Claims: what trains and measures takes under twice the time of importing torch; `import xcal` nothing. A first, small
training does not import torch's compiler, which torch's own optimisers import when they are made. The first fit of an
estimator takes little more than importing torch and scikit-learn, and `xcal predict`, its process from start to end
(`python -m xcal predict` of 700 rows), less than a process that does nothing but import these two.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import users_environment

CODE = "import time; start = time.process_time(); {}; print(time.process_time() - start)"
TRAINING = """import torch, xcal
from torch import nn
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.training import TrainingConfig
rows = SurvivalData(torch.randn(20, 2), torch.rand(20) + 0.1, torch.ones(20, dtype=torch.bool))
config = TrainingConfig(epochs=1)
xcal.fit_path(lambda: nn.Linear(2, 2), family("lognormal"), rows, rows, lambdas=(0, 1), seeds=(0,), config=config)
{}"""
ADAM = "torch.optim.Adam([torch.zeros(1)])"
FIT = """import numpy as np
from xcal import SurvivalModel
rng = np.random.default_rng(0)
SurvivalModel(epochs=2).fit(rng.normal(size=(100, 3)), (rng.exponential(size=100), rng.random(100) < 0.7))"""
WORK = {
    "import torch": "import torch",
    "import torch, sklearn.base": "import torch, sklearn.base",
    "a first fit of SurvivalModel": f"exec({FIT!r})",
    "import xcal.training, xcal.metrics": "import xcal.training, xcal.metrics",
    "import xcal": "import xcal",
    "a first training": f"exec({TRAINING.format('')!r})",
    "the same, and an optimiser of torch": f"exec({TRAINING.format(ADAM)!r})",
}


RUN = """
import numpy as np, pandas as pd
rng = np.random.default_rng(0)
frame = pd.DataFrame(rng.normal(size=(700, 6)), columns=list("abcdef"))
happens, leaves = rng.exponential(np.exp(frame.a)), rng.exponential(2, 700)
frame.assign(months=np.minimum(happens, leaves), died=(happens <= leaves) * 1).to_csv("rows.csv", index=False)
"""


def whole(words: list[str], folder: str) -> tuple[float, float]:
    """Seconds of processor and clock that a process takes from its start to its end."""
    before = os.times()
    subprocess.run([sys.executable, *words], capture_output=True, check=True, cwd=folder, env=users_environment())
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, after.elapsed - before.elapsed


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name in WORK}
    for _ in range(7):
        for name, work in WORK.items():
            command = [sys.executable, "-c", CODE.format(work)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=users_environment())
            taken[name].append(float(done.stdout))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, seconds in medians.items():
        print(f"{name}: {seconds:.3f} s, {seconds / medians['import torch']:.2f} of importing torch")
    with tempfile.TemporaryDirectory() as folder:
        xcal, given = ["-m", "xcal"], ["--time", "months", "--event", "died", "--epochs", "5", "--seeds", "1"]
        whole(["-c", RUN], folder)
        whole([*xcal, "fit", "rows.csv", *given, "--resamples", "0", "--out", "run"], folder)
        processes = {
            "import torch, sklearn.base": ["-c", "import torch, sklearn.base"],
            "xcal predict": [*xcal, "predict", "run", "rows.csv", "--out", "p.csv", "--overwrite"],
        }
        seconds = {name: [whole(words, folder) for _ in range(7)] for name, words in processes.items()}
        both = {name: [statistics.median(kind) for kind in zip(*runs, strict=True)] for name, runs in seconds.items()}
        assert (Path(folder) / "p.csv").is_file()
    print("whole processes, from start to end:")
    for name, (used, clock) in both.items():
        ratio = used / both["import torch, sklearn.base"][0]
        print(f"{name}: {used:.2f} s of the processor, {clock:.2f} s of the clock, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
