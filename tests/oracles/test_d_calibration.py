"""Exact D-calibration against two outside implementations, on real data with real models.

Both take survival probabilities: a value on an edge falls to the other side (none of these predictions lies on one),
and the bins of survival-evaluation run the other way round.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter, WeibullAFTFitter
from scipy import stats
from sksurv.datasets import load_flchain, load_gbsg2, load_whas500

from xcal import d_calibration
from xcal.calibration.bins import bin_edges

DATASETS = {"whas500": load_whas500, "gbsg2": load_gbsg2, "flchain": load_flchain}


@pytest.fixture(scope="module", params=DATASETS)
def predictions(request):
    """F at each row's observed time of a Weibull AFT model, with event and time."""
    frame, y = DATASETS[request.param]()
    event, time = (np.asarray(y[name]) for name in y.dtype.names)
    numeric = frame.select_dtypes("number").astype(float)
    numeric = numeric.fillna(numeric.median())
    numeric = numeric.loc[:, numeric.nunique() > 1]
    # A day for the rows whose time is zero: the model needs positive times.
    data = pd.DataFrame(numeric).assign(time=np.maximum(time.astype(float), 0.5), event=event)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit's own chatter about convergence is not under test
        model = WeibullAFTFitter(penalizer=0.01).fit(data, "time", "event")
    scale = np.exp(model.params_["lambda_"] @ numeric.assign(Intercept=1.0).T.loc[model.params_["lambda_"].index])
    shape = np.exp(model.params_["rho_"]["Intercept"])
    cdf = -np.expm1(-((data["time"].to_numpy() / scale.to_numpy()) ** shape))
    return cdf, event.astype(bool), data["time"].to_numpy()


@pytest.mark.parametrize("n_bins", [10, 20])
def test_survival_eval(predictions, n_bins):
    from SurvivalEVAL.evaluations.calibration import d_calibration as theirs

    cdf, event, _ = predictions
    statistic, p_value, counts = theirs(1 - cdf, event, num_bins=n_bins)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that Pearson's test means little here
        ours = d_calibration(cdf, event, n_bins=n_bins, p_value="pearson")
    np.testing.assert_allclose(ours.histogram, counts / cdf.size, atol=1e-9)
    assert ours.statistic == pytest.approx(statistic, rel=1e-9)
    assert ours.p_value == pytest.approx(p_value, abs=1e-9)


@pytest.mark.parametrize("n_bins", [10, 20])
def test_survival_evaluation(predictions, n_bins):
    reason = "pip install --no-deps survival-evaluation==0.1.3, as `make test` does"
    survival_evaluation = pytest.importorskip("survival_evaluation", reason=reason)
    cdf, event, _ = predictions
    theirs = survival_evaluation.d_calibration(event, 1 - cdf, n_bins)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that Pearson's test means little here
        ours = d_calibration(cdf, event, n_bins=n_bins, p_value="pearson")
    np.testing.assert_allclose(ours.histogram, theirs["bin_proportions"][::-1], atol=1e-9)
    assert ours.value == pytest.approx(np.square(theirs["bin_proportions"] - 1 / n_bins).sum(), abs=1e-9)
    assert ours.p_value == pytest.approx(theirs["p_value"], abs=1e-9)
    assert ours.statistic == pytest.approx(stats.chi2.isf(ours.p_value, n_bins - 1), rel=1e-6)


def test_km_masses_are_lifelines_kaplan_meier_up_to_the_horizon(predictions, monkeypatch):
    """Without a limit on what one row may carry, the masses are the drops of lifelines' curve of F."""
    monkeypatch.setattr("xcal.calibration.histogram.MAX_SHARE", 1.0)
    cdf, event, _ = predictions
    ours = d_calibration(cdf, event, method="km", p_value=None)
    curve = KaplanMeierFitter().fit(cdf, event)
    edges = bin_edges(10)
    # Survival just before each edge, as a row on an edge belongs to the right.
    before = curve.survival_function_at_times(np.nextafter(edges[:-1], 0)).to_numpy()
    drops = -np.diff(before)
    whole = edges[1:-1] <= cdf[event].max()
    np.testing.assert_allclose(ours.histogram[:-1][whole], drops[whole], atol=1e-9)


def test_ipcw_masses_are_events_over_lifelines_censoring_curve(predictions, monkeypatch):
    monkeypatch.setattr("xcal.calibration.histogram.MAX_SHARE", 1.0)
    cdf, event, time = predictions
    ours = d_calibration(cdf, event, method="ipcw", time=time, p_value=None)
    # lifelines counts deaths before losses at a tied time, so its curve of losses is taken just before each time, with
    # events moved ahead of the losses of the same time.
    censoring = KaplanMeierFitter().fit(np.where(event, time - 1e-6, time), ~event)
    g = censoring.survival_function_at_times(time - 1e-6).to_numpy()
    weight = np.where(event, 1 / np.where(event, g, 1.0), 0.0)
    late = (~event) & (time >= time[event].max())
    events_only = np.histogram(cdf, bin_edges(10), weights=weight)[0] / cdf.size
    left = 1 - events_only.sum()
    assert left >= -1e-9
    if late.any():
        spread = d_calibration(cdf[late], event[late], p_value=None).histogram
        events_only = events_only + left * spread
    np.testing.assert_allclose(ours.histogram, events_only, atol=1e-9)
