"""The two studies of the penalty itself, measured on the training rows: choice of gamma, and slack of the bound."""

import torch
from torch import Tensor

from xcal.calibration import bin_edges, d_calibration
from xcal.calibration.penalty import unchecked_penalty
from xcal.calibration.softbins import SoftBins
from xcal.experiments.data import TableData
from xcal.experiments.models import likelihood
from xcal.experiments.records import Metrics
from xcal.experiments.spec import Kind, Variant
from xcal.training import PathResult

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
