"""What the exact penalty on several processes costs beside DistributedDataParallel, and how it grows.

Claim: at 20 bins, with a network whose step takes 50 ms of a core, the penalty of the rows of all processes costs about
5 % of a step of plain DistributedDataParallel without any penalty, in processor time. The penalty of each process's
own rows, which is another and noisier objective, stands beside it. With a smaller network the share is larger.

The second table is the time of one all-reduce of the penalty's sums. With 2 and 4 processes on one machine (gloo) it is
measured; for more it is computed on paper, from a latency alpha and a time beta per number that are fitted to the
measured ones: a ring passes 2 (P - 1) messages one after another, a tree 2 log2(P).

Kinds of step take turns, one step at a time, so that a busy machine slows all of them alike. The lowest times are
nearest to what a quiet machine shows.
"""

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from xcal import XCALLoss, mean_across_processes
from xcal.calibration.loss import MeanAndPenalty
from xcal.distributions import family
from xcal.objectives import nll

N_INPUTS = 30
PROCESSES = (2, 4)
ON_PAPER = (8, 64, 1000)


def connected(rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)


def step_kinds(rows: int, width: int, bins: int) -> dict[str, Callable[[], None]]:
    """One training step of each kind on this process's rows, with a model and an optimiser of its own."""
    x, time_, event = torch.randn(rows, N_INPUTS), torch.rand(rows) + 0.1, torch.rand(rows) < 0.6
    local, joint = XCALLoss(bins), XCALLoss(bins, process_group="world")

    def parts(both: MeanAndPenalty) -> torch.Tensor:
        return both.mean + 10 * both.penalty

    kinds = {
        "no penalty": lambda objective, cdf: objective.mean(),
        "penalty of own rows": lambda objective, cdf: objective.mean() + 10 * local(cdf, event),
        "penalty of all rows": lambda objective, cdf: objective.mean() + 10 * joint(cdf, event),
        "penalty and mean of all rows": lambda objective, cdf: (
            mean_across_processes(objective) + 10 * joint(cdf, event)
        ),
        "the same by with_mean": lambda objective, cdf: parts(joint.with_mean(objective, cdf, event)),
    }

    def step(loss: Callable) -> Callable[[], None]:
        network = nn.Sequential(
            nn.Linear(N_INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )
        model = DistributedDataParallel(network)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        lognormal = family("lognormal")

        def run() -> None:
            distribution = lognormal.distribution(model(x))
            optimizer.zero_grad()
            loss(nll(distribution, time_, event), distribution.cdf(time_)).backward()
            optimizer.step()

        return run

    return {name: step(loss) for name, loss in kinds.items()}


def measure_steps(rank: int, size: int, folder: str, options: argparse.Namespace) -> None:
    connected(rank, size, folder)
    for rows, width, steps in options.sizes:
        torch.manual_seed(rank)
        kinds = step_kinds(rows, width, options.bins)
        taken: dict[str, list[float]] = {name: [] for name in kinds}
        worked: dict[str, list[float]] = {name: [] for name in kinds}
        for turn in range(steps + 3):
            for name, run in kinds.items():
                dist.barrier()
                work, clock = time.process_time(), time.perf_counter()
                run()
                clock, work = time.perf_counter() - clock, time.process_time() - work
                if turn >= 3:  # the first ones warm up
                    taken[name].append(clock * 1e3)
                    worked[name].append(work * 1e3)
        if rank == 0:
            show_steps(f"{rows} rows per process, hidden layers of {width}", taken, worked)
    dist.destroy_process_group()


def show_steps(title: str, taken: dict[str, list[float]], worked: dict[str, list[float]]) -> None:
    """Print each kind of step beside the plain one: processor time and time by the clock, lowest and median."""
    print(f"\n{title}, {len(taken['no penalty'])} steps of each kind: milliseconds per step")
    titles = ("processor, lowest", "median", "clock, lowest", "median")
    print(f"{'':>30}" + "".join(f"{name:>19}{'ratio':>8}" for name in titles))
    for name in taken:
        cells = ""
        for times in (worked, taken):
            for of in (min, statistics.median):
                value, plain = of(times[name]), of(times["no penalty"])
                cells += f"{value:>19.2f}{value / plain:>8.3f}"
        print(f"{name:>30}{cells}", flush=True)


def measure_sums(rank: int, size: int, folder: str, numbers: list[int], rounds: int, out: str) -> None:
    """Lowest time of an all-reduce of so many numbers in double precision."""
    connected(rank, size, folder)
    lowest = []
    for count in numbers:
        values = torch.zeros(count, dtype=torch.float64)
        clocks = [time.perf_counter()]
        for _ in range(rounds):
            dist.all_reduce(values)
            clocks.append(time.perf_counter())
        lowest.append(min(end - start for start, end in pairwise(clocks[10:])))
    if rank == 0:
        np.save(out, np.array(lowest))
    dist.destroy_process_group()


def show_sums(measured: dict[int, np.ndarray], cases: dict[str, int]) -> None:
    """Fit latency and bandwidth of a ring to what was measured, and print both, and more processes on paper."""
    numbers = np.array(list(cases.values()), dtype=float)
    lines = [
        (2 * (size - 1), 2 * (size - 1) / size * count, seconds)
        for size, times in measured.items()
        for count, seconds in zip(numbers, times, strict=True)
    ]
    table = np.array(lines)
    (alpha, beta), *_ = np.linalg.lstsq(table[:, :2], table[:, 2], rcond=None)
    beta = max(beta, 0.0)
    print(
        f"\none all-reduce, microseconds; alpha {alpha * 1e6:.0f} us per message, beta {beta * 1e9:.1f} ns per number"
    )
    known = "".join(f"{f'P = {size}':>10}" for size in measured)
    paper = "".join(f"{f'{size} ring':>12}{f'{size} tree':>12}" for size in ON_PAPER)
    print(f"{'':>34}{'numbers':>9}{known}{paper}")
    for place, (name, count) in enumerate(cases.items()):
        cells = "".join(f"{times[place] * 1e6:>10.0f}" for times in measured.values())
        for size in ON_PAPER:
            ring = 2 * (size - 1) * alpha + 2 * (size - 1) / size * count * beta
            tree = 2 * math.log2(size) * (alpha + count * beta)
            cells += f"{ring * 1e6:>12,.0f}{tree * 1e6:>12,.0f}"
        print(f"{name:>34}{count:>9,}{cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bins", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="one small network and few rounds, to try it out")
    options, _ = parser.parse_known_args()
    # Rows of a process, width of its network, and steps of each kind.
    options.sizes = [(500, 256, 15)] if options.small else [(500, 256, 300), (2000, 512, 100)]
    print(
        f"{options.processes} processes, gloo, {options.bins} bins, load {os.getloadavg()[0]:.1f} on {os.cpu_count()}"
    )
    with tempfile.TemporaryDirectory() as folder:
        spawn(measure_steps, (options.processes, folder, options), options.processes)
    cases = {
        f"{options.bins} bins": options.bins,
        f"{options.bins} bins, unbiased": options.bins + 2,
        f"{options.bins} bins, 24 models": 24 * options.bins,
        "1,000 bins": 1000,
        f"{options.bins} bins, 256 features": 256 * options.bins,
    }
    measured = {}
    for size in PROCESSES:
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "times.npy")
            spawn(measure_sums, (size, folder, list(cases.values()), 100 if options.small else 1000, out), size)
            measured[size] = np.load(out)
    show_sums(measured, cases)


if __name__ == "__main__":
    main()
