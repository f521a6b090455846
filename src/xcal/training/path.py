"""`fit_path`: the one function that trains."""

import logging
import math
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import nn

from xcal._checks import as_choice, as_count, fail
from xcal._devices import as_device, usable_threads
from xcal._imports import importing
from xcal._torch_private import gradient
from xcal.calibration.bins import FINE_BINS, MOST_BINS, bin_edges
from xcal.calibration.membership import SoftBins
from xcal.calibration.penalties import check_default
from xcal.calibration.penalty import full_precision
from xcal.calibration.subgroups import FeatureMaker
from xcal.data.survival import SurvivalData
from xcal.distributions.base import Family
from xcal.networks import has_convolutions
from xcal.objectives import CensoredCRPS, Objective, check_takes, nll
from xcal.training.checkpoint import check_folder, sole_training
from xcal.training.loop import Group, train_stack
from xcal.training.problem import Mode, Plan, Problem, TrainingConfig, check_number, planned
from xcal.training.result import Failure, Floats, History, PathResult, Progress, Reporter, RunState
from xcal.training.rows import Across, Distributed, batch_shape, found_processes, own_device, placed, seen_alike
from xcal.training.stack import MakeNetwork, Stack


def check_outputs(stack: Stack, rows: SurvivalData, family: Family) -> None:
    """Run one network on two rows: a wrong number of outputs is better said now."""
    few = rows.x[:2]
    stack.template.eval()
    with torch.no_grad():
        shape = tuple(stack.template(few).shape)
    if shape != (few.shape[0], family.n_outputs):
        wanted = f"a network with outputs (n, {family.n_outputs}), as the family needs"
        fail("make_network", wanted, f"{shape} for {few.shape[0]} rows")


_KINDS = {
    "family": (Family, "Family, as in xcal.distributions.family('lognormal')"),
    "train": (SurvivalData, "SurvivalData, as in SurvivalData(x, time, event)"),
    "validation": (SurvivalData, "SurvivalData, as in SurvivalData(x, time, event)"),
    "config": (TrainingConfig, "TrainingConfig, as in TrainingConfig(epochs=10)"),
    "penalty": (SoftBins | None, "SoftBins"),
}


def check_kinds(make_network: object, objective: object, mode: Any, **others: object) -> None:
    """Check what kind of thing each argument is; `others` are those of `_KINDS`."""
    if isinstance(make_network, nn.Module) or not callable(make_network):
        fail("make_network", "a function that makes a network, as in lambda: MLP(10, 2)", type(make_network).__name__)
    for name, (kind, made) in _KINDS.items():
        if not isinstance(others[name], kind):
            fail(name, f"a {made}", type(others[name]).__name__)
    if not callable(objective):
        fail("objective", "a function of (distribution, time, event)", type(objective).__name__)
    as_choice("mode", mode, get_args(Mode))


def checked_options(calibration_bins: Any, checkpoint: Any, conditional: Any) -> Path | None:
    """Check what is used only later, and return the folder of the checkpoints."""
    as_count("calibration_bins", calibration_bins, at_least=2, at_most=MOST_BINS)
    if conditional is not None and not callable(getattr(conditional, "of", None)):
        fail("conditional", "None or a maker of features, such as KernelFeatures()", type(conditional).__name__)
    if not isinstance(checkpoint, str | os.PathLike | None):
        fail("checkpoint", "None or the path of a folder", type(checkpoint).__name__)
    return None if checkpoint is None else Path(checkpoint)


def usual_penalty(*, conditional: bool, temperature: float | None = None) -> SoftBins:
    """Return the penalty where none is given; the bound would add the noise of every row to the conditional one."""
    return SoftBins(temperature=temperature, estimator="unbiased" if conditional else "bound")


