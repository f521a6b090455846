"""Training speed on the paper's gamma data: categorical model of 50 bins, hidden layers 128-64-64, batches of 1000.

Claims, CPU (ratios within one run):
  one model with X-CAL takes at most 1.2 times the bare step (forward, cross-entropy, backward, fused Adam), one thread;
  a path of 24 models, X-CAL included, costs per model no more than the bare step of one model, two threads;
  an epoch with exact D-calibration on the validation rows is at least 1.3 times faster than pycox's MTLR with
  validation and at least 8 times faster than the usual loop (DataLoader a row at a time, autograd through rows x bins).
Claims, GPU (``--device cuda``): 24 models, 100 epochs, all validated every epoch, in at most 8 s after warm-up, and at
least 100 times faster per model than the usual loop on the same card.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler, TensorDataset

from xcal.calibration.membership import SoftBins
from xcal.data import SurvivalData
from xcal.distributions import family, quantile_edges
from xcal.distributions.base import Family
from xcal.networks import MLP
from xcal.training import PathResult, TrainingConfig, fit_path
from xcal_paper import SurvivalDataset, load_gamma

LAMBDAS = (0.0, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0)
SEEDS = (0, 1, 2)
BATCH, BINS, CALIBRATION_BINS = 1000, 50, 20


def make_network() -> MLP:
    return MLP(32, BINS)


def prepared(data: SurvivalDataset, device: torch.device) -> tuple[Family, SurvivalData, SurvivalData]:
    edges = quantile_edges(data.train.time, data.train.event, BINS)
    train, validation = (
        SurvivalData(part.x, part.time.astype(np.float32), part.event).to(device)
        for part in (data.train, data.validation)
    )
    return family("categorical", edges=edges.float(), interpolation="linear"), train, validation


def path(
    problem: tuple[Family, SurvivalData, SurvivalData],
    lambdas: tuple[float, ...],
    seeds: tuple[int, ...],
    epochs: int,
    *,
    tf32: bool = False,
) -> PathResult:
    config = TrainingConfig(epochs=epochs, batch_size=BATCH, tf32=tf32)
    return fit_path(make_network, *problem, lambdas=lambdas, seeds=seeds, config=config, progress=False)


def bare_epoch(train: SurvivalData, edges: Tensor) -> Callable[[], None]:
    """Make an epoch of the least that a step can do: cross-entropy of the own bin."""
    torch.manual_seed(0)
    network = make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
    label = torch.clamp(torch.bucketize(train.time, edges.to(train.time)) - 1, 0, BINS - 1)

    def run() -> None:
        for index in torch.randperm(len(label)).split(BATCH):
            loss = cross_entropy(network(train.x[index]), label[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


class RowByRow(Dataset[Any]):
    """A data set class of one's own, as tutorials have it: arrays, and tensors made of one row."""

    def __init__(self, rows: SurvivalData) -> None:
        self.x, self.time, self.event = (column.cpu().numpy() for column in (rows.x, rows.time, rows.event))

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, row: int) -> tuple[Tensor, ...]:
        return torch.tensor(self.x[row]), torch.tensor(self.time[row]), torch.tensor(self.event[row])


