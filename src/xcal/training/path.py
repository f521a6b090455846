"""`fit_path`: the one function that trains."""

import logging
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from xcal._interrupts import interrupts_wait
from xcal._threads import usable_threads
from xcal.calibration.bins import bin_edges
from xcal.calibration.penalty import full_precision
from xcal.calibration.row_features import FeatureMaker
from xcal.calibration.softbins import SoftBins
from xcal.data import SurvivalData
from xcal.distributions.family_base import Family
from xcal.networks._layers import has_convolutions
from xcal.objectives import nll
from xcal.objectives.joint import Objective
from xcal.training.across import Distributed, found_processes, own_device
from xcal.training.arguments import (
    check_alike,
    check_kinds,
    check_outputs,
    check_temperature,
    check_together,
    checked_options,
    checked_path,
    checked_seeds,
    chosen_device,
    usual_penalty,
)
from xcal.training.batches import batch_shape
from xcal.training.checkpoint import check_folder, sole_training
from xcal.training.config import Mode, TrainingConfig, check_number
from xcal.training.group import Group
from xcal.training.loop import train_stack
from xcal.training.plan import Plan, planned
from xcal.training.problem import Problem
from xcal.training.progress import Progress, Reporter
from xcal.training.result import Failure, Floats, History, PathResult
from xcal.training.sharding import placed
from xcal.training.stack import MakeNetwork, Stack
from xcal.training.state import RunState
from xcal.training.trained import Trained

_log = logging.getLogger("xcal.training")


@torch.inference_mode(False)
@torch.enable_grad()  # a caller may have switched gradients off; training needs them
def fit_path(
    make_network: MakeNetwork,
    family: Family,
    train: SurvivalData,
    validation: SurvivalData,
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
    conditional: FeatureMaker | None = None,
    distributed: Distributed = None,
) -> PathResult:
    """Train one model for every lambda and seed, all in one run.

    The loss of model k on a batch is the mean of `objective` over its rows plus ``lambda_k`` times soft D-calibration
    (`xcal.xcal_penalty`). After every epoch each model is scored on all validation rows by objective + lambda times
    exact D-calibration (less `dcal_floor`, if that is given), and keeps its own best epoch.

    Parameters
    ----------
    make_network
        Makes a network, ``(n, ...)`` to ``(n, family.n_outputs)``: any torch module. Called once for each seed, with
        torch's random numbers seeded by it.
    family
        Turns raw outputs into distributions (`xcal.distributions.family`).
    train, validation : SurvivalData
        Held on the device as a whole, unless the features are in a file.
    lambdas, seeds
        The path: all pairs of them.
    objective
        One value per row from (distribution, time, event): `nll`, `survival_crps` or your own, written for leading
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
        Where to train; by default where `train` is.
    progress
        None for a bar if the standard error is a terminal, True or False, or a function of an `EpochReport`.
    checkpoint
        A folder for the state, every ``config.checkpoint_every`` epochs; a run that finds its own there resumes.
    target_dcal
        Instead of `lambdas`: find the weight in this run, one model per seed. Lambda starts at 1; after every epoch it
        grows where validation D-calibration is above the target and shrinks where it is below (dual ascent on its
        logarithm). A model keeps the epoch with the lowest objective among those at or below the target, or with the
        lowest D-calibration if there is none; `PathResult.lambdas` has the weights of these epochs. Finding takes all
        epochs: ``config.patience`` is not used.
    dcal_floor
        Epochs are chosen by objective + lambda times the amount by which D-calibration exceeds this. 0 is the paper's
        rule; what a perfect model scores on the validation rows (`xcal.d_calibration(...).floor`) keeps a small
        validation set from choosing epochs by its noise.
    conditional : KernelFeatures or another maker of features, optional
        Penalise calibration given the covariates (`xcal.conditional_calibration`) in place of calibration on average.
        Features of all rows are made once and kept. Rows to train and to validate on each have their own, and their own
        scale, unless they were fitted: ``KernelFeatures().fit(train.x)``. Your own maker has a method ``of(X)``. The
        estimator is "unbiased" unless `penalty` says otherwise; epochs are chosen by objective + lambda K.
    distributed : {"auto", "shards"} or bool, optional
        Train together with other processes, each on its part of the rows, to the same result as one process. "auto":
        if torchrun started this process, or `torch.distributed` is initialised; alone otherwise. True: the same, and an
        error if there are no others. Every process calls with the same arguments. "shards": as True, but `train` and
        `validation` are rows of this process alone. The first process shows progress and writes checkpoints; the result
        is the same on all. See "Large data and many machines".

    Returns
    -------
    PathResult
        Also after a keyboard interrupt, with what was best until then.

    Examples
    --------
    >>> from xcal.data import SurvivalData
    >>> from xcal.distributions import family
    >>> from xcal.networks import Linear
    >>> x = torch.linspace(-1, 1, 40).unsqueeze(1)
    >>> rows = SurvivalData(x, time=torch.exp(x[:, 0]), event=torch.ones(40))
    >>> config = TrainingConfig(epochs=3, batch_size=20)
    >>> fit_path(lambda: Linear(1, 2), family("lognormal"), rows, rows, lambdas=(0.0, 10.0), config=config)
    PathResult(2 models: 2 lambdas x 1 seeds, 3 epochs, stacked)
    """
    _load_backward()
    config = TrainingConfig() if config is None else config
    check_kinds(make_network, family, train, validation, objective, penalty, config, mode)
    folder = checked_options(calibration_bins, checkpoint, conditional)
    first_lambdas, seeds = checked_path(lambdas, target_dcal), checked_seeds(seeds)
    check_number("dcal_floor", dcal_floor, above_zero=False)
    penalty = penalty or usual_penalty(conditional=conditional is not None)
    check_temperature(config, penalty)
    processes = found_processes(distributed)
    where = chosen_device(device, train)
    where = where if processes is None else own_device(where)
    # Autocast would round the networks to bfloat16, and in this thread only, not in those that share the work.
    with full_precision(where):
        rows = placed(train, validation, where, conditional, processes, local=distributed == "shards")
        problem = Problem(
            family=family.to(where),
            objective=objective,
            penalty=penalty,
            edges=torch.from_numpy(bin_edges(calibration_bins)).to(where),
            train=rows[0],
            validation=rows[1],
            penalised=max(first_lambdas) > 0,
            target_dcal=target_dcal,
            dcal_floor=dcal_floor,
            row_features=rows[2][0],
            validation_features=rows[2][1],
            across=rows[3],
        )
        check_alike(problem.train, problem.validation)
        used, groups = _grouped(mode, config, problem, make_network, seeds, first_lambdas)
        shown = progress if processes is None or processes.first else False
        with sole_training(folder):
            states = _train_groups(groups, make_network, config, Reporter(shown, len(groups) * config.epochs), folder)
        best = {name: torch.cat([state.best[name] for state in states]) for name in states[0].best}
    return _result(states, seeds, used, config, Trained(best, make_network, family))