def check_temperature(config: TrainingConfig, penalty: SoftBins) -> None:
    """Check that a temperature that is to fall starts above where it ends."""
    first, last = config.first_temperature, penalty.temperature
    if isinstance(last, torch.Tensor):
        fail("penalty.temperature", "a number, which config.penalty_schedule changes", f"a tensor, {last}")
    if first is None:
        return
    if last is None:
        fail("config.first_temperature", "None: the penalty has none", first)
    if first < last:
        fail("config.first_temperature", f"{last} or more, where the penalty ends", first)


def checked_path(lambdas: Any, target_dcal: Any) -> list[float]:
    """Lambdas to start from: those asked for, or 1 where a target is to find them."""
    checked = checked_lambdas(lambdas)
    if target_dcal is None:
        return checked
    check_number("target_dcal", target_dcal, above_zero=True)
    if checked != [0.0]:
        fail("lambdas", "none beside target_dcal, which finds the weight itself", checked)
    return [1.0]


def checked_lambdas(values: Any) -> list[float]:
    """Lambdas as a list of finite numbers, zero or larger."""
    try:
        lambdas = [float(value) for value in values]
    # Too large for a float; a tensor without values.
    except (TypeError, ValueError, OverflowError, RuntimeError):
        fail("lambdas", "a sequence of numbers", repr(values))
    if not lambdas:
        fail("lambdas", "at least one lambda", "none")
    for place, value in enumerate(lambdas):
        if not (math.isfinite(value) and value >= 0):
            fail("lambdas", "finite numbers, zero or larger", f"{value} at position {place}")
    return lambdas


def checked_seeds(values: Any) -> list[int]:
    """Seeds as a list of integers."""
    listed = isinstance(values, Sequence | np.ndarray | range) and not isinstance(values, str)
    if not listed or getattr(values, "shape", None) == () or len(values) == 0:
        fail("seeds", "a sequence of at least one seed", repr(values))
    return [as_count(f"seeds[{place}]", value, at_least=0, below=2**63) for place, value in enumerate(values)]


def check_alike(train: SurvivalData, validation: SurvivalData) -> None:
    """Check that validation rows look like training rows."""
    for what, wanted, found in (
        ("shape", tuple(train.x.shape[1:]), tuple(validation.x.shape[1:])),
        ("dtype", train.x.dtype, validation.x.dtype),
    ):
        if wanted != found:
            fail("validation.x", f"rows of {what} {wanted}, as in train.x", found)


def check_outcomes(
    train: SurvivalData,
    validation: SurvivalData,
    family: Family,
    objective: Objective,
    penalty: SoftBins,
    *,
    penalised: bool,
    conditional: bool,
) -> tuple[SurvivalData, SurvivalData]:
    """Check that family, objective and penalty know all that was observed of the rows, and return these alike."""
    parts = {"train": train, "validation": validation}
    for name, rows in parts.items():
        if rows.cause is None and family.n_causes > 1:
            fail(name, f"rows with causes, as the family has {family.n_causes}", "events of one kind")
        if rows.cause is not None and len(rows.causes) > family.n_causes:
            expected = f"one with causes={len(rows.causes)}, as {name} has {', '.join(map(repr, rows.causes))}"
            fail("family", expected, f"one of {family.n_causes}")
    if family.n_causes == 1:
        train, validation = (rows.replaced(cause=None, causes=()) for rows in (train, validation))
    known = {name: any(getattr(rows, name) is not None for rows in parts.values()) for name in ("entry", "lower")}
    check_takes(objective, [name for name, there in known.items() if there])
    train, validation = (seen_alike(rows, **known) for rows in (train, validation))
    if not train.plain:
        if conditional:
            fail("conditional", "None for rows that are seen in part, or of several causes", "a maker of features")
        if penalised:
            check_default(penalty)
    return train, validation


