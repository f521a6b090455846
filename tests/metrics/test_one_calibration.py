"""One-calibration against SurvivalEVAL, against the paper's recipe, and by its size under the truth."""

from itertools import pairwise

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from scipy.optimize import minimize_scalar
from scipy.stats import chi2
from SurvivalEVAL.evaluations.calibration.single_time.one_calibration import one_calibration as survivaleval

from tests.metrics.simulate import survival_data
from xcal.metrics import one_calibration

METHODS = (
    "likelihood-ratio",
    "effective-size",
    "hosmer-lemeshow",
    "gronnesby-borgan",
    "dagostino-nam",
    "greenwood-nam-dagostino",
)


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
    result = one_calibration(
        p, at=0.8, time=data.time, event=data.event, method="dagostino-nam", n_risk_groups=5, ddof=1
    )
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


@pytest.mark.parametrize(("dtype", "digits"), [(np.float64, 53), (np.float32, 24)])
@pytest.mark.parametrize("happened", [True, False], ids=["event", "censored"])
@pytest.mark.parametrize("by_then", [True, False], ids=["before", "after"])
def test_one_certain_row_does_not_take_the_test_with_it(dtype, digits, happened, by_then):
    """F = 1 stands for anything above the number below one, 1 - 2^-digits, whose cumulative hazard is digits log 2."""
    data = survival_data(400, rng=np.random.default_rng(2))
    at, row = 0.7, 17
    time, event = data.time.copy(), data.event.copy()
    time[row], event[row] = (0.5 if by_then else 0.9), happened
    p, cdf = data.probability(at).astype(dtype), (-np.expm1(-data.rate * time)).astype(dtype)
    (cdf if by_then else p)[row] = 1.0
    reached = np.where(time <= at, cdf, p).astype(np.float64)
    hazard = -np.log1p(-np.where(reached == 1, 0.0, reached))
    hazard[row] = digits * np.log(2)
    statistic = 0.0
    for group in np.array_split(np.argsort(p, kind="stable"), 10):
        observed = np.sum(event[group] & (time[group] <= at))
        statistic += (observed - hazard[group].sum()) ** 2 / hazard[group].sum()
    result = one_calibration(p, at=at, time=time, event=event, method="gronnesby-borgan", cdf=cdf)
    assert result.statistic == pytest.approx(statistic, rel=1e-6)
    assert result.p_value == pytest.approx(chi2.sf(statistic, 10), rel=1e-4)


def test_the_likelihood_ratio_is_that_of_a_factor_on_the_hazard():
    """Of exponential times with hazard c times the predicted one, between the best c and c = 1, maximised by scipy."""
    data = survival_data(400, rng=np.random.default_rng(2))
    at = 0.7
    p, cdf = data.probability(at), -np.expm1(-data.rate * data.time)
    lived, had_event = np.minimum(data.time, at), data.event & (data.time <= at)
    statistic = 0.0
    for group in np.array_split(np.argsort(p), 10):

        def log_likelihood(c, group=group):
            rate = c * data.rate[group]
            return np.sum(had_event[group] * np.log(rate) - rate * lived[group])

        best = minimize_scalar(
            lambda c: -log_likelihood(c), bounds=(0.01, 20), method="bounded", options={"xatol": 1e-9}
        )
        statistic += 2 * (-best.fun - log_likelihood(1.0))
    result = one_calibration(p, at=at, time=data.time, event=data.event, cdf=cdf)
    assert result.method == "likelihood-ratio"
    assert result.statistic == pytest.approx(statistic, rel=1e-6)
    assert result.p_value == pytest.approx(chi2.sf(statistic, 10), rel=1e-6)


def test_effective_size_is_hosmer_lemeshow_without_censoring():
    data = survival_data(500, rng=np.random.default_rng(1), censoring_scale=np.inf)
    rows = {"at": 0.8, "time": data.time, "event": data.event, "min_events": 0}
    ours = one_calibration(data.probability(0.8, 1.2), **rows)
    theirs = one_calibration(data.probability(0.8, 1.2), **rows, method="hosmer-lemeshow")
    assert ours.method == "effective-size"
    assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-10)


def test_effective_size_takes_its_rows_from_greenwood_s_variance():
    data = survival_data(600, rng=np.random.default_rng(1), grid=0.25)
    p, at, statistic = data.probability(0.8), 0.8, 0.0
    for group in np.array_split(np.argsort(p), 5):
        curve = KaplanMeierFitter().fit(data.time[group], data.event[group])
        observed = 1 - curve.predict(at)
        table = curve.event_table.loc[:at]
        greenwood = (1 - observed) ** 2 * np.sum(
            table["observed"] / (table["at_risk"] * (table["at_risk"] - table["observed"]))
        )
        mean = p[group].mean()
        statistic += (observed - mean) ** 2 * observed * (1 - observed) / greenwood / (mean * (1 - mean))
    result = one_calibration(p, at=at, time=data.time, event=data.event, n_risk_groups=5)
    assert result.statistic == pytest.approx(statistic, rel=1e-9)


