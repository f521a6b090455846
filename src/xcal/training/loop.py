"""The training loop and its steps: K models at once, or one, by the same lines."""

import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import BoolArray
from xcal._devices import Workers
from xcal._torch_private import LightAdam, LightAdamW, adam_step
from xcal.networks import has_convolutions
from xcal.training.checkpoint import CheckpointWriter, read_checkpoint, read_tensors, settings_digest
from xcal.training.problem import LossFunction, LossValues, Plan, Problem, TrainingConfig, by_autograd
from xcal.training.result import Floats, Integers, RunState
from xcal.training.rows import (
    DROPOUT,
    PIECES,
    Across,
    Batch,
    OwnBatches,
    contents,
    derived_seed,
    epoch_edges,
    epoch_order,
    stream,
    take,
    tensor_digest,
)
from xcal.training.stack import MakeNetwork, SeedOfRows, Seeds, Stack, shared_numbers


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


def compiled_loss(loss: LossValues, stack: Stack, batch: Batch, lambdas: Tensor) -> LossValues:
    """Compile objective and penalty, or say in one log line why not and return the plain loss.

    Forward and backward are both tried here, on a batch of the shape that all batches have, because a missing compiler
    shows only when it is needed.
    """
    try:
        compiled: LossValues = torch.compile(loss, dynamic=False)
        with torch.no_grad():
            part = stack.parts[0]
            few = batch.starts(part.starts)
            raw = stack.forward(few.x, training=False, part=part)
        raw.requires_grad_()
        torch.autograd.grad(compiled(raw, few, lambdas[part.starts, part.lambdas]).sum(), raw)
    except Exception as error:  # whatever a compiler chain can raise, training does not depend on it
        _log.warning("the loss is not compiled: %s", _reason(error))
        return loss
    return compiled


def network_gains(stack: Stack) -> bool:
    """Return whether compiling the network pays: around convolutions activation, pooling and gradients become one pass.

    Dense layers are matrix products, which a compiler does not make faster.
    """
    return stack.n_models == 1 and has_convolutions(stack.template)


def compile_network(stack: Stack, batch: Batch) -> None:
    """Compile a lone network, or say in one log line why not."""
    try:
        compiled = torch.compile(stack.template, dynamic=False)
        stack.template.train()
        before = stack.snapshot()  # of running means and the like
        try:
            with shared_numbers():
                torch.autograd.grad(compiled(batch.x[0]).sum(), list(stack.leaves.values()), allow_unused=True)
        finally:
            stack.load(before)
    except Exception as error:  # whatever a compiler chain can raise, training does not depend on it
        _log.warning("the network is not compiled: %s", _reason(error))
        return
    stack.compiled = compiled


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: " + str(error).strip().split("\n", 1)[0]


# --- The steps of an epoch: forward, loss, gradient, optimiser, for all models of a stack at once.
# Everything that changes from step to step lives in fixed memory on the device, the number of the batch included. So
# one step is the same work every time, and on a GPU it is recorded once as a CUDA graph and replayed: launching its
# hundred small kernels one by one takes longer than running them.

_WARM_UP = 3  # steps before a recording, as torch asks for: libraries make their workspaces in the first ones
Noise = Sequence[Seeds]


