"""The counting behind concordance: every internal path against a plain double loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xcal._kaplan_meier import sortable, sortable_time, stable_sort
from xcal.data.surv import Outcome
from xcal.metrics import pairs as concordant_pairs
from xcal.metrics.pairs import dominated_weight, pair_weights


def brute_dominated(rank, weight):
    larger = rank[None, :] > rank[:, None]
    return float(weight @ np.triu(larger, 1).sum(axis=1))


def brute_pairs(time, event, score, weight):
    concordant = tied = comparable = 0.0
    for i in range(len(time)):
        for j in range(len(time)):
            outlasts = time[j] > time[i] or (time[j] == time[i] and not event[j])
            if event[i] and outlasts:
                comparable += weight[i]
                concordant += weight[i] * (score[j] > score[i])
                tied += weight[i] * (score[j] == score[i])
    return concordant, tied, comparable


# 256 rows are one leaf; 257 need a digit above it.
@pytest.mark.parametrize("n", [1, 2, 3, 255, 256, 257, 511, 512, 513, 3000])
@pytest.mark.parametrize("shape", ["random", "ascending", "descending"])
def test_dominance_equals_the_double_loop(n, shape):
    rng = np.random.default_rng(n)
    rank = {"random": rng.permutation(n), "ascending": np.arange(n), "descending": np.arange(n)[::-1]}[shape]
    weight = rng.integers(0, 9, size=n).astype(np.float64)
    assert dominated_weight(np.ascontiguousarray(rank, dtype=np.int32), weight) == brute_dominated(rank, weight)


@pytest.mark.parametrize(
    ("n", "digits", "bits", "block"), [(3000, 4, 2, 256), (3001, 4, 1, 1024), (5000, 8, 3, 1 << 18)]
)
def test_dominance_with_more_levels_and_smaller_blocks(monkeypatch, n, digits, bits, block):
    # Three or more levels need more than four million rows with the real settings.
    monkeypatch.setattr(concordant_pairs, "_MAX_DIGITS", digits)
    monkeypatch.setattr(concordant_pairs, "_DIGIT_BITS", bits)
    monkeypatch.setattr(concordant_pairs, "_BLOCK", block)
    rng = np.random.default_rng(n)
    rank = rng.permutation(n).astype(np.int32)
    weight = rng.integers(0, 9, size=n).astype(np.float64)
    assert dominated_weight(rank, weight) == brute_dominated(rank, weight)


def test_dominance_across_three_real_digits_of_a_known_permutation():
    # In ascending order every pair counts: n (n - 1) / 2. Above 65,536 rows there are two digits over the leaf.
    n = 70_001
    assert dominated_weight(np.arange(n, dtype=np.int32), np.ones(n)) == n * (n - 1) / 2
    assert dominated_weight(np.arange(n, dtype=np.int32)[::-1].copy(), np.ones(n)) == 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("distinct", ["times", "predictions", "neither"])
def test_counts_beyond_32_bits(weighted, distinct):
    # 100,000 rows make 5e9 pairs: all tied, none comparable, or comparable and tied, depending on what is equal.
    n = 100_000
    time = np.arange(n, dtype=np.float64) if distinct == "times" else np.ones(n)
    score = np.arange(n, dtype=np.float64) if distinct == "predictions" else np.ones(n)
    event = np.arange(n) < n // 2
    result = pair_weights(Outcome(time, event), score, np.full(n, 2.0) if weighted else None)
    # Either the events come first in time, or at the one time they have they come before the censored half.
    half = n // 2
    pairs = half * half + (half * (half - 1) // 2 if distinct == "times" else 0)
    factor = 2 if weighted else 1
    assert result.comparable == factor * pairs
    assert result.concordant == (factor * pairs if distinct == "predictions" else 0)
    assert result.tied == (0 if distinct == "predictions" else factor * pairs)


@st.composite
def outcomes(draw):
    n = draw(st.integers(1, 30))
    small = st.integers(0, 5)
    columns = [draw(st.lists(small, min_size=n, max_size=n)) for _ in range(3)]
    event = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    time, score, weight = (np.array(column, dtype=np.float64) for column in columns)
    return time, np.array(event), score, weight


@given(outcomes())
@settings(max_examples=200, deadline=None)
def test_pairs_equal_the_double_loop_with_ties_everywhere(data):
    time, event, score, weight = data
    result = pair_weights(Outcome(time, event), score, weight)
    assert (result.concordant, result.tied, result.comparable) == brute_pairs(time, event, score, weight)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sortable_orders_as_the_floats_do(dtype):
    values = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, 1e-45, -1e-45, 1e30, -1e30], dtype=dtype)
    keys = sortable(values)
    assert keys[0] == keys[1]
    np.testing.assert_array_equal(np.argsort(keys, kind="stable"), np.argsort(values, kind="stable"))


@pytest.mark.parametrize("n", [10, 100_000])
def test_stable_sort_orders_time_then_events_first_then_rows(n):
    # torch takes another path for long arrays, so both sizes matter.
    rng = np.random.default_rng(n)
    time, event = rng.integers(0, 50, size=n).astype(np.float64) * 1e3, rng.random(n) < 0.5
    _, order = stable_sort(sortable_time(time, event))
    np.testing.assert_array_equal(order, np.lexsort((np.arange(n), ~event, time)))
