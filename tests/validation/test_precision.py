"""Widths of intervals and events that would be enough, beside what Riley and others publish."""

import numpy as np
import pytest
from scipy.stats import norm

import xcal
from xcal.metrics import calibration_slope, observed_expected
from xcal.metrics.intervals import PLAIN, POSITIVE, SHARE, times_as_many
from xcal.validation.next_steps import WIDTHS, rounded_up
from xcal.validation.verdict import GOOD_RATIO

# Riley, Collins, Ensor and others (2022), Statistics in Medicine 41:1280-1295, example of recurrent thrombosis (normal
# linear predictor with standard deviation .699, S(3) = .83, exponential censoring): rows, mean standard error of the
# calibration slope at 3 years in simulations, and events (https://github.com/gscollins1973/Validation_Survival_Sample_Size).
PUBLISHED = ((5000, 0.08738, 513), (4000, 0.09745, 403), (3400, 0.10790, 366))


def recurrent_thrombosis(n, rng):
    rate = 0.052 * np.exp(rng.normal(0, 0.699, n))
    happens, leaves = rng.exponential(1 / rate), np.minimum(rng.exponential(1 / 0.418, n), 3.0)
    return rate, np.minimum(happens, leaves), happens <= leaves


def test_standard_errors_of_the_slope_are_the_published_ones():
    rng = np.random.default_rng(0)
    for n, published, events in PUBLISHED:
        found, counts = [], []
        for _ in range(6):
            rate, time, event = recurrent_thrombosis(n, rng)
            slope = calibration_slope(-np.expm1(-3 * rate), at=3 * (1 - 1e-9), time=time, event=event)
            found.append((slope.slope_upper - slope.slope_lower) / 2 / norm.ppf(0.975))
            counts.append(event.sum())
        # Six of theirs and 50 to 200 of ours: each varies by 8 %.
        assert np.mean(found) == pytest.approx(published, rel=0.1)
        assert np.mean(counts) == pytest.approx(events, rel=0.1)


def test_events_for_a_width_are_the_published_ones():
    """From the error of 5,000 rows, how many events give the errors of 4,000 and 3,400 rows."""
    (_, most, events), *fewer = PUBLISHED
    for _, error, needed in fewer:
        reach = norm.ppf(0.975) * np.array([-most, most])
        times = times_as_many(1 + reach[0], 1 + reach[1], 2 * norm.ppf(0.975) * error)
        assert events * times == pytest.approx(needed, rel=0.1)


@pytest.mark.parametrize(("share", "width", "rows"), [(0.5, 0.2, 384), (0.1, 0.2, 3460), (0.1, 0.7, 294)])
def test_rows_for_the_width_of_oe_are_the_published_ones(share, width, rows):
    """Riley, Debray, Collins and others (2021), Statistics in Medicine 40:4230-4251, section 3.1: no covariates."""
    n = rows // 2 // 10 * 10  # half as many, with as many events as expected
    time = np.where(np.arange(n) < share * n, 0.5, 2.0)
    found = observed_expected(np.full(n, share), at=1.0, time=time, event=np.ones(n))
    assert n * times_as_many(found.lower, found.upper, width, POSITIVE) == pytest.approx(rows, rel=0.01)


@pytest.mark.parametrize("scale", [PLAIN, SHARE, POSITIVE])
def test_so_many_times_the_rows_have_that_width(scale):
    lower, upper = 0.6, 0.9
    middle, reach = (scale[0](upper) + scale[0](lower)) / 2, (scale[0](upper) - scale[0](lower)) / 2
    times = times_as_many(lower, upper, 0.1, scale)
    ends = scale[1](middle + np.array([-1, 1]) * reach / times**0.5)
    assert np.ptp(ends) == pytest.approx(0.1)
    assert times_as_many(lower, upper, upper - lower, scale) == pytest.approx(1.0)


def test_the_rule_of_the_verdict_is_a_case():
    lower, upper = 0.7, 1 / 0.7
    times = times_as_many(lower, upper, GOOD_RATIO[1] - GOOD_RATIO[0], POSITIVE)
    assert times == pytest.approx((np.log(upper) / np.log(1.25)) ** 2)
    assert np.isnan(times_as_many(np.nan, 1.0, 0.1))
    assert times_as_many(0.2, 0.8, 1.5, SHARE) == 0  # no share is so uncertain
    assert rounded_up(4000 * (1 + 1e-12)) == 4000


def test_an_audit_says_how_many_events_would_be_enough():
    rate, time, event = recurrent_thrombosis(1500, np.random.default_rng(1))
    times = np.linspace(0.1, 3, 30)
    survival = np.exp(-rate[:, None] * times)
    found = xcal.audit(survival=survival, times=times, y=(time, event), horizons=2.0, n_bootstrap=200, progress=False)
    by_metric = {one.metric: one for one in found.precision()}
    assert list(by_metric) == list(WIDTHS)
    for one in by_metric.values():
        assert (one.n_events, one.horizon, one.width) == (event.sum(), 2.0, WIDTHS[one.metric])
        assert one.enough == (one.n_needed <= one.n_events)
    # The published example needs about 400 events for a slope this precise at 3 years.
    assert 300 < by_metric["slope"].n_needed < 900
    (wider,) = (one for one in found.precision(slope=0.8) if one.metric == "slope")
    assert wider.n_needed == pytest.approx(by_metric["slope"].n_needed / 4, rel=0.06)
    with pytest.raises(ValueError, match="names among oe, slope, auc, ici"):
        found.precision(brier=0.1)
