"""Tests at horizons: their deviations by definition, their law, and true models that are not accused."""

import numpy as np
import pytest

from tests.validation.simulate import HORIZONS, Given, sample
from xcal.interop.predictions import ModelPredictions
from xcal.metrics import one_calibration
from xcal.metrics.spec import Key
from xcal.validation.at_horizon import _Deviations, _World, horizon_tests

# Curves whose shape is below 1 fall steeply at first.
TIMES = np.concatenate([np.geomspace(1e-6, 0.1, 80), np.linspace(0.12, 6.0, 200)])


def crossing(x, t):
    """Weibull curves whose shape depends on x."""
    return np.exp(-(np.asarray(t) ** np.exp(0.6 * x)))


def rows_of(n, seed, *, power=1.0, depends=0.0, share=1.0):
    """Rows of crossing hazards; `power` on the hazards of the model, censoring that depends on x by so much."""
    rng = np.random.default_rng([n, seed])
    x = rng.normal(size=n)
    happens = rng.exponential(size=n) ** np.exp(-0.6 * x)
    leaves = share * rng.weibull(1.5, n) * np.exp(-depends * x)
    time, event = np.minimum(happens, leaves), happens <= leaves
    curves = crossing(x[:, None], TIMES) ** power
    predictions = ModelPredictions("m", "none", n, survival=curves, times=TIMES, cdf=1 - crossing(x, time) ** power)
    return Given(time, event, predictions, np.quantile(time[event], [0.3, 0.7])).rows, x


def test_d_is_what_is_known_less_what_was_predicted():
    rows, _ = rows_of(50, 1)
    h = next(iter(rows.risk))
    found = _Deviations(rows, h, rows.cdf)
    for k in range(50):
        p = rows.risk[h][k]
        if rows.time[k] > h:
            known = 0.0
        elif rows.event[k]:
            known = 1.0
        else:  # the chance that is left, given that nothing happened so far
            known = 1 - (1 - p) / (1 - rows.cdf[k])
        assert found.deviation[k] == pytest.approx(known - p, abs=1e-12)


def test_without_censoring_d_is_the_outcome_less_the_risk_and_its_variance_that_of_a_coin():
    rows, _ = rows_of(4000, 2, share=1e9)
    h = list(rows.risk)[1]
    found = _Deviations(rows, h, rows.cdf)
    np.testing.assert_allclose(found.deviation, (rows.time <= h) - rows.risk[h], atol=1e-12)
    # The predictable variance is unbiased for that of each row.
    assert found.variance.sum() == pytest.approx((rows.risk[h] * (1 - rows.risk[h])).sum(), rel=0.03)


def test_the_law_in_the_models_own_world():
    """Means over draws are zero, and D of the draws is that of the times drawn, by the definition."""
    rows, _ = rows_of(60, 3)
    moments = [_Deviations(rows, h, rows.cdf) for h in (*rows.risk, None)]
    drawn = _World(rows, rows.cdf).draw(moments, 20_000, np.random.default_rng(0))
    for one, draws in zip(moments, drawn, strict=True):
        np.testing.assert_allclose(draws.mean(axis=0), 0, atol=5 * draws.std() / 20_000**0.5 + 1e-3)
        # Of a censored row the time under observation is known: its law has two or infinitely many values.
        k = int(np.flatnonzero(~rows.event & (rows.time < next(iter(rows.risk))))[0])
        if one.horizon is not None:
            s, c = one.survival[k], 1 - rows.cdf[k]
            assert set(np.round(np.unique(draws[:, k]), 9)) == {round(s, 9), round(s - s / c, 9)}
            assert np.mean(draws[:, k] > 0) == pytest.approx(1 - c, abs=0.02)
            assert draws[:, k].var() == pytest.approx(s**2 * (1 - c) / c, rel=0.1)


@pytest.mark.parametrize("depends", [0.0, 0.8], ids=["independent", "by x"])
@pytest.mark.ci
def test_true_models_with_crossing_hazards_are_not_accused(depends):
    """80 data sets of 150 rows, half of them censored: 5 % of each test, and at most about 5 % of all corrected."""
    found, least = {}, []
    for seed in range(80):
        rows, x = rows_of(150, seed, depends=depends)
        parts = {"low": x[rows.order] < 0, "high": x[rows.order] >= 0}
        tests = horizon_tests(rows, {}, parts, seed=0)
        for key, tested in tests.items():
            found.setdefault((key.metric, key.group), []).append(tested.p_value)
        least.append(min(tested.corrected for tested in tests.values()))
    assert {metric for metric, _ in found} == {"oe", "slope", "ici"}
    for key, p_values in found.items():
        # 160 tests of two horizons that go together: a standard error of about 2.2 %.
        assert np.mean(np.array(p_values) < 0.05) <= 0.12, key
    # Two families, of all rows and of parts.
    assert np.mean(np.array(least) <= 0.025) <= 0.12
    assert np.mean(np.array(least) <= 0.25) >= 0.1  # not so cautious as to see nothing


