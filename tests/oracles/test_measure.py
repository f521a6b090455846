"""Everything that an audit measures, against other packages from the same survival curves.

Where definitions agree, to 1e-9. Where they do not: lifelines' `survival_probability_calibration` smooths by a spline
of the baseline with one coefficient, so its ICI is another number, and ours is held to SurvivalEVAL's in
tests/metrics/test_cox_ici.py. SurvivalEVAL's one-calibration has the variance of D'Agostino and Nam, our default
another: the test asks for theirs.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.utils import concordance_index as lifelines_concordance
from sksurv import metrics as sksurv
from sksurv.util import Surv
from SurvivalEVAL.evaluations.calibration import d_calibration as survivaleval_d_calibration
from SurvivalEVAL.evaluations.calibration.distributional.km_calibration import km_calibration as survivaleval_km
from SurvivalEVAL.evaluations.calibration.single_time.one_calibration import one_calibration as survivaleval_one

from tests.validation.simulate import HORIZONS, TIMES, measure, sample
from xcal.metrics import one_calibration


@pytest.fixture(scope="module", params=[None, 0.125], ids=["distinct times", "tied times"])
def given(request):
    """Curves that end after the last time, so that F at every observed time is known; nobody censored at the last time.

    scikit-survival refuses weights of an event at a time at which everybody left is censored.
    """
    rows = sample(500, too_fast=1.3, seed=11, grid=request.param, groups=False)
    keep = rows.time < TIMES[-1]
    keep[np.flatnonzero(keep)[420:]] = False
    keep &= rows.event | (rows.time < rows.time[keep & rows.event].max())
    latest = rows.time == rows.time[keep].max()
    keep[np.flatnonzero(keep & ~latest)[: keep.sum() % 10]] = False  # ten equal risk groups
    p = rows.predictions
    p = replace(p, n=int(keep.sum()), survival=p.survival[keep], nll=p.nll[keep])
    return rows.but(time=rows.time[keep], event=rows.event[keep], predictions=p, covariates=())


@pytest.fixture(scope="module")
def values(given):
    found = measure(given, n_bootstrap=0).values
    return {(value.metric, value.horizon): value for value in found}


def risk_at(given, horizon):
    return 1 - np.array([np.interp(horizon, TIMES, curve) for curve in given.predictions.survival])


def test_scikit_survival(given, values):
    """An event is weighted by G just before its time; theirs by G at it, so that their events must come earlier."""
    time = np.where(given.event, given.time - 1e-9, given.time)
    y = Surv.from_arrays(given.event, time)
    risks = np.column_stack([risk_at(given, h) for h in HORIZONS])
    auc, _ = sksurv.cumulative_dynamic_auc(y, y, risks, HORIZONS)
    _, brier = sksurv.brier_score(y, y, 1 - risks, HORIZONS)
    fitted = KaplanMeierFitter().fit(time, given.event).survival_function_at_times(HORIZONS).to_numpy()
    _, null = sksurv.brier_score(y, y, np.tile(fitted, (time.size, 1)), HORIZONS)
    for k, h in enumerate(HORIZONS):
        assert values["auc", h].value == pytest.approx(auc[k], abs=1e-9)
        assert values["brier", h].value == pytest.approx(brier[k], abs=1e-9)
        assert values["ipa", h].value == pytest.approx(1 - brier[k] / null[k], abs=1e-9)
    if time.min() <= TIMES[0]:  # theirs refuses times before the first row
        seen = given.time.max() > TIMES
        expected = sksurv.integrated_brier_score(y, y, given.predictions.survival[:, seen], TIMES[seen])
        assert values["ibs", None].value == pytest.approx(expected, abs=1e-9)
    uno = sksurv.concordance_index_ipcw(y, y, risks[:, 1])[0]
    assert values["uno", None].value == pytest.approx(uno, abs=1e-9)


def test_lifelines(given, values):
    harrell = lifelines_concordance(given.time, -risk_at(given, HORIZONS[1]), given.event)
    assert values["harrell", None].value == pytest.approx(harrell, abs=1e-9)
    curve = KaplanMeierFitter().fit(given.time, given.event)
    for h in HORIZONS:
        observed = 1 - curve.predict(h)
        assert values["observed_risk", h].value == pytest.approx(observed, abs=1e-9)
        assert values["oe", h].value == pytest.approx(observed / risk_at(given, h).mean(), abs=1e-9)
        low, high = 1 - curve.confidence_interval_.loc[:h].iloc[-1].to_numpy()[::-1]
        ours = values["observed_risk", h]
        assert (ours.lower, ours.upper) == pytest.approx((low, high), abs=1e-9)
    last = HORIZONS[-1]
    frame = pd.DataFrame(
        {
            "x": np.log(-np.log(1 - risk_at(given, last))),
            "time": np.minimum(given.time, last),
            "event": given.event & (given.time <= last),
        }
    )
    fitted = CoxPHFitter().fit(frame, "time", "event", fit_options={"precision": 1e-12, "r_precision": 1e-14})
    # lifelines ends some 1e-8 from the maximum of the likelihood; tests/metrics/test_cox_calibration.py has the root.
    assert values["cox_slope", None].value == pytest.approx(fitted.params_["x"], rel=3e-8)


def test_survival_eval(given, values):
    rows = given.rows
    _, _, counts = survivaleval_d_calibration(1 - rows.cdf, rows.event, num_bins=10)
    expected = np.square(counts / rows.n - 0.1).sum()
    assert values["d_calibration", None].value == pytest.approx(expected, abs=1e-9)
    average = given.predictions.survival.mean(axis=0)
    expected = survivaleval_km(average, TIMES, given.time, given.event)
    assert values["km_calibration", None].value == pytest.approx(expected, abs=1e-9)
    risk = risk_at(given, HORIZONS[1])
    ours = one_calibration(risk, at=HORIZONS[1], time=given.time, event=given.event, method="dagostino-nam", ddof=1)
    options = {"num_bins": 10, "method": "DN", "adjust_variance": False}
    theirs = survivaleval_one(risk, given.time, given.event, HORIZONS[1], **options)
    assert ours.p_value == pytest.approx(theirs[0], abs=1e-9)
