"""The optimiser of a stack: one over the matrix of all models."""

import torch
from torch import Tensor

from xcal._torch_private import LightAdam, LightAdamW
from xcal.training.config import TrainingConfig
from xcal.training.stack import Stack


def make_optimizer(stack: Stack, config: TrainingConfig) -> torch.optim.Optimizer:
    """Make one optimiser over the matrix of all models: Adam is elementwise, so it is K separate ones."""
    kind = LightAdamW if config.optimizer == "adamw" else LightAdam
    device = stack.flat.device
    on_gpu = device.type == "cuda"
    # A recorded step reads the rate from the device, where a schedule can change it.
    rate = torch.tensor(config.learning_rate, device=device) if on_gpu else config.learning_rate
    fused = device.type in {"cpu", "cuda"}
    return kind([stack.flat], lr=rate, weight_decay=config.weight_decay, fused=fused, capturable=on_gpu)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate, in place where it lives on a device."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def clip_rows(gradient: Tensor, largest: float) -> Tensor:
    """Scale each model's gradient down to a norm of at most `largest`."""
    norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    return gradient * torch.where(norm > largest, largest / norm, 1.0)


def optimizer_state(optimizer: torch.optim.Optimizer, flat: Tensor) -> dict[str, Tensor]:
    """Copy what an optimiser knows of a matrix; nothing before its first step."""
    return {name: value.clone() for name, value in optimizer.state[flat].items()} if flat in optimizer.state else {}