@pytest.mark.ci
def test_few_events_are_counted_as_such():
    """A dozen events: z-tests of so few are too sure; the draws are not."""
    p_values = []
    for seed in range(150):
        rows, _ = rows_of(120, seed, share=0.15)
        tests = horizon_tests(rows, {}, {}, seed=0)
        p_values += [tested.p_value for key, tested in tests.items() if key.metric == "oe"]
    p_values = np.array(p_values)
    assert np.mean(p_values < 0.05) <= 0.1
    assert np.mean(p_values < 0.01) <= 0.04


def test_wrong_hazards_are_seen_and_corrected_p_values_are_never_smaller():
    rows, x = rows_of(600, 5, power=1.6)
    tests = horizon_tests(rows, {"g": x[rows.order] > 0}, {"part": x[rows.order] > 1}, seed=0)
    assert all(tested.corrected >= tested.p_value > 0 for tested in tests.values())
    assert min(t.corrected for key, t in tests.items() if (key.metric, key.group) == ("oe", None)) < 0.01
    assert Key("oe", None, "part") in tests  # over the whole follow-up
    assert not any(key.metric != "oe" for key in tests if key.group == "part")


def test_many_events_need_no_draws_and_agree_with_them(monkeypatch):
    rows, _ = rows_of(800, 6, power=1.1)
    drawn = horizon_tests(rows, {}, {}, seed=0)
    monkeypatch.setattr("xcal.validation.at_horizon.MANY_EVENTS", 10)
    normal = horizon_tests(rows, {}, {}, seed=0)
    for key, tested in normal.items():
        assert tested.p_value == pytest.approx(drawn[key].p_value, abs=0.04), key
        assert tested.corrected >= drawn[key].corrected - 0.05  # Bonferroni takes the tests for independent


def test_levels_of_risk_agree_with_one_calibration_where_both_are_clear():
    rows, _ = rows_of(1500, 7, power=1.5)
    h = list(rows.risk)[1]
    tests = horizon_tests(rows, {}, {}, seed=0)
    theirs = one_calibration(rows.risk[h], at=h, time=rows.time, event=rows.event, cdf=rows.cdf)
    assert theirs.p_value < 1e-6
    assert tests[Key("ici", h)].p_value < 0.01


def test_without_f_the_pseudo_values_are_tested():
    rejected = []
    for seed in range(60):
        given = sample(200, seed=seed, groups=False, covariates=())
        risk = 1 - given.predictions.survival[:, 5]
        only = ModelPredictions("m", "none", 200, risk=risk, risk_horizon=HORIZONS[1])
        rows = Given(given.time, given.event, only, HORIZONS[1:2]).rows
        tests = horizon_tests(rows, {}, {"part": np.arange(200) < 90}, seed=0)
        assert Key("oe", None, "part") not in tests
        rejected.append([tests[Key(name, HORIZONS[1])].p_value < 0.05 for name in ("oe", "slope", "ici")])
    # 5 % of 60 are 3, with a standard error of 1.7.
    assert np.sum(rejected, axis=0).max() <= 9


def test_the_normal_law_of_absolute_values():
    from xcal.validation.at_horizon import _normal_law

    rng = np.random.default_rng(8)
    root = rng.normal(size=(5, 5))
    share = rng.dirichlet(np.ones(5))
    drawn = np.abs(rng.normal(size=(400_000, 5)) @ root.T) @ share
    mean, variance = _normal_law(root @ root.T, share)
    assert mean == pytest.approx(drawn.mean(), rel=0.01)
    assert variance == pytest.approx(drawn.var(), rel=0.02)


@pytest.mark.ci
def test_the_slope_has_the_power_of_a_score_test():
    """Log cumulative hazards stretched by 1.5: the score test of the slope sees it, the one of the average need not."""
    seen = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=500)
        happens, leaves = rng.exponential(np.exp(-x)), rng.exponential(1.5, 500)
        time, event = np.minimum(happens, leaves), happens <= leaves
        h = float(np.median(happens))
        risk = 1 - np.exp(-h * np.exp(1.5 * x))
        own = 1 - np.exp(-time * np.exp(1.5 * x))
        curves = np.exp(-TIMES * np.exp(1.5 * x)[:, None])
        predictions = ModelPredictions("m", "none", 500, survival=curves, times=TIMES, cdf=own)
        rows = Given(time, event, predictions, np.array([h])).rows
        assert rows.risk[h] == pytest.approx(risk[rows.order], abs=2e-3)
        seen.append(horizon_tests(rows, {}, {}, seed=0)[Key("slope", h)].p_value < 0.05)
    assert np.mean(seen) >= 0.8
