"""What is measured, on which rows, and what is named as not measured."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.validation.simulate import HORIZONS, TIMES, sample
from xcal import d_calibration
from xcal.calibration.results import holm
from xcal.interop.predictions import ModelPredictions
from xcal.metrics import concordance_index, evaluate, observed_expected
from xcal.metrics.pit_histogram import bin_shares, redistributed_variance, uniform_variance
from xcal.validation.measure import ORDER, measure
from xcal.validation.subgroups import MIN_EVENTS

OF_HORIZON = ("auc", "oe", "mean_risk", "observed_risk", "ici", "e50", "e90", "emax", "one_calibration_p")
OF_HORIZON += ("brier", "ipa")
OF_ALL_ROWS = (
    *("harrell", "uno", "antolini", "auc", "brier", "ipa", "ibs", "nll", "conditional_calibration"),
    *("conditional_calibration_floor", "conditional_calibration_noise", "conditional_calibration_p", "subgroup_p"),
)
CALIBRATION = [name for name in ORDER if name not in OF_ALL_ROWS]


def table(measured):
    return {(value.metric, value.horizon, value.group): value for value in measured.values}


def of(measured, metric, horizon=None, group=None):
    return table(measured)[metric, horizon, group].value


@pytest.fixture(scope="module")
def rows():
    return sample(400, too_fast=1.3)


@pytest.fixture(scope="module")
def measured(rows):
    return measure(rows, n_bootstrap=0)


def test_every_metric_is_there_once_for_each_horizon_and_group(measured):
    whole = [name for name in ORDER if name != "d_calibration_p_corrected"]
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
    pairs = {"concordance_harrell": ("harrell", None), "concordance_uno": ("uno", None)}
    pairs |= {"concordance_antolini": ("antolini", None), "brier": ("brier", HORIZONS[1])}
    pairs |= {"integrated_brier": ("ibs", None), "d_calibration": ("d_calibration", None)}
    pairs |= {"one_calibration_p": ("one_calibration_p", HORIZONS[1]), "km_calibration": ("km_calibration", None)}
    pairs |= {name: (name, HORIZONS[1]) for name in ("ici", "e50", "e90", "emax")}
    for theirs, (metric, horizon) in pairs.items():
        assert of(measured, metric, horizon) == pytest.approx(scores[theirs].value, rel=1e-9), metric
    assert of(measured, "nll") == pytest.approx(p.nll.mean(), rel=1e-12)


def test_a_group_is_measured_as_if_it_were_alone(rows, measured):
    own = rows.groups["sex"] == "f"
    p = rows.predictions
    risk = 1 - p.survival[own, 5]  # the curve at 0.6
    assert TIMES[5] == pytest.approx(HORIZONS[1])
    alone = observed_expected(risk, at=HORIZONS[1], time=rows.time[own], event=rows.event[own])
    assert of(measured, "oe", HORIZONS[1], "sex = f") == pytest.approx(alone.value, rel=1e-9)
    whole = measure(
        replace(
            rows,
            time=rows.time[own],
            event=rows.event[own],
            predictions=replace(p, n=own.sum(), survival=p.survival[own], nll=p.nll[own]),
            groups={},
        ),
        n_bootstrap=0,
    )
    for value in measured.values:
        if value.group == "sex = f" and not value.metric.startswith("d_calibration_p"):
            assert value.value == pytest.approx(of(whole, value.metric, value.horizon), rel=1e-9), value


def test_small_groups_are_named_and_not_judged():
    rows = sample(200)
    few = np.flatnonzero(rows.event)[: MIN_EVENTS - 1]
    labels = np.full(200, "many", dtype="U8")
    labels[few] = "few"
    measured = measure(replace(rows, groups={"site": labels}), n_bootstrap=0)
    assert {value.group for value in measured.values} == {None, "site = many"}
    assert measured.skipped == (
        (
            "site = few",
            f"{MIN_EVENTS - 1} events in {few.size} rows: too few to judge, at least {MIN_EVENTS} are needed",
        ),
    )


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
    assert {"harrell", "uno", "auc", "oe", "cox_slope", "ici", "brier", "ipa", "one_calibration_p"} <= names
    assert not names & {"antolini", "ibs", "nll", "d_calibration", "km_calibration"}
    reasons = dict(measured.skipped)
    assert reasons["horizon 0.3"] == "the predictions are risks at 0.6 only"
    assert {"antolini", "ibs", "nll", "d_calibration", "km_calibration"} <= set(reasons)
    expected = concordance_index(time=rows.time, event=rows.event, risk=risk).value
    assert of(measured, "harrell") == pytest.approx(expected, rel=1e-12)
    assert measured.pp is None


def test_f_alone_gives_calibration_over_all_times(rows):
    cdf = -np.expm1(-rows.time)
    measured = measure(without(rows, cdf=cdf), n_bootstrap=0)
    names = {value.metric for value in measured.values}
    assert "d_calibration_km" in names
    assert not names & {"harrell", "oe", "cox_slope", "brier"}
    assert of(measured, "d_calibration") == pytest.approx(d_calibration(cdf, rows.event).value, rel=1e-12)
    assert measured.pp is not None
    assert np.isnan(measured.over_time.predicted).all()


def test_a_horizon_past_the_end_of_the_curves_is_named(rows):
    short = replace(rows.predictions, survival=rows.predictions.survival[:, :6], times=TIMES[:6])
    measured = measure(replace(rows, predictions=short), n_bootstrap=0)
    assert dict(measured.skipped)["horizon 1"] == "the model's curves end at 0.6"
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
    assert curves.at_risk[0] == 400
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
    found, skipped = {key[:2] for key in table(measured) if key[2] is None}, dict(measured.skipped)
    for name in ("harrell", "d_calibration_km", "km_calibration", "cox_slope", "ibs"):
        assert (name, None) in found or name in skipped
    for horizon in HORIZONS:
        for name in ("oe", "auc", "ici", "ipa"):
            assert (name, horizon) in found or f"{name} at {horizon:g}" in skipped
    assert np.isfinite([value.value for value in measured.values]).all()
    for value in measured.values:
        assert np.isnan(value.lower) == np.isnan(value.upper)
        assert not value.lower > value.upper


def test_a_group_without_an_event_by_a_horizon_has_no_average_error():
    """All resamples give the same curve, zero: an interval without a width would say that it is certain."""
    given = sample(300, horizons=np.array([0.3, 1.5]))
    late = (given.time > 0.3) & (given.time < given.predictions.times[-1])
    made = replace(given, groups={"half": np.where(late, "late", "other")})
    result = measure(made, n_bootstrap=20)
    found = {(v.metric, v.horizon): v for v in result.values if v.group == "half = late"}
    assert not {("ici", 0.3), ("e50", 0.3), ("e90", 0.3), ("emax", 0.3)} & set(found)
    assert found["ici", 1.5].lower < found["ici", 1.5].upper
    why = dict(result.skipped)["ici at 0.3 in half = late"]
    assert "no row has the event by then" in why
    curve = next(c for c in result.calibration if c.group == "half = late" and c.horizon == 0.3)
    assert np.isnan(curve.lower).all()
