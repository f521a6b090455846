"""
The penalty on several processes: Lightning
===========================================

The same model in a LightningModule, trained by a Trainer with ``strategy="ddp"`` on two processes.

Start it with ``python examples/processes_lightning.py`` (``pip install "xcal[lightning]"``): Lightning starts the
second process itself. The penalty finds the processes when it is called, so that it can be made before they know of
each other. A sampler of our own divides every batch: Lightning's would repeat rows until all have equally many.
"""

import argparse
import logging
import os
import warnings
from collections.abc import Iterator

import torch
import torch.distributed as dist
from lightning import LightningModule, Trainer
from processes_ddp import batches, double, made_model, report
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, TensorDataset
from train import log_normal, simulate

from xcal import XCALLoss


class OwnRows(Sampler[list[int]]):
    """Rows of every batch that are of this process."""

    def __init__(self, n: int, epochs: int) -> None:
        self.order = batches(n, epochs)

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.order:
            yield batch[dist.get_rank() :: dist.get_world_size()].tolist()


class Survival(LightningModule):
    """A log-normal model whose loss is that of the whole batch."""

    def __init__(self, lam: float) -> None:
        super().__init__()
        self.network, self.lam = made_model(), lam
        self.penalty = XCALLoss(n_bins=20, process_group="world")

    def training_step(self, rows: list[Tensor]) -> Tensor:
        """Return the loss of the whole batch from the rows of this process."""
        x, time, event = rows
        cdf, log_density, log_survival = log_normal(self.network, x, time)
        both = self.penalty.with_mean(-torch.where(event, log_density, log_survival), cdf, event)
        return both.mean + self.lam * both.penalty

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lam", type=float, default=100.0, help="weight of the penalty")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*|.*LeafSpec.*")
    # The last batch of an epoch has two rows: a data loader cannot give a process none.
    rows = double(simulate(2_002, torch.Generator().manual_seed(0)))
    trainer = Trainer(
        accelerator="cpu",
        devices=options.processes,
        strategy="ddp",
        max_epochs=1,  # the sampler has all epochs
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Survival(options.lam)
    loader = DataLoader(TensorDataset(*rows), batch_sampler=OwnRows(len(rows[0]), options.epochs))
    trainer.fit(model, loader)
    if trainer.is_global_zero:
        report(model.network, trainer.world_size, options.lam, options.epochs, rows)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
