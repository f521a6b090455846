"""Random effects across sites, against a published meta-analysis and the likelihood itself."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from xcal.metrics.intervals import PLAIN, POSITIVE, SHARE, error_of_interval, random_effects

# Thirteen trials of BCG against tuberculosis: cases and others among the vaccinated, and among the controls
# (Colditz and others, JAMA 1994; Berkey and others, Statistics in Medicine 1995).
BCG = np.array([
    (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619), (33, 5036, 47, 5761),
    (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892), (29, 7470, 45, 7232), (17, 1699, 65, 1600),
    (186, 50448, 141, 27197), (5, 2493, 3, 2338), (27, 16886, 29, 17825),
])  # fmt: skip


def bcg():
    a, b, c, d = BCG.T.astype(float)
    return (a / (a + b)) / (c / (c + d)), np.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))


def test_published_meta_analysis():
    ratio, error = bcg()
    found = random_effects(ratio, error, scale=POSITIVE)
    # Published, by restricted maximum likelihood: log risk ratio -.7145, tau² .3132, I² 92.22 %, Q 152.23 on 12.
    assert np.log(found.mean) == pytest.approx(-0.7145, abs=5e-5)
    assert found.tau2 == pytest.approx(0.3132, abs=5e-5)
    assert found.i2 == pytest.approx(0.9222, abs=5e-5)
    assert found.p_value < 1e-20
    assert found.n_sites == 13


def test_equal_errors_against_statsmodels():
    """With equal errors all estimates of tau² are one: statsmodels 0.15.0, combine_effects(method_re="iterated")."""
    found = random_effects([0.9, 1.2, 1.6, 0.7, 1.05], np.full(5, 0.15))
    assert found.tau2 == pytest.approx(0.09299989029, abs=1e-6)
    assert found.mean == pytest.approx(1.09, abs=1e-6)
    # Its sd_eff_w_re_hksj times the quantile of t on 4 degrees of freedom; its I² and the p-value of its Q.
    assert (found.lower, found.upper) == pytest.approx((0.66801688, 1.51198312), abs=1e-6)
    assert found.i2 == pytest.approx(0.8051948052, abs=1e-6)
    assert found.p_value == pytest.approx(3.917768451e-4, rel=1e-6)


def test_tau_maximises_the_restricted_likelihood():
    rng = np.random.default_rng(4)
    for k in (2, 3, 8, 30):
        error = rng.uniform(0.05, 0.4, k)
        y = rng.normal(1.0, np.sqrt(error**2 + 0.15))

        def lost(tau2, y=y, error=error):
            v = error**2 + tau2
            mean = (y / v).sum() / (1 / v).sum()
            return 0.5 * (np.log(v).sum() + np.log((1 / v).sum()) + ((y - mean) ** 2 / v).sum())

        best = minimize_scalar(lost, bounds=(0, 5), method="bounded", options={"xatol": 1e-10}).x
        assert random_effects(y, error).tau2 == pytest.approx(best, abs=1e-6)


def test_intervals_by_hand():
    from scipy.stats import t

    y, s = np.array([0.9, 1.2, 1.6, 0.7]), np.array([0.1, 0.2, 0.15, 0.1])
    found = random_effects(y, s, level=0.9)
    w = 1 / (s**2 + found.tau2)
    mean = np.average(y, weights=w)
    variance = (w * (y - mean) ** 2).sum() / (3 * w.sum())
    assert found.mean == pytest.approx(mean)
    assert found.upper == pytest.approx(mean + t.ppf(0.95, 3) * variance**0.5)
    assert found.new_lower == pytest.approx(mean - t.ppf(0.95, 2) * (found.tau2 + variance) ** 0.5)


def test_sites_that_are_alike_have_no_variance_between_them():
    found = random_effects([1.0, 1.0, 1.0], [0.1, 0.2, 0.3])
    assert (found.tau2, found.i2, found.mean) == (0.0, 0.0, 1.0)


def test_two_sites_tell_nothing_of_a_third():
    found = random_effects([0.7, 0.8], [0.05, 0.05], scale=SHARE)
    assert np.isnan(found.new_lower)
    assert np.isnan(found.new_upper)
    assert 0 < found.lower < found.mean < found.upper < 1


def test_new_sites_lie_in_the_prediction_interval():
    """Of 1,000 draws of 12 sites and one more, nearly 95 % of the new true values lie in the interval."""
    rng, inside = np.random.default_rng(7), 0
    for _ in range(1000):
        truth = rng.normal(0.0, 0.3, 13)
        error = rng.uniform(0.1, 0.3, 12)
        found = random_effects(np.exp(rng.normal(truth[:12], error)), error, scale=POSITIVE)
        inside += found.new_lower < np.exp(truth[12]) < found.new_upper
    # Published simulations find somewhat less than the nominal level, too (Partlett and Riley 2017): about .92 here.
    assert 0.9 < inside / 1000 < 0.97


def test_error_of_an_interval():
    assert error_of_interval(1 - 1.959964 * 0.2, 1 + 1.959964 * 0.2, 0.95, PLAIN) == pytest.approx(0.2, rel=1e-6)
    assert error_of_interval(np.exp(-0.5), np.exp(0.5), 0.6826894921, POSITIVE) == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "errors", "words"),
    [
        ([1.0], [0.1], "values: expected those of two sites or more, got 1"),
        ([1.0, 2.0], [0.1, 0.0], "errors: expected finite standard errors above 0, got 0.0 at row 1"),
        ([1.0, 2.0], [0.1], "errors: expected"),
    ],
)
def test_refused(values, errors, words):
    with pytest.raises(ValueError, match=words):
        random_effects(values, errors)


def test_values_off_the_scale_are_refused():
    with pytest.raises(ValueError, match=r"finite on the scale .* got 0.0 at row 1"):
        random_effects([1.0, 0.0], [0.1, 0.1], scale=POSITIVE)
