"""Import time, in processor seconds of a new process.

Claims: what trains and measures takes under twice the time of importing torch; `import xcal` nothing. A first, small
training does not import torch's compiler, which torch's own optimisers import when they are made.
"""

import statistics
import subprocess
import sys

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
WORK = {
    "import torch": "import torch",
    "import xcal.training, xcal.metrics": "import xcal.training, xcal.metrics",
    "import xcal": "import xcal",
    "a first training": f"exec({TRAINING.format('')!r})",
    "the same, and an optimiser of torch": f"exec({TRAINING.format(ADAM)!r})",
}


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name in WORK}
    for _ in range(7):
        for name, work in WORK.items():
            command = [sys.executable, "-c", CODE.format(work)]
            taken[name].append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, seconds in medians.items():
        print(f"{name}: {seconds:.3f} s, {seconds / medians['import torch']:.2f} of importing torch")


if __name__ == "__main__":
    main()
