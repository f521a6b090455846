"""What `SurvivalPath.select` chooses among: every weight, as it is and recalibrated, on the validation rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from xcal.calibration import d_calibration
from xcal.data import SurvivalData
from xcal.estimators.conditional import conditional_values, judge_conditional
from xcal.estimators.features import Floats
from xcal.estimators.fitted import FittedModel, PredictingModel, combined
from xcal.estimators.influence import dcal_influence, gap_error, weighted_mean
from xcal.metrics import concordance_index
from xcal.objectives import nll
from xcal.recalibration import KaplanMeierRecalibration

# A map is fitted to all validation rows but one part, and measured on that part. Ten parts leave it nine tenths of the
# rows, so that what is measured is hardly worse than the map of all rows that is kept.
_PARTS = 10

Maps = Mapping[float, KaplanMeierRecalibration]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidates of a path: their values, the networks of each weight, and the map of each weight where it has one."""

    table: pd.DataFrame
    members: Mapping[float, tuple[FittedModel, ...]]
    maps: Maps

    def model(self, lam: float, *, recalibrated: bool) -> PredictingModel:
        """Return the model of a line of the table."""
        return combined(self.members[lam], self.maps[lam] if recalibrated else None)


@dataclass(frozen=True, eq=False)
class Measured:
    """One candidate on rows that its networks have not seen.

    Attributes
    ----------
    lam, recalibrated
        Which one it is.
    losses, cdf : arrays of shape (n,)
        Negative log-likelihood of each row, and F at its observed time.
    concordant, comparable : float
        Pairs of rows that `predict` puts in order (ties count one half), and pairs that can be compared: both rows by
        one and the same model. Risks of two models are on scales of their own: between the rows of two folds their
        order tells nothing.
    """

    lam: float
    recalibrated: bool
    losses: Floats
    cdf: Floats
    concordant: float
    comparable: float


def candidates(
    members: Mapping[float, Sequence[FittedModel]],
    rows: SurvivalData,
    n_bins: int,
    *,
    recalibrate: bool,
    conditional: bool = False,
) -> Candidates:
    """Measure every weight on the validation rows, and its recalibrated version if that is asked for.

    The map of a recalibrated candidate is fitted to these rows too: its values are cross-fitted, each row's by a map
    that has not seen the row. Its concordance is that of the one map that is kept. A map rises, so at any one time it
    leaves the rows in the order of F, and with them Antolini's concordance; two rows change places in `predict`, a mean
    over times, only where their curves cross. So there is next to nothing to fit to the order of these rows.
    """
    own = {lam: tuple(models) for lam, models in sorted(members.items())}
    lines: list[Measured] = []
    maps: dict[float, KaplanMeierRecalibration] = {}
    for lam, models in own.items():
        model = combined(models)
        plain = measured(lam, model, rows)
        lines.append(plain)
        if recalibrate:
            maps[lam] = KaplanMeierRecalibration.fit(plain.cdf, rows.event, weights=rows.weights)
            lines.append(_cross_fitted(plain, model, maps[lam], rows))
    return Candidates(measured_table(lines, rows, n_bins, conditional=conditional), own, maps)


def measured_table(
    lines: Sequence[Measured], rows: SurvivalData, n_bins: int, *, conditional: bool = False
) -> pd.DataFrame:
    """One line for each candidate; errors are those of the distance to the first, the smallest weight as it is.

    With `conditional` the test of calibration given the covariates too, and the error of its value.
    """
    first = lines[0]
    base = dcal_influence(first.cdf, rows, n_bins)
    table = pd.DataFrame([_line(one, first, base, rows, n_bins) for one in lines])
    given = (np.stack([one.cdf for one in lines]), rows.x, rows.event, rows.weights, n_bins)
    if not conditional:
        return table.assign(conditional=conditional_values(*given))
    judged = judge_conditional(*given)
    return table.assign(conditional=judged.values, conditional_gap_se=judged.gap_errors, conditional_p=judged.p_values)


def _line(one: Measured, first: Measured, base: Floats, rows: SurvivalData, n_bins: int) -> dict[str, Any]:
    result = d_calibration(one.cdf, rows.event, n_bins=n_bins, clusters=rows.groups, weights=rows.weights)
    return {
        "lambda": one.lam,
        "recalibrated": one.recalibrated,
        "nll": weighted_mean(one.losses, rows),
        "nll_gap_se": gap_error(one.losses, first.losses, rows.groups, rows.weights),
        "dcal": result.value,
        "dcal_gap_se": gap_error(dcal_influence(one.cdf, rows, n_bins), base, rows.groups),
        "dcal_floor": result.floor,
        "dcal_p": result.p_value,
        "concordance": one.concordant / one.comparable if one.comparable > 0 else np.nan,
    }


def measured(lam: float, model: PredictingModel, rows: SurvivalData) -> Measured:
    """Measure a model, recalibrated or not."""
    return Measured(lam, model.recalibration is not None, *_values(model, rows), *_pairs(model, rows))


def _values(model: PredictingModel, rows: SurvivalData) -> tuple[Floats, Floats]:
    """Negative log-likelihood of each row, and F at its observed time."""
    distribution, time = model.distribution(rows.x), torch.from_numpy(rows.time)
    losses = nll(distribution, time, torch.from_numpy(rows.event)).numpy()
    return losses, distribution.cdf(time).numpy()


def _pairs(model: PredictingModel, rows: SurvivalData) -> tuple[float, float]:
    """Pairs in order, and pairs that can be compared."""
    found = concordance_index(time=rows.time, event=rows.event, risk=model.risk(rows.x), weights=rows.weights)
    return found.concordant + found.tied / 2, found.comparable


def joined(parts: Sequence[tuple[npt.NDArray[np.intp], Measured]]) -> Measured:
    """Put the values of parts together, each of which comes with the numbers of its rows; pairs are within parts."""
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    first = parts[0][1]
    losses, cdf = (np.concatenate([getattr(part, name) for _, part in parts])[order] for name in ("losses", "cdf"))
    concordant, comparable = (sum(getattr(part, name) for _, part in parts) for name in ("concordant", "comparable"))
    return Measured(first.lam, first.recalibrated, losses, cdf, concordant, comparable)


def _cross_fitted(
    plain: Measured, model: PredictingModel, kept: KaplanMeierRecalibration, rows: SurvivalData
) -> Measured:
    """Values of the recalibrated model, each row's by a map of the other rows; pairs by the map that is kept."""
    losses, cdf = np.empty(rows.n), np.empty(rows.n)
    for train, test in _folds(rows):
        losses[test], cdf[test] = _values(combined(model.members, fitted_map(plain, rows, train)), rows[test])
    return Measured(plain.lam, True, losses, cdf, *_pairs(combined(model.members, kept), rows))


def _folds(rows: SurvivalData) -> Iterator[tuple[Any, Any]]:
    together = rows.groups is not None
    most = np.unique(rows.groups).size if together else rows.n
    parts = min(_PARTS, int(np.count_nonzero(rows.event)), most)
    return ((fold.train, fold.test) for fold in rows.folds(parts, seed=0, whole_groups=together))


def fitted_map(plain: Measured, rows: SurvivalData, which: npt.NDArray[np.intp]) -> KaplanMeierRecalibration:
    """Fit a map of F to some of the rows, with their weights if they have some."""
    weights = None if rows.weights is None else rows.weights[which]
    return KaplanMeierRecalibration.fit(plain.cdf[which], rows.event[which], weights=weights)
