"""The range of ICI from sums over risk sets holds the ICI of the rows, whatever the rows, cells and place are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xcal.data.surv import Outcome
from xcal.metrics import cox_ici
from xcal.metrics.cox import fitted_curve
from xcal.metrics.cox_ici_streaming import Place, StreamingRiskSets, index_range, knot_range
from xcal.metrics.streaming import StreamingQuantiles

NAMES = ("value", "e50", "e90", "emax")


def rows(seed, n, slope=0.8, censored=2.0, narrow=False):
    """A model whose predictions are too flat or too steep; where they are `narrow`, few cells tell much."""
    rng = np.random.default_rng(seed)
    x = rng.choice([-0.5, 0.0, 0.5], n) + rng.uniform(-0.1, 0.1, n) if narrow else rng.normal(size=n)
    happens, leaves = rng.exponential(np.exp(-x)), rng.exponential(censored, n)
    return 1 - np.exp(-0.5 * np.exp(slope * x)), np.minimum(happens, leaves), happens <= leaves


def exchanged(p, time, event, cells, first):
    """The same rows with times exchanged within every cell, so that those with a high value `first` leave first."""
    order = np.argsort(time, kind="stable")
    for part in np.array_split(order, cells):
        time[part] = np.sort(time[part])[np.argsort(np.argsort(-first[part], kind="stable"))]
    return p, time, event


def found_range(p, time, event, at, *, cells, limit, off=0.0, parts=1):
    """Range from so many cells of time, cells of predictions, and a place that is off the fit; None without one."""
    counted = StreamingQuantiles(limit=limit).update(p).cells()
    knots = knot_range(counted, 3)
    if knots is None:
        return None
    curve = fitted_curve(p, Outcome(time, event), at, knots=(knots[0] + knots[1]) / 2)
    if curve.fit is None or not curve.converged:
        return None
    coefficients = (curve.fit.coefficients + off * np.array([1.0, -0.5])) / curve.scale
    place = Place(curve.knots, coefficients, max(float(counted.low[0]), 0.0), min(float(counted.high[-1]), 1.0))
    times = np.union1d(np.quantile(time, np.linspace(0, 1, cells + 1)[1:]), [at])
    sums = StreamingRiskSets(place, times, at)
    for part in np.array_split(np.arange(p.size), parts):
        other = StreamingRiskSets(place, times, at)
        other.add(p[part], time[part], event[part])
        sums.merge(StreamingRiskSets(place, times, at).load_state_dict(other.state_dict()))
    return index_range(sums.compute(), place, counted, knots)


@settings(max_examples=100)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(200, 1500),
    slope=st.sampled_from([0.4, 0.8, 1.5]),
    censored=st.sampled_from([0.5, 2.0, 20.0]),
    digits=st.sampled_from([1, 2, 12]),
    cells=st.sampled_from([50, 200, 2000]),
    limit=st.sampled_from([200, 2000]),
    off=st.sampled_from([0.0, 0.003, -0.02]),
    first=st.sampled_from(["any", "high", "low", "censored", "events"]),
    narrow=st.booleans(),
)
def test_the_index_of_the_rows_is_within(seed, n, slope, censored, digits, cells, limit, off, first, narrow):
    p, time, event = rows(seed, n, slope, censored, narrow)
    if first != "any":
        value = {"high": p, "low": -p, "censored": 1.0 - event, "events": 1.0 * event}[first]
        p, time, event = exchanged(p, time, event, cells, value)
    time = np.round(time, digits)  # ties
    at = float(np.quantile(time, 0.4))
    within = found_range(p, time, event, at, cells=cells, limit=limit, off=off)
    exact = cox_ici(p, at=at, time=time, event=event)
    if within is None or not exact.converged:
        return
    for name in NAMES:
        lower, upper = getattr(within, name)
        assert lower <= getattr(exact, name) <= upper, name


def test_the_range_is_narrow_and_grows_with_what_is_not_known():
    p, time, event = rows(1, 20_000)
    exact = cox_ici(p, at=0.5, time=time, event=event)
    widths = []
    known = {"cells": 20_000, "limit": 1 << 16, "off": 0.0}
    for less in ({}, {"cells": 4000}, {"limit": 1 << 14}, {"off": 0.01}):
        within = found_range(p, time, event, 0.5, **known | less)
        for name in NAMES:
            lower, upper = getattr(within, name)
            assert lower <= getattr(exact, name) <= upper, name
        widths.append(within.value[1] - within.value[0])
    assert widths[0] < 5e-4 < min(widths[1:])
    assert max(widths[1:]) < 5e-3


def test_parts_of_the_rows_give_the_same_bits():
    given_rows = rows(2, 3000)
    one, many = (found_range(*given_rows, 0.5, cells=500, limit=1 << 16, parts=parts) for parts in (1, 7))
    assert one == many


def test_too_few_cells_tell_nothing_but_that_probabilities_are_within_zero_and_one():
    p, time, event = rows(3, 2000)
    within = found_range(p, time, event, 0.5, cells=2, limit=1 << 16)
    assert within.value == (0.0, pytest.approx(np.maximum(p, 1 - p).mean(), abs=1e-6))
    # Knots that may be anywhere in wide cells.
    lower, upper = found_range(p, time, event, 0.5, cells=2000, limit=32).value
    assert lower == 0.0
    assert upper > 0.6


@pytest.mark.parametrize("limit", [8, 1 << 16])
def test_knots_lie_in_their_range(limit):
    p, *_ = rows(4, 5000)
    found = knot_range(StreamingQuantiles(limit=limit).update(p).cells(), 3)
    expected = np.quantile(np.log(-np.log1p(-p)), [0.1, 0.5, 0.9])
    if limit == 8:
        assert found is None or ((found[0] <= expected) & (expected <= found[1])).all()
    else:
        np.testing.assert_allclose(found, [expected, expected], rtol=1e-12)
