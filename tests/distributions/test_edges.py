import warnings

import numpy as np
import pytest
import torch

from xcal.distributions import Categorical, as_edges, quantile_edges

RNG = np.random.default_rng(0)
TIME = RNG.gamma(2.0, size=500)
EVENT = RNG.uniform(size=500) < 0.6


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy, list], ids=["numpy", "torch", "list"])
def test_edges_are_percentiles_of_the_uncensored_times(convert: object) -> None:
    edges = quantile_edges(convert(TIME), convert(EVENT), n_bins=20)
    assert edges.dtype == torch.float64
    np.testing.assert_array_equal(edges.numpy(), np.percentile(TIME[EVENT], np.linspace(0, 100, 21)))
    counts = np.histogram(TIME[EVENT], edges.numpy())[0]
    assert counts.max() - counts.min() <= 1


def test_ties_are_collapsed_with_a_warning_that_says_how_many_bins_remain() -> None:
    time = np.array([1.0] * 6 + [2.0, 3.0, 4.0, 5.0])
    with pytest.warns(UserWarning, match="10 bins asked for, 5 remain"):
        edges = quantile_edges(time, np.ones(10, dtype=bool), n_bins=10)
    assert (edges.diff() > 0).all()
    assert edges[0] == 1.0
    assert edges[-1] == 5.0


def test_edges_that_single_precision_cannot_tell_apart_are_ties() -> None:
    time = np.array([1.0, 1.0 + 1e-12, 2.0, 3.0])
    with pytest.warns(UserWarning, match="3 bins asked for, 2 remain"):
        edges = quantile_edges(time, np.ones(4, dtype=bool), n_bins=3)
    dist = Categorical(torch.zeros(1, 2), edges, "linear")
    assert torch.isfinite(dist.cdf(torch.tensor([1.5]))).all()


def test_no_warning_without_ties() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert quantile_edges(TIME, EVENT, 50).shape == (51,)


@pytest.mark.parametrize(
    ("time", "event", "n_bins", "message"),
    [
        ([1.0, 2.0], [False, False], 2, "event: expected at least one event"),
        ([1.0, 1.0], [True, True], 2, "time: expected at least two distinct event times"),
        ([1.0], [True], 2, "time: expected at least two distinct event times"),
        ([1.0, np.nan], [True, True], 2, "time: expected finite times, zero or larger, got nan at row 1"),
        ([1.0, np.inf], [True, True], 2, "time: expected finite times, zero or larger, got inf at row 1"),
        ([-1.0, 2.0], [True, True], 2, "time: expected finite times, zero or larger, got -1.0 at row 0"),
        ([], [], 2, "time: expected at least one row"),
        ([1.0, 2.0], [True], 2, "event: expected 2 rows"),
        ([1.0, 2.0], [0.5, 1.0], 2, "event: expected True/False or 0/1"),
        ([1.0, 2.0], [True, True], 0, "n_bins: expected an integer of 1 or more, got 0"),
        ([1.0, 2.0], [True, True], 2.5, "n_bins: expected an integer of 1 or more, got 2.5"),
    ],
)
def test_bad_training_times(time: list[float], event: list[bool], n_bins: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantile_edges(np.array(time), np.array(event), n_bins)


def test_zero_times_are_legal() -> None:
    assert quantile_edges([0.0, 1.0, 2.0], [True, True, True], 2)[0] == 0.0


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([1.0], "two or more edges"),
        ([[1.0, 2.0]], "one-dimensional"),
        ([1.0, np.nan, 2.0], "edges: expected finite times, zero or larger, got nan at row 1"),
        ([-1.0, 2.0], "edges: expected finite times, zero or larger, got -1.0 at row 0"),
        ([1.0, 3.0, 2.0], "edges: expected a value larger than the one before, 3.0, in float32 too, got 2.0 at row 2"),
        ([1.0, 1.0 + 1e-12], "in float32 too"),
        (["a", "b"], "edges"),
    ],
)
def test_bad_edges(edges: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_edges(edges)


def test_a_tensor_keeps_its_dtype() -> None:
    assert as_edges(torch.tensor([0.0, 1.0])).dtype == torch.float32
    assert as_edges(torch.tensor([0, 1])).dtype == torch.float64
