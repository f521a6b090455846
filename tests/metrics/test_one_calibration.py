"""One-calibration against SurvivalEVAL, against the paper's recipe, and by its size under the truth."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from scipy.stats import chi2
from SurvivalEVAL.evaluations.calibration.single_time.one_calibration import one_calibration as survivaleval

from tests.metrics.simulate import survival_data
from xcal.metrics import one_calibration

METHODS = ("hosmer-lemeshow", "gronnesby-borgan", "dagostino-nam", "greenwood-nam-dagostino")


@pytest.mark.parametrize("grid", [None, 0.125])
@pytest.mark.parametrize(
    ("method", "theirs", "ddof"),
    [
        ("hosmer-lemeshow", {"method": "Uncensored", "adjust_variance": False}, 2),
        ("dagostino-nam", {"method": "DN", "adjust_variance": False}, 1),
        ("greenwood-nam-dagostino", {"method": "DN", "adjust_variance": True}, 0),
    ],
)
def test_equals_survivaleval(grid, method, theirs, ddof):
    data = survival_data(1000, rng=np.random.default_rng(0), grid=grid)
    predicted = data.probability(1.0, too_fast=1.1)
    p_value, statistic, observed, expected = survivaleval(predicted, data.time, data.event, 1.0, **theirs)
    result = one_calibration(predicted, at=1.0, time=data.time, event=data.event, method=method, ddof=ddof)
    assert result.statistic == pytest.approx(statistic, rel=1e-10)
    assert result.p_value == pytest.approx(p_value, rel=1e-9)
    np.testing.assert_allclose(result.observed[::-1], observed, rtol=1e-10)
    np.testing.assert_allclose(result.predicted[::-1], expected, rtol=1e-10)


def test_dagostino_nam_is_the_recipe_of_the_paper():
    data = survival_data(500, rng=np.random.default_rng(1), grid=0.25)
    p = data.probability(0.8)
    statistic = 0.0
    for group in np.array_split(np.argsort(p), 5):
        curve = KaplanMeierFitter().fit(data.time[group], data.event[group])
        observed = (1 - curve.predict(0.8)) * group.size
        expected, mean = p[group].sum(), p[group].mean()
        statistic += (observed - expected) ** 2 / (group.size * mean * (1 - mean))
    result = one_calibration(p, at=0.8, time=data.time, event=data.event, method="dagostino-nam", n_groups=5, ddof=1)
    assert result.statistic == pytest.approx(statistic, rel=1e-10)
    assert result.p_value == pytest.approx(chi2.sf(statistic, 4), rel=1e-9)


def test_gronnesby_borgan_counts_events_against_hazard():
    data = survival_data(400, rng=np.random.default_rng(2))
    at = 0.7
    p, cdf = data.probability(at), -np.expm1(-data.rate * data.time)
    lived = data.rate * np.minimum(data.time, at)  # the exponential's cumulative hazard
    statistic = 0.0
    for group in np.array_split(np.argsort(p), 10):
        observed = np.sum(data.event[group] & (data.time[group] <= at))
        statistic += (observed - lived[group].sum()) ** 2 / lived[group].sum()
    result = one_calibration(p, at=at, time=data.time, event=data.event, method="gronnesby-borgan", cdf=cdf)
    assert result.statistic == pytest.approx(statistic, rel=1e-9)
    assert result.p_value == pytest.approx(chi2.sf(statistic, 10), rel=1e-9)


def rejections(method, too_fast, n_trials=300, level=0.1):
    rng = np.random.default_rng(3)
    count = 0
    for _ in range(n_trials):
        data = survival_data(500, rng=rng, censoring_scale=1.0)
        cdf = -np.expm1(-too_fast * data.rate * data.time)
        p = data.probability(0.7, too_fast)
        result = one_calibration(p, at=0.7, time=data.time, event=data.event, method=method, cdf=cdf, n_groups=5)
        count += result.p_value < level
    return count / n_trials


@pytest.mark.parametrize("method", ["gronnesby-borgan", "greenwood-nam-dagostino"])
def test_holds_its_size_under_heavy_censoring(method):
    # 10 % of 300 trials with a standard error of 1.7 %; the chi-square limit itself adds a little at n = 500.
    assert 0.04 < rejections(method, 1.0) < 0.17


@pytest.mark.parametrize("method", ["hosmer-lemeshow", "dagostino-nam"])
def test_why_the_other_two_exist(method):
    # Dropping censored rows, or forgetting what they cost in variance, rejects the truth far too often.
    assert rejections(method, 1.0) > 0.17


@pytest.mark.parametrize("method", METHODS)
def test_finds_a_wrong_model(method):
    data = survival_data(2000, rng=np.random.default_rng(4), censoring_scale=np.inf)
    cdf = -np.expm1(-1.5 * data.rate * data.time)
    result = one_calibration(
        data.probability(1.0, 1.5), at=1.0, time=data.time, event=data.event, method=method, cdf=cdf
    )
    assert result.p_value < 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_the_rows_does_not_matter_with_equal_predictions(method):
    rng = np.random.default_rng(5)
    data = survival_data(300, rng=rng, grid=0.25)
    p, cdf = data.probability(1.0).round(1), rng.uniform(0, 0.9, size=300)
    order = rng.permutation(300)
    first = one_calibration(p, at=1.0, time=data.time, event=data.event, method=method, cdf=cdf)
    second = one_calibration(
        p[order], at=1.0, time=data.time[order], event=data.event[order], method=method, cdf=cdf[order]
    )
    assert first.statistic == pytest.approx(second.statistic, rel=1e-10)
    assert first.sizes.sum() == 300 if method != "hosmer-lemeshow" else first.sizes.sum() < 300
    assert first.sizes.size < 10  # equal predictions stay in one group


def test_a_time_beyond_the_follow_up_is_a_choice():
    data = survival_data(100, rng=np.random.default_rng(6))
    rows = {"time": data.time, "event": data.event, "n_groups": 3}
    p = data.probability(1.0)
    late = data.time.max() + 1
    assert np.isnan(one_calibration(p, at=late, **rows).p_value)
    with pytest.raises(ValueError, match="at: expected a time within the follow-up"):
        one_calibration(p, at=late, **rows, outside="raise")
    clipped = one_calibration(p, at=late, **rows, outside="clip")
    assert clipped.p_value == pytest.approx(one_calibration(p, at=data.time.max(), **rows).p_value, rel=1e-10)


def test_a_certain_prediction_that_fails_has_no_chance():
    result = one_calibration([0.0] * 4, at=2, time=[1, 3, 3, 3], event=[1, 1, 1, 1], n_groups=1, method="dagostino-nam")
    assert result.statistic == np.inf
    assert result.p_value == 0.0


def test_a_group_without_events_falls_back_on_the_predicted_variance():
    result = one_calibration([0.1] * 10, at=1, time=[2] * 10, event=[1] * 10, n_groups=1)
    assert result.statistic == pytest.approx(0.1**2 / (0.1 * 0.9 / 10))


def test_no_degree_of_freedom_no_p_value():
    result = one_calibration([0.5] * 4, at=2, time=[1, 3, 3, 3], event=[1, 1, 1, 1], ddof=1)
    assert result.degrees_of_freedom == 0
    assert np.isnan(result.p_value)


def test_gronnesby_borgan_asks_for_what_it_needs():
    with pytest.raises(ValueError, match="cdf: expected F at each row's own time"):
        one_calibration([0.5], at=1, time=[1], event=[1], method="gronnesby-borgan")


def test_hosmer_lemeshow_without_a_row_known_at_the_time_is_nan():
    result = one_calibration([0.5, 0.4], at=1, time=[0.5, 1.5], event=[0, 0], method="hosmer-lemeshow", n_groups=2)
    assert result.sizes.sum() == 1
    early = one_calibration([0.5], at=3, time=[1], event=[0], method="hosmer-lemeshow", n_groups=1)
    assert np.isnan(early.p_value)
