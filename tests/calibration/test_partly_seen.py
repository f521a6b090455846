"""D-calibration of rows with delayed entry and of events that lie between two times, on models that are true."""

import numpy as np
import pytest

from xcal import d_calibration
from xcal.calibration.histogram import parts_of_bins


def drawn(n, rng, *, late=0.5, censored=0.4, width=0.0, factor=1.0):
    """F at the last time, event, F at the lower end and F at the entry of `n` rows that entered before their time."""
    rate = np.exp(0.5 * rng.normal(size=6 * n))
    happens = rng.exponential(1 / rate)
    leaves = rng.exponential(1 / censored - 1, rate.size) if censored else np.full(rate.size, np.inf)
    entry = np.where(rng.random(rate.size) < late, rng.uniform(0, 1.5, rate.size), 0.0)
    there = np.flatnonzero(np.minimum(happens, leaves) > entry)[:n]
    rate, happens, leaves, entry = (values[there] for values in (rate, happens, leaves, entry))
    time, event, lower = np.minimum(happens, leaves), happens <= leaves, None
    if width:  # visits `width` apart, the first at random: an event is found at the next one, if the row is still seen
        first = rng.uniform(0, width, n)
        before, after = (
            np.maximum(first + k * width, entry) for k in np.array([0, 1])[:, None] + (happens - first) // width
        )
        event = after <= leaves
        kept = np.maximum(first + (leaves - first) // width * width, entry)
        time, lower = np.where(event, after, kept), np.where(event, before, kept)
        lower = 1 - np.exp(-factor * rate * lower)
    return (*(1 - np.exp(-factor * rate * t) for t in (time, entry)), event, lower)


def result(n, seed, **given):
    cdf, entry, event, lower = drawn(n, np.random.default_rng(seed), **given)
    return d_calibration(cdf, event, cdf_entry=entry if given.get("late", 0.5) else None, cdf_lower=lower)


class TestOneFormula:
    def test_entry_at_zero_is_no_entry(self):
        cdf, _, event, _ = drawn(500, np.random.default_rng(0), late=0.0)
        one, other = d_calibration(cdf, event), d_calibration(cdf, event, cdf_entry=np.zeros(500))
        np.testing.assert_allclose(one.histogram, other.histogram, rtol=1e-12)
        np.testing.assert_allclose(other.expected, 0.1, rtol=1e-12)
        assert (one.value, one.floor, one.p_value) == pytest.approx((other.value, other.floor, other.p_value), rel=1e-9)

    def test_an_interval_without_length_is_a_time(self):
        cdf, entry, event, _ = drawn(500, np.random.default_rng(1))
        known = d_calibration(cdf, event, cdf_entry=entry, p_value="residuals")
        same = d_calibration(cdf, event, cdf_entry=entry, cdf_lower=cdf)
        assert (known.value, known.p_value, known.test) == (same.value, same.p_value, "residuals")

    def test_parts_by_hand(self):
        edges = np.array([0.0, 0.5, 1.0])
        found = parts_of_bins(np.array([0.25, 0.5, 0.1, 1.0]), np.array([0.75, 0.5, 0.3, 1.0]), edges)
        np.testing.assert_allclose(found, [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])

    def test_a_row_that_entered_counts_from_there(self):
        # Entered at F = .5 with the event in the upper half: it says nothing about halves.
        found = d_calibration([0.7, 0.9], [1, 1], n_bins=2, cdf_entry=[0.5, 0.5], p_value=None)
        assert found.value == 0
        np.testing.assert_allclose(found.expected, [0.0, 1.0])


class TestTrueModels:
    @pytest.mark.parametrize(
        "given",
        [
            {"censored": 0.0},
            {"censored": 0.8},
            {"late": 0.0, "width": 0.2},
            {"late": 0.0, "width": 1.5},
            {"width": 0.6},
        ],
    )
    def test_hold_their_level_and_their_floor(self, given):
        found = [result(400, seed, **given) for seed in range(120)]
        values, floors = (np.array([getattr(one, name) for one in found]) for name in ("value", "floor"))
        # 120 draws at level .05: 6 expected, 13 are beyond three standard errors.
        assert sum(one.p_value < 0.05 for one in found) <= 13
        assert abs(values.mean() - floors.mean()) < 4 * values.std() / len(found) ** 0.5

    def test_entry_that_is_ignored_accuses_a_true_model(self):
        cdf, entry, event, _ = drawn(5000, np.random.default_rng(2), late=1.0, censored=0.0)
        known, ignored = d_calibration(cdf, event, cdf_entry=entry), d_calibration(cdf, event)
        assert ignored.value > 50 * known.value
        assert known.p_value > 0.01
        assert ignored.p_value < 1e-30

    def test_people_with_several_rows_hold_their_level(self):
        few = 0
        for seed in range(60):
            cdf, entry, event, _ = drawn(150, np.random.default_rng(seed))
            twice = [np.repeat(values, 3) for values in (cdf, event, entry)]
            people = np.repeat(np.arange(150), 3)
            few += d_calibration(twice[0], twice[1], cdf_entry=twice[2], clusters=people).p_value < 0.05
        assert few <= 8


class TestWrongModels:
    @pytest.mark.parametrize("given", [{}, {"late": 0.0, "width": 0.6}, {"width": 0.6}])
    def test_hazards_too_high_are_found(self, given):
        assert result(1000, 3, factor=1.5, **given).p_value < 1e-3


class TestBadInput:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"cdf_entry": [0.1, 0.7]}, r"cdf_entry: expected at most cdf, 0\.6, got 0\.7 at row 1"),
            ({"cdf_lower": [0.3, 0.1]}, r"cdf_lower: expected at most cdf, 0\.2, got 0\.3 at row 0"),
            ({"cdf_entry": [0.1]}, r"cdf_entry: expected 2 rows"),
            ({"cdf_entry": [0.1, np.nan]}, r"cdf_entry: expected values in \[0, 1\]"),
            ({"cdf_entry": [0, 0], "method": "km"}, r"method: expected 'uniform' with cdf_entry"),
            ({"cdf_entry": [0, 0], "weights": [1, 2]}, r"weights: expected None with cdf_entry"),
            ({"cdf_lower": [0, 0], "p_value": "akritas"}, r"p_value: expected 'residuals' or None with cdf_lower"),
            ({"p_value": "residuals"}, r"p_value: expected 'akritas'"),
        ],
    )
    def test_words(self, given, message):
        with pytest.raises(ValueError, match=message):
            d_calibration([0.2, 0.6], [1, 1], **given)