class Steps:
    """The training steps of a stack.

    Parameters
    ----------
    problem
        What the models are trained on.
    loss_of
        Loss of every model from raw outputs, a batch and lambdas.
    lambdas
        Weights of all models at the start, (K,).
    stack, optimizer
        What is trained, and by what.
    clip
        Largest norm of a model's gradient.
    record
        Record the step as a CUDA graph.
    workers, row_pieces
        Who works on the parts of the stack, and into how many pieces the batch of a lone model is cut.
    """

    def __init__(
        self,
        problem: Problem,
        loss_of: LossFunction,
        lambdas: npt.NDArray[np.float64],
        stack: Stack,
        optimizer: torch.optim.Optimizer,
        *,
        clip: float | None = None,
        record: bool = False,
        workers: Workers | None = None,
        row_pieces: int = 1,
    ) -> None:
        self.rows, self.row_features, self.across = problem.train, problem.row_features, problem.across
        self.loss_of, self.clip = loss_of, clip
        self.own: OwnBatches | None = None  # this process's part of the batches
        self.there = torch.zeros(0)  # which of its rows count
        self.workers, self.row_pieces = workers or Workers(1), row_pieces
        self.stack, self.optimizer = stack, optimizer
        device, models = stack.flat.device, stack.n_models
        self.lambdas = torch.tensor(lambdas, device=device).view(stack.shape)
        self.windows = [self.lambdas[part.starts, part.lambdas] for part in stack.parts]  # of each part's models
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.alive = torch.ones(models, dtype=torch.bool, device=device)
        self.all_alive = True  # as the host knows it; False also where it has not looked
        self.first_bad = torch.full((models,), -1, dtype=torch.int64, device=device)
        self.order = torch.zeros(0)
        self.edges: Tensor | None = None  # of the bins of each batch, (batches, B + 1), where they are random
        self.active = list(range(len(stack.parts)))  # parts that have a model to train
        self.streamed_x: Tensor | None = None  # of one batch, where covariates come from the host
        self.graph: torch.cuda.CUDAGraph | None = None
        self.to_record = record

    @property
    def recorded(self) -> bool:
        """Whether a recorded step is replayed."""
        return self.graph is not None

    def set_lambdas(self, lambdas: npt.NDArray[np.float64]) -> None:
        """Change the weights of all models, (K,), from the next step on; a recorded step reads the same memory."""
        self.lambdas.copy_(torch.as_tensor(lambdas).view_as(self.lambdas))

    def begin(self, order: Tensor, alive: BoolArray, edges: Tensor | None = None) -> None:
        """Set everything to the start of an epoch with these batches ``(batches, S, rows)``; record a step once.

        A part all of whose models have stopped is left out. Parts do not know of each other, so that the models of the
        others are the same bits. Within a part a model that has stopped still costs its share: how a number is rounded
        depends on its place in an array, so the others would be other bits in a smaller one. On a GPU all models are
        one part, and the step is recorded with all of them.
        """
        self.active = self.stack.parts_with(alive)
        if self.across is not None:
            self.own = self.across.own(order)
            order, self.there = self.own.rows, self.own.there.to(self.number.device)
        if edges is not None and self.edges is not None:
            self.edges.copy_(edges)  # the memory that a recorded step reads
        elif edges is not None:
            self.edges = edges.to(self.number.device)
        self._rewind(order, torch.as_tensor(alive))
        if self.to_record:
            self._record()
            self._rewind(order, torch.as_tensor(alive))
            self.to_record = False

    def _rewind(self, order: Tensor, alive: Tensor) -> None:
        if self.order.shape == order.shape:
            self.order.copy_(order)
        else:
            self.order = order.to(self.number.device)
        self.number.zero_()
        self.alive.copy_(alive)
        self.all_alive = bool(alive.all())
        self.first_bad.fill_(-1)

    def run(self, noise: Noise | None = None) -> Tensor:
        """One pass over the training rows; returns the first batch with a loss that is not finite, -1 if none.

        Nothing here waits for the device. A model that fails gets no gradient from then on; where its weights drift to
        by momentum does not matter, as the caller writes back those from before the epoch. The same holds for models
        that have stopped earlier (`alive` is False).
        """
        streamed = stream(self.rows, self.order)
        for number in range(len(self.order)):
            if streamed is not None:
                self._load(next(streamed))
            if self.graph is None:
                self.step(None if noise is None else noise[number])
            else:
                self.graph.replay()
        return self.first_bad

    def step(self, noise: Seeds | None = None) -> None:
        """One batch: the one that `number` says."""
        batch = take(self.rows, self.order.index_select(0, self.number)[0], self.streamed_x, self.row_features)
        if self.edges is not None:
            batch = replace(batch, edges=self.edges.index_select(0, self.number)[0])
        if self.across is not None and self.own is not None:
            counted = batch.of_several(self.there.index_select(0, self.number)[0], self.own.whole)
            loss, gradient = self._joint(counted, noise, self.across)
        elif self.row_pieces > 1:
            loss, gradient = self._lone(batch, noise)
        else:
            loss, gradient = self._joined(self.workers.map(lambda k: self._part(k, batch, noise), self.active))
        # A sum is finite only if all its terms are, and one pass is half of what a look at each would cost.
        told = loss + gradient.sum(1)
        # A GPU is not asked, as it would have to be waited for; a CPU is, as most of the time all models are well.
        if gradient.is_cuda or not (self.all_alive and math.isfinite(told.sum().item())):
            finite = torch.isfinite(told)
            self.first_bad.copy_(torch.where(self.alive & ~finite, self.number, self.first_bad))
            self.alive.logical_and_(finite)
            self.all_alive = False
            # A choice and not a product: zero times NaN is NaN.
            gradient = torch.where(self.alive.unsqueeze(1), gradient, 0.0)
        self.stack.flat.grad = gradient if self.clip is None else clip_rows(gradient, self.clip)
        if gradient.is_cuda:
            self.optimizer.step()
        else:
            adam_step(self.optimizer, self.stack.flat)
        self.number.add_(1)

    def _joint(self, batch: Batch, noise: Seeds | None, across: Across) -> tuple[Tensor, Tensor]:
        """Losses and gradients of all models on a batch that several processes hold.

        The networks of all parts run before the loss, so that its sums over processes are taken once for all models,
        and in the same order on every process, whichever thread is done first.
        """
        stack, n = self.stack, batch.time.shape[-1]
        parts = stack.parts

        def forward(k: int) -> Tensor:
            seeds = None if noise is None else noise[parts[k].starts]
            return stack.forward(batch.x[parts[k].starts], training=True, noise=seeds, part=parts[k])

        raws = self.workers.map(forward, range(len(parts)))
        raw = torch.cat([piece.detach().flatten(0, 1) for piece in raws]).view(*stack.shape, n, -1).requires_grad_()
        loss = self.loss_of(raw, batch, self.lambdas)
        (outer,) = loss.gradient([raw])

        def gradient(k: int) -> Tensor:
            return stack.gradient([raws[k]], parts[k], [outer[parts[k].starts, parts[k].lambdas]])

        own_gradient = torch.cat(self.workers.map(gradient, range(len(parts))))
        # The loss is only asked whether it is finite; a sum that has a part that is not, is not.
        whole, told = across.summed(own_gradient, loss.value.reshape(-1))
        return told, whole

    def _joined(self, found: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Losses and gradients of all models, in their order; zero for parts that were left out."""
        if len(self.stack.parts) == 1:
            return found[0]
        if len(found) == len(self.stack.parts):
            return torch.cat([loss for loss, _ in found]), torch.cat([gradient for _, gradient in found])
        flat = self.stack.flat
        losses, gradients = flat.new_zeros(flat.shape[0], dtype=found[0][0].dtype), torch.zeros_like(flat)
        for number, (loss, gradient) in zip(self.active, found, strict=True):
            models = self.stack.parts[number].models
            losses[models], gradients[models] = loss, gradient
        return losses, gradients

    def _part(self, number: int, batch: Batch, noise: Seeds | None) -> tuple[Tensor, Tensor]:
        """Losses and gradients of the models of a part."""
        stack, part = self.stack, self.stack.parts[number]
        own = batch if len(stack.parts) == 1 else batch.starts(part.starts)
        seeds = None if noise is None else noise[part.starts]
        raw = stack.forward(own.x, training=True, noise=seeds, part=part)
        loss = self.loss_of(raw, own, self.windows[number])
        return loss.value.reshape(-1), stack.gradient(loss.ends, part, loss.slopes)

    def _lone(self, batch: Batch, noise: Seeds | None) -> tuple[Tensor, Tensor]:
        """Loss and gradient of a lone model whose network runs on pieces of the batch side by side.

        The loss needs all rows at once, the network does not. Gradients of the pieces are added in their order, whoever
        is done first.
        """
        stack, part = self.stack, self.stack.parts[0]
        n = batch.time.shape[-1]
        edges = [n * k // self.row_pieces for k in range(self.row_pieces + 1)]
        pieces = [slice(*ends) for ends in pairwise(edges)]

        def forward(k: int) -> Tensor:
            seeds = None if noise is None else [derived_seed(k, PIECES, cast(Sequence[int], noise))]
            return stack.forward(batch.x[:, pieces[k]], training=True, noise=seeds, part=part)

        raws = self.workers.map(forward, range(self.row_pieces))
        raw = torch.cat([piece.detach() for piece in raws], dim=2).requires_grad_()
        loss = self.loss_of(raw, batch, self.windows[0])
        (outer,) = loss.gradient([raw])

        def gradient(k: int) -> Tensor:
            return stack.gradient([raws[k]], part, [outer[:, :, pieces[k]]])

        first, *rest = self.workers.map(gradient, range(self.row_pieces))
        for more in rest:
            first += more
        return loss.value.reshape(-1), first

    def _record(self) -> None:
        """Record a step as a CUDA graph, or say in one log line why not; nothing is trained by it."""
        try:
            self.graph = self._recorded()
        except Exception as error:  # a network may do what cannot be recorded; training does not depend on it
            _log.warning("steps are not recorded as a CUDA graph: %s", _reason(error))
            torch.cuda.synchronize(self.stack.flat.device)

    def _recorded(self) -> torch.cuda.CUDAGraph:
        streamed = stream(self.rows, self.order[:1])
        if streamed is not None:
            self._load(next(streamed))
        weights, moved = self.stack.snapshot(), self.optimizer.state
        # What the optimiser knows; nothing before its first step.
        adam = {k: v.clone() for k, v in moved[self.stack.flat].items()} if self.stack.flat in moved else {}
        side = torch.cuda.Stream(self.stack.flat.device)
        side.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side):
                for _ in range(min(_WARM_UP, len(self.order))):
                    self.step()
            torch.cuda.current_stream().wait_stream(side)
            self.number.zero_()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step()
        finally:
            self.stack.load(weights)
            for name, value in self.optimizer.state[self.stack.flat].items():
                value.copy_(adam[name]) if adam else value.zero_()
        return graph

    def _load(self, x: Tensor) -> None:
        if self.streamed_x is None or self.graph is None:
            self.streamed_x = x
        else:
            self.streamed_x.copy_(x, non_blocking=True)


# Settings of how a run is done; a checkpoint of another way of doing it is as good.
_HOW = {"checkpoint_every", "cuda_graphs"}
# Settings that runs before them did not have, with what these did: such a checkpoint is as good.
_NEWER = {"keep": "best", "quick_dropout": False}


@dataclass(frozen=True, eq=False)
class Group:
    """Models that are trained together: every lambda with every seed."""

    seeds: list[int]
    lambdas: list[float]  # at the start; they change where a target is asked for
    problem: Problem
    plan: Plan  # how the work of a step is cut among threads

    def separate(self) -> list["Group"]:
        """Return the same models, each to be trained on its own."""
        return [
            Group([seed], [lam], replace(self.problem, penalised=lam > 0), self.plan)
            for seed in self.seeds
            for lam in self.lambdas
        ]

    @property
    def first_lambdas(self) -> Floats:
        """Weight of each model at the start, ordered by seed and then by lambda."""
        return np.tile(np.array(self.lambdas, dtype=np.float64), len(self.seeds))

    def make_stack(self, make_network: MakeNetwork) -> Stack:
        """Make the models; done when their turn comes, so that a sequential path holds one at a time."""
        x = self.problem.train.x
        stack = Stack(make_network, self.seeds, len(self.lambdas), x.device, x.dtype, together=self.plan.together)
        stack.look_for_randomness(x[:2])
        return stack

    def fingerprint(self, config: TrainingConfig, stack: Stack) -> str:
        """Everything that decides the result, as text; a checkpoint of another run is told by it."""
        problem = self.problem
        digests = self._digests() if problem.across is None else problem.across.digests()
        n_train, n_validation = problem.n_rows
        shapes = {name: list(leaf.shape[1:]) for name, leaf in stack.leaves.items()}
        template = stack.template
        return json.dumps(
            {
                "version": 2,
                "config": {k: v for k, v in asdict(config).items() if k not in _HOW and (k, v) not in _NEWER.items()},
                "lambdas": [self.lambdas] * len(self.seeds),
                "target_dcal": problem.target_dcal,
                "dcal_floor": problem.dcal_floor,
                "seeds": self.seeds,
                # Checkpoints of before random edges do not name them.
                "penalty": {k: v for k, v in asdict(problem.penalty).items() if k != "random_edges" or v},
                "calibration_bins": problem.edges.shape[0] - 1,
                "family": [type(problem.family).__name__, settings_digest("family", problem.family)],
                "objective": [_name(problem.objective), settings_digest("objective", problem.objective)],
                "network": [type(template).__name__, shapes, settings_digest("network", template, weights=False)],
                "initial weights": tensor_digest(stack.snapshot().values()),
                "train": [n_train, digests.pop("train")],
                "validation": [n_validation, digests.pop("validation")],
                "dtype": str(problem.train.x.dtype),
                **digests,
            }
        )

    def _digests(self) -> dict[str, str]:
        """Short names of the contents of the rows, and of the features of the conditional penalty."""
        problem = self.problem
        found = {name: tensor_digest(contents(getattr(problem, name))) for name in ("train", "validation")}
        features = [each for each in (problem.row_features, problem.validation_features) if each is not None]
        if features:
            found["row features"] = tensor_digest(features)
        return found


def _name(objective: Any) -> str:
    """Return a name for people."""
    if isinstance(objective, partial):
        return _name(objective.func)
    return str(getattr(objective, "__qualname__", type(objective).__qualname__))


_log = logging.getLogger("xcal.training")


def train_stack(
    group: Group,
    stack: Stack,
    config: TrainingConfig,
    *,
    after_epoch: Callable[[RunState], None],
    checkpoint: Path | None,
    fingerprint: str,
) -> RunState:
    """Train the models of a stack to the end, from a checkpoint if there is one, or until interrupted."""
    optimizer = make_optimizer(stack, config)
    stack.quick_dropout = config.quick_dropout
    across = group.problem.across
    state, writer = RunState.start(stack.snapshot(), group.first_lambdas), None
    if checkpoint is not None:
        tensors = _found(checkpoint, across)
        if tensors is not None:
            state = read_checkpoint(checkpoint, fingerprint, stack, optimizer, tensors)
        if across is None or across.processes.first:
            writer = CheckpointWriter(checkpoint, fingerprint)
    try:
        precision = _matmul_precision("high") if config.tf32 and stack.flat.is_cuda else nullcontext()
        with precision, Workers(group.plan.workers, operations=group.plan.operations) as workers:
            run = _Run(group, stack, config, optimizer, state, workers)
            while state.epoch < config.epochs and not state.stopped.all():
                run.epoch()
                done = state.epoch == config.epochs or state.stopped.all()
                if writer is not None and (done or state.epoch % config.checkpoint_every == 0):
                    writer.write(stack, optimizer, state)
                after_epoch(state)
    except KeyboardInterrupt:
        state.interrupted = True
    return state


def _found(checkpoint: Path, across: Across | None) -> dict[str, Tensor] | None:
    """Read a checkpoint, if there is one; the first of several processes reads it for all."""

    def read() -> dict[str, Tensor] | None:
        return read_tensors(checkpoint) if checkpoint.exists() else None

    return read() if across is None else across.processes.from_first(read)


@contextmanager
def _matmul_precision(wanted: str) -> Iterator[None]:
    """Set the precision of matrix products for a while; it is torch's, and not ours to keep."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# Any epoch above the target comes after every epoch at or below it; among them the lower D-calibration is better.
_ABOVE_TARGET = 1e9


class _Run:
    """One run from epoch to epoch."""

    def __init__(
        self,
        group: Group,
        stack: Stack,
        config: TrainingConfig,
        optimizer: torch.optim.Optimizer,
        state: RunState,
        workers: Workers,
    ) -> None:
        self.problem, self.seeds, self.stack, self.config = group.problem, group.seeds, stack, config
        self.optimizer, self.state, self.workers = optimizer, state, workers
        self.order = self._order(state.epoch)
        self.temperature = self._temperature()
        self.steps = Steps(
            self.problem,
            self._compiled_loss() if config.compile else self._plain_loss(),
            state.lambdas,
            stack,
            optimizer,
            clip=config.clip_norm,
            # A sum over processes is no part of a recorded step.
            record=config.cuda_graphs and stack.flat.is_cuda and self.problem.across is None,
            workers=workers,
            row_pieces=group.plan.row_pieces,
        )

    def _temperature(self) -> Tensor | None:
        """Make the memory from which every step reads the temperature, if it changes and there is one."""
        last = self.problem.penalty.temperature
        if not self.config.moves_temperature or last is None or not self.problem.penalised:
            return None
        return torch.as_tensor(last, dtype=torch.float64, device=self.stack.flat.device)

    def _plain_loss(self) -> LossFunction:
        problem = self.problem
        if self.temperature is not None:  # in memory that can be filled anew
            problem = replace(problem, penalty=replace(problem.penalty, temperature=self.temperature))
        # A GPU's step is recorded once: what it does besides arithmetic costs nothing there.
        alone_on_cpu = problem.across is None and self.stack.flat.device.type == "cpu"
        return problem.loss_and_slopes if alone_on_cpu and problem.train.plain else by_autograd(problem.loss)

    def _compiled_loss(self) -> LossFunction:
        """Compile the network or the loss, whichever pays, and return the loss."""
        problem, stack = self.problem, self.stack
        if problem.across is not None or not problem.train.plain:
            why = "it has sums over processes" if problem.train.plain else "rows are seen in part"
            _log.warning("the loss is not compiled: %s", why)
            return self._plain_loss()
        batch = take(problem.train, self.order[0].to(stack.flat.device), row_features=problem.row_features)
        if problem.penalty.random_edges:
            batch = replace(batch, edges=problem.edges)
        if network_gains(stack):
            compile_network(stack, batch)
        elif self.temperature is not None:
            _log.warning("the loss is not compiled: its temperature changes")
        else:
            lambdas = torch.tensor(self.state.lambdas, device=stack.flat.device).view(stack.shape)
            return by_autograd(compiled_loss(problem.loss, stack, batch, lambdas))
        return self._plain_loss()

    def _order(self, epoch: int) -> Tensor:
        return epoch_order(self.problem.n_rows[0], self.config.batch_size, self.seeds, epoch)

    def _edges(self, epoch: int) -> Tensor | None:
        if not (self.problem.penalised and self.problem.penalty.random_edges):
            return None
        return epoch_edges(self.problem.edges.shape[0] - 1, len(self.order), epoch)

    def epoch(self) -> None:
        """Train, validate, choose."""
        # A GPU's random numbers come from torch's own generator, and a step cannot be recorded beside other work.
        with shared_numbers() if self.stack.flat.is_cuda else nullcontext():
            self._epoch()

    def _epoch(self) -> None:
        state, stack, steps, config = self.state, self.stack, self.steps, self.config
        self._set_penalty()
        set_rate(self.optimizer, config.rate(state.epoch))
        before = stack.snapshot()
        steps.begin(self.order, ~state.stopped, self._edges(state.epoch))
        first_bad = steps.run(self._noise())
        if state.epoch + 1 < config.epochs:
            # A GPU is still at work on this epoch: the time to shuffle the next one is free.
            self.order = self._order(state.epoch + 1)
        self._finish(before, first_bad.cpu().numpy())
        state.epoch += 1

    def _set_penalty(self) -> None:
        """Set temperature and weights of the penalty for the epoch, in the memory that every step reads."""
        epoch, last = self.state.epoch, self.problem.penalty.temperature
        if self.temperature is not None and last is not None:
            self.temperature.fill_(self.config.temperature(epoch, float(last)))
        # A target moves the weights itself, up from a small one.
        if self.config.penalty_schedule == "anneal" and self.problem.target_dcal is None:
            self.steps.set_lambdas(self.state.lambdas * self.config.weight(epoch))

    def _noise(self) -> Noise | None:
        """Seeds of an epoch's random numbers.

        Everything random in an epoch follows from seed, epoch and batch, so that a resumed run draws the same numbers.
        A recorded step cannot be seeded anew at every batch; its epoch is seeded as a whole.
        """
        if not self.stack.random:
            return None
        epoch = self.state.epoch
        if self.steps.recorded:
            torch.cuda.manual_seed(derived_seed(epoch, DROPOUT, self.seeds) >> 1)
            return None
        batches = range(len(self.order))
        seeds = [[derived_seed(epoch, DROPOUT, [seed, batch]) for seed in self.seeds] for batch in batches]
        if self.problem.across is None or self.steps.own is None:
            return seeds
        own, rank = self.steps.own, self.problem.across.processes.rank
        return [
            [
                SeedOfRows(seed, derived_seed(epoch, DROPOUT, [seed, rank]), own.whole, own.places[batch, start])
                for start, seed in enumerate(seeds[batch])
            ]
            for batch in batches
        ]

    def _finish(self, before: dict[str, Tensor], first_bad: Integers) -> None:
        """Validate, record, choose: everything that happens once an epoch, on the host."""
        state, stack, problem = self.state, self.stack, self.problem
        state.fail(~state.stopped & (first_bad >= 0), first_bad)
        if state.stopped.any():
            stack.load(before, torch.as_tensor(state.stopped, device=stack.flat.device))
        if self.config.keep == "last" and state.epoch + 1 < self.config.epochs:
            unknown = np.full(state.lambdas.size, np.nan)
            state.record(unknown, unknown, unknown)
            return
        device_objective, device_dcal, conditional = problem.validate(stack, self.workers, ~state.stopped)
        objective, dcal = device_objective.cpu().numpy(), device_dcal.cpu().numpy()
        # Noise alone does not raise conditional calibration, on average.
        excess = dcal - problem.dcal_floor if conditional is None else conditional.cpu().numpy()
        total = objective + state.lambdas * np.maximum(excess, 0.0)
        state.fail(~state.stopped & ~np.isfinite(total), None)
        state.record(objective, dcal, total)
        score = total
        if problem.target_dcal is not None:
            score = np.where(dcal <= problem.target_dcal, objective, _ABOVE_TARGET * (1.0 + dcal))
        # A weight that is still looking for its size must not be stopped while it does.
        patience = self.config.patience if problem.target_dcal is None else None
        state.choose(stack.snapshot(), score, patience, self.config.rising_epochs)
        if problem.target_dcal is not None:
            state.raise_lambdas(dcal, problem.target_dcal, self.config.epochs)
            self.steps.set_lambdas(state.lambdas)
