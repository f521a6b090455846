"""The checks of `fit_path`'s arguments."""

import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import nn

from xcal._checks import as_choice, as_count, fail
from xcal._devices import as_device
from xcal.calibration.bins import MOST_BINS
from xcal.calibration.softbins import SoftBins
from xcal.data import SurvivalData
from xcal.distributions.family_base import Family
from xcal.training.across import Across
from xcal.training.config import Mode, TrainingConfig, check_number
from xcal.training.problem import Problem
from xcal.training.stack import Stack


def check_outputs(stack: Stack, rows: SurvivalData, family: Family) -> None:
    """Run one network on two rows: a wrong number of outputs is better said now."""
    few = rows.x[:2]
    stack.template.eval()
    with torch.no_grad():
        shape = tuple(stack.template(few).shape)
    if shape != (few.shape[0], family.n_outputs):
        wanted = f"a network with outputs (n, {family.n_outputs}), as the family needs"
        fail("make_network", wanted, f"{shape} for {few.shape[0]} rows")


def check_kinds(
    make_network: object,
    family: object,
    train: object,
    validation: object,
    objective: object,
    penalty: object,
    config: object,
    mode: Any,
) -> None:
    """Check what kind of thing each argument is."""
    if isinstance(make_network, nn.Module) or not callable(make_network):
        fail("make_network", "a function that makes a network, as in lambda: MLP(10, 2)", type(make_network).__name__)
    for name, value, kind, made in (
        ("family", family, Family, "Family, as in xcal.distributions.family('lognormal')"),
        ("train", train, SurvivalData, "SurvivalData, as in SurvivalData(x, time, event)"),
        ("validation", validation, SurvivalData, "SurvivalData, as in SurvivalData(x, time, event)"),
        ("config", config, TrainingConfig, "TrainingConfig, as in TrainingConfig(epochs=10)"),
        ("penalty", penalty, SoftBins | None, "SoftBins"),
    ):
        if not isinstance(value, kind):
            fail(name, f"a {made}", type(value).__name__)
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


def chosen_device(device: str | torch.device | None, train: SurvivalData) -> torch.device:
    """Return the device that was asked for, or where the rows are."""
    return as_device(train.device if device is None else device)


def check_alike(train: SurvivalData, validation: SurvivalData) -> None:
    """Check that validation rows look like training rows."""
    for what in ("shape", "dtype"):
        wanted, found = getattr(train.x, what), getattr(validation.x, what)
        if what == "shape":
            wanted, found = tuple(wanted[1:]), tuple(found[1:])
        if wanted != found:
            fail("validation.x", f"rows of {what} {wanted}, as in train.x", found)


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
