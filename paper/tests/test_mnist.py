import gzip
import struct

import numpy as np
import pytest

from xcal_paper import load_survival_mnist
from xcal_paper.simulated import parse_idx, simulate_split

# The table of risk scores in the paper's appendix.
RISK = {0: 11.25, 1: 2.25, 2: 5.25, 3: 5.0, 4: 4.75, 5: 8.0, 6: 2.0, 7: 11.0, 8: 1.75, 9: 10.75}


def idx(values):
    values = np.asarray(values, dtype=np.uint8)
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def test_parser_reads_what_was_written():
    images = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    np.testing.assert_array_equal(parse_idx("a file", gzip.compress(idx(images)), 3), images)
    np.testing.assert_array_equal(parse_idx("a file", gzip.compress(idx([7, 0, 9])), 1), [7, 0, 9])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not gzip", "a whole gzip file"),
        (gzip.compress(idx([1, 2, 3]))[:-9], "a whole gzip file"),
        (gzip.compress(b""), "an IDX file"),
        (gzip.compress(b"\x00\x00\x0d\x01" + bytes(8)), "an IDX file"),
        (gzip.compress(idx([[1, 2], [3, 4]])), "with 1 axes"),
        (gzip.compress(idx([1, 2, 3])[:-1]), "3 values, as its header says"),
        (gzip.compress(idx([1, 2, 3]) + b"x"), "3 values, as its header says"),
    ],
    # Named, because gzip writes the time of day into the bytes.
    ids=["not gzip", "cut gzip", "empty", "other type", "other axes", "too short", "too long"],
)
def test_parser_refuses_other_files(content, message):
    with pytest.raises(ValueError, match=f"a file: expected .*{message}"):
        parse_idx("a file", content, 1)


def test_one_split_from_small_images():
    labels = np.arange(10).repeat(2000)
    images = np.full((len(labels), 2, 2), 255, dtype=np.uint8)
    split = simulate_split(images, labels, np.random.SeedSequence(0), censored=False)
    assert split.x.shape == (20_000, 1, 2, 2)
    assert (split.x == 1).all()
    for digit, risk in RISK.items():
        time = split.time[labels == digit]
        # Standard errors: sqrt(1e-3 / 2000) = 7e-4 and 1e-3 sqrt(2 / 2000) = 3e-5.
        assert abs(time.mean() - risk) < 4 * 7e-4
        assert abs(time.var() - 1e-3) < 4 * 3.2e-5


@pytest.fixture(scope="module")
def censored(real_data):
    return load_survival_mnist(censored=True, seed=0, data_dir=real_data("mnist"))


@pytest.fixture(scope="module")
def uncensored(real_data):
    return load_survival_mnist(censored=False, seed=0, data_dir=real_data("mnist"))


def test_sizes_and_pixels(censored):
    assert [len(split) for split in censored.splits.values()] == [60_000, 5_000, 5_000]
    assert censored.train.x.shape == (60_000, 1, 28, 28)
    assert censored.train.x.dtype == np.float32
    assert censored.train.x.min() == 0
    assert censored.train.x.max() == 1
    # Well-known figures of the training images, and counts of their digits.
    assert censored.train.x.mean(dtype=float) == pytest.approx(0.13066, abs=1e-5)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(censored.train.groups).tolist() == counts
    both = np.bincount(censored.validation.groups) + np.bincount(censored.test.groups)
    assert both.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_mean_time_of_each_digit(uncensored):
    for split in uncensored.splits.values():
        assert split.event.all()
        for digit, risk in RISK.items():
            time = split.time[split.groups == digit]
            assert abs(time.mean() - risk) < 5 * np.sqrt(1e-3 / len(time))
            assert (split.extra["mean"][split.groups == digit] == risk).all()


def test_censoring_lies_within_the_bounds_of_its_split(censored, uncensored):
    for name, split in censored.splits.items():
        full = uncensored.splits[name]
        np.testing.assert_array_equal(split.x, full.x)
        np.testing.assert_array_equal(split.time[split.event], full.time[split.event])
        low, high = full.time.min(), np.quantile(full.time, 0.9)
        held = split.time[~split.event]
        assert low <= held.min() < low + 0.2
        assert held.max() <= high
        assert (held < full.time[~split.event]).all()
        assert 0.44 < 1 - split.event.mean() < 0.51
        assert (split.time > 0).all()


def test_seed_decides_times_and_halves(censored, real_data):
    other = load_survival_mnist(censored=True, seed=1, data_dir=real_data("mnist"))
    np.testing.assert_array_equal(other.train.x, censored.train.x)
    assert not (other.train.time == censored.train.time).any()
    assert not np.array_equal(other.test.groups, censored.test.groups)
    again = load_survival_mnist(censored=True, seed=0, data_dir=real_data("mnist"))
    np.testing.assert_array_equal(again.test.x, censored.test.x)
    np.testing.assert_array_equal(again.test.time, censored.test.time)


def test_bad_arguments():
    with pytest.raises(ValueError, match="censored: expected True or False"):
        load_survival_mnist(censored=None, seed=0)
    with pytest.raises(ValueError, match="seed: expected an integer"):
        load_survival_mnist(censored=True, seed=1.5)
