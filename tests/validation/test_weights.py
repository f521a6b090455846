"""Audits of rows with sampling weights: values of what was sampled from, design-based errors, words that say so."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import xcal
from tests.validation.simulate import HORIZONS, THRESHOLDS, measure, sample
from xcal._checks import effective_units
from xcal.calibration.subgroups import Column
from xcal.data import SurvivalData
from xcal.metrics.estimates import estimates, net_benefits, resamples
from xcal.metrics.net_benefit import CountedBenefit
from xcal.metrics.of_rows import WEIGHTED, Asked
from xcal.metrics.pseudo_values import score_test
from xcal.metrics.resamples import Block
from xcal.metrics.spec import METRICS
from xcal.validation.at_horizon import horizon_tests
from xcal.validation.for_whom import dependent_censoring

GRID = np.linspace(0.1, 3, 30)


def case_cohort(n, seed, *, rate=0.1, share=0.1, too_fast=1.0):
    """Curves, outcomes and weights of all events of a cohort and a share of the others, with two covariates."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    own = rate * np.exp(0.7 * x[:, 0])
    happens, censors = rng.exponential(1 / own), rng.uniform(0.5, 3.0, n)
    time, event = np.minimum(happens, censors), happens <= censors
    kept = event | (rng.random(n) < share)
    return {
        "survival": np.exp(-too_fast * own[kept, None] * GRID),
        "times": GRID,
        "y": (time[kept], event[kept]),
        "horizons": [1.0, 2.0],
        "covariates": {"a": x[kept, 0], "b": x[kept, 1]},
        "weights": np.where(event, 1.0, 1 / share)[kept],
        "n_bootstrap": 0,
    }


def weighted(n=150, *, seed=3, **changes):
    """A sample with whole numbers as weights, and the same rows repeated."""
    one = sample(n, seed=seed, too_fast=1.3, **changes)
    numbers = np.random.default_rng(4).integers(1, 4, n)
    again = np.repeat(np.arange(n), numbers)
    p = one.predictions
    predictions = replace(p, n=again.size, survival=p.survival[again], nll=p.nll[again])
    repeated = one.but(
        time=one.time[again],
        event=one.event[again],
        predictions=predictions,
        groups={name: labels[again] for name, labels in one.asked["groups"].items()},
        covariates=tuple(column.take(again) for column in one.asked["covariates"]),
    )
    return one.but(weights=effective_units(numbers.astype(np.float64))), repeated


def values_of(found):
    return {(value.metric, value.horizon, value.group): value.value for value in found.values}


def test_values_are_those_of_repeated_rows():
    one, repeated = weighted()
    found, expected = (values_of(measure(rows, n_bootstrap=0)) for rows in (one, repeated))
    exact = {"harrell", "uno", "antolini", "auc", "brier", "ipa", "ibs", "nll", "oe", "mean_risk", "observed_risk"}
    exact |= {"d_calibration", "km_calibration"}
    # By smoothing over quantiles of rows, and by the jackknife, which is not infinitesimal for repeated rows.
    close = {"slope": 0.02, "intercept": 0.05, "ici": 0.1}
    compared = {key[0] for key in found} & (exact | set(close))
    assert compared == exact | set(close)
    for key, value in found.items():
        if key[0] in compared:
            assert value == pytest.approx(expected[key], rel=close.get(key[0], 1e-9)), key


def test_one_core_for_values_and_resamples():
    """Every row drawn once, the metrics of resamples are those of the rows."""
    one, _ = weighted(groups=False)
    rows = one.rows
    found = estimates(rows, [name for name, metric in METRICS.items() if metric.audited], Asked())
    drawn = resamples(rows, found, 1, lambda number: np.ones(rows.n), thresholds=THRESHOLDS)
    assert {"harrell", "uno", "antolini", "auc", "brier", "ipa", "ibs", "nll", "oe", "slope", "d_calibration_km"} <= {
        key.metric for key in drawn.values
    }
    for key, values in drawn.values.items():
        # The ICI of a resample is right to first order: it smooths what the curve leaves of the pseudo-values too.
        close = 0.1 if key.metric == "ici" else 1e-6
        assert values[0] == pytest.approx(found.values[key], rel=close), key


