"""What needs a GPU, in pieces of a few minutes: a large default path, one step of the MNIST network, both gamma tables.

Claim: on one H200 a default path of 180,000 rows and 30 columns takes well under a minute, and the tests of a GPU pass.
Both gamma tables of the paper, with the published epochs, are made by one command, which says how many of their 288
records have the values of the committed ones. Each piece is a process of its own, so that one that dies does not take
the others with it; its exit status and its seconds are printed behind what it says. Without names all pieces run, in
this order, but for "alone":

    python -m benchmarks.gpu large          # the path
    python -m benchmarks.gpu convolutions   # each kind of step in a process of its own
    python -m benchmarks.gpu tables         # twelve processes, which share the GPU by NVIDIA's MPS where it is there
    python -m benchmarks.gpu tests          # those tests that only a GPU can run
    python -m benchmarks.gpu phases         # where the time of a table goes
    python -m benchmarks.gpu alone          # the tables in one process
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

RESULTS = Path(__file__).parents[1] / "paper" / "results"
GAMMA = ("gamma-censored", "gamma-uncensored")
TABLES = ["-m", "xcal", "reproduce", *GAMMA, "--device", "cuda", "--results", "{folder}"]
TESTS = (
    "training/test_gpu.py",
    "networks/test_gpu.py",
    "networks/test_networks.py::test_released_dropout_drops_whole_channels_and_scales_the_others",
    "training/test_anneal.py::test_a_recorded_step_reads_weight_and_temperature_and_is_recorded_once",
    "training/test_anneal.py::test_the_kernels_read_a_temperature_in_memory",
    "training/test_temperature.py::test_a_recorded_step_reads_the_temperature_and_is_recorded_once",
    "distributions/test_likelihood_and_cdf.py::test_kernels_agree_with_torch_in_float64",
    "distributions/test_likelihood_and_cdf.py::test_kernels_keep_masses_that_underflow",
    "calibration/test_conditional_penalty.py::test_on_a_gpu_it_is_the_same",
    "calibration/test_penalty.py::test_cuda_graph",
)
PIECES: dict[str, list[str]] = {
    "large": ["-m", "benchmarks.path", "--sizes", "180000x30", "--device", "cuda"],
    "convolutions": ["-m", "benchmarks.convolutions"],
    "tables": [*TABLES, "--processes", "12"],
    "tests": ["-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in TESTS)],
    "phases": ["-m", "benchmarks.phases", "--epochs", "appendix"],
    "alone": TABLES,
}


@contextmanager
def shared_gpu(*, wanted: bool) -> Iterator[None]:
    """Let processes work on the GPU side by side, by NVIDIA's MPS; without it they take turns."""
    control = shutil.which("nvidia-cuda-mps-control") if wanted else None
    if control is not None:
        control = control if subprocess.run([control, "-d"], check=False).returncode == 0 else None
    if wanted:
        print(f"NVIDIA's MPS: {'no' if control is None else 'yes'}", flush=True)
    try:
        yield
    finally:
        if control is not None:
            subprocess.run([control], input=b"quit\n", check=False)


def values_of(file: Path) -> dict[tuple[str, float, int], dict[str, float]]:
    """Metrics of every record of a file, by model, weight and seed."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    return {(line["row"], line["lam"], line["seed"]): line["figures"] for line in lines}


def compare_records(folder: Path) -> None:
    """Print how many records of a folder have the values of the committed ones, and the largest difference."""
    equal, n, largest = 0, 0, 0.0
    for table in GAMMA:
        name = f"{table}/as-published.paper.jsonl"
        kept, made = (values_of(path / name) for path in (RESULTS, folder))
        for key, values in made.items():
            gaps = [abs(value - kept[key][one]) / (abs(kept[key][one]) + 1e-9) for one, value in values.items()]
            equal, n, largest = equal + (max(gaps) == 0), n + 1, max(largest, *gaps)
    print(f"{equal} of {n} records equal the committed ones; largest relative difference {largest:.2g}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", metavar="piece", help=", ".join(PIECES))
    options, _ = parser.parse_known_args()
    if not torch.cuda.is_available():
        print("needs a GPU")
        return
    for name in options.pieces or [piece for piece in PIECES if piece != "alone"]:
        with tempfile.TemporaryDirectory() as folder, shared_gpu(wanted=name == "tables"):
            words = [word.format(folder=folder) for word in PIECES[name]]
            start = time.perf_counter()
            status = subprocess.run([sys.executable, *words], env={**os.environ, "CI": "1"}, check=False).returncode
            taken = time.perf_counter() - start
            if name in ("tables", "alone"):
                compare_records(Path(folder))
        print(f"== {name}: status {status}, {taken:.0f} s: python {' '.join(PIECES[name])}", flush=True)


if __name__ == "__main__":
    main()