def usual_epoch(
    train: SurvivalData,
    validation: SurvivalData,
    edges: Tensor,
    lam: float,
    device: torch.device,
    *,
    data: str = "own class",
) -> Callable[[], None]:
    """Make an epoch as most people write it: a DataLoader, soft bins by broadcasting, D-calibration on validation.

    `data` is how rows come: from a class of one's own, from torch's TensorDataset, or (``"whole batches"``) from the
    latter asked for a batch at once, which few people know how to say.
    """
    torch.manual_seed(0)
    network = make_network().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    tables: list[Dataset[Any]] = [
        RowByRow(rows) if data == "own class" else TensorDataset(rows.x.cpu(), rows.time.cpu(), rows.event.cpu())
        for rows in (train, validation)
    ]
    if data == "whole batches":
        orders = [
            BatchSampler(kind(t), BATCH, False)
            for kind, t in zip((RandomSampler, SequentialSampler), tables, strict=True)
        ]
        loader, held_out = (
            DataLoader(t, sampler=order, batch_size=None) for t, order in zip(tables, orders, strict=True)
        )
    else:
        loader, held_out = (DataLoader(t, batch_size=BATCH, shuffle=t is tables[0]) for t in tables)
    edges = edges.to(device, torch.float32)
    lower = torch.arange(CALIBRATION_BINS, device=device) / CALIBRATION_BINS
    upper = lower + 1 / CALIBRATION_BINS

    def rows(x: Tensor, times: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
        mass = torch.softmax(network(x), dim=-1)
        own = torch.clamp(torch.bucketize(times, edges) - 1, 0, BINS - 1)
        share = ((times - edges[own]) / (edges[own + 1] - edges[own])).clamp(0, 1)
        start = torch.cumsum(mass, -1) - mass
        of_bin = mass.gather(1, own[:, None])[:, 0]
        cdf = start.gather(1, own[:, None])[:, 0] + share * of_bin
        return -torch.where(event, torch.log(of_bin + 1e-6), torch.log(1 - cdf + 1e-6)), cdf

    def membership(cdf: Tensor, event: Tensor, *, soft: bool) -> Tensor:
        u = cdf.unsqueeze(-1)
        inside = torch.sigmoid(1e4 * (u - lower) * (upper - u)) if soft else ((u >= lower) & (u < upper)).float()
        later = (upper - torch.maximum(u, lower)).clamp(min=0) / (1 - u).clamp(min=1e-4)
        return torch.where(event.unsqueeze(-1), inside, later).mean(0)

    def run() -> None:
        for batch in loader:
            x, times, event = (column.to(device) for column in batch)
            values, cdf = rows(x, times, event)
            dcal = (membership(cdf, event, soft=True) - 1 / CALIBRATION_BINS).square().sum()
            loss = values.mean() + lam * dcal
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            counts, total = torch.zeros(CALIBRATION_BINS, device=device), 0.0
            for batch in held_out:
                x, times, event = (column.to(device) for column in batch)
                values, cdf = rows(x, times, event)
                counts += membership(cdf, event, soft=False) * len(x)
                total += values.sum().item()

    return run


def pycox_epochs(data: SurvivalDataset, epochs: int) -> Callable[[], None]:
    """Make epochs of pycox's MTLR with the same network, batch and validation rows; no X-CAL, no D-calibration."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torchtuples as tt
        from pycox.models import MTLR
    transform = MTLR.label_transform(BINS)
    target = transform.fit_transform(data.train.time.astype("float32"), data.train.event)
    held_out = transform.transform(data.validation.time.astype("float32"), data.validation.event)
    model = MTLR(MLP(32, transform.out_features), tt.optim.Adam(lr=1e-3), duration_index=transform.cuts)

    def run() -> None:
        model.fit(
            data.train.x, target, batch_size=BATCH, epochs=epochs, verbose=False, val_data=(data.validation.x, held_out)
        )

    return run


def taken(work: Callable[[], object], repeats: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return statistics.median(times)


def taken_on_cpu(work: Callable[[], object]) -> float:
    """Seconds of the processor if there is one thread, which other programs disturb less; by the clock if not."""
    return taken(work, clock=time.process_time if torch.get_num_threads() == 1 else time.perf_counter)


def steps_of_a_path(n: int, lambdas: tuple[float, ...], seeds: tuple[int, ...]) -> Callable[[], float]:
    """Make a run that returns seconds a step, all models together: two lengths of training, so that set-up cancels."""
    problem = prepared(load_gamma(censored=True, n=(n, 100, 100), seed=0), torch.device("cpu"))
    batches = n // BATCH

    def run() -> float:
        short, long = (taken_on_cpu(lambda e=e: path(problem, lambdas, seeds, e)) for e in (1, 3))
        return (long - short) / (2 * batches)

    return run


def cpu_steps(rounds: int) -> None:
    """Print the steps of one model and of a path beside the bare step, in turns, with the threads that are set."""
    threads = torch.get_num_threads()
    # As many steps an epoch as in the paper for one model, so that what happens once an epoch does not count.
    n, few = 100_000, 20_000
    data = load_gamma(censored=True, n=(n, 100, 100), seed=0)
    _, train, _ = prepared(data, torch.device("cpu"))
    bare = bare_epoch(train, quantile_edges(data.train.time, data.train.event, BINS))
    bare()
    work = {
        "bare step": (lambda: taken_on_cpu(bare) / (n // BATCH), 1),
        "one model, lambda 0": (steps_of_a_path(n, (0.0,), (0,)), 1),
        "one model, lambda 10": (steps_of_a_path(n, (10.0,), (0,)), 1),
        "24 models, per model": (steps_of_a_path(few, LAMBDAS, SEEDS), 24),
    }
    seen: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, (run, models) in work.items():
            seen[name].append(run() / models)
    bare_median = statistics.median(seen["bare step"])
    for name, values in seen.items():
        median = statistics.median(values)
        print(
            f"{threads} thread(s)  {name:<22}{1e3 * median:>8.2f} ms a step{median / bare_median:>8.2f} bare steps",
            flush=True,
        )


def cpu_epochs(rounds: int) -> None:
    """Print whole epochs with validation, 100,000 training and 50,000 validation rows."""
    data = load_gamma(censored=True, seed=0)
    problem = prepared(data, torch.device("cpu"))
    _, train, validation = problem
    edges = quantile_edges(data.train.time, data.train.event, BINS)
    config = TrainingConfig(epochs=2, batch_size=BATCH)
    work: dict[str, tuple[Callable[[], object], int]] = {
        "bare epoch, no validation": (bare_epoch(train, edges), 1),
        "ours, lambda 10": (
            lambda: fit_path(
                make_network, *problem, lambdas=(10.0,), config=config, penalty=SoftBins(), progress=False
            ),
            2,
        ),
        **{
            f"usual loop, {data}": (usual_epoch(train, validation, edges, 10.0, torch.device("cpu"), data=data), 1)
            for data in ("own class", "TensorDataset")
        },
    }
    if find_spec("pycox") is not None:
        work["pycox MTLR"] = (pycox_epochs(data, 2), 2)
    seen: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, (run, epochs) in work.items():
            seen[name].append(taken_on_cpu(run) / epochs)
    ours = statistics.median(seen["ours, lambda 10"])
    for name, values in seen.items():
        median = statistics.median(values)
        print(
            f"{torch.get_num_threads()} thread(s)  {name:<28}{median:>8.3f} s an epoch{median / ours:>8.2f} of ours",
            flush=True,
        )


def gpu(epochs: int) -> None:
    device = torch.device("cuda")
    data = load_gamma(censored=True, seed=0)
    problem = prepared(data, device)
    _, train, validation = problem
    print(torch.cuda.get_device_name())
    seconds = {}
    for tf32 in (False, True):
        path(problem, LAMBDAS, SEEDS, 2, tf32=tf32)
        times = []
        for _ in range(3):
            torch.cuda.synchronize()
            start = time.perf_counter()
            result = path(problem, LAMBDAS, SEEDS, epochs, tf32=tf32)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        seconds[tf32] = statistics.median(times)
        best = result.best()
        print(
            f"{'TensorFloat-32' if tf32 else 'float32'}: 24 models, {epochs} epochs, all validated every epoch: "
            f"{seconds[tf32]:.2f} s ({min(times):.2f} to {max(times):.2f}), "
            f"{1e3 * seconds[tf32] / (epochs * 100 * 24):.4f} ms a step a model, validation included"
        )
        print("      lambda    " + "  ".join(f"{lam:g}" for lam in LAMBDAS))
        print("      D-cal     " + "  ".join(f"{v:.0e}" for v in np.nanmean(best.dcal[0].reshape(3, 8), axis=0)))
        print("      objective " + "  ".join(f"{v:.3f}" for v in np.nanmean(best.objective[0].reshape(3, 8), axis=0)))
    edges = quantile_edges(data.train.time, data.train.event, BINS)
    for rows in ("own class", "TensorDataset", "whole batches"):
        usual = usual_epoch(train, validation, edges, 10.0, device, data=rows)
        usual()
        torch.cuda.synchronize()
        taken_usual = taken(lambda run=usual: (run(), torch.cuda.synchronize()), 3)
        print(
            f"usual loop, one model, {rows}: {taken_usual:.2f} s an "
            f"epoch, {10 * taken_usual:.2f} ms a step; ours is faster per model by "
            + ", ".join(
                f"{taken_usual * epochs * 24 / s:.0f} ({n})"
                for n, s in zip(("float32", "tf32"), seconds.values(), strict=True)
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--epochs", type=int, default=100, help="epochs of the path on a GPU")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured in turn on a CPU")
    parser.add_argument("--threads", type=int, help="measure steps with this many threads (the default does 1 and 2)")
    options = parser.parse_args()
    if options.device == "cuda":
        gpu(options.epochs)
    elif options.threads is not None:
        torch.set_num_threads(options.threads)
        cpu_steps(options.rounds)
        if options.threads == 1:
            cpu_epochs(max(1, options.rounds // 2))
    else:
        # A process each: the number of threads cannot be changed for good once work has begun.
        for threads in (1, 2):
            command = [
                sys.executable,
                "-m",
                "benchmarks.training",
                "--threads",
                str(threads),
                "--rounds",
                str(options.rounds),
            ]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
