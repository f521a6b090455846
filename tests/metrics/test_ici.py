"""ICI by pseudo-values: against loess and R, its floor and interval, and laws whose hazards are not proportional."""

import numpy as np
import pandas as pd
import pytest

from tests.metrics.simulate import survival_data
from xcal.metrics import cox_ici, integrated_calibration_index
from xcal.metrics.calibration_curve import LocalLines, index_of, smooth_calibration


def loess(p, y, at, span=1 / 3):
    """Local linear regression by its definition: weighted least squares around one place."""
    distance = np.abs(p - at)
    reach = np.sort(distance)[int(span * p.size) - 1]
    root = np.sqrt(np.clip(1 - (distance / reach) ** 3, 0, None) ** 3)
    design = np.column_stack([np.ones(p.size), p - at])
    return np.linalg.lstsq(design * root[:, None], y * root, rcond=None)[0][0]


def test_the_curve_is_loess():
    rng = np.random.default_rng(0)
    p, y = rng.uniform(0.05, 0.8, 300), rng.normal(size=300)
    lines = LocalLines(p)
    np.testing.assert_allclose(lines.of(y), [loess(p, y, at) for at in lines.places], atol=1e-12)


def test_the_indices_are_those_of_r(real_data):
    """R's loess of the same pseudo-values, degree 1 and span .33, interpolated by R between the cells of its tree."""
    folder = real_data("competing_risks") / "competing_risks"
    for cause in (1, 2):
        table = pd.read_csv(folder / f"pseudo_cause{cause}_t5.csv")
        theirs = np.abs(table["risk"] - table["loess"])
        found = index_of(table["risk"].to_numpy(), table["pseudo"].to_numpy(), 5.0, 0.95)
        assert found.value == pytest.approx(theirs.mean(), abs=0.001)
        assert found.e50 == pytest.approx(theirs.median(), abs=0.002)
        assert found.e90 == pytest.approx(theirs.quantile(0.9), abs=0.006)
        assert found.emax == pytest.approx(theirs.max(), abs=0.003)


def test_straight_lines_come_back():
    rng = np.random.default_rng(1)
    p = rng.beta(2, 5, 400)
    lines = LocalLines(p)
    np.testing.assert_allclose(lines.of(0.1 + 0.7 * p), 0.1 + 0.7 * lines.places, atol=1e-10)
    np.testing.assert_allclose(lines.at_rows(lines.of(0.1 + 0.7 * p)), 0.1 + 0.7 * p, atol=1e-10)


def test_without_censoring_a_constant_error_is_the_index():
    # Predictions that are 0.1 too low everywhere, and outcomes spread evenly: what is left is the error itself.
    p = np.repeat(np.linspace(0.1, 0.8, 30), 200)
    event_by_then = (np.arange(p.size) % 200) / 200 < p + 0.1
    result = integrated_calibration_index(
        p, at=1.0, time=np.where(event_by_then, 0.5, 2.0), event=np.full(p.size, True)
    )
    for value in (result.value, result.e50, result.e90, result.emax):
        assert value == pytest.approx(0.1, abs=0.003)


def test_few_different_predictions_are_compared_one_by_one():
    p = np.repeat([0.2, 0.6], [100, 50])
    happened = np.concatenate([np.arange(100) < 30, np.arange(50) < 20])
    result = integrated_calibration_index(p, at=1.0, time=np.where(happened, 0.5, 2.0), event=np.full(150, True))
    np.testing.assert_allclose(result.predicted, [0.2, 0.6])
    np.testing.assert_allclose(result.observed, [0.3, 0.4])
    assert result.value == pytest.approx((100 * 0.1 + 50 * 0.2) / 150)
    assert result.emax == pytest.approx(0.2)
    one = integrated_calibration_index(np.full(150, 0.3), at=1.0, time=np.where(happened, 0.5, 2.0), event=happened)
    assert one.value == pytest.approx(abs(0.3 - one.observed[0]))


def test_many_equal_predictions_among_others():
    rng = np.random.default_rng(3)
    p = np.concatenate([np.full(200, 0.2), rng.uniform(0.1, 0.7, 100), np.full(50, 0.9)])
    curve = LocalLines(p).of(p**2)
    assert np.isfinite(curve).all()
    assert curve[0] == pytest.approx(0.01, abs=0.02)


def test_very_many_rows_are_gathered_without_a_trace():
    data = survival_data(30_000, rng=np.random.default_rng(4))
    p = data.probability(1.0, 1.3)
    given = {"at": 1.0, "time": data.time, "event": data.event}
    whole = integrated_calibration_index(p, **given)
    # On a grid of 2,000 predictions nothing needs to be gathered.
    rounded = integrated_calibration_index(np.round(p * 2000) / 2000, **given)
    assert whole.value == pytest.approx(rounded.value, abs=2e-4)
    assert whole.floor == pytest.approx(rounded.floor, rel=0.02)


