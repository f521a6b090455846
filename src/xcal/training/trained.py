"""The weights of a path's models, and what the models say about rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xcal.calibration.penalty import full_precision
from xcal.data import SurvivalData
from xcal.data.features import loaded_features
from xcal.distributions.family_base import Family
from xcal.training.rows import in_type
from xcal.training.stack import MakeNetwork, Stack, load_row, new_network

# Rows times models evaluated at a time; see `xcal.training.problem`.
_CHUNK = {"cpu": 1 << 14, "cuda": 1 << 21}


@dataclass(frozen=True, eq=False)
class Trained:
    """K models at their best epochs: a snapshot of a stack, and what makes networks and distributions of it."""

    best: dict[str, Tensor]
    make_network: MakeNetwork
    family: Family

    def network(self, model: int, seed: int) -> nn.Module:
        """Return one model, in evaluation mode."""
        flat = self.best["flat"]
        network = new_network(self.make_network, seed).to(device=flat.device, dtype=flat.dtype)
        return load_row(network, self.best, model).eval()

    @torch.no_grad()
    def outputs(self, data: SurvivalData, seeds: list[int]) -> Iterator[tuple[Tensor, SurvivalData]]:
        """Raw outputs ``(S, L, b, n_outputs)`` of all models with the rows that they belong to, some at a time."""
        flat = self.best["flat"]
        stack = Stack(self.make_network, seeds, flat.shape[0] // len(seeds), flat.device, flat.dtype)
        stack.load(self.best)
        step = max(1, _CHUNK.get(flat.device.type, 1 << 14) // stack.n_models)
        for start in range(0, data.n, step):
            rows = in_type(data[start : start + step].to(flat.device), flat.dtype)
            rows = rows.replaced(x=torch.as_tensor(loaded_features(rows.x)).to(flat.dtype))
            x = rows.x.unsqueeze(0).expand(len(seeds), *rows.x.shape)
            with full_precision(flat.device):  # not around the yield: what the caller does meanwhile is his
                raw = stack.forward(x, training=False)
            yield raw, rows
