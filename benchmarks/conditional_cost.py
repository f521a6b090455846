"""The conditional penalty in training: what a step costs beside one with the marginal penalty.

Claim: with 128 features and batches of 1,000 rows a step takes less than 1.5 times as long on a CPU. Whole runs of
`fit_path` are timed with few and with more epochs, so that what is done once (features of the rows, initial weights, on
a GPU the recording of a step) falls out of the difference. The penalty with its gradient is timed alone, too.

- On a CPU: seconds of this process, the shortest of several repeats.
- On a GPU: every run once to warm up, then the clock around runs that wait for the device. Epochs have ten times as
  many steps, replayed from a CUDA graph as `fit_path` does by itself, and the median of the repeats counts. The
  penalty alone is recorded as a graph too: launching its kernels one by one would be most of its time.

    python -m benchmarks.conditional_cost --repeats 5
    python -m benchmarks.conditional_cost --device cuda --repeats 7 --models 1 6 24
"""

import argparse
import time as clock
from collections.abc import Callable

import numpy as np
import torch

from xcal import family, fit_path
from xcal.calibration import KernelFeatures, SoftBins, unchecked_penalty
from xcal.calibration.penalties import unchecked_conditional_penalty
from xcal.data import SurvivalData
from xcal.distributions._bins import quantile_edges
from xcal.networks import MLP
from xcal.training import TrainingConfig

BATCH, FEATURES, COLUMNS, BINS = 1000, 128, 10, 20
BATCHES = {"cpu": 10, "cuda": 100}
EPOCHS = (2, 12)
REPLAYS = 200  # of a recorded penalty in one measurement


def rows(device: str) -> SurvivalData:
    rng = np.random.default_rng(0)
    n = BATCH * BATCHES[device]
    x = rng.normal(size=(n, COLUMNS)).astype(np.float32)
    happens, leaves = rng.exponential(np.exp(x[:, 0])), rng.exponential(2.0, n)
    table = SurvivalData(x, time=np.minimum(happens, leaves).astype(np.float32), event=happens <= leaves)
    return table.to(torch.device(device))


def seconds(run: Callable[[], object], device: str) -> float:
    """CPU seconds of this process; on a GPU those of the clock, until all work is done."""
    if device == "cpu":
        start = clock.process_time()
        run()
        return clock.process_time() - start
    torch.cuda.synchronize()
    start = clock.perf_counter()
    run()
    torch.cuda.synchronize()
    return clock.perf_counter() - start


def step_times(table: SurvivalData, models: int, repeats: int, device: str) -> dict[str, float]:
    """Seconds of a step of all models with each penalty: shortest differences of two lengths, taken in turns."""
    kind = family("mtlr", edges=quantile_edges(np.asarray(table.time.cpu()), np.asarray(table.event.cpu()), 20))
    validation = table[: BATCH // 2]
    penalties = {"none": (0.0, None), "marginal": (10.0, None), "conditional": (10.0, KernelFeatures(FEATURES))}

    def run(name: str, epochs: int) -> None:
        lam, conditional = penalties[name]
        fit_path(
            lambda: MLP(COLUMNS, kind.n_outputs, hidden=(64, 64)),
            kind,
            table,
            validation,
            lambdas=[lam * (1 + k) for k in range(models)] if lam else [0.0] * models,
            config=TrainingConfig(epochs=epochs, batch_size=BATCH),
            conditional=conditional,
            device=device,
            progress=False,
        )

    for name in penalties if device == "cuda" else ():
        run(name, EPOCHS[0])  # to warm up
    taken: dict[tuple[str, int], list[float]] = {(name, epochs): [] for name in penalties for epochs in EPOCHS}
    for _ in range(repeats):
        for (name, epochs), times in taken.items():
            times.append(seconds(lambda n=name, e=epochs: run(n, e), device))
    few, many = EPOCHS
    steps = (many - few) * BATCHES[device]
    return {
        name: (typical(taken[name, many], device) - typical(taken[name, few], device)) / steps for name in penalties
    }


def typical(times: list[float], device: str) -> float:
    return min(times) if device == "cpu" else float(np.median(times))


def penalty_times(models: int, repeats: int, device: str) -> dict[str, float]:
    """Seconds of the penalty of some models and its gradient, alone."""
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(1, models, BATCH, generator=generator).to(device).requires_grad_()
    event = (torch.rand(BATCH, generator=generator) < 0.5).to(device)
    features = (torch.randn(1, 1, BATCH, FEATURES, generator=generator) / FEATURES**0.5).to(device)
    edges = (torch.arange(BINS + 1, dtype=torch.float32) / BINS).to(device)
    bound, unbiased = SoftBins(), SoftBins(estimator="unbiased")
    values: dict[str, Callable[[], torch.Tensor]] = {
        "marginal, bound": lambda: unchecked_penalty(u, event, edges, bound),
        "marginal, unbiased": lambda: unchecked_penalty(u, event, edges, unbiased),
        "conditional, unbiased": lambda: unchecked_conditional_penalty(u, event, features, edges, unbiased),
    }
    runs = {name: with_gradient(value, u, device) for name, value in values.items()}
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(20 * repeats):
        for name, once in runs.items():
            taken[name].append(seconds(once, device))
    times = REPLAYS if device == "cuda" else 1
    return {name: typical(found, device) / times for name, found in taken.items()}


def with_gradient(value: Callable[[], torch.Tensor], u: torch.Tensor, device: str) -> Callable[[], object]:
    """Return a function that computes the gradient once; on a GPU one that replays it ``REPLAYS`` times."""
    if device == "cpu":
        return lambda: torch.autograd.grad(value().sum(), u)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(value().sum(), u)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.autograd.grad(value().sum(), u)

    def replayed() -> None:
        for _ in range(REPLAYS):
            graph.replay()

    return replayed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--models", type=int, nargs="*", default=[1, 6])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=list(BATCHES))
    options, _ = parser.parse_known_args()
    table = rows(options.device)
    print(f"{options.device}, batches of {BATCH:,} rows, {FEATURES} features, {BINS} bins, MLP of 64 and 64 units")
    for models in options.models:
        found = step_times(table, models, options.repeats, options.device)
        ratio = found["conditional"] / found["marginal"]
        shown = ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in found.items())
        many = f"{models} model{'s' if models > 1 else ''}"
        print(f"a step of {many}: {shown}; conditional / marginal {ratio:.2f}", flush=True)
        alone = penalty_times(models, options.repeats, options.device)
        shown = ", ".join(f"{name} {1e3 * value:.3f} ms" for name, value in alone.items())
        print(f"the penalty of {many} and its gradient alone: {shown}", flush=True)


if __name__ == "__main__":
    main()
