"""The conditional penalty in training: what a step costs beside one with the marginal penalty.

Claim: with 128 features and batches of 1,000 rows a step takes less than 1.5 times as long on a CPU. Whole runs of
`fit_path` are timed with few and with more epochs, so that what is done once (features of the rows, first weights)
falls out of the difference; the shortest of several repeats counts. The penalty alone is timed too.

    python -m benchmarks.conditional_cost --repeats 5
"""

import argparse
import time as clock
from collections.abc import Callable

import numpy as np
import torch

from xcal import family, fit_path
from xcal.calibration import KernelFeatures, SoftBins, unchecked_penalty
from xcal.calibration.conditional_penalty import unchecked_conditional_penalty
from xcal.data import SurvivalData
from xcal.distributions.edges import quantile_edges
from xcal.networks import MLP
from xcal.training import TrainingConfig

BATCH, FEATURES, COLUMNS, BINS, BATCHES = 1000, 128, 10, 20, 10
EPOCHS = (2, 12)


def rows(device: str) -> SurvivalData:
    rng = np.random.default_rng(0)
    n = BATCH * BATCHES
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

    best = {(name, epochs): np.inf for name in penalties for epochs in EPOCHS}
    for _ in range(repeats):
        for (name, epochs), before in list(best.items()):
            best[name, epochs] = min(before, seconds(lambda n=name, e=epochs: run(n, e), device))
    few, many = EPOCHS
    return {name: (best[name, many] - best[name, few]) / ((many - few) * BATCHES) for name in penalties}


def penalty_times(repeats: int, device: str) -> dict[str, float]:
    """Seconds of the penalty and its gradient alone, for one model."""
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(BATCH, generator=generator).to(device).requires_grad_()
    event = (torch.rand(BATCH, generator=generator) < 0.5).to(device)
    features = torch.randn(BATCH, FEATURES, generator=generator).to(device) / FEATURES**0.5
    edges = (torch.arange(BINS + 1, dtype=torch.float32) / BINS).to(device)
    bound, unbiased = SoftBins(), SoftBins(estimator="unbiased")
    runs: dict[str, Callable[[], torch.Tensor]] = {
        "marginal, bound": lambda: unchecked_penalty(u, event, edges, bound),
        "marginal, unbiased": lambda: unchecked_penalty(u, event, edges, unbiased),
        "conditional, unbiased": lambda: unchecked_conditional_penalty(u, event, features, edges, unbiased),
    }
    best = dict.fromkeys(runs, np.inf)
    for _ in range(20 * repeats):
        for name, value in runs.items():
            best[name] = min(best[name], seconds(lambda v=value: torch.autograd.grad(v(), u), device))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--models", type=int, nargs="*", default=[1, 6])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options, _ = parser.parse_known_args()
    table = rows(options.device)
    print(f"{options.device}, batches of {BATCH:,} rows, {FEATURES} features, {BINS} bins, MLP of 64 and 64 units")
    for models in options.models:
        found = step_times(table, models, options.repeats, options.device)
        ratio = found["conditional"] / found["marginal"]
        shown = ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in found.items())
        print(f"a step of {models} model{'s' if models > 1 else ''}: {shown}; conditional / marginal {ratio:.2f}")
    alone = penalty_times(options.repeats, options.device)
    print("the penalty and its gradient alone: " + ", ".join(f"{name} {1e3 * v:.2f} ms" for name, v in alone.items()))


if __name__ == "__main__":
    main()
