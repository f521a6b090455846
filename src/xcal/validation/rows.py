"""Rows of an audit in the order of their times, with everything that is read off the model's predictions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray
from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier
from xcal._ordering import sortable_time, stable_sort
from xcal.calibration.clusters import Clusters
from xcal.metrics.curves import Interpolation, at_own_time, at_point
from xcal.metrics.inputs import Vector
from xcal.metrics.predictions import restricted_mean
from xcal.validation.sample import Labels, Sample

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Outcomes and predictions of rows in time order, events before censored rows of the same time.

    Attributes
    ----------
    order : array of shape (n,)
        Where each row stood in the sample: what is given in the sample's order is brought into this one by it.
    time, event : arrays of shape (n,)
        Outcomes, sorted.
    survival, times, interpolation
        The model's curves, or None.
    risk : mapping of float to array of shape (n,)
        Predicted probability of an event by each horizon that the predictions reach.
    score : array of shape (n,), or None
        Larger for a later event: the restricted mean of the curve, or minus the risk of the one horizon.
    cdf, cdf_event : arrays of shape (n,), or None
        F at the own time; read off curves, rows past the end of the grid count as censored there.
    nll : array of shape (n,), or None
        Negative log-likelihoods.
    censoring : KaplanMeier or None
        Of the training rows; None to estimate it from these.
    clusters : Clusters or None
        Rows that depend on each other; None if all rows are independent.
    """

    order: Indices
    time: FloatArray
    event: BoolArray
    survival: FloatArray | None
    times: Vector | None
    interpolation: Interpolation
    risk: Mapping[float, Vector]
    score: Vector | None
    cdf: FloatArray | None
    cdf_event: BoolArray
    nll: Vector | None
    censoring: KaplanMeier | None
    clusters: Clusters | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.time.size

    def take(self, chosen: BoolArray) -> "Rows":
        """Keep some of the rows, in the same order; `order` then counts within them."""
        places = np.full(self.n, -1, dtype=np.int64)
        own = np.sort(self.order[chosen])
        places[own] = np.arange(own.size)
        return Rows(
            order=places[self.order[chosen]],
            time=self.time[chosen],
            event=self.event[chosen],
            survival=None if self.survival is None else self.survival[chosen],
            times=self.times,
            interpolation=self.interpolation,
            risk={horizon: risk[chosen] for horizon, risk in self.risk.items()},
            score=None if self.score is None else self.score[chosen],
            cdf=None if self.cdf is None else self.cdf[chosen],
            cdf_event=self.cdf_event[chosen],
            nll=None if self.nll is None else self.nll[chosen],
            censoring=self.censoring,
            clusters=None if self.clusters is None else self.clusters.of_rows(chosen),
        )


def read_rows(sample: Sample) -> tuple[Rows, tuple[tuple[str, str], ...]]:
    """Sort the rows, read the predictions, and say which horizons they do not reach and why."""
    p = sample.predictions
    _, order = stable_sort(sortable_time(sample.time, sample.event))
    time, event = sample.time[order], sample.event[order]
    survival = None if p.survival is None else p.survival[order]
    risk, skipped = _risks(sample, survival, order)
    cdf, cdf_event = _own_cdf(sample, survival, order, time, event)
    score: Vector | None = None
    if survival is not None and p.times is not None:
        score = restricted_mean(survival, p.times, p.interpolation).astype(np.float64, copy=False)
    elif p.risk is not None:
        score = -p.risk[order].astype(np.float64, copy=False)
    censoring = None
    if sample.training_time is not None and sample.training_event is not None:
        censoring = fit_kaplan_meier(sample.training_time, sample.training_event, "censoring")
    nll = None if p.nll is None else p.nll[order].astype(np.float64, copy=False)
    clusters = None if sample.clusters is None else sample.clusters.of_rows(order)
    rows = Rows(
        *(order, time, event, survival, p.times, p.interpolation, risk, score, cdf, cdf_event, nll, censoring, clusters)
    )
    return rows, skipped


def labels_in_order(rows: Rows, labels: Labels) -> Labels:
    """Group of each row, in the order of the rows."""
    return np.asarray(labels)[rows.order]


def _risks(
    sample: Sample, survival: FloatArray | None, order: Indices
) -> tuple[dict[float, Vector], tuple[tuple[str, str], ...]]:
    p, risk, skipped = sample.predictions, {}, []
    for horizon in map(float, sample.horizons):
        if survival is not None and p.times is not None:
            if horizon > p.times[-1]:
                skipped.append((f"horizon {horizon:g}", f"the model's curves end at {p.times[-1]:g}"))
                continue
            # A survival curve given in float32 may leave [0, 1] by a rounding when it is interpolated.
            risk[horizon] = np.clip(1 - at_point(survival, p.times, horizon, p.interpolation), 0.0, 1.0)
        elif p.risk is not None and p.risk_horizon == horizon:
            risk[horizon] = p.risk[order].astype(np.float64, copy=False)
        else:
            given = "F at the own times" if p.risk is None else f"risks at {p.risk_horizon:g}"
            skipped.append((f"horizon {horizon:g}", f"the predictions are {given} only"))
    return risk, tuple(skipped)


def _own_cdf(
    sample: Sample, survival: FloatArray | None, order: Indices, time: FloatArray, event: BoolArray
) -> tuple[FloatArray | None, BoolArray]:
    p = sample.predictions
    if p.cdf is not None:
        return p.cdf[order], event if p.times is None else event & (time <= p.times[-1])
    if survival is None or p.times is None:
        return None, event
    cdf = np.clip(1 - at_own_time(survival, p.times, time, p.interpolation), 0.0, 1.0)
    return cdf, event & (time <= p.times[-1])