def test_the_covariance_of_the_curve_is_that_of_repeated_outcomes():
    rng = np.random.default_rng(6)
    p = rng.uniform(0.1, 0.9, 300)
    lines = LocalLines(p)
    curves = np.array([lines.of((rng.random(300) < p) - p) for _ in range(3000)])
    np.testing.assert_allclose(lines.covariance(np.sqrt(p * (1 - p))), np.cov(curves.T), atol=7e-4)


def test_clusters_of_one_row_each_are_rows_and_copies_count_once():
    from xcal.calibration.bins import as_clusters

    rng = np.random.default_rng(7)
    p = rng.uniform(0.1, 0.9, 200)
    y = (rng.random(200) < p).astype(float)
    rows = smooth_calibration(p, y)
    alone = smooth_calibration(p, y, as_clusters(np.arange(200), 200))
    np.testing.assert_allclose(alone.covariance, rows.covariance, atol=1e-15)
    twice = smooth_calibration(np.repeat(p, 2), np.repeat(y, 2), as_clusters(np.repeat(np.arange(200), 2), 400))
    assert np.mean(np.diag(twice.covariance) / np.diag(rows.covariance)) == pytest.approx(1.0, abs=0.1)


def true_laws(n, rng):
    """Risks at a time that are true, and outcomes: proportional, crossing and heavy-tailed hazards."""
    x, z = rng.normal(size=(2, n))
    yield "proportional", 1 - np.exp(-0.5 * np.exp(x)), rng.exponential(np.exp(-x)), 0.5
    shape = np.exp(0.7 * x)
    yield "crossing", 1 - np.exp(-(0.5**shape)), rng.exponential(size=n) ** (1 / shape), 0.5
    from scipy import stats

    spread = 0.5 * np.exp(0.6 * z)
    yield "heavy tails", stats.t.cdf((np.log(0.6) + x) / spread, 3), np.exp(-x + spread * rng.standard_t(3, n)), 0.6


@pytest.mark.ci
def test_a_true_model_scores_the_floor_whatever_its_hazards():
    """The Cox form accuses true models whose hazards are not proportional; this one does not."""
    found, floors, by_cox = {}, {}, {}
    for seed in range(20):
        rng = np.random.default_rng([seed, 8])
        leaves = rng.exponential(1.5, 1500)
        for name, risk, happens, at in true_laws(1500, rng):
            given = {"at": at, "time": np.minimum(happens, leaves), "event": happens <= leaves}
            index = integrated_calibration_index(risk, **given)
            found.setdefault(name, []).append(index.value)
            floors.setdefault(name, []).append(index.floor)
            by_cox.setdefault(name, []).append(cox_ici(risk, **given).value)
    for name, values in found.items():
        error = np.std(values) / 20**0.5
        assert np.mean(values) == pytest.approx(np.mean(floors[name]), abs=max(3 * error, 0.002)), name
    assert np.mean(by_cox["crossing"]) > 2 * np.mean(found["crossing"])


@pytest.mark.ci
def test_the_interval_holds_the_truth_and_leaves_zero_when_it_should():
    covered = {1.0: 0, 1.5: 0}
    above = dict(covered)
    for too_fast in covered:
        for seed in range(60):
            data = survival_data(400, rng=np.random.default_rng([seed, 9]))
            p = data.probability(0.7, too_fast)
            found = integrated_calibration_index(p, at=0.7, time=data.time, event=data.event)
            truth = np.abs(p - data.probability(0.7)).mean()
            covered[too_fast] += found.lower <= truth <= found.upper
            above[too_fast] += found.lower > 0
            assert found.lower <= found.excess <= found.upper
            assert found.upper >= found.value
    # 95 % of 60 are 57, with a standard error of 1.7.
    assert min(covered.values()) >= 51
    assert above[1.0] <= 5
    assert above[1.5] >= 55


def test_past_the_follow_up():
    data = survival_data(100, rng=np.random.default_rng(0))
    rows, late = {"time": data.time, "event": data.event}, data.time.max() + 1
    p = data.probability(1.0)
    assert np.isnan(integrated_calibration_index(p, at=late, **rows).value)
    with pytest.raises(ValueError, match="at: expected a time within the follow-up"):
        integrated_calibration_index(p, at=late, **rows, outside="raise")
    clipped = integrated_calibration_index(p, at=late, **rows, outside="clip")
    assert clipped.value == integrated_calibration_index(p, at=data.time.max(), **rows).value


def test_no_event_by_then():
    result = integrated_calibration_index([0.2, 0.4], at=0.5, time=[1, 2], event=[1, 1])
    assert result.value == pytest.approx(0.3)
