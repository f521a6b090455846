"""
The penalty on several processes: DistributedDataParallel
=========================================================

Train one model on several processes, each with a part of every batch. The penalty is that of the whole batch.

Start it with ``torchrun --nproc-per-node 2 examples/processes_ddp.py``. At the end the first process trains the same
model alone, on the same batches, and prints how far apart the two are: in double precision, the rounding of sums.
"""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from train import log_normal, simulate

from xcal import XCALLoss, d_calibration


def made_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 2)).double()


def batches(n: int, epochs: int) -> list[Tensor]:
    """Rows of every step: the same on every process. The last batch of an epoch has a single row."""
    generator = torch.Generator().manual_seed(1)
    return [batch for _ in range(epochs) for batch in torch.randperm(n, generator=generator).split(250)]


def together(rows: tuple[Tensor, ...], lam: float, epochs: int) -> nn.Module:
    """Train on all processes, each with its part of every batch, which may be no row at all."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(made_model())
    penalty = XCALLoss(n_bins=20, process_group="world")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for batch in batches(len(rows[0]), epochs):
        x, time, event = (column[batch[rank::size]] for column in rows)
        cdf, log_density, log_survival = log_normal(model, x, time)
        both = penalty.with_mean(-torch.where(event, log_density, log_survival), cdf, event)
        optimizer.zero_grad()
        (both.mean + lam * both.penalty).backward()
        optimizer.step()
    return model.module


def alone(rows: tuple[Tensor, ...], lam: float, epochs: int) -> nn.Module:
    """Train on this process, with all rows of every batch."""
    model, penalty = made_model(), XCALLoss(n_bins=20)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for batch in batches(len(rows[0]), epochs):
        x, time, event = (column[batch] for column in rows)
        cdf, log_density, log_survival = log_normal(model, x, time)
        nll = -torch.where(event, log_density, log_survival).mean()
        optimizer.zero_grad()
        (nll + lam * penalty(cdf, event)).backward()
        optimizer.step()
    return model


def report(model: nn.Module, size: int, lam: float, epochs: int, rows: tuple[Tensor, ...]) -> None:
    """Print what the model is worth on fresh rows, and how far it is from the model of one process."""
    x, time, event = double(simulate(5_000, torch.Generator().manual_seed(2)))
    with torch.no_grad():
        print(f"{size} processes, lam {lam:g}: D-cal {d_calibration(log_normal(model, x, time)[0], event).value:.5f}")
    pairs = zip(model.parameters(), alone(rows, lam, epochs).parameters(), strict=True)
    distance = max(float((one - other).detach().abs().max()) for one, other in pairs)
    print(f"largest distance of a parameter to one process: {distance:.1e}")


def double(rows: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    x, time, event = rows
    return x.double(), time.double(), event


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lam", type=float, default=100.0, help="weight of the penalty")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rows = double(simulate(2_001, torch.Generator().manual_seed(0)))
    model = together(rows, options.lam, options.epochs)
    if dist.get_rank() == 0:
        report(model, dist.get_world_size(), options.lam, options.epochs, rows)
    gc.collect()  # the wrapped model, while its group still stands: afterwards torch may abort when Python ends
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