def test_net_benefit_is_that_of_repeated_rows():
    one, repeated = weighted(groups=False)
    rows, again = one.rows, repeated.rows
    for horizon in HORIZONS:
        expected = net_benefits(again, horizon, THRESHOLDS)
        np.testing.assert_allclose(net_benefits(rows, horizon, THRESHOLDS), expected, atol=1e-12)


def test_resamples_count_weight_times_draws():
    one, _ = weighted(groups=False)
    rows = one.rows
    line = rows.line
    drawn = np.random.default_rng(5).multinomial(rows.n, np.full(rows.n, 1 / rows.n), size=3).astype(np.float64)
    benefit = CountedBenefit(line, rows.risk[HORIZONS[1]], THRESHOLDS, float(HORIZONS[1]))
    found = benefit.values(Block(line, drawn, rows.weights))
    whole = np.rint(rows.weights / rows.weights.min())
    np.testing.assert_allclose(found, benefit.values(Block(line, drawn * whole)), atol=1e-12)


def test_equal_weights_change_nothing():
    given = case_cohort(800, 0) | {"n_bootstrap": 20}
    plain = xcal.audit(**given | {"weights": None})
    same = xcal.audit(**given | {"weights": np.full(given["weights"].size, 7)})
    assert plain.to_json() == same.to_json()


def test_only_ratios_of_weights_matter():
    given = case_cohort(1500, 1)
    one, other = (values_of(xcal.audit(**given | {"weights": f * given["weights"]})) for f in (1.0, 1e6))
    for key, value in one.items():
        assert value == pytest.approx(other[key], rel=1e-6, abs=1e-12), key


@pytest.fixture(scope="module")
def audited():
    given = case_cohort(4000, 2)
    labels = np.where(given["covariates"]["b"] > 0, "f", "m")
    return xcal.audit(**given, groups={"sex": labels}, training=given["y"], seed=1)


def test_the_result_says_that_rows_are_weighted(audited):
    effective = audited.data.n_effective
    assert f"with sampling weights (effectively {effective:,.0f} rows)" in " ".join(audited.verdict.sentences)
    (concern,) = [one for one in audited.data.concerns if one.what.startswith("Weighted rows")]
    assert "not compared with the training rows" in concern.effect
    assert not audited.data.compared_with_training
    assert "infinitesimal jackknife" in audited.methods
    assert "random signs of the rows" in audited.methods
    assert "subgroup that is most off" not in audited.methods
    assert json.loads(audited.to_json())["data"]["n_effective"] == effective


def test_what_takes_no_weights_is_left_out_with_the_reason(audited, tmp_path):
    names = {value.metric for value in audited.values}
    assert not names & {"one_calibration_p", "cox_slope", "cox_intercept", "ici_cox", "subgroup_p"}
    assert {"slope_p", "ici_p", "oe_p", "d_calibration_p", "conditional_calibration_p"} <= names
    reasons = {one.what: one.why for one in audited.measured.skipped}
    for what in ("one_calibration_p", "cox_slope", "ici_cox", "subgroup_p"):
        assert reasons[what] == WEIGHTED
    assert "band counts every row once" in reasons["P-P curve"]
    assert audited.measured.pp is None
    assert audited.report(tmp_path / "report.html").stat().st_size > 0


def test_weights_as_a_column_or_with_the_data():
    given = case_cohort(1500, 3)
    time, event = given["y"]
    table = pd.DataFrame(given.pop("covariates") | {"w": given["weights"]})
    array = xcal.audit(**given, X=table, covariates=["a", "b"])
    named = xcal.audit(**given | {"weights": "w"}, X=table, covariates=["a", "b"])
    data = SurvivalData(table[["a", "b"]].to_numpy(), time, event, weights=given["weights"], feature_names=("a", "b"))
    brought = xcal.audit(**{k: v for k, v in given.items() if k not in ("weights", "y")}, X=data)
    for other in (named, brought):
        assert other.value("oe", horizon=1.0) == array.value("oe", horizon=1.0)
    with pytest.raises(ValueError, match="weights: expected nothing beside SurvivalData"):
        xcal.audit(**{k: v for k, v in given.items() if k != "y"}, X=data)


