"""Beside other work on the same cores: a path, one model, predictions, metrics and the demo.

Claims: other programs cost xcal no more than their share of the cores, and idle cores are used where they help. With c
cores and b busy processes the fair slow-down of one thread is max(1, (1 + b) / c), and work that fills all cores keeps
c / (c + b) of them.

The command starts the busy processes itself. Beside xcal it times the same work with torch's threads as they come, an
operation split among all cores (`--plain`, run in a process of its own), and lifelines for concordance.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

BUSY = (0, 1, 2)
SPIN = "while True: pass"


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that never rest."""
    processes = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def unchanged(_: int) -> Iterator[None]:
    """Stand in for what sets the number of threads."""
    yield


def as_torch_comes() -> None:
    """Take xcal's own use of threads away."""
    import xcal._devices

    xcal._devices.operation_threads = unchanged
    xcal._devices.Workers.map = lambda self, function, items: [function(item) for item in items]
    import xcal.training.path
    from xcal.training.problem import Plan

    xcal.training.path.planned = lambda *_, **__: Plan()


def work(*, plain: bool) -> dict[str, Callable[[], Any]]:
    """Return what is timed."""
    import torch

    if plain:
        as_torch_comes()
    import xcal
    from xcal.data import SurvivalData
    from xcal.distributions import family, quantile_edges
    from xcal.networks import MLP
    from xcal.training import TrainingConfig, fit_path
    from xcal_paper import load_gamma

    data = load_gamma(seed=0, n=(20_000, 5_000, 1_000), censored=True)
    train, validation = (
        SurvivalData(torch.from_numpy(part.x), part.time.astype(np.float32), part.event)
        for part in (data.train, data.validation)
    )
    bins = family("categorical", edges=quantile_edges(data.train.time, data.train.event, 50).float())
    rng = np.random.default_rng(0)
    n = 100_000
    seen, happened = rng.exponential(size=n), rng.random(n) < 0.6
    risk, cdf = rng.normal(size=n) - seen, rng.random(n)
    few = slice(0, 3_000)

    def path(lambdas: tuple[float, ...], seeds: int, hidden: tuple[int, ...], epochs: int, rows: Any) -> None:
        fit_path(
            lambda: MLP(train.x.shape[1], 50, hidden=hidden),
            bins,
            rows,
            validation,
            lambdas=lambdas,
            seeds=range(seeds),
            config=TrainingConfig(epochs=epochs, batch_size=1000),
            progress=False,
        )

    some = train[few]
    grid = (0, 1, 5, 10, 50, 100, 500, 1000)
    model = xcal.SurvivalModel(epochs=1).fit(
        data.train.x[few], xcal.Surv(time=data.train.time[few], event=data.train.event[few])
    )
    times = np.linspace(0.1, 2, 50)
    return {
        "path of 24, batch 1,000": lambda: path(grid, 3, (128, 64, 64), 1, train),
        "path of 6, 3,000 rows": lambda: path((0, 10, 100), 2, (32, 32), 20, some),
        "one model": lambda: path((10,), 1, (128, 64, 64), 5, train),
        "one model of 512 units": lambda: path((10,), 1, (512, 512), 1, train),
        "curves of 20,000 rows": lambda: model.predict_survival_function(data.train.x, times),
        "concordance, n = 1e5": lambda: xcal.concordance_index(time=seen, event=happened, risk=risk),
        "D-calibration, n = 1e5": lambda: xcal.d_calibration(cdf, happened),
    }


def measured(repeats: int, *, plain: bool) -> dict[str, list[float]]:
    """Median seconds of each piece of work, idle and beside one and two busy processes."""
    pieces = work(plain=plain)
    if not plain:
        pieces["concordance by lifelines"] = lifelines_concordance()
    seconds: dict[str, list[float]] = {name: [] for name in pieces}
    for count in BUSY:
        with busy_processes(count):
            for name, piece in pieces.items():
                piece()
                taken = []
                for _ in range(repeats):
                    start = time.perf_counter()
                    piece()
                    taken.append(time.perf_counter() - start)
                seconds[name].append(statistics.median(taken))
    return seconds


def lifelines_concordance() -> Callable[[], Any]:
    from lifelines.utils import concordance_index

    rng = np.random.default_rng(0)
    n = 100_000
    seen, happened = rng.exponential(size=n), rng.random(n) < 0.6
    return lambda: concordance_index(seen, seen - rng.normal(size=n), happened)


def demo_seconds() -> list[float]:
    """Seconds of ``xcal demo``, with its start."""
    seconds = []
    for count in BUSY:
        with busy_processes(count), tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "xcal", "demo", "--out", folder], check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
    return seconds


def show(name: str, seconds: list[float], beside: list[float] | None) -> None:
    ours = "".join(f"{value:9.3f}" for value in seconds)
    ratio = "".join(f"{value / seconds[0]:7.2f}" for value in seconds[1:])
    theirs = "" if beside is None else "".join(f"{value:9.3f}" for value in beside)
    print(f"{name:<28}{ours} {ratio}  {theirs}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--demo", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--plain", action="store_true", help="time torch's threads as they come, print JSON")
    options = parser.parse_args()
    if options.plain:
        print(json.dumps(measured(options.repeats, plain=True)))
        return
    ours = measured(options.repeats, plain=False)
    command = [sys.executable, "-m", "benchmarks.busy", "--plain", "--repeats", str(options.repeats)]
    plain = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"{os.cpu_count()} cores; median seconds with 0, 1, 2 busy processes beside, and how much slower than idle")
    print(f"{'':<28}{'xcal':>9}{'':>33}   {'torch as it comes':>20}")
    for name, seconds in ours.items():
        show(name, seconds, plain.get(name))
    if options.demo:
        show("xcal demo", demo_seconds(), None)


if __name__ == "__main__":
    main()
