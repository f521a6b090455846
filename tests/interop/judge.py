"""A module of Lightning that measures; a file of its own, as importing Lightning takes seconds."""

import pickle

import lightning
import torch

from tests.interop.test_torchmetrics import made, update, values


class Judge(lightning.LightningModule):
    def __init__(self, out):
        super().__init__()
        self.out = out
        self.metrics = torch.nn.ModuleDict(made())
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def validation_step(self, batch, _):
        update(self.metrics, batch.numpy())
        self.log("concordance", self.metrics["concordance"])

    def on_validation_epoch_end(self):
        found = values(self.metrics)
        found["rows here"] = int(self.metrics["nll"].n)
        with open(f"{self.out}.{self.global_rank}", "wb") as file:
            pickle.dump(found, file)
