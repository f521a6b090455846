"""Metrics of trained models: all models of a job at once, straight from their stacked parameters."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal.calibration import d_calibration
from xcal.calibration.bins import as_clusters, bin_edges
from xcal.calibration.membership import SoftBins
from xcal.calibration.penalty import unchecked_penalty
from xcal.distributions import Family
from xcal.metrics import concordance_index, evaluate
from xcal.metrics.intervals import percentile_interval
from xcal.metrics.resamples import drawn_by_generator
from xcal.objectives import nll
from xcal.recalibration import KaplanMeierRecalibration
from xcal.training import PathResult
from xcal_paper.data import Integers, TableData
from xcal_paper.models import likelihood, predicted_time, recalibrated_rows
from xcal_paper.records import Metrics
from xcal_paper.spec import Kind, Variant

Floats = npt.NDArray[np.float64]

RESAMPLES = 200  # of the clusters, for intervals


def test_metrics(
    path: PathResult, data: TableData, variant: Variant, calibration_bins: int, unpenalised: int | None
) -> tuple[list[Metrics], dict[int, Metrics]]:
    """Metrics on the test rows of every model, in the order of the path; and of recalibrated lambda = 0 models.

    Parameters
    ----------
    path, data, variant
        Which models, on which rows, measured by whose definitions.
    calibration_bins
        Bins of D-calibration.
    unpenalised
        Position of lambda = 0 among the lambdas, where it is one of them.

    Returns
    -------
    list of dict
        One per model.
    dict
        Metrics after recalibration through the validation rows, by the model's place in the path.
    """
    n_seeds, n_lambdas = path.shape
    sums = np.zeros((2, n_seeds, n_lambdas))
    cdfs, times, kept, by_row = [], [], [], []
    objective = likelihood(variant)
    for raw, rows in path.outputs(data.test):
        distribution = path.family.distribution(raw)
        losses = (
            objective(distribution, rows.time, rows.event),
            nll(distribution, rows.time, rows.event, density=True),
        )
        sums += torch.stack([loss.double().sum(-1) for loss in losses]).cpu().numpy()
        if data.clusters is not None:
            by_row.append(losses[0].double().cpu())
        cdfs.append(distribution.cdf(rows.time).cpu())
        times.append(predicted_time(distribution, variant).cpu())
        if unpenalised is not None:
            kept.append(raw[:, unpenalised])
    cdf, time = (torch.cat(pieces, dim=-1).flatten(0, 1).numpy() for pieces in (cdfs, times))
    nlls = (sums / data.test.n).reshape(2, -1)
    metrics = [
        {"nll": float(nlls[0, k]), "nll_density": float(nlls[1, k])}
        | shared_metrics(cdf[k], time[k], data, calibration_bins)
        for k in range(n_seeds * n_lambdas)
    ]
    if data.clusters is not None:
        losses_of_rows = torch.cat(by_row, dim=-1).flatten(0, 1).numpy()
        for k, limits in enumerate(mean_intervals(losses_of_rows, data.clusters)):
            metrics[k] |= {"nll_lower": limits[0], "nll_upper": limits[1]}
    if unpenalised is None:
        return metrics, {}
    maps = _recalibrations(path, data, unpenalised)
    raws = torch.cat(kept, dim=1)
    recalibrated = {}
    for s, recalibration in enumerate(maps):
        recalibrated[s * n_lambdas + unpenalised] = _recalibrated_metrics(
            recalibration, path.family, raws[s], data, variant, calibration_bins
        )
    return metrics, recalibrated


def shared_metrics(cdf: Any, predicted: Any, data: TableData, calibration_bins: int) -> Metrics:
    """Concordance and D-calibration, over all rows and within the subgroups, from F values and predicted times."""
    if not (np.isfinite(cdf).all() and not np.isnan(predicted).any()):
        names = ("dcal", "dcal_floor", "dcal_within", "dcal_within_floor", "dcal_worst", "concordance")
        return dict.fromkeys(names, float("nan"))
    rows = data.test
    grouped = d_calibration(
        cdf, rows.event, n_bins=calibration_bins, p_value=None, groups=rows.groups, clusters=data.clusters
    )
    share = np.array([result.n for result in grouped.groups.values()]) / rows.n
    within = np.array([result.value for result in grouped.groups.values()])
    floors = np.array([result.floor for result in grouped.groups.values()])
    concordance = concordance_index(time=rows.time, event=rows.event, predicted_time=predicted)
    return {
        "dcal": float(grouped.whole.value),
        "dcal_floor": float(grouped.whole.floor),
        "dcal_within": float(share @ within),
        "dcal_within_floor": float(share @ floors),
        "dcal_worst": float(within.max()),
        "concordance": float(concordance.value),
        **({} if data.clusters is None else _intervals(cdf, predicted, data, calibration_bins)),
    }


def _intervals(cdf: Any, predicted: Any, data: TableData, calibration_bins: int) -> Metrics:
    """95 % intervals of D-calibration and concordance, by drawing whole clusters with replacement."""
    measured = evaluate(
        time=data.test.time,
        event=data.test.event,
        cdf=cdf,
        predicted_time=predicted,
        metrics=("d_calibration", "harrell"),
        n_bins=calibration_bins,
        n_bootstrap=RESAMPLES,
        generator=np.random.default_rng(0),
        clusters=data.clusters,
    )
    named = {"dcal": measured["d_calibration"], "concordance": measured["harrell"]}
    return {f"{name}_{end}": getattr(score, end) for name, score in named.items() for end in ("lower", "upper")}


def mean_intervals(values: Floats, clusters: Integers) -> list[tuple[float, float]]:
    """95 % interval of the mean of each line of values ``(k, n)`` over n rows, by drawing whole clusters."""
    n = values.shape[1]
    drawn = as_clusters(clusters, n, reference="values")
    draw = drawn_by_generator(np.random.default_rng(0), RESAMPLES, np.arange(n), drawn)
    counts = np.array([draw(number) for number in range(RESAMPLES)])
    return [percentile_interval(line, 0.95) for line in values @ counts.T / counts.sum(axis=1)]


def _recalibrations(path: PathResult, data: TableData, unpenalised: int) -> list[KaplanMeierRecalibration]:
    """Fit one map per seed, on the validation rows."""
    pieces = [
        path.family.distribution(raw[:, unpenalised]).cdf(rows.time).cpu()
        for raw, rows in path.outputs(data.validation)
    ]
    event = data.validation.event.cpu()
    return [KaplanMeierRecalibration.fit(cdf, event) for cdf in torch.cat(pieces, dim=-1)]


def _recalibrated_metrics(
    recalibration: KaplanMeierRecalibration,
    family: Family,
    raw: Tensor,
    data: TableData,
    variant: Variant,
    calibration_bins: int,
) -> Metrics:
    time = data.test.time.to(raw.dtype)
    with torch.no_grad():
        recalibrated = recalibrated_rows(recalibration, family.distribution(raw), time, data.test.event, variant)
    shared = shared_metrics(recalibrated.cdf, recalibrated.predicted_time, data, calibration_bins)
    return {"nll": float(recalibrated.nll.mean()), "nll_density": float(recalibrated.nll_density.mean())} | shared


# ----------------------------------------------------------------------------------------------------------------------
# The two studies of the penalty itself, measured on the training rows: choice of gamma, and slack of the bound.


SLACK_BATCHES = (500, 10_000)


def study_metrics(
    kind: Kind, path: PathResult, data: TableData, variant: Variant, calibration_bins: int, penalty: SoftBins
) -> list[Metrics]:
    """Metrics of every run on the training rows, in the order of the path.

    "gamma-choice" gives exact and soft D-calibration of all rows and the likelihood; "jensen-slack" gives exact
    D-calibration and the mean over batches of the soft one, which bounds it from above.
    """
    rows = data.train
    total = torch.zeros(path.shape, dtype=torch.float64)
    pieces = []
    for raw, part in path.outputs(rows):
        distribution = path.family.distribution(raw)
        losses = likelihood(variant)(distribution, part.time, part.event)
        total += losses.double().sum(-1).cpu()
        pieces.append(distribution.cdf(part.time))
    cdf = torch.cat(pieces, dim=-1).flatten(0, 1)
    nll = (total / rows.n).flatten()
    edges = torch.from_numpy(bin_edges(calibration_bins)).to(cdf.device)
    event = rows.event.cpu().numpy()
    metrics = []
    for k, values in enumerate(cdf):
        exact = d_calibration(values.cpu(), event, n_bins=calibration_bins, p_value=None)
        found = {"nll": float(nll[k]), "dcal": exact.value, "dcal_floor": exact.floor}
        if kind == "gamma-choice":
            found["soft_dcal"] = _bound(values, rows.event, edges, penalty, rows.n)
        else:
            found |= {f"bound_{size}": _bound(values, rows.event, edges, penalty, size) for size in SLACK_BATCHES}
        metrics.append(found)
    return metrics


@torch.no_grad()
def _bound(cdf: Tensor, event: Tensor, edges: Tensor, penalty: SoftBins, batch: int) -> float:
    """Mean over batches of soft D-calibration; rows come in the order of the data, which is random."""
    # A batch larger than the data is all of the data. Rows that fill no batch are left out: batches must be equal.
    size = min(batch, cdf.shape[0])
    count = cdf.shape[0] // size
    used = count * size
    values = cdf[:used].double().view(count, size)
    soft = unchecked_penalty(values, event[:used].view(count, size), edges, penalty)
    return float(soft.mean())
