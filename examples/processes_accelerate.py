"""
The penalty on several processes: Accelerate
============================================

The same training with Hugging Face Accelerate.

Start it with ``torchrun --nproc-per-node 2 examples/processes_accelerate.py`` or with ``accelerate launch``
(``pip install "xcal[accelerate]"``). Accelerate divides every batch among the processes; they may get different numbers
of rows.
"""

import argparse

import torch
from accelerate import Accelerator
from processes_ddp import batches, double, made_model, report
from torch import Tensor, nn
from train import log_normal, simulate

from xcal import XCALLoss


def together(accelerator: Accelerator, rows: tuple[Tensor, ...], lam: float, epochs: int) -> nn.Module:
    model = made_model()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=3e-3))
    penalty = XCALLoss(n_bins=20, process_group="world")
    for batch in batches(len(rows[0]), epochs):
        with accelerator.split_between_processes(batch.tolist()) as mine:
            x, time, event = (column[mine] for column in rows)
        cdf, log_density, log_survival = log_normal(model, x, time)
        both = penalty.with_mean(-torch.where(event, log_density, log_survival), cdf, event)
        optimizer.zero_grad()
        accelerator.backward(both.mean + lam * both.penalty)
        optimizer.step()
    return accelerator.unwrap_model(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lam", type=float, default=100.0, help="weight of the penalty")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    # The last batch of an epoch has three rows. Of a single one, Accelerate would give every process a copy.
    rows = double(simulate(2_003, torch.Generator().manual_seed(0)))
    model = together(accelerator, rows, options.lam, options.epochs)
    if accelerator.is_main_process:
        report(model, accelerator.num_processes, options.lam, options.epochs, rows)
    accelerator.end_training()


if __name__ == "__main__":
    main()
