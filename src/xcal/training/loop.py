"""The training loop: K models at once, or one, by the same lines."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcal._devices import Workers
from xcal.training.across import Across
from xcal.training.checkpoint import CheckpointWriter, read_checkpoint, read_tensors, settings_digest, tensor_digest
from xcal.training.config import TrainingConfig
from xcal.training.problem import LossFunction, Plan, Problem, by_autograd
from xcal.training.result import Floats, Integers, RunState
from xcal.training.rows import DROPOUT, contents, derived_seed, epoch_order, take
from xcal.training.stack import MakeNetwork, SeedOfRows, Stack, shared_numbers
from xcal.training.steps import Noise, Steps, compile_network, compiled_loss, make_optimizer, network_gains, set_rate

# Settings of how a run is done; a checkpoint of another way of doing it is as good.
_HOW = {"checkpoint_every", "cuda_graphs"}


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
                "config": {key: value for key, value in asdict(config).items() if key not in _HOW},
                "lambdas": [self.lambdas] * len(self.seeds),
                "target_dcal": problem.target_dcal,
                "dcal_floor": problem.dcal_floor,
                "seeds": self.seeds,
                "penalty": asdict(problem.penalty),
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
        return problem.loss_and_slopes if alone_on_cpu else by_autograd(problem.loss)

    def _compiled_loss(self) -> LossFunction:
        """Compile the network or the loss, whichever pays, and return the loss."""
        problem, stack = self.problem, self.stack
        if problem.across is not None:
            _log.warning("the loss is not compiled: it has sums over processes")
            return self._plain_loss()
        batch = take(problem.train, self.order[0].to(stack.flat.device), row_features=problem.row_features)
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
        steps.begin(self.order, ~state.stopped)
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