@cache
def _load_backward() -> None:
    """Let torch import what its first backward pass imports, hundreds of modules, before Ctrl-C can cut that short."""
    with interrupts_wait():
        x = torch.ones(1, requires_grad=True)
        torch.autograd.grad(x * 1, x, grad_outputs=torch.ones(1))


def _grouped(
    mode: Mode,
    config: TrainingConfig,
    problem: Problem,
    make_network: MakeNetwork,
    seeds: list[int],
    first_lambdas: list[float],
) -> tuple[Literal["stacked", "sequential"], list[Group]]:
    """Decide which models are trained together: all of them in one group, or each in a group of its own."""
    rows = problem.train
    # Two copies are enough to see whether the network fits the family, and whether it can be stacked.
    probe = Stack(make_network, seeds[:1], 2, rows.device, rows.x.dtype)
    check_outputs(probe, rows, problem.family)
    used = _choose_mode(mode, len(seeds) * len(first_lambdas), probe, rows)
    if problem.across is not None:
        check_together(problem, problem.across, probe, used, config, (seeds, first_lambdas))
    plan = _plan(config, probe, problem, (len(seeds), len(first_lambdas)) if used == "stacked" else (1, 1))
    together = Group(seeds, first_lambdas, problem, plan)
    return used, [together] if used == "stacked" else together.separate()


def _train_groups(
    groups: list[Group], make_network: MakeNetwork, config: TrainingConfig, reporter: Reporter, folder: Path | None
) -> list[RunState]:
    states, first = [], 0
    interrupted = False
    across = groups[0].problem.across
    shows = across is None or across.processes.first
    names = ["path.ckpt"] if len(groups) == 1 else [f"model-{number}.ckpt" for number in range(len(groups))]
    if folder is not None:
        check = partial(check_folder, folder, names)
        check() if across is None else across.processes.from_first(check)
    try:
        for number, group in enumerate(groups):
            stack = group.make_stack(make_network)
            if across is not None:
                across.same_start([stack.flat, *stack.carried.values()])
            models = np.arange(first, first + stack.n_models)
            first += stack.n_models
            if interrupted:
                states.append(RunState.start(stack.snapshot(), group.first_lambdas))
                continue
            states.append(
                train_stack(
                    group,
                    stack,
                    config,
                    after_epoch=partial(reporter.show, epochs=config.epochs, models=models) if shows else _nothing,
                    checkpoint=None if folder is None else folder / names[number],
                    fingerprint="" if folder is None else group.fingerprint(config, stack),
                )
            )
            interrupted = states[-1].interrupted
    finally:
        reporter.close()
    return states


def _nothing(state: RunState) -> None: ...  # the first process shows progress


def _result(
    states: list[RunState],
    seeds: list[int],
    mode: Literal["stacked", "sequential"],
    config: TrainingConfig,
    trained: Trained,
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
        family=trained.family,
        _trained=trained,
    )


def _choose_mode(mode: Mode, n_models: int, probe: Stack, rows: SurvivalData) -> Literal["stacked", "sequential"]:
    if mode != "auto":
        return mode
    if n_models == 1 or has_convolutions(probe.template):
        return "sequential"
    try:
        with torch.no_grad():
            probe.forward(rows.x[:2].unsqueeze(0), training=False)
    except (RuntimeError, ValueError, NotImplementedError) as error:  # what vmap raises for what it cannot batch
        _log.info("models are trained one after another, as the network cannot be stacked: %s", error)
        return "sequential"
    return "stacked"


def _plan(config: TrainingConfig, probe: Stack, problem: Problem, models: tuple[int, int]) -> Plan:
    """Decide how the work of a step is cut among threads."""
    rows = problem.train
    if rows.time.is_cuda:
        return Plan()
    if config.compile:
        return Plan(operations=usable_threads())  # compiled code splits its loops itself
    _, batch = batch_shape(problem.n_rows[0], config.batch_size)
    if problem.across is not None:
        # Rows are divided among processes, and not once more among threads.
        batch = -(-batch // problem.across.processes.size)
        return planned(*models, probe.work(rows.x[:2]) * batch, row_wise=lambda: False)
    return planned(*models, probe.work(rows.x[:2]) * batch, row_wise=lambda: probe.row_wise(rows.x[:8]))
