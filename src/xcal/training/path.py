"""`fit_path`: the one door to training."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.modules.conv import _ConvNd

from xcal._checks import fail
from xcal._threads import usable_threads
from xcal.calibration.bins import bin_edges
from xcal.calibration.softbins import SoftBins
from xcal.distributions.families import Family
from xcal.objectives import nll
from xcal.training.arguments import (
    check_alike,
    check_kinds,
    check_outputs,
    check_temperature,
    checked_lambdas,
    checked_seeds,
    chosen_device,
)
from xcal.training.batches import batch_shape
from xcal.training.checkpoint import check_folder
from xcal.training.config import Mode, TrainingConfig, check_number
from xcal.training.fingerprint import settings_digest, tensor_digest
from xcal.training.loop import train_stack
from xcal.training.plan import Plan, planned
from xcal.training.problem import Objective, Problem
from xcal.training.progress import Progress, Reporter
from xcal.training.result import Failure, Floats, History, PathResult
from xcal.training.rows import Rows, TensorRows
from xcal.training.stack import MakeNetwork, Stack
from xcal.training.state import RunState

_log = logging.getLogger("xcal.training")


@torch.inference_mode(False)
@torch.enable_grad()  # a caller may have switched gradients off; training needs them
def fit_path(
    make_network: MakeNetwork,
    family: Family,
    train: Rows,
    validation: Rows,
    *,
    lambdas: Sequence[float] = (0.0,),
    seeds: Sequence[int] = (0,),
    objective: Objective = nll,
    penalty: SoftBins | None = None,
    calibration_bins: int = 20,
    config: TrainingConfig | None = None,
    mode: Mode = "auto",
    device: str | torch.device | None = None,
    progress: Progress = None,
    checkpoint: str | Path | None = None,
    target_dcal: float | None = None,
    dcal_floor: float = 0.0,
) -> PathResult:
    """Train one model for every lambda and seed, all in one run.

    The loss of model k on a batch is the mean of `objective` over its rows plus ``lambda_k`` times soft D-calibration
    (`xcal.xcal_penalty`). After every epoch each model is scored on all validation rows by objective + lambda x exact
    D-calibration (less `dcal_floor`, if that is given), and keeps its own best epoch.

    Parameters
    ----------
    make_network
        Makes a network, ``(n, ...)`` to ``(n, family.n_outputs)``: any torch module. Called once for each seed, with
        torch's random numbers seeded by it.
    family
        Turns raw outputs into distributions (`xcal.distributions.family`).
    train, validation : Rows
        Held on the device as a whole.
    lambdas, seeds
        The path: all pairs of them.
    objective
        One value a row from (distribution, time, event): `nll`, `survival_crps` or your own, written for leading
        dimensions that count models.
    penalty : SoftBins, optional
        Which soft D-calibration; the default is ours, ``SoftBins("product", censored="soft")`` the paper's.
    calibration_bins
        Number of equal bins of D-calibration, in the penalty and in validation.
    config : TrainingConfig, optional
    mode : {"auto", "stacked", "sequential"}
        Train all models together, or one after another. "auto" stacks, unless there is one model, or the network has
        convolutions (stacking them is slower) or cannot be run under `torch.func.vmap`.
    device
        Where to train; by default where ``train.x`` is.
    progress
        None for a bar if the standard error is a terminal, True or False, or a function of an `EpochReport`.
    checkpoint
        A folder: every ``config.checkpoint_every`` epochs the state is written there, and a run that finds its own
        checkpoint there goes on from it.
    target_dcal
        Instead of `lambdas`: find the weight in this run, one model a seed. Lambda starts at 1; after every epoch it
        grows where validation D-calibration is above the target and shrinks where it is below (dual ascent on its
        logarithm). A model keeps the epoch with the lowest objective among those at or below the target, or with the
        lowest D-calibration if there is none; `PathResult.lambdas` has the weights of these epochs. Finding takes all
        epochs: ``config.patience`` is not used.
    dcal_floor
        Epochs are chosen by objective + lambda x what D-calibration exceeds this. 0 is the paper's rule; what a perfect
        model scores on the validation rows (`xcal.d_calibration(...).floor`) keeps a small validation set from choosing
        epochs by its noise.

    Returns
    -------
    PathResult
        Also after a keyboard interrupt, with what was best until then.

    Examples
    --------
    >>> from xcal.distributions import family
    >>> from xcal.networks import Linear
    >>> x = torch.linspace(-1, 1, 40).unsqueeze(1)
    >>> rows = Rows(x, time=torch.exp(x[:, 0]), event=torch.ones(40))
    >>> config = TrainingConfig(epochs=3, batch_size=20)
    >>> fit_path(lambda: Linear(1, 2), family("lognormal"), rows, rows, lambdas=(0.0, 10.0), config=config)
    PathResult(2 models: 2 lambdas x 1 seeds, 3 epochs, stacked)
    """
    config = TrainingConfig() if config is None else config
    check_kinds(make_network, family, train, validation, objective, penalty, config, mode)
    lambdas, seeds = checked_lambdas(lambdas), checked_seeds(seeds)
    if target_dcal is not None:
        check_number("target_dcal", target_dcal, above_zero=True)
        if lambdas != [0.0]:
            fail("lambdas", "none beside target_dcal, which finds the weight itself", lambdas)
        lambdas = [1.0]
    check_number("dcal_floor", dcal_floor, above_zero=False)
    soft = penalty or SoftBins()
    check_temperature(config, soft)
    where = chosen_device(device, train)
    rows, held_out = train.on("train", where), validation.on("validation", where)
    check_alike(rows, held_out)
    edges = torch.from_numpy(bin_edges(calibration_bins)).to(where)
    grid = torch.tensor([lambdas] * len(seeds), device=where, dtype=torch.float64)
    placed = family.to(where)
    problem = Problem(
        placed,
        objective,
        soft,
        edges,
        grid,
        rows,
        held_out,
        max(lambdas) > 0,
        target_dcal,
        dcal_floor,
    )
    # Two copies are enough to see whether the network fits the family, and whether it can be stacked.
    probe = Stack(make_network, seeds[:1], 2, where, rows.x.dtype)
    check_outputs(probe, rows, family)
    used = _choose_mode(mode, len(seeds) * len(lambdas), probe, rows)
    plan = _plan(config, probe, rows, (len(seeds), len(lambdas)) if used == "stacked" else (1, 1))
    groups = [_Group(seeds, problem, plan)]
    if used == "sequential":
        pairs = [(seed, lam) for seed in seeds for lam in lambdas]
        groups = [
            _Group([seed], replace(problem, lambdas=grid.new_full((1, 1), lam), penalised=lam > 0), plan)
            for seed, lam in pairs
        ]
    folder = None if checkpoint is None else Path(checkpoint)
    states = _train_groups(groups, make_network, config, Reporter(progress, len(groups) * config.epochs), folder)
    return _result(states, seeds, used, config, make_network)


@dataclass(frozen=True, eq=False)
class _Group:
    """Models that are trained together."""

    seeds: list[int]
    problem: Problem
    plan: Plan

    @property
    def lambdas(self) -> list[list[float]]:
        """The weights at the start."""
        return [[1.0] for _ in self.seeds] if self.problem.target_dcal is not None else self.problem.lambdas.tolist()

    def make_stack(self, make_network: MakeNetwork) -> Stack:
        """Make the models; done when their turn comes, so that a sequential path holds one at a time."""
        x = self.problem.train.x
        n_lambdas, together = self.problem.lambdas.shape[1], self.plan.together
        stack = Stack(make_network, self.seeds, n_lambdas, x.device, x.dtype, together=together)
        stack.look_for_randomness(x[:2])
        return stack

    def fingerprint(self, config: TrainingConfig, stack: Stack) -> str:
        """Everything that decides the result, as text; a checkpoint of another run is told by it."""
        problem = self.problem
        network = {name: list(leaf.shape[1:]) for name, leaf in stack.leaves.items()}
        return json.dumps(
            {
                "version": 2,
                "config": {k: v for k, v in asdict(config).items() if k not in {"checkpoint_every", "cuda_graphs"}},
                "lambdas": self.lambdas,
                "target_dcal": problem.target_dcal,
                "dcal_floor": problem.dcal_floor,
                "seeds": self.seeds,
                "penalty": asdict(problem.penalty),
                "calibration_bins": problem.edges.shape[0] - 1,
                "family": [type(problem.family).__name__, settings_digest("family", problem.family)],
                "objective": [_name(problem.objective), settings_digest("objective", problem.objective)],
                "network": [
                    type(stack.template).__name__,
                    network,
                    settings_digest("network", stack.template, weights=False),
                ],
                "initial weights": tensor_digest(stack.snapshot().values()),
                "train": [problem.train.n, tensor_digest(problem.train.tensors())],
                "validation": [problem.validation.n, tensor_digest(problem.validation.tensors())],
                "dtype": str(problem.train.x.dtype),
            }
        )


def _train_groups(
    groups: list[_Group], make_network: MakeNetwork, config: TrainingConfig, reporter: Reporter, folder: Path | None
) -> list[RunState]:
    states, first = [], 0
    interrupted = False
    names = ["path.ckpt"] if len(groups) == 1 else [f"model-{number}.ckpt" for number in range(len(groups))]
    if folder is not None:
        check_folder(folder, names)
    try:
        for number, group in enumerate(groups):
            stack = group.make_stack(make_network)
            models = np.arange(first, first + stack.n_models)
            first += stack.n_models
            if interrupted:
                states.append(RunState.start(stack.snapshot(), stack.n_models, group.problem.lambdas))
                continue
            states.append(
                train_stack(
                    group.problem,
                    stack,
                    group.seeds,
                    config,
                    group.plan,
                    after_epoch=partial(reporter.show, epochs=config.epochs, models=models),
                    checkpoint=None if folder is None else folder / names[number],
                    fingerprint="" if folder is None else group.fingerprint(config, stack),
                )
            )
            interrupted = states[-1].interrupted
    finally:
        reporter.close()
    return states


def _result(
    states: list[RunState],
    seeds: list[int],
    mode: Literal["stacked", "sequential"],
    config: TrainingConfig,
    make_network: MakeNetwork,
) -> PathResult:
    histories = [state.history() for state in states]
    epochs = max(history.epochs for history in histories)

    def together(name: str) -> Floats:
        # A model that stopped early, or was never begun, has no values for the epochs of the longest run.
        pieces = [getattr(history, name) for history in histories]
        return np.hstack([np.pad(p, ((0, epochs - len(p)), (0, 0)), constant_values=np.nan) for p in pieces])

    failures, first = [], 0
    for state in states:
        failures += [Failure(f.model + first, f.epoch, f.batch) for f in state.failures]
        first += state.best_epoch.size
    return PathResult(
        lambdas=(found := np.concatenate([state.best_lambdas for state in states])),
        seeds=np.repeat(np.array(seeds, dtype=np.int64), found.size // len(seeds)),
        best_epoch=np.concatenate([state.best_epoch for state in states]),
        history=History(together("objective"), together("dcal"), together("total")),
        mode=mode,
        failures=tuple(failures),
        interrupted=any(state.interrupted for state in states),
        config=config,
        _best={name: torch.cat([state.best[name] for state in states]) for name in states[0].best},
        _make_network=make_network,
    )


def _choose_mode(mode: Mode, n_models: int, probe: Stack, rows: TensorRows) -> Literal["stacked", "sequential"]:
    if mode != "auto":
        return mode
    if n_models == 1 or any(isinstance(module, _ConvNd) for module in probe.template.modules()):
        return "sequential"
    try:
        with torch.no_grad():
            probe.forward(rows.x[:2].unsqueeze(0), training=False)
    except (RuntimeError, ValueError, NotImplementedError) as error:  # what vmap raises for what it cannot batch
        _log.info("models are trained one after another, as the network cannot be stacked: %s", error)
        return "sequential"
    return "stacked"


def _plan(config: TrainingConfig, probe: Stack, rows: TensorRows, models: tuple[int, int]) -> Plan:
    """Decide how the work of a step is cut among threads."""
    if rows.time.is_cuda:
        return Plan()
    if config.compile:
        return Plan(operations=usable_threads())  # compiled code splits its loops itself
    _, batch = batch_shape(rows.n, config.batch_size)
    return planned(*models, probe.work(rows.x[:2]) * batch, row_wise=lambda: probe.row_wise(rows.x[:8]))


def _name(objective: Any) -> str:
    """Return a name for people."""
    if isinstance(objective, partial):
        return _name(objective.func)
    return str(getattr(objective, "__qualname__", type(objective).__qualname__))