def test_what_cannot_be_is_refused():
    given = case_cohort(500, 4)
    bad = given["weights"].copy()
    bad[5] = -2
    with pytest.raises(ValueError, match=r"weights: expected finite weights above zero.*-2.0 at row 5"):
        xcal.audit(**given | {"weights": bad})
    with pytest.raises(ValueError, match=r"weights: expected .* rows, as many as y has"):
        xcal.audit(**given | {"weights": bad[1:]})
    with pytest.raises(ValueError, match="censoring: expected 'auto' or 'independent' with weights"):
        xcal.audit(**given, censoring="covariates")


@pytest.mark.ci
def test_a_right_model_is_trusted_with_its_weights_alone():
    for seed in range(3):
        given = case_cohort(6000, 10 + seed)
        assert xcal.audit(**given).verdict.level == "trust"
        assert xcal.audit(**given | {"weights": None}).verdict.level == "distrust"


def test_a_wrong_model_is_found():
    assert xcal.audit(**case_cohort(6000, 20, too_fast=1.6)).verdict.level == "distrust"


@pytest.mark.ci
def test_tests_at_horizons_hold_their_size_in_case_cohort_samples():
    rejected = {}
    for seed in range(120):
        given = case_cohort(3000, 100 + seed)
        one = sample(given["weights"].size, groups=False)
        time, event = given["y"]
        predictions = replace(one.predictions, survival=given["survival"], times=GRID, nll=None)
        weights = effective_units(given["weights"])
        other = {"predictions": predictions, "horizons": np.array([1.0, 2.0]), "weights": weights}
        rows = one.but(time=time, event=event, **other).rows
        half = np.arange(rows.n) % 2 == 0
        for key, tested in horizon_tests(rows, {"half": half}, {"part": ~half}, seed=0).items():
            rejected.setdefault((key.metric, key.group), []).append(tested.p_value < 0.05)
    for key, values in rejected.items():
        # Three standard errors above .05 for 120 data sets, two horizons of each.
        assert np.mean(values) < 0.1, key
    assert {("oe", None), ("slope", None), ("ici", None), ("oe", "half"), ("oe", "part")} <= set(rejected)


class TestDependentCensoring:
    def rows(self, n, seed, *, depends):
        """All events of a cohort and a third of the others; whether rows leave may depend on x."""
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n)
        happens = rng.exponential(3 * np.exp(-x))
        censors = rng.exponential(2 * np.exp(-depends * x))
        time, event = np.minimum(happens, censors), happens <= censors
        kept = event | (rng.random(n) < 1 / 3)
        order = np.argsort(time[kept])
        weights = effective_units(np.where(event, 1.0, 3.0)[kept][order])
        return x[kept][order], time[kept][order], event[kept][order], weights

    def test_the_test_holds_its_size_with_weights_and_not_without(self):
        weighted, plain = [], []
        for seed in range(300):
            x, time, event, weights = self.rows(600, seed, depends=0.0)
            weighted.append(score_test(x, time, ~event, float(time[-1]), weights) < 0.05)
            plain.append(score_test(x, time, ~event, float(time[-1]), None) < 0.05)
        assert 0.02 <= np.mean(weighted) <= 0.09
        assert np.mean(plain) > 0.3

    def test_dependence_is_found_and_said_and_not_corrected(self):
        x, time, event, weights = self.rows(3000, 0, depends=0.8)
        given = {"survival": np.exp(-np.exp(x)[:, None] / 3 * GRID), "times": GRID, "y": (time, event)}
        result = xcal.audit(**given, covariates={"x": x}, weights=weights, horizons=[1.0], n_bootstrap=0)
        found = result.measured.censoring
        assert found.on
        assert not found.corrected
        assert any(one.serious and one.what.startswith("Censoring depends on") for one in result.data.concerns)
        one = sample(time.size, groups=False, time=time, event=event, weights=weights)
        rows = one.rows
        assert dependent_censoring(rows, (Column("x", x),), "auto")[1] is None
