"""What `SurvivalPath.select` chooses among: every weight, as it is and recalibrated, on the validation rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from xcal.calibration import d_calibration
from xcal.data import SurvivalData
from xcal.distributions import RecalibratedDistribution, SurvivalDistribution
from xcal.estimators.conditional import conditional_values
from xcal.estimators.fitted import FittedModel, PredictingModel, combined
from xcal.estimators.influence import dcal_influence, deviations, gap_error
from xcal.estimators.inputs import Floats
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
class _Measured:
    """One candidate on the validation rows: a value for each row, and the risks."""

    lam: float
    recalibrated: bool
    losses: Floats
    cdf: Floats
    risk: Floats


def candidates(
    members: Mapping[float, Sequence[FittedModel]], rows: SurvivalData, n_bins: int, *, recalibrate: bool
) -> Candidates:
    """Measure every weight on the validation rows, and its recalibrated version if that is asked for.

    The map of a recalibrated candidate is fitted to these rows too: its values are cross-fitted, each row's by a map
    that has not seen the row.
    """
    own = {lam: tuple(models) for lam, models in sorted(members.items())}
    measured: list[_Measured] = []
    maps: dict[float, KaplanMeierRecalibration] = {}
    for lam, models in own.items():
        model = combined(models)
        distribution = model.distribution(rows.x)
        plain = _measured(lam, distribution, model, rows)
        measured.append(plain)
        if recalibrate:
            maps[lam] = KaplanMeierRecalibration.fit(plain.cdf, rows.event)
            measured.append(_cross_fitted(plain, model, rows))
    return Candidates(_table(measured, rows, n_bins), own, maps)


def _table(measured: Sequence[_Measured], rows: SurvivalData, n_bins: int) -> pd.DataFrame:
    """One line for each candidate; errors are those of the distance to the first, the smallest weight as it is."""
    first = measured[0]
    base = dcal_influence(first.cdf, rows, n_bins)
    table = pd.DataFrame([_line(one, first, base, rows, n_bins) for one in measured])
    cdf = np.stack([one.cdf for one in measured])
    return table.assign(conditional=conditional_values(cdf, rows.x, rows.event, rows.weights, n_bins))


def _line(one: _Measured, first: _Measured, base: Floats, rows: SurvivalData, n_bins: int) -> dict[str, Any]:
    result = d_calibration(one.cdf, rows.event, n_bins=n_bins)
    value = result.value if rows.weights is None else _weighted_dcal(one.cdf, rows, n_bins)
    return {
        "lambda": one.lam,
        "recalibrated": one.recalibrated,
        "nll": float(one.losses.mean()),
        "nll_gap_se": gap_error(one.losses, first.losses),
        "dcal": value,
        "dcal_gap_se": gap_error(dcal_influence(one.cdf, rows, n_bins), base),
        "dcal_floor": result.floor * rows.design_effect,
        "dcal_p": result.p_value,
        "concordance": concordance_index(time=rows.time, event=rows.event, risk=one.risk).value,
    }


def _weighted_dcal(cdf: Floats, rows: SurvivalData, n_bins: int) -> float:
    """D-calibration of weighted rows, as training measures it."""
    return float(np.square(np.average(deviations(cdf, rows, n_bins), axis=0, weights=rows.weights)).sum())


def _measured(lam: float, distribution: SurvivalDistribution, model: PredictingModel, rows: SurvivalData) -> _Measured:
    time = torch.from_numpy(rows.time)
    return _Measured(lam, False, _losses(distribution, rows), distribution.cdf(time).numpy(), model.risk(rows.x))


def _cross_fitted(plain: _Measured, model: PredictingModel, rows: SurvivalData) -> _Measured:
    """Values of the recalibrated model, each row's by a map of the other rows."""
    losses, cdf, risk = plain.losses.copy(), plain.cdf.copy(), plain.risk.copy()
    weights = None if rows.weights is None else rows.weights / rows.weights.mean()
    for train, test in _folds(rows):
        fitted = KaplanMeierRecalibration.fit(plain.cdf[train], rows.event[train])
        part = rows[test]
        mapped = combined(model.members, fitted)
        distribution = mapped.distribution(part.x)
        assert isinstance(distribution, RecalibratedDistribution)
        own = nll(distribution, torch.from_numpy(part.time), torch.from_numpy(part.event)).numpy()
        losses[test] = own if weights is None else own * weights[test]
        cdf[test], risk[test] = fitted.cdf(plain.cdf[test]), mapped.risk(part.x)
    return _Measured(plain.lam, True, losses, cdf, risk)


def _folds(rows: SurvivalData) -> Iterator[tuple[Any, Any]]:
    parts = min(_PARTS, int(np.count_nonzero(rows.event)), rows.n)
    return ((fold.train, fold.test) for fold in rows.folds(parts, seed=0))


def _losses(distribution: SurvivalDistribution, rows: SurvivalData) -> Floats:
    """Negative log-likelihood of each row, times its weight if there are weights (of mean one)."""
    values = nll(distribution, torch.from_numpy(rows.time), torch.from_numpy(rows.event)).numpy()
    return values if rows.weights is None else np.asarray(values * rows.weights / rows.weights.mean())