def check_together(
    problem: Problem,
    across: Across,
    probe: Stack,
    mode: str,
    config: TrainingConfig,
    models: tuple[list[int], list[float]],
) -> None:
    """Check that all processes are about to do the same, and that a row's output does not depend on other rows."""
    across.check_same(
        {
            "mode or network": [mode, list(probe.flat.shape)],
            "config": asdict(config),
            "seeds or lambdas": models,
            "penalty": asdict(problem.penalty),
            "calibration_bins": problem.edges.shape[0],
            "target_dcal or dcal_floor": [problem.target_dcal, problem.dcal_floor],
            "number of rows": list(problem.n_rows),
        }
    )
    alike = problem.train.n < 4 or probe.row_wise(problem.train.x[:8])
    if not all(across.processes.gathered(alike)):
        expected = "a network that treats each row on its own, as a batch is divided among processes"
        fail("make_network", f"{expected} (LayerNorm does)", "one that mixes rows, as BatchNorm does")


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
    calibration_bins: int = FINE_BINS,
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
        Held on the device as a whole, unless the features are in a file. Rows with causes need a family with causes.
        Rows of delayed entry count given survival until then, events between two times by the probability of the
        interval, in the objective, the penalty and the value by which epochs are chosen.
    lambdas, seeds
        The path: all pairs of them.
    objective
        One value per row from (distribution, time, event): `nll`, ``CensoredCRPS.of(train.time, train.event)`` or your
        own, written for leading dimensions that count models. Of rows that are seen in part it is given `entry` and
        `lower` too, by name.
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
    own = {"family": family, "train": train, "validation": validation, "config": config, "penalty": penalty}
    check_kinds(make_network, objective, mode, **own)
    folder = checked_options(calibration_bins, checkpoint, conditional)
    first_lambdas, seeds = checked_path(lambdas, target_dcal), checked_seeds(seeds)
    check_number("dcal_floor", dcal_floor, above_zero=False)
    penalty = penalty or usual_penalty(conditional=conditional is not None)
    check_temperature(config, penalty)
    train, validation = check_outcomes(
        train,
        validation,
        family,
        objective,
        penalty,
        penalised=max(first_lambdas) > 0,
        conditional=conditional is not None,
    )
    processes = found_processes(distributed)
    where = as_device(train.device if device is None else device)
    where = where if processes is None else own_device(where)
    # Autocast would round the networks to bfloat16, and in this thread only, not in those that share the work.
    with full_precision(where):
        local = distributed == "shards"
        train, validation, features, across = placed(train, validation, where, conditional, processes, local=local)
        check_alike(train, validation)
        problem = Problem(
            family=family.to(where),
            objective=objective.to(where) if isinstance(objective, CensoredCRPS) else objective,
            penalty=penalty,
            edges=torch.from_numpy(bin_edges(calibration_bins)).to(where),
            train=train,
            validation=validation,
            penalised=max(first_lambdas) > 0,
            target_dcal=target_dcal,
            dcal_floor=dcal_floor,
            row_features=features[0],
            validation_features=features[1],
            across=across,
        )
        used, groups = _grouped(mode, config, problem, make_network, seeds, first_lambdas)
        shown = progress if processes is None or processes.first else False
        with nullcontext() if folder is None else sole_training(folder):
            states = _train_groups(groups, make_network, config, Reporter(shown, len(groups) * config.epochs), folder)
        best = {name: torch.cat([state.best[name] for state in states]) for name in states[0].best}
    return _result(states, seeds, used, config, best, make_network, family)


@cache
def _load_backward() -> None:
    """Let torch import what its first backward pass imports, hundreds of modules, before Ctrl-C can cut that short."""
    with importing():
        x = torch.ones(1, requires_grad=True)
        gradient([x * 1], [x], [torch.ones(1)])


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
                    after_epoch=partial(reporter.show, epochs=config.epochs, models=models)
                    if shows
                    else lambda _: None,
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
    best: dict[str, torch.Tensor],
    make_network: MakeNetwork,
    family: Family,
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
        family=family,
        _best=best,
        _make_network=make_network,
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
