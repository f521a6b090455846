"""What is measured, on which rows, and what is named as not measured."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.validation.simulate import HORIZONS, TIMES, measure, sample
from xcal import d_calibration
from xcal.calibration.significance import holm
from xcal.interop.predictions import ModelPredictions
from xcal.metrics import concordance_index, evaluate, observed_expected
from xcal.metrics.pit import bin_shares, redistributed_variance, uniform_variance
from xcal.metrics.spec import VALUES, Skipped
from xcal.validation.arguments import MIN_EVENTS

OF_HORIZON = {
    *("auc", "brier", "ipa", "oe", "oe_p", "oe_p_corrected", "mean_risk", "observed_risk"),
    *("slope", "slope_p", "slope_p_corrected", "intercept", "ici", "ici_floor", "ici_excess", "ici_p"),
    *("ici_p_corrected", "e50", "e50_floor", "e50_excess", "e90", "e90_floor", "e90_excess"),
    *("emax", "emax_floor", "emax_excess", "one_calibration_p"),
    *("ici_cox", "e50_cox", "e90_cox", "emax_cox"),
}
OF_ALL_ROWS = {
    *("harrell", "uno", "antolini", "auc", "brier", "ipa", "ibs", "nll", "conditional_calibration"),
    *("conditional_calibration_floor", "conditional_calibration_noise", "conditional_calibration_p", "subgroup_p"),
    *("one_calibration_p", "cox_slope", "cox_intercept", "ici_cox", "e50_cox", "e90_cox", "emax_cox"),
    *("bound_coverage", "interval_coverage"),
}
# Values of an audit in their order; quantiles of F are of `evaluate` alone, and these rows have no sites or entries.
# Nor those of several causes.
_ELSEWHERE = ("quantile", "event_ratio", "concordance", "cause_calibration")
ORDER = [name for name in VALUES if not name.startswith(_ELSEWHERE) and "_site" not in name]
# Known from resamples alone.
RESAMPLED = {
    *("d_calibration_km_excess", "d_calibration_ipcw_excess", "km_calibration_floor", "km_calibration_excess"),
}
CALIBRATION = [name for name in ORDER if name not in OF_ALL_ROWS | RESAMPLED]


def table(measured):
    return {(value.metric, value.horizon, value.group): value for value in measured.values}


def of(measured, metric, horizon=None, group=None):
    return table(measured)[metric, horizon, group].value


@pytest.fixture(scope="module")
def rows():
    return sample(600, too_fast=1.3)


@pytest.fixture(scope="module")
def measured(rows):
    return measure(rows, n_bootstrap=0)


def test_every_metric_is_there_once_for_each_horizon_and_group(measured):
    whole = [name for name in ORDER if name != "d_calibration_p_corrected" and name not in RESAMPLED]
    expected = {(name, h, None) for name in whole for h in (HORIZONS if name in OF_HORIZON else [None])}
    for group in ("sex = f", "sex = m"):
        expected |= {(name, h, group) for name in CALIBRATION for h in (HORIZONS if name in OF_HORIZON else [None])}
    assert set(table(measured)) == expected
    assert len(measured.values) == len(expected)
    assert not measured.skipped
    assert [(c.horizon, c.group) for c in measured.calibration[:3]] == [(h, None) for h in HORIZONS]


def test_values_are_those_of_evaluate_whatever_the_order_of_the_rows(rows, measured):
    p = rows.predictions
    scores = evaluate(time=rows.time, event=rows.event, survival=p.survival, times=p.times, at=HORIZONS[1])
    pairs = {"harrell": ("harrell", None), "uno": ("uno", None)}
    pairs |= {"antolini": ("antolini", None), "brier": ("brier", HORIZONS[1])}
    pairs |= {"ibs": ("ibs", None), "d_calibration": ("d_calibration", None)}
    pairs |= {"one_calibration_p": ("one_calibration_p", HORIZONS[1]), "km_calibration": ("km_calibration", None)}
    pairs |= {name: (name, HORIZONS[1]) for name in ("oe", "slope", "intercept", "ici", "e50", "e90", "emax", "auc")}
    pairs |= {name: (name, HORIZONS[1]) for name in ("ici_floor", "ici_cox", "e50_cox", "e90_cox", "emax_cox")}
    for theirs, (metric, horizon) in pairs.items():
        assert of(measured, metric, horizon) == pytest.approx(scores[theirs].value, rel=1e-9), metric
    assert of(measured, "nll") == pytest.approx(p.nll.mean(), rel=1e-12)


def test_a_group_is_measured_as_if_it_were_alone(rows, measured):
    own = rows.asked["groups"]["sex"] == "f"
    p = rows.predictions
    risk = 1 - p.survival[own, 5]  # the curve at 0.6
    assert TIMES[5] == pytest.approx(HORIZONS[1])
    alone = observed_expected(risk, at=HORIZONS[1], time=rows.time[own], event=rows.event[own])
    assert of(measured, "oe", HORIZONS[1], "sex = f") == pytest.approx(alone.value, rel=1e-9)
    whole = measure(
        rows.but(
            time=rows.time[own],
            event=rows.event[own],
            predictions=replace(p, n=own.sum(), survival=p.survival[own], nll=p.nll[own]),
            groups={},
            covariates=(),
        ),
        n_bootstrap=0,
    )
    for value in measured.values:
        # Tests are corrected for all of their number.
        if value.group == "sex = f" and "_p" not in value.metric:
            assert value.value == pytest.approx(of(whole, value.metric, value.horizon), rel=1e-9), value


def test_small_groups_are_named_and_not_judged():
    rows = sample(200)
    few = np.flatnonzero(rows.event)[: MIN_EVENTS - 1]
    labels = np.full(200, "many", dtype="U8")
    labels[few] = "few"
    measured = measure(rows.but(groups={"site": labels}), n_bootstrap=0)
    assert {value.group for value in measured.values} == {None, "site = many"}
    why = f"{MIN_EVENTS - 1} events in {few.size} rows: too few to judge, at least {MIN_EVENTS} are needed"
    assert [one for one in measured.skipped if one.what == "group"] == [Skipped("group", why, group="site = few")]


def test_holm_is_the_closure_of_bonferroni():
    # A hypothesis is rejected if every set of hypotheses that holds it is, by its smallest p-value times its size.
    p = dict(enumerate(np.random.default_rng(0).uniform(size=6) ** 3))
    corrected = holm(p)
    for k in p:
        sets = [s for size in range(1, 7) for s in combinations(p, size) if k in s]
        assert corrected[k] == pytest.approx(max(min(1.0, len(s) * min(p[j] for j in s)) for s in sets), rel=1e-12)


def without(rows, **given):
    return replace(rows, predictions=ModelPredictions(model="m", library="none", n=rows.time.size, **given))


def test_a_risk_at_one_horizon_gives_what_it_allows(rows):
    risk = 1 - rows.predictions.survival[:, 5]
    measured = measure(without(rows, risk=risk, risk_horizon=HORIZONS[1]), n_bootstrap=0)
    names = {value.metric for value in measured.values}
    assert {
        "harrell",
        "uno",
        "auc",
        "oe",
        "slope",
        "slope_p",
        "ici",
        "ici_p",
        "brier",
        "ipa",
        "one_calibration_p",
    } <= names
    assert not names & {"antolini", "ibs", "nll", "d_calibration", "km_calibration"}
    assert Skipped("horizon", "the predictions are risks at 0.6 only", 0.3) in measured.skipped
    assert {"antolini", "ibs", "nll", "d_calibration", "km_calibration"} <= {one.what for one in measured.skipped}
    expected = concordance_index(time=rows.time, event=rows.event, risk=risk).value
    assert of(measured, "harrell") == pytest.approx(expected, rel=1e-12)
    assert measured.pp is None


def test_f_alone_gives_calibration_over_all_times(rows):
    cdf = -np.expm1(-rows.time)
    measured = measure(without(rows, cdf=cdf), n_bootstrap=0)
    names = {value.metric for value in measured.values}
    assert "d_calibration_km" in names
    assert not names & {"harrell", "oe", "slope", "cox_slope", "brier"}
    assert of(measured, "d_calibration") == pytest.approx(d_calibration(cdf, rows.event).value, rel=1e-12)
    assert measured.pp is not None
    assert np.isnan(measured.over_time.predicted).all()


def test_a_horizon_past_the_end_of_the_curves_is_named(rows):
    short = replace(rows.predictions, survival=rows.predictions.survival[:, :6], times=TIMES[:6])
    measured = measure(replace(rows, predictions=short), n_bootstrap=0)
    assert Skipped("horizon", "the model's curves end at 0.6", 1.0) in measured.skipped
    assert {value.horizon for value in measured.values} == {None, 0.3, 0.6}


def test_masses_and_their_noise_are_those_of_d_calibration():
    rng = np.random.default_rng(1)
    happens, censors = rng.uniform(size=300), rng.uniform(0.1, 1.3, size=300)
    time, event = np.round(np.minimum(happens, censors), 2), happens <= censors  # with ties
    cdf = time**1.2
    bins = bin_shares(cdf, event)
    plain = d_calibration(cdf, event)
    np.testing.assert_allclose(bins.shares.mean(axis=0), plain.histogram, rtol=0, atol=1e-12)
    assert uniform_variance(bins).sum() == pytest.approx(plain.floor, rel=1e-9)
    for method, scale in (("km", cdf), ("ipcw", time)):
        result = d_calibration(cdf, event, method=method, time=time)
        masses, variance = redistributed_variance(bins, event, scale)
        np.testing.assert_allclose(masses, result.histogram, rtol=0, atol=1e-12)
        assert variance.sum() == pytest.approx(result.floor, rel=1e-9)


def test_curves_over_time(rows, measured):
    curves = measured.over_time
    assert curves.at_risk[0] == 600
    assert curves.observed[0] == 0
    past = curves.times > TIMES[-1]
    assert np.isnan(curves.predicted[past]).all()
    # The null model's Brier score at a horizon, from its scaled form there.
    null = of(measured, "brier", HORIZONS[1]) / (1 - of(measured, "ipa", HORIZONS[1]))
    near = np.interp(HORIZONS[1], curves.times, curves.brier_null)
    assert near == pytest.approx(null, abs=0.01)


def altered(rows, time=None, event=None, survival=None):
    p = rows.predictions if survival is None else replace(rows.predictions, survival=survival)
    return replace(
        rows, time=rows.time if time is None else time, event=rows.event if event is None else event, predictions=p
    )


ODD = {
    "no events": lambda rows: altered(rows, event=np.zeros(60, dtype=bool)),
    "one event": lambda rows: altered(rows, event=np.arange(60) == 7),
    "all events": lambda rows: altered(rows, event=np.ones(60, dtype=bool)),
    "one time": lambda rows: altered(rows, time=np.full(60, 1.0)),
    "follow-up that ends before a horizon": lambda rows: altered(rows, time=np.minimum(rows.time, 0.5)),
    "equal predictions": lambda rows: altered(rows, survival=np.tile(rows.predictions.survival[0], (60, 1))),
    "certain predictions": lambda rows: altered(rows, survival=np.round(rows.predictions.survival)),
    "times of zero": lambda rows: altered(rows, time=np.where(np.arange(60) < 30, 0.0, rows.time)),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_rows_are_measured_as_far_as_they_go(case):
    odd = ODD[case](sample(60, seed=2))
    measured = measure(odd, n_bootstrap=25)
    found = {key[:2] for key in table(measured) if key[2] is None}
    found |= {(one.what, one.horizon) for one in measured.skipped if one.group is None}
    for name in ("harrell", "d_calibration_km", "km_calibration", "ibs"):
        assert (name, None) in found
    for horizon in HORIZONS:
        for name in ("oe", "auc", "ipa", *(() if horizon > odd.time.max() else ("ici", "slope"))):
            assert (name, horizon) in found, (name, horizon)
    assert np.isfinite([value.value for value in measured.values]).all()
    for value in measured.values:
        assert np.isnan(value.lower) == np.isnan(value.upper)
        assert not value.lower > value.upper


def test_a_group_with_few_events_by_a_horizon_has_no_levels_of_risk():
    given = sample(300, horizons=np.array([0.3, 1.5]))
    late = (given.time > 0.3) & (given.time < given.predictions.times[-1])
    made = given.but(groups={"half": np.where(late, "late", "other")})
    result = measure(made, n_bootstrap=20)
    found = {(v.metric, v.horizon): v for v in result.values if v.group == "half = late"}
    assert not {("ici", 0.3), ("e50", 0.3), ("slope", 0.3), ("ici_p", 0.3)} & set(found)
    assert found["ici", 1.5].lower < found["ici", 1.5].upper
    assert Skipped("ici", "no row has the event by then", 0.3, "half = late") in result.skipped
    curve = next(c for c in result.calibration if c.group == "half = late" and c.horizon == 0.3)
    assert np.isnan(curve.lower).all()
    few = np.flatnonzero(given.event & (given.time <= 0.3))[:12]
    later = np.flatnonzero(given.time > 0.4)[:20]
    labels = np.where(np.isin(np.arange(300), [*few, *later]), "few", "other")
    result = measure(given.but(groups={"g": labels}), n_bootstrap=0)
    found = {(v.metric, v.horizon) for v in result.values if v.group == "g = few"}
    assert ("oe", 0.3) in found
    why = "12 events by then are too few: 50 are needed"
    assert Skipped("ici", why, 0.3, "g = few") in result.skipped
