"""The rows of a penalty, every argument checked once, and which penalty they have."""

from typing import Any

import torch
from torch import Tensor

from xcal._checks import fail
from xcal._processes import Group, Processes, World
from xcal.calibration.across_processes import LocalRows, check_any_rows, penalty_across
from xcal.calibration.conditional_penalty import unchecked_conditional_penalty
from xcal.calibration.loss_checks import as_tensor, checked, is_true, readable
from xcal.calibration.penalty import unchecked_penalty
from xcal.calibration.row_features import FeatureMaker, KernelFeatures
from xcal.calibration.softbins import SoftBins


def rows_of(
    cdf: Tensor, event: Any, weights: Any, groups: Any, n_groups: int | None, features: Any, *, alone: bool
) -> LocalRows:
    """Check the arguments; where the process is not `alone` others may have the rows."""
    cdf, event, weights, labels, n_groups = checked(cdf, event, weights, groups, n_groups, alone=alone)
    if features is None:
        return LocalRows(cdf, event, weights, labels, n_groups)
    if labels is not None:
        fail("groups", "None where features are given: indicators of groups are features", "both")
    h = as_tensor("features", features, cdf.device)
    n = cdf.shape[-1]
    if h.ndim < 2 or h.shape[-2] != n or tuple(h.shape[:-2]) not in {(), tuple(cdf.shape[:-1])}:
        fail("features", f"shape ({n}, M), one row per row of cdf", f"shape {tuple(h.shape)}")
    if readable(h) and is_true(~h.isfinite().all()):
        bad = ~h.isfinite().all(-1)
        fail("features", "finite numbers", "others", tuple(int(i) for i in bad.nonzero()[0])[-1])
    return LocalRows(cdf, event, weights, features=h)


def check_maker(maker: Any) -> None:
    """Refuse what makes no features, or others in every batch and on every process: of other rows, other scales."""
    if isinstance(maker, KernelFeatures) or (maker is not None and not callable(getattr(maker, "of", None))):
        expected = "None or a maker of features that were fitted to all rows, such as KernelFeatures().fit(X)"
        fail("conditional", expected, type(maker).__name__)


def features_from(maker: FeatureMaker | None, X: Any, features: Any) -> Any:
    """Features of rows: those given, or with a maker those that it makes from the covariates."""
    if maker is None:
        if X is not None:
            fail("X", "None, as this penalty was made without conditional=", type(X).__name__)
        return features
    if features is not None:
        fail("features", "None, as conditional= makes them from X", type(features).__name__)
    if X is None:
        fail("X", "the covariates of these rows, from which conditional= makes features", None)
    images = isinstance(X, Tensor) and X.ndim > 2 and X.layout == torch.strided
    return maker.of(X.flatten(1) if images else X)


def penalty_of(rows: LocalRows, edges: Tensor, spec: SoftBins, process_group: Group | World | None) -> Tensor:
    """Calibration on average or within groups, or with features of the rows calibration given them."""
    if process_group is not None:
        value = penalty_across(rows, edges, spec, Processes.of(process_group))
        check_any_rows(value)
        return value
    if rows.features is None:
        return unchecked_penalty(rows.cdf, rows.event, edges, spec, rows.weights, rows.labels, rows.n_groups)
    return unchecked_conditional_penalty(rows.cdf, rows.event, rows.features, edges, spec, rows.weights)
