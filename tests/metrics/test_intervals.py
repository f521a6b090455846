"""Intervals from resamples, against their textbook forms and by their coverage."""

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm

from xcal.metrics.intervals import SHARE, percentile_interval, resampled_interval
from xcal.metrics.spec import VALUES

DRAWS = np.random.default_rng(0).normal(0.8, 0.03, size=200)


@pytest.mark.parametrize(
    ("metric", "there", "back"),
    [
        ("auc", logit, expit),
        ("uno", logit, expit),
        ("brier", np.log, np.exp),
        ("ipa", lambda v: np.log(1 - v), lambda z: 1 - np.exp(z)),
        ("nll", lambda v: v, lambda z: z),
    ],
)
def test_the_interval_is_normal_on_the_scale_of_the_metric(metric, there, back):
    ends = back(np.array(norm(there(0.79), np.std(there(DRAWS), ddof=1)).interval(0.9)))
    np.testing.assert_allclose(resampled_interval(0.79, DRAWS, 0.9, VALUES[metric].scale), np.sort(ends), rtol=1e-12)


def test_a_value_at_its_bound_has_percentiles_and_undefined_draws_are_left_out():
    gaps = np.append(DRAWS, np.nan)
    assert resampled_interval(0.8, gaps, 0.95, SHARE) == resampled_interval(0.8, DRAWS, 0.95, SHARE)
    assert resampled_interval(1.0, gaps, 0.95, SHARE) == percentile_interval(DRAWS, 0.95)
    assert resampled_interval(0.9, np.append(DRAWS, 1.0), 0.95, SHARE) == percentile_interval([*DRAWS, 1.0], 0.95)
    assert np.isnan(resampled_interval(0.8, [np.nan], 0.95, SHARE)).all()


def test_a_difference_is_not_bounded():
    lower, upper = resampled_interval(0.01, DRAWS - 0.8, 0.95)
    assert lower < 0 < upper
    assert lower + upper == pytest.approx(0.02)
