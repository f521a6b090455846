"""Exact D-calibration of K models at once, against `xcal.d_calibration` of each."""

import numpy as np
import pytest
import torch

from tests.training.simulate import simulated_rows, small_mlp
from xcal import d_calibration
from xcal.calibration.bins import bin_edges
from xcal.calibration.membership import bin_sums, uniform_histogram
from xcal.distributions import family
from xcal.training import TrainingConfig, fit_path


def f_values(n_models, n, dtype):
    """Random F, with rows exactly on edges, at 0 and at 1."""
    generator = torch.Generator().manual_seed(0)
    cdf = torch.rand(n_models, n, generator=generator, dtype=torch.float64)
    cdf[:, :44] = torch.cat([torch.arange(11) / 10.0, torch.arange(11) / 20.0, torch.ones(11), torch.zeros(11)])
    event = torch.rand(n, generator=generator) < 0.6
    return cdf.to(dtype), event


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_bins", [2, 10, 20, 50])
def test_histograms_equal_d_calibration(dtype, n_bins):
    cdf, event = f_values(5, 1000, dtype)
    edges = torch.from_numpy(bin_edges(n_bins))
    histogram = uniform_histogram(bin_sums(cdf, event, edges), edges)
    values = (histogram - edges.diff()).square().sum(-1)
    for k in range(5):
        exact = d_calibration(cdf[k], event, n_bins=n_bins, p_value=None)
        # Sums of 1000 numbers up to n_bins in float64.
        np.testing.assert_allclose(histogram[k].numpy(), exact.histogram, atol=1e-12)
        assert abs(float(values[k]) - exact.value) < 1e-10


def test_sums_add_up_over_chunks():
    cdf, event = f_values(3, 500, torch.float64)
    edges = torch.from_numpy(bin_edges(10))
    whole = bin_sums(cdf, event, edges)
    parts = bin_sums(cdf[:, :123], event[:123], edges) + bin_sums(cdf[:, 123:], event[123:], edges)
    torch.testing.assert_close(whole, parts, rtol=1e-12, atol=1e-12)


def test_a_weight_is_a_number_of_rows():
    cdf, event = f_values(3, 300, torch.float64)
    edges = torch.from_numpy(bin_edges(10))
    count = torch.arange(300) % 3 + 1
    index = torch.repeat_interleave(torch.arange(300), count)
    torch.testing.assert_close(
        bin_sums(cdf, event, edges, count.double()), bin_sums(cdf[:, index], event[index], edges), rtol=1e-12, atol=0
    )


def test_mass_is_one_and_nan_stays_with_its_model():
    cdf, event = f_values(3, 300, torch.float64)
    edges = torch.from_numpy(bin_edges(10))
    clean = uniform_histogram(bin_sums(cdf, event, edges), edges)
    torch.testing.assert_close(clean.sum(-1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-12)
    cdf[1, ~event] = float("nan")
    spoilt = uniform_histogram(bin_sums(cdf, event, edges), edges)
    assert spoilt[1].isnan().any()
    assert torch.equal(spoilt[[0, 2]], clean[[0, 2]])


def test_epochs_are_chosen_by_what_exceeds_the_floor():
    rows, held_out = simulated_rows(200), simulated_rows(60, seed=1)
    config = TrainingConfig(epochs=6, batch_size=50, learning_rate=1e-2)
    arguments = dict(lambdas=(500.0,), config=config)
    plain = fit_path(small_mlp, family("lognormal"), rows, held_out, **arguments)
    floor = float(np.median(plain.history.dcal))
    path = fit_path(small_mlp, family("lognormal"), rows, held_out, dcal_floor=floor, **arguments)
    np.testing.assert_array_equal(path.history.dcal, plain.history.dcal)
    expected = path.history.objective + 500 * np.maximum(path.history.dcal - floor, 0)
    np.testing.assert_allclose(path.history.total, expected)
    assert path.best_epoch[0] == np.argmin(expected)
    with pytest.raises(ValueError, match="dcal_floor: expected a finite number of 0 or more"):
        fit_path(small_mlp, family("lognormal"), rows, held_out, dcal_floor=-1.0)
