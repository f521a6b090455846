"""The rows of an audit: outcomes, predictions, and what was asked about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from xcal._checks import MIN_CELL, BoolArray, FloatArray
from xcal.calibration.clusters import Clusters
from xcal.calibration.covariates import Column
from xcal.interop.predictions import ModelPredictions
from xcal.metrics.inputs import Vector

Labels = npt.NDArray[np.str_]
LastSeen = Literal["auto", "exact", "end", "middle", "unknown"]
Censoring = Literal["auto", "independent", "covariates"]


@dataclass(frozen=True, eq=False)
class Sample:
    """Checked rows of an audit.

    Attributes
    ----------
    time, event : arrays of shape (n,)
        Outcomes.
    predictions : ModelPredictions
        Of the same rows.
    horizons : array of shape (h,)
        Increasing times at which the values of one time are computed, all within the follow-up.
    thresholds : array of shape (k,)
        Risks at which somebody might act, for the decision curve; increasing, in (0, 1).
    groups : mapping of str to labels of shape (n,)
        For each variable, such as "sex", the group of each row.
    training_time, training_event : arrays, optional
        Outcomes of the rows the model was trained on, where the censoring curve is theirs.
    covariates : tuple of Column
        What calibration is asked about given the covariates ("for whom?"); empty for nothing.
    left_out : tuple of (str, str)
        Covariates that cannot be used, each with the reason.
    no_covariates : str
        Why there are no covariates; "" if there are.
    clusters : Clusters, optional
        Rows that depend on each other, such as those of one patient; None if all rows are independent.
    weights : array of shape (n,), optional
        Sampling weights of the rows in effective units (`xcal._checks.effective_units`); None if all are equal.
    last_seen, censoring : str
        How coarse times and censoring that depends on covariates are treated; see `xcal.audit`.
    min_cell : int
        Rows of a cell that is shown (`xcal.metrics.small_cells`).
    not_judged : tuple of float
        Times for which risks were predicted, and that too few rows have reached to be horizons unless asked for.
    """

    time: FloatArray
    event: BoolArray
    predictions: ModelPredictions
    horizons: Vector
    thresholds: Vector
    groups: Mapping[str, Labels] = field(default_factory=dict)
    training_time: FloatArray | None = None
    training_event: BoolArray | None = None
    covariates: tuple[Column, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    no_covariates: str = "no covariates were given"
    clusters: Clusters | None = None
    weights: Vector | None = None
    last_seen: LastSeen = "auto"
    censoring: Censoring = "auto"
    min_cell: int = MIN_CELL
    not_judged: tuple[float, ...] = ()
