"""Before and after an update: what is known to be wrong is corrected, what is right stays right."""

from functools import cache

import numpy as np
import pytest

import xcal
from xcal.validation.next_steps import logistic

TIMES = np.linspace(0.05, 4, 60)
N = 1500


@cache
def audited(law):
    """Return the audit of a model that is wrong in a known way: hazards times a factor, to a power, or not at all."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=N)
    shape = np.exp(0.4 * rng.normal(size=N)) if law == "crossing" else np.ones(N)
    rate = np.exp(0.8 * x - 0.8)
    happens = (rng.exponential(size=N) / rate) ** (1 / shape)
    leaves = rng.exponential(4.0, N) * np.exp(-0.3 * x * (law == "leaving"))
    told = {"too high": 1.6 * rate, "too extreme": np.exp(1.6 * x - 0.8)}.get(law, rate)
    survival = np.exp(-told[:, None] * TIMES ** shape[:, None])
    y = np.minimum(happens, leaves), happens <= leaves
    given = {"times": TIMES, "y": y, "X": {"x": x}, "horizons": [1.0, 2.0]}
    return xcal.audit(survival=survival, **given, n_bootstrap=0, progress=False)


def after(result, how, metric, horizon=1.0):
    (found,) = [one for one in result.measured.updates if (one.how, one.horizon) == (how, horizon)]
    (value,) = [value for value in found.values if value.metric == metric]
    return value


def test_risks_that_are_too_high_need_no_more_than_an_update_in_the_large():
    result = audited("too high")
    assert result.value("oe", horizon=1.0).upper < 0.9
    for how in ("large", "slope", "map"):
        found = after(result, how, "oe")
        assert found.lower < 1 < found.upper
        assert after(result, how, "brier").value < result.value("brier", horizon=1.0).value


def test_risks_that_are_too_extreme_need_a_slope():
    result = audited("too extreme")
    assert result.value("slope", horizon=1.0).upper < 0.7
    assert after(result, "large", "slope").upper < 0.8
    found = after(result, "slope", "slope")
    assert found.lower < 1 < found.upper
    assert after(result, "slope", "ici").value < 0.5 * after(result, "large", "ici").value


@pytest.mark.parametrize("law", ["true", "crossing", "leaving"])
def test_an_update_does_a_true_model_little_harm(law):
    """An intercept and a slope cost about their two degrees of freedom; the map is hardly a change."""
    result = audited(law)
    for horizon in result.horizons:
        before = result.value("brier", horizon=horizon).value
        for how in ("large", "slope", "map"):
            assert after(result, how, "brier", horizon).value < before * 1.01
            found = after(result, how, "oe", horizon)
            assert found.lower < 1 < found.upper


def test_the_logistic_regression_is_that_of_statsmodels():
    models = pytest.importorskip("statsmodels.api", reason="needs statsmodels, which tableone brings")
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.9, 400)
    happened = (rng.random(400) < p**1.5).astype(float)
    x = np.log(p / (1 - p))
    with_slope = models.Logit(happened, models.add_constant(x)).fit(disp=0, method="newton", tol=1e-12)
    np.testing.assert_allclose(logistic(p, happened, with_slope=True), with_slope.params, rtol=1e-7)
    alone = models.GLM(happened, np.ones(400), family=models.families.Binomial(), offset=x).fit(tol=1e-12)
    assert logistic(p, happened, with_slope=False) == (pytest.approx(alone.params[0], rel=1e-7), 1.0)
    assert logistic(np.full(400, 0.3), happened, with_slope=True) is None


def test_pseudo_values_beyond_0_and_1_have_the_mean_that_they_have():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.05, 0.8, 300)
    values = np.where(rng.random(300) < p, 1.2, -0.1)
    for with_slope in (False, True):
        a, b = logistic(p, values, with_slope=with_slope)
        x = np.log(p / (1 - p))
        assert (1 / (1 + np.exp(-a - b * x))).mean() == pytest.approx(values.mean())


def test_rows_of_one_cluster_are_in_one_fold():
    from xcal.validation.arguments import read_clusters
    from xcal.validation.next_steps import _folds

    labels = np.repeat(np.arange(40), 5)

    class Rows:
        n, event, clusters = 200, np.ones(200, bool), read_clusters(labels, None, 200)

    fold = _folds(Rows, 0)
    assert all(np.ptp(fold[labels == k]) == 0 for k in range(40))
    assert set(fold) == set(range(5))


def test_what_has_no_update_says_why():
    time, event = np.arange(1.0, 61), np.arange(60) % 2 == 0
    few = xcal.audit(risk=np.linspace(0.1, 0.9, 60), horizons=30.0, y=(time, event), n_bootstrap=0, progress=False)
    assert few.measured.updates == ()
    assert any("too few to fit an update" in one.why for one in few.measured.skipped if one.what == "updates")
    rng = np.random.default_rng(2)
    risk, many = rng.uniform(0.2, 0.8, 400), rng.exponential(size=400)
    by_risk = xcal.audit(risk=risk, horizons=1.0, y=(many, many < 3), n_bootstrap=0, progress=False)
    assert {one.how for one in by_risk.measured.updates} == {"large", "slope"}
    assert any(one.what == "updates" and one.why.startswith("the map: ") for one in by_risk.measured.skipped)
