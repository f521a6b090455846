"""Figures of trained models: all models of a group at once, straight from their stacked parameters."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal.calibration import d_calibration
from xcal.distributions import Family
from xcal.experiments.data import TableData
from xcal.experiments.models import likelihood, predicted_time
from xcal.experiments.recalibrated_model import recalibrated_rows
from xcal.experiments.spec import Variant
from xcal.metrics import concordance_index
from xcal.objectives import nll
from xcal.recalibration import KaplanMeierRecalibration
from xcal.training import PathResult, Rows
from xcal.training.rows import TensorRows
from xcal.training.stack import MakeNetwork, Stack

Floats = npt.NDArray[np.float64]
Figures = dict[str, float]

# Rows times models evaluated at a time; see `xcal.training.problem`.
_CHUNK = {"cpu": 1 << 14, "cuda": 1 << 21}


@dataclass(frozen=True, eq=False)
class Part:
    """Times and events of some rows."""

    time: Tensor
    event: Tensor


@dataclass(frozen=True, eq=False)
class Trained:
    """The models of a path at their best epochs, S seeds and L lambdas, and what turns outputs into distributions."""

    stack: Stack
    family: Family

    @classmethod
    def of(cls, path: PathResult, make_network: MakeNetwork, family: Family, dtype: torch.dtype) -> "Trained":
        """Take the models of a path."""
        seeds = list(dict.fromkeys(path.seeds.tolist()))
        best = path._best
        stack = Stack(make_network, seeds, path.n_models // len(seeds), best["flat"].device, dtype)
        stack.load(best)
        return cls(stack, family)

    @torch.no_grad()
    def outputs(self, rows: TensorRows) -> Iterator[tuple[Tensor, "Part"]]:
        """Raw outputs ``(S, L, b, n_outputs)`` with the rows that they belong to, some rows at a time."""
        device = rows.x.device.type
        step = max(1, _CHUNK.get(device, 1 << 14) // self.stack.n_models)
        for start in range(0, rows.n, step):
            chosen = slice(start, start + step)
            x = rows.x[chosen]
            raw = self.stack.forward(x.unsqueeze(0).expand(self.stack.shape[0], *x.shape), training=False)
            yield raw, Part(rows.time[chosen], rows.event[chosen])


def on_device(name: str, rows: Rows) -> TensorRows:
    """Check rows and put them where their covariates are."""
    return rows.on(name, rows.x.device)


def test_figures(
    trained: Trained, data: TableData, variant: Variant, calibration_bins: int, unpenalised: int | None
) -> tuple[list[Figures], dict[int, Figures]]:
    """Figures on the test rows of every model, in the order of the path; and of recalibrated lambda = 0 models.

    Parameters
    ----------
    trained, data, variant
        Which models, on which rows, measured by whose definitions.
    calibration_bins
        Bins of D-calibration.
    unpenalised
        Position of lambda = 0 among the lambdas, where it is one of them.

    Returns
    -------
    list of dict
        One a model.
    dict
        Figures after recalibration through the validation rows, by the model's place in the path.
    """
    rows = on_device("test", data.test)
    n_seeds, n_lambdas = trained.stack.shape
    sums = np.zeros((2, n_seeds, n_lambdas))
    cdfs, times, kept = [], [], []
    objective = likelihood(variant)
    for raw, part in trained.outputs(rows):
        distribution = trained.family.distribution(raw)
        losses = (
            objective(distribution, part.time, part.event),
            nll(distribution, part.time, part.event, density=True),
        )
        sums += torch.stack([loss.double().sum(-1) for loss in losses]).cpu().numpy()
        cdfs.append(distribution.cdf(part.time).cpu())
        times.append(predicted_time(distribution, variant).cpu())
        if unpenalised is not None:
            kept.append(raw[:, unpenalised])
    cdf, time = (torch.cat(pieces, dim=-1).flatten(0, 1).numpy() for pieces in (cdfs, times))
    nlls = (sums / rows.n).reshape(2, -1)
    figures = [
        {"nll": float(nlls[0, k]), "nll_density": float(nlls[1, k])}
        | shared_figures(cdf[k], time[k], data, calibration_bins)
        for k in range(n_seeds * n_lambdas)
    ]
    if unpenalised is None:
        return figures, {}
    maps = _recalibrations(trained, data, unpenalised)
    raws = torch.cat(kept, dim=1)
    mended = {}
    for s, recalibration in enumerate(maps):
        mended[s * n_lambdas + unpenalised] = _mended_figures(
            recalibration, trained.family, raws[s], rows, data, variant, calibration_bins
        )
    return figures, mended


def shared_figures(cdf: Any, predicted: Any, data: TableData, calibration_bins: int) -> Figures:
    """Concordance and D-calibration, over all rows and within the subgroups, from F values and predicted times."""
    if not (np.isfinite(cdf).all() and not np.isnan(predicted).any()):
        names = ("dcal", "dcal_floor", "dcal_within", "dcal_within_floor", "dcal_worst", "concordance")
        return dict.fromkeys(names, float("nan"))
    grouped = d_calibration(cdf, data.event, n_bins=calibration_bins, p_value=None, groups=data.groups)
    share = np.array([result.n for result in grouped.groups.values()]) / data.event.size
    within = np.array([result.value for result in grouped.groups.values()])
    floors = np.array([result.floor for result in grouped.groups.values()])
    concordance = concordance_index(time=data.time, event=data.event, predicted_time=predicted)
    return {
        "dcal": float(grouped.whole.value),
        "dcal_floor": float(grouped.whole.floor),
        "dcal_within": float(share @ within),
        "dcal_within_floor": float(share @ floors),
        "dcal_worst": float(within.max()),
        "concordance": float(concordance.value),
    }


def _recalibrations(trained: Trained, data: TableData, unpenalised: int) -> list[KaplanMeierRecalibration]:
    """Fit one map a seed, on the validation rows."""
    rows = on_device("validation", data.validation)
    pieces = [
        trained.family.distribution(raw[:, unpenalised]).cdf(part.time).cpu() for raw, part in trained.outputs(rows)
    ]
    event = rows.event.cpu()
    return [KaplanMeierRecalibration.fit(cdf, event) for cdf in torch.cat(pieces, dim=-1)]


def _mended_figures(
    recalibration: KaplanMeierRecalibration,
    family: Family,
    raw: Tensor,
    rows: TensorRows,
    data: TableData,
    variant: Variant,
    calibration_bins: int,
) -> Figures:
    with torch.no_grad():
        mended = recalibrated_rows(recalibration, family.distribution(raw), rows.time, rows.event, variant)
    shared = shared_figures(mended.cdf, mended.predicted_time, data, calibration_bins)
    return {"nll": float(mended.nll.mean()), "nll_density": float(mended.nll_density.mean())} | shared
