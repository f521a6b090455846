import numpy as np
import pytest
from scipy import stats

from xcal_paper import load_gamma

SMALL = (4000, 2000, 2000)


@pytest.fixture(scope="module")
def uncensored():
    return load_gamma(censored=False, seed=3)


@pytest.fixture(scope="module")
def censored():
    return load_gamma(censored=True, seed=3)


def test_sizes_and_types(uncensored):
    assert [len(split) for split in uncensored.splits.values()] == [100_000, 50_000, 50_000]
    for split in uncensored.splits.values():
        assert split.x.shape == (len(split), 32)
        assert split.x.dtype == np.float32
        assert split.time.dtype == np.float64
        assert split.event.dtype == np.bool_
        assert split.event.all()
        assert np.isfinite(split.x).all()
        assert (split.time.astype(np.float32) > 0).all()


def test_features_are_normal_with_variance_ten(uncensored):
    x = uncensored.train.x.astype(float)
    # Standard errors: sqrt(10 / n) = .01 for a mean, 10 sqrt(2 / n) = .045 for a variance, .032 for a covariance.
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(np.cov(x.T), 10 * np.eye(32), atol=0.2)


def test_log_mean_is_linear_with_weights_within_a_tenth(uncensored):
    split = uncensored.train
    weights, residual, *_ = np.linalg.lstsq(split.x.astype(float), np.log(split.extra["mean"]), rcond=None)
    assert residual < 1e-12
    assert np.abs(weights).max() < 0.1
    assert np.abs(weights).max() > 0.07  # the largest of 32 uniform draws: below with probability .7**32
    other, *_ = np.linalg.lstsq(
        uncensored.test.x.astype(float), np.log(uncensored.test.extra["mean"]), rcond=None
    )  # the weights are what the splits share
    np.testing.assert_allclose(weights, other, atol=1e-9)


def test_times_have_the_stated_mean_and_variance(uncensored):
    split = uncensored.train
    error = split.time - split.extra["mean"]
    assert abs(error.mean()) < 4 * np.sqrt(1e-3 / len(split))
    # The kurtosis of a gamma is 3 + 6 / shape: rows of small mean make the variance's own error larger.
    kurtosis = np.mean(3 + 6e-3 / split.extra["mean"] ** 2)
    assert abs(np.mean(error**2) - 1e-3) < 4 * 1e-3 * np.sqrt((kurtosis - 1) / len(split))


def test_times_are_gamma(uncensored):
    split = uncensored.test
    u = stats.gamma.cdf(split.time, a=split.extra["mean"] ** 2 / 1e-3, scale=1e-3 / split.extra["mean"])
    assert stats.kstest(u, "uniform").pvalue > 1e-3


def test_censoring_halves_the_events_and_keeps_everything_else(censored, uncensored):
    for name, split in censored.splits.items():
        full = uncensored.splits[name]
        np.testing.assert_array_equal(split.x, full.x)
        np.testing.assert_array_equal(split.time[split.event], full.time[split.event])
        assert (split.time[~split.event] < full.time[~split.event]).all()
        assert (split.time > 0).all()
        assert 0.48 < split.event.mean() < 0.52


def test_censoring_is_drawn_likewise_with_other_weights(censored):
    split = censored.train
    rows = ~split.event & (split.time > 0.5)  # where log-time is close to the log-mean
    weights, *_ = np.linalg.lstsq(split.x[rows].astype(float), np.log(split.time[rows]), rcond=None)
    failure, *_ = np.linalg.lstsq(split.x.astype(float), np.log(split.extra["mean"]), rcond=None)
    assert np.abs(weights).max() < 0.11
    assert np.abs(weights - failure).max() > 0.05


def test_the_same_seed_gives_the_same_data():
    one, two = (load_gamma(censored=True, n=SMALL, seed=5) for _ in range(2))
    for name in one.splits:
        np.testing.assert_array_equal(one.splits[name].x, two.splits[name].x)
        np.testing.assert_array_equal(one.splits[name].time, two.splits[name].time)


def test_seeds_differ():
    one, two = (load_gamma(censored=True, n=SMALL, seed=seed) for seed in (0, 1))
    assert not np.isin(one.train.time, two.train.time).any()
    assert not np.isin(one.train.x[:, 0], two.train.x[:, 0]).all()


def test_splits_are_independent_streams():
    data = load_gamma(censored=False, n=SMALL, seed=0)
    assert not np.isin(data.train.time, data.test.time).any()
    assert not np.isin(data.validation.time, data.test.time).any()
    correlation = np.corrcoef(data.validation.x.ravel(), data.test.x.ravel())[0, 1]
    assert abs(correlation) < 4 / np.sqrt(data.test.x.size)
    larger = load_gamma(censored=False, n=(5000, 2000, 2000), seed=0)
    np.testing.assert_array_equal(data.test.time, larger.test.time)


def test_bias_as_published_scales_all_means_alike():
    plain, biased = (load_gamma(censored=False, n=SMALL, seed=0, bias=bias) for bias in (False, True))
    np.testing.assert_array_equal(plain.train.x, biased.train.x)
    shift = np.log(biased.train.extra["mean"] / plain.train.extra["mean"])
    assert 0 < abs(shift[0]) < 0.1
    np.testing.assert_allclose(shift, shift[0], atol=1e-9)
    np.testing.assert_allclose(np.log(biased.test.extra["mean"] / plain.test.extra["mean"]), shift[0], atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": (10, 10)}, "n: expected three numbers"),
        ({"n": 10}, "n: expected three numbers"),
        ({"n": (10, 0, 10)}, r"n\[1\]: expected an integer of 1 or more, got 0"),
        ({"n": (10, 10, 1.5)}, r"n\[2\]: expected an integer"),
        ({"seed": None}, "seed: expected an integer"),
        ({"seed": -1}, "seed: expected an integer"),
        ({"seed": True}, "seed: expected an integer"),
        ({"censored": "yes"}, "censored: expected True or False, got 'yes'"),
        ({"bias": 0.1}, "bias: expected True or False"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        load_gamma(**{"censored": True, "n": (10, 10, 10), "seed": 0, **change})
