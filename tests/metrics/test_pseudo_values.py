"""Pseudo-values against their definition, their exactness without censoring, and the truth under censoring by x."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from scipy.integrate import quad

from tests.metrics.simulate import survival_data
from xcal.data.surv import Outcome
from xcal.metrics.pseudo_values import CensoringModel, doubly_robust, fit_censoring, jackknife


def without_each(time, event, at):
    """The definition: as many Kaplan-Meier curves as there are rows, and one more."""

    def risk(t, e):
        return 1 - float(KaplanMeierFitter().fit(t, e).predict(at))

    n = time.size
    return [n * risk(time, event) - (n - 1) * risk(np.delete(time, k), np.delete(event, k)) for k in range(n)]


@pytest.mark.parametrize("grid", [None, 0.25], ids=["continuous", "ties"])
@pytest.mark.parametrize("at", [0.1, 0.5, 1.0])
def test_the_jackknife_is_its_definition(grid, at):
    data = survival_data(40, rng=np.random.default_rng(2), grid=grid)
    np.testing.assert_allclose(
        jackknife(Outcome(data.time, data.event), at), without_each(data.time, data.event, at), atol=1e-12
    )


def test_nothing_is_lost_without_censoring():
    data = survival_data(50, rng=np.random.default_rng(1), censoring_scale=np.inf)
    np.testing.assert_allclose(jackknife(Outcome(data.time, data.event), 0.7), data.time <= 0.7, atol=1e-12)


def test_at_the_last_time_and_before_the_first_event():
    time, event = np.array([1.0, 2.0, 3.0]), np.array([True, False, True])
    assert jackknife(Outcome(time, event), 0.5) == pytest.approx([0, 0, 0])
    np.testing.assert_allclose(jackknife(Outcome(time, event), 3.0), without_each(time, event, 3.0), atol=1e-12)


def test_half_a_unit_for_censored_rows_is_the_actuarial_estimate():
    # Life table of two units: 10 rows, 2 events and 4 censored in the first, 1 event and 3 censored in the second.
    counts = np.array([2.0, 4.0, 1.0, 3.0])
    time = np.repeat([1.0, 1.0, 2.0, 2.0], counts.astype(int))
    event = np.repeat([True, False, True, False], counts.astype(int))

    def actuarial(d1, c1, d2, c2):
        return 1 - (1 - d1 / (d1 + c1 + d2 + c2 - c1 / 2)) * (1 - d2 / (d2 + c2 - c2 / 2))

    expected = [10 * actuarial(*counts) - 9 * actuarial(*(counts - np.eye(4)[k])) for k in range(4)]
    np.testing.assert_allclose(jackknife(Outcome(time, event), 2.0, seen=0.5), np.repeat(expected, counts.astype(int)))


def test_the_model_of_censoring_is_that_of_lifelines():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    time, event = rng.exponential(np.exp(-0.5 * x[:, 0])), rng.random(300) < 0.5
    model = fit_censoring(x, Outcome(time, event))
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "time": time, "censored": ~event})
    theirs = CoxPHFitter().fit(table, "time", "censored")
    for at in (0.2, 0.7):
        survival = theirs.predict_survival_function(table, times=[at]).to_numpy()[0]
        just_after = np.array([np.nextafter(at, 9)])
        # Their optimiser stops a little before ours.
        np.testing.assert_allclose(model.of_rows(slice(None), just_after)[:, 0], survival, atol=1e-5)


def test_rows_with_their_event_at_a_time_are_not_at_risk_of_censoring_there():
    # Every row twice, with opposite covariates: no effect. Six at risk of two censorings at 1, four of two at 2.
    time, event = np.tile([1.0, 1.0, 2.0, 3.0], 2), np.tile([True, False, False, True], 2)
    model = fit_censoring(np.repeat([1.0, -1.0], 4)[:, None], Outcome(time, event))
    np.testing.assert_allclose(model.times, [1, 1, 2, 2])
    np.testing.assert_allclose(model.hazard, [1 / 6, 2 / 6, 2 / 6 + 1 / 4, 2 / 6 + 2 / 4])


def weibull(x, t):
    """Survival curves whose shape depends on x: hazards cross."""
    return np.exp(-(np.asarray(t) ** np.exp(0.5 * x)))


def law(n, rng, *, depends):
    x = rng.normal(size=n)
    happens = rng.exponential(size=n) ** np.exp(-0.5 * x)
    leaves = 1.2 * rng.weibull(1.5, n) * np.exp(-0.6 * depends * x)
    return x, np.minimum(happens, leaves), happens <= leaves


TIMES = np.linspace(0.02, 3.0, 150)


def test_doubly_robust_values_are_the_integral_that_defines_them():
    x, time, event = law(40, np.random.default_rng(3), depends=True)
    model, at = fit_censoring(x[:, None], Outcome(time, event)), 0.8
    found = doubly_robust(
        weibull(x[:, None], TIMES), TIMES, "linear", weibull(x, time), Outcome(time, event), at, model
    )
    for k in range(40):

        def uncensored(u, k=k):
            passed = np.searchsorted(model.times, u, side="left")
            return float(np.exp(-model.factor[k] * np.append(0.0, model.hazard)[passed]))

        def slope(u, k=k):  # hazard times S(h) / S(u) over G
            shape = np.exp(0.5 * x[k])
            return shape * u ** (shape - 1) * weibull(x[k], at) / weibull(x[k], u) / uncensored(u)

        end = min(time[k], at)
        jumps = [0.0, *model.times[model.times < end], end]
        lived = sum(quad(slope, a, b)[0] for a, b in pairwise(jumps))
        happened = event[k] and time[k] <= at
        gained = weibull(x[k], at) / weibull(x[k], time[k]) / uncensored(time[k]) if happened else 0.0
        assert found[k] == pytest.approx(1 - weibull(x[k], at) + gained - lived, abs=5e-3)


@pytest.mark.parametrize("interpolation", ["linear", "previous"])
def test_doubly_robust_values_are_the_outcomes_where_nobody_is_censored(interpolation):
    rng = np.random.default_rng(5)
    x = rng.normal(size=60)
    time = rng.exponential(size=60) ** np.exp(-0.5 * x)
    curves, everybody = weibull(x[:, None], TIMES), CensoringModel(np.array([9.0]), np.zeros(1), np.ones(60))
    passed = np.searchsorted(TIMES, time, side="right")
    steps = np.append(np.ones((60, 1)), curves, axis=1)[np.arange(60), passed]
    own = steps if interpolation == "previous" else weibull(x, time)
    found = doubly_robust(curves, TIMES, interpolation, own, Outcome(time, np.full(60, True)), 0.8, everybody)
    np.testing.assert_allclose(found, time <= 0.8, atol=1e-12)


@pytest.mark.parametrize(
    ("power", "right_censoring"), [(1.0, False), (1.5, True)], ids=["true curves", "true censoring"]
)
def test_one_of_two_models_is_enough(power, right_censoring):
    """Curves right and censoring marginal, or curves wrong and censoring right: the mean risk is right on average."""
    off, kaplan_meier = [], []
    for seed in range(30):
        rng = np.random.default_rng([seed, 1])
        x, at = rng.normal(size=600), 0.6
        happens, leaves = rng.exponential(np.exp(-x)), rng.exponential(1.5 * np.exp(-0.5 * x))
        time, event = np.minimum(happens, leaves), happens <= leaves
        model = fit_censoring((x if right_censoring else rng.normal(size=600))[:, None], Outcome(time, event))
        curves, own = (np.exp(-power * t * np.exp(x)[:, None]) for t in (TIMES, time[:, None]))
        found = doubly_robust(curves, TIMES, "linear", own[:, 0], Outcome(time, event), at, model)
        truth = (1 - np.exp(-at * np.exp(x))).mean()
        off.append(found.mean() - truth)
        kaplan_meier.append(jackknife(Outcome(time, event), at).mean() - truth)
    error = np.std(off) / 30**0.5
    assert abs(np.mean(off)) < 3.5 * error
    assert abs(np.mean(kaplan_meier)) > 3.5 * error  # which is what it is needed for
