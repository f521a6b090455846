"""The training loop: K models at once, or one, by the same lines."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from xcal.training.batches import DROPOUT, derived_seed, epoch_order
from xcal.training.checkpoint import read_checkpoint, write_checkpoint
from xcal.training.compiled import LossFunction, compiled_loss
from xcal.training.config import TrainingConfig
from xcal.training.problem import Problem
from xcal.training.result import Integers
from xcal.training.rows import TensorRows
from xcal.training.stack import Stack, own_randomness
from xcal.training.state import RunState


def make_optimizer(stack: Stack, config: TrainingConfig) -> torch.optim.Optimizer:
    """Make one optimiser over the matrix of all models: Adam is elementwise, so it is K separate ones."""
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    fused = stack.flat.device.type in {"cpu", "cuda"}
    return kind([stack.flat], lr=config.learning_rate, weight_decay=config.weight_decay, fused=fused)


def clip_rows(gradient: Tensor, largest: float) -> Tensor:
    """Scale each model's gradient down to a norm of at most `largest`."""
    norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    return gradient * torch.where(norm > largest, largest / norm, 1.0)


def train_epoch(
    rows: TensorRows,
    loss_of: LossFunction,
    stack: Stack,
    optimizer: torch.optim.Optimizer,
    order: Tensor,
    alive: Tensor,
    *,
    clip: float | None = None,
    noise: Sequence[Sequence[int]] | None = None,
) -> Tensor:
    """One pass over the training rows; returns the first batch with a loss that is not finite, -1 where there is none.

    Nothing here waits for the device, and every step has the same shapes. A model that fails gets no gradient from then
    on; where its weights drift to by momentum does not matter, as the caller writes back those from before the epoch.
    The same holds for models that have stopped earlier (`alive` is False).
    """
    first_bad = torch.full_like(alive, -1, dtype=torch.int64)
    for number, index in enumerate(order):
        batch = rows.take(index)
        raw = stack.forward(batch.x, training=True, noise=None if noise is None else noise[number])
        loss = loss_of(raw, batch).reshape(-1)
        gradient = stack.gradient(loss.sum())
        # A sum is finite only if all its terms are, and one pass is half of what a look at each would cost.
        finite = torch.isfinite(loss.detach() + gradient.sum(1))
        first_bad = torch.where(alive & ~finite, number, first_bad)
        alive = alive & finite
        # A choice and not a product: zero times NaN is NaN.
        gradient = torch.where(alive.unsqueeze(1), gradient, 0.0)
        stack.flat.grad = gradient if clip is None else clip_rows(gradient, clip)
        optimizer.step()
    return first_bad


def finish_epoch(
    problem: Problem,
    stack: Stack,
    state: RunState,
    before: dict[str, Tensor],
    first_bad: Integers,
    patience: int | None,
) -> None:
    """Validate, record, choose: everything that happens once an epoch, on the host."""
    failed = ~state.stopped & (first_bad >= 0)
    state.fail(failed, first_bad)
    if state.stopped.any():
        stack.load(before, torch.as_tensor(state.stopped, device=stack.flat.device))
    device_objective, device_dcal = problem.validate(stack)
    objective, dcal = device_objective.cpu().numpy(), device_dcal.cpu().numpy()
    total = objective + problem.lambdas.reshape(-1).cpu().numpy() * dcal
    state.fail(~state.stopped & ~np.isfinite(total), None)
    state.record(objective, dcal, total)
    state.choose(stack.snapshot(), total, patience)


def train_stack(
    problem: Problem,
    stack: Stack,
    seeds: list[int],
    config: TrainingConfig,
    *,
    after_epoch: Callable[[RunState], None],
    checkpoint: Path | None,
    fingerprint: str,
) -> RunState:
    """Train the models of a stack to the end, from a checkpoint if there is one, or until interrupted."""
    optimizer = make_optimizer(stack, config)
    state = RunState.start(stack.snapshot(), stack.n_models)
    if checkpoint is not None and checkpoint.exists():
        state = read_checkpoint(checkpoint, fingerprint, stack, optimizer)
    try:
        with own_randomness():
            loss_of: LossFunction = problem.loss
            if config.compile:
                order = epoch_order(problem.train.n, config.batch_size, seeds, state.epoch)
                loss_of = compiled_loss(problem, stack, problem.train.take(order[0].to(stack.flat.device)))
            while state.epoch < config.epochs and not state.stopped.all():
                _epoch(problem, loss_of, stack, seeds, config, optimizer, state)
                done = state.epoch == config.epochs or state.stopped.all()
                if checkpoint is not None and (done or state.epoch % config.checkpoint_every == 0):
                    write_checkpoint(checkpoint, fingerprint, stack, optimizer, state)
                after_epoch(state)
    except KeyboardInterrupt:
        state.interrupted = True
    return state


def _epoch(
    problem: Problem,
    loss_of: LossFunction,
    stack: Stack,
    seeds: list[int],
    config: TrainingConfig,
    optimizer: torch.optim.Optimizer,
    state: RunState,
) -> None:
    device = stack.flat.device
    order = epoch_order(problem.train.n, config.batch_size, seeds, state.epoch).to(device)
    for group in optimizer.param_groups:
        group["lr"] = config.rate(state.epoch)
    before = stack.snapshot()
    alive = torch.as_tensor(~state.stopped, device=device)
    # Everything random in an epoch follows from seed, epoch and batch, so that a resumed run draws the same numbers.
    noise = None
    if stack.random:
        noise = [[derived_seed(state.epoch, DROPOUT, [seed, b]) for seed in seeds] for b in range(len(order))]
    first_bad = train_epoch(problem.train, loss_of, stack, optimizer, order, alive, clip=config.clip_norm, noise=noise)
    finish_epoch(problem, stack, state, before, first_bad.cpu().numpy(), config.patience)
    state.epoch += 1