@pytest.mark.parametrize("with_cdf", [True, False])
@pytest.mark.parametrize("censoring_scale", [np.inf, 2.0, 0.7])
def test_the_default_holds_its_size_on_few_rows(with_cdf, censoring_scale):
    """Share of 600 data sets of 200 rows rejected at 5 %; its standard error is 0.009."""
    rng = np.random.default_rng(11)
    count = 0
    for _ in range(600):
        data = survival_data(200, rng=rng, censoring_scale=censoring_scale)
        cdf = -np.expm1(-data.rate * data.time) if with_cdf else None
        rows = {"time": data.time, "event": data.event, "cdf": cdf}
        count += one_calibration(data.probability(0.7), at=0.7, **rows).p_value <= 0.05
    assert 0.02 < count / 600 < 0.08


def test_groups_with_few_rows_at_the_end_of_follow_up_are_joined():
    rng = np.random.default_rng(0)
    data = survival_data(200, rng=rng, censoring_scale=0.7)
    rows = {"at": 1.0, "time": data.time, "event": data.event}
    joined = one_calibration(data.probability(1.0), **rows)
    for low, high in pairwise(np.append(0, np.cumsum(joined.sizes))):
        own = np.argsort(data.probability(1.0), kind="stable")[low:high]
        assert np.sum(data.time[own] >= 1.0) >= 10
        assert data.probability(1.0)[own].sum() >= 5
    assert one_calibration(data.probability(1.0), **rows, min_events=0).sizes.size == 10


def rejections(method, too_fast, n_trials=300, level=0.1):
    rng = np.random.default_rng(3)
    count = 0
    for _ in range(n_trials):
        data = survival_data(500, rng=rng, censoring_scale=1.0)
        cdf = -np.expm1(-too_fast * data.rate * data.time)
        p = data.probability(0.7, too_fast)
        result = one_calibration(p, at=0.7, time=data.time, event=data.event, method=method, cdf=cdf, n_risk_groups=5)
        count += result.p_value < level
    return count / n_trials


@pytest.mark.parametrize(
    "method", ["likelihood-ratio", "effective-size", "gronnesby-borgan", "greenwood-nam-dagostino"]
)
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
    rows = {"time": data.time, "event": data.event, "n_risk_groups": 3}
    p = data.probability(1.0)
    late = data.time.max() + 1
    assert np.isnan(one_calibration(p, at=late, **rows).p_value)
    with pytest.raises(ValueError, match="at: expected a time within the follow-up"):
        one_calibration(p, at=late, **rows, outside="raise")
    clipped = one_calibration(p, at=late, **rows, outside="clip")
    assert clipped.p_value == pytest.approx(one_calibration(p, at=data.time.max(), **rows).p_value, rel=1e-10)


def test_a_certain_prediction_that_fails_has_no_chance():
    result = one_calibration(
        [0.0] * 4, at=2, time=[1, 3, 3, 3], event=[1, 1, 1, 1], n_risk_groups=1, method="dagostino-nam"
    )
    assert result.statistic == np.inf
    assert result.p_value == 0.0


def test_a_group_without_events_falls_back_on_the_predicted_variance():
    result = one_calibration([0.1] * 10, at=1, time=[2] * 10, event=[1] * 10, n_risk_groups=1)
    assert result.statistic == pytest.approx(0.1**2 / (0.1 * 0.9 / 10))


def test_no_degree_of_freedom_no_p_value():
    result = one_calibration([0.5] * 4, at=2, time=[1, 3, 3, 3], event=[1, 1, 1, 1], ddof=1)
    assert result.degrees_of_freedom == 0
    assert np.isnan(result.p_value)


@pytest.mark.parametrize("method", ["gronnesby-borgan", "likelihood-ratio"])
def test_a_test_of_hazards_asks_for_what_it_needs(method):
    with pytest.raises(ValueError, match="cdf: expected F at each row's observed time"):
        one_calibration([0.5], at=1, time=[1], event=[1], method=method)


def test_a_group_without_hazard_is_refuted_by_one_event():
    rows = {"at": 2, "time": [1, 3, 3], "cdf": [0.0] * 3, "n_risk_groups": 1}
    assert one_calibration([0.0] * 3, event=[1, 1, 1], **rows).p_value == 0
    assert one_calibration([0.0] * 3, event=[0, 1, 1], **rows).p_value == 1


def test_hosmer_lemeshow_without_a_row_known_at_the_time_is_nan():
    result = one_calibration([0.5, 0.4], at=1, time=[0.5, 1.5], event=[0, 0], method="hosmer-lemeshow", n_risk_groups=2)
    assert result.sizes.sum() == 1
    early = one_calibration([0.5], at=3, time=[1], event=[0], method="hosmer-lemeshow", n_risk_groups=1)
    assert np.isnan(early.p_value)
