"""Intervals from resamples, against their textbook forms and by their coverage."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import ncx2, norm

from xcal.metrics.intervals import SHARE, percentile_interval, resampled_interval, true_square
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


def test_a_squared_length_is_known_as_a_noncentral_chi_square_says():
    rng, sigma, dimensions, level = np.random.default_rng(3), 0.1, 8, 0.9
    noise = sigma * rng.normal(size=(40_000, dimensions))
    observed = 0.5**2
    # The noise is the same in all directions, so that any may be the one that was observed.
    found = true_square(observed, noise[:, 0], np.square(noise).sum(axis=1), level)

    def length(share):
        """Squared length that is seen as large as it was in this share of samples."""
        seen = brentq(lambda m: ncx2.sf(observed / sigma**2, dimensions, m**2 / sigma**2) - share, 0.0, 2.0)
        return seen**2

    assert found.floor == pytest.approx(dimensions * sigma**2, rel=0.02)
    assert found.lower == pytest.approx(length(0.05), rel=0.05)
    assert found.excess == pytest.approx(length(0.5), rel=0.02)
    assert found.upper == pytest.approx(length(0.95), rel=0.02)
