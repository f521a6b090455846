"""After the last time seen nothing is said, unless extrapolation is asked for."""

import numpy as np
import pytest

from xcal import Surv
from xcal.estimators import SurvivalModel


@pytest.fixture(scope="module", params=["mtlr", "weibull"])
def model(request):
    """96 % censored, follow-up of 59: hardly anybody is seen to have the event."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    happens, leaves = rng.exponential(1200, 400), rng.uniform(30, 59, 400)
    y = Surv(time=np.minimum(happens, leaves), event=happens <= leaves)
    assert y["event"].mean() < 0.06
    return SurvivalModel(request.param, (4,), epochs=3).fit(x, y), x


def test_a_median_that_nobody_saw_is_infinite(model):
    model, x = model
    with pytest.warns(UserWarning, match=r"of 5 quantiles lie after 58.*last time seen in training: infinity") as told:
        assert np.isinf(model.predict_median(x[:5])).all()
    assert told[0].filename == __file__
    guessed = model.predict_median(x[:5], extrapolate=True)
    assert (np.isfinite(guessed) & (guessed > 59)).all()
    # The distribution is the law as it was fitted, at all times.
    np.testing.assert_array_equal(model.predict_distribution(x[:5]).median, guessed)
    with pytest.warns(UserWarning, match="of 10 quantiles"):
        both = model.predict_quantile(x[:5], [1e-3, 0.5])
    assert np.isinf(both[:, 1]).all()
    np.testing.assert_array_equal(both[:, 0], model.predict_quantile(x[:5], 1e-3))
    assert np.isfinite(both[:, 0]).all()


@pytest.mark.parametrize("method", ["predict_survival_function", "predict_cdf"])
def test_a_probability_that_nobody_saw_is_nan(model, method):
    model, x = model
    ask = getattr(model, method)
    with pytest.warns(UserWarning, match=r"1 of 2 times lie after 58.*, the last one seen in training: NaN") as told:
        found = ask(x[:3], [10.0, 1e4])
    assert told[0].filename == __file__
    assert np.isnan(found[:, 1]).all()
    np.testing.assert_array_equal(found[:, 0], ask(x[:3], [10.0])[:, 0])
    assert np.isfinite(ask(x[:3], [10.0, 1e4], extrapolate=True)).all()
    assert 58 < model.last_time_ < 59
    assert np.isfinite(ask(x[:3], [model.last_time_])).all()  # the last time itself was seen


def test_curves_keep_the_same_rule(model):
    model, x = model
    curve = model.predict_survival_function(x[:1])[0]
    with pytest.warns(UserWarning, match="1 of 1 times lie after"):
        assert np.isnan(curve(1e4))
    assert 0 <= curve(1e4, extrapolate=True) < curve(10.0)
