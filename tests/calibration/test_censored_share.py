"""What a censored row leaves in each bin: every place that computes it against one sum of exact fractions."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch

from xcal.calibration import SoftBins, d_calibration
from xcal.calibration.histogram import BinSums, inverse_weights, locate, redistributed, rest, share_of_bin
from xcal.calibration.membership import bin_sums, soft_membership, uniform_histogram
from xcal.calibration.penalty import small_default
from xcal.calibration.streaming import Tally, redistributed_counts

EDGES = {
    "equal": np.arange(11) / 10,
    "own": np.array([0.0, 0.05, 0.3, 0.8, 1.0]),
    "two": np.array([0.0, 0.5, 1.0]),
}
# Inside bins, on edges, at both ends, and in the last bin, where 1 / (1 - F) has no bound.
PLACES = (0.0, 0.05, 0.1234, 0.3, 0.5, 0.77, 0.8, 0.95, 0.999999, 1.0)
CENSORED = np.zeros(1, dtype=bool)


def exact_shares(u, edges):
    """The part of [u, 1] in each bin, by fractions: a row with F = 1 has nothing left but the last bin."""
    f = Fraction(u)
    if f == 1:
        return [0.0] * (len(edges) - 2) + [1.0]
    bins = [(Fraction(float(a)), Fraction(float(b))) for a, b in pairwise(edges)]
    return [float(max(b - max(a, f), Fraction(0)) / (1 - f)) for a, b in bins]


def by_bin(u, edges):
    f = np.array([u])
    bins, left = locate(f, edges), rest(f, edges)
    return [share_of_bin(j, bins, left, edges)[0] for j in range(edges.size - 1)]


def by_sums(u, edges):
    sums = BinSums(edges)
    sums.add(np.array([u]), CENSORED, hazard=False)
    return sums.uniform().histogram


def by_torch_sums(u, edges):
    edge = torch.from_numpy(edges)
    sums = bin_sums(torch.tensor([[u]], dtype=torch.float64), torch.tensor([False]), edge)
    return uniform_histogram(sums, edge)[0].numpy()


def by_membership(u, edges):
    f, edge = torch.tensor([u], dtype=torch.float64), torch.from_numpy(edges)
    return soft_membership(f, torch.tensor([False]), edge, SoftBins())[0].numpy()


def by_counts(u, edges):
    tally = Tally(edges, 1000)
    tally.add(np.array([u]), CENSORED)
    return redistributed_counts(tally.cells()).histogram


def by_inverse_weights(u, edges):
    # The second row is an event before the censoring; the first outlasts it and counts with G = 1.
    f, event = np.array([u, 0.0]), np.array([False, True])
    sums, _ = inverse_weights(f, event, np.ones(2), edges, np.array([2.0, 1.0]))
    return sums - np.eye(edges.size - 1)[0]


def by_public_function(u, edges):
    return d_calibration(np.array([u]), CENSORED, edges=edges, p_value=None).histogram


WAYS = {
    "share_of_bin": by_bin,
    "BinSums": by_sums,
    "histogram_torch": by_torch_sums,
    "membership": by_membership,
    "redistributed": lambda u, edges: redistributed(np.array([u]), CENSORED, np.array([u]), edges).histogram,
    "redistributed_counts": by_counts,
    "inverse_weights": by_inverse_weights,
    "d_calibration": by_public_function,
}


@pytest.mark.parametrize("edges", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("u", PLACES)
def test_every_way_gives_the_share_of_a_uniform_on_what_is_left(way, u, edges):
    # Differences of numbers of about one, so the error is a few units of float64 there.
    np.testing.assert_allclose(way(u, edges), exact_shares(u, edges), rtol=0, atol=1e-14)


@pytest.mark.parametrize("edges", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("u", PLACES)
def test_the_fast_path_of_the_penalty_has_the_same_shares(u, edges):
    """The penalty of one row is the sum of squares of its shares less the widths."""
    f, edge = torch.tensor([u], dtype=torch.float64), torch.from_numpy(edges)
    value, _ = small_default(f, torch.tensor([False]), None, edge, scale=2.0)
    expected = np.square(np.array(exact_shares(u, edges)) - np.diff(edges)).sum()
    assert value.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_in_torch_give_the_histogram_of_numpy(weighted):
    rng = np.random.default_rng(5)
    cdf, event = rng.random((3, 400)), rng.random(400) < 0.5
    cdf[:, :3] = [0.0, 0.5, 1.0]
    weights = rng.integers(1, 4, 400) if weighted else np.ones(400, dtype=np.int64)
    edges = torch.from_numpy(EDGES["own"])
    sums = bin_sums(
        torch.from_numpy(cdf), torch.from_numpy(event), edges, torch.from_numpy(weights).double() if weighted else None
    )
    for model, mass in enumerate(uniform_histogram(sums, edges).numpy()):
        # A row of weight w is w equal rows.
        rows = np.repeat(np.arange(400), weights)
        expected = np.mean(
            [
                np.eye(4)[min(np.searchsorted(EDGES["own"], u, side="right") - 1, 3)]
                if happened
                else exact_shares(u, EDGES["own"])
                for u, happened in zip(cdf[model, rows], event[rows], strict=True)
            ],
            axis=0,
        )
        np.testing.assert_allclose(mass, expected, atol=1e-13)
