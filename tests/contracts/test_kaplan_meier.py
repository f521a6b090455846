"""One Kaplan-Meier rule: what calibration writes again for rows and for cells is held to the one in `_kaplan_meier`."""

import numpy as np
import pytest

from tests.metrics.simulate import survival_data
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.calibration.histogram import heaviest, redistributed
from xcal.calibration.significance import _censoring_curve
from xcal.calibration.streaming import _uncensored

EDGES = np.linspace(0, 1, 6)


def rows(grid):
    """Time, event and F of 300 rows, one row in eight censored, the last one an event; `grid` makes ties."""
    rng = np.random.default_rng(4)
    data = survival_data(300, rng=rng, censoring_scale=8.0, grid=grid)
    event = data.event.copy()
    event[np.argmax(data.time)] = True
    return data.time, event, rng.uniform(size=300)


@pytest.mark.parametrize("grid", [None, 0.25])
def test_the_mass_of_an_event_is_one_over_n_times_the_censoring_curve_before_it(grid):
    time, event, cdf = rows(grid)
    if grid is not None:  # rows censored at the last time, after the last event, would share what is left
        event |= time == time.max()
    weight = 1 / (300 * fit_kaplan_meier(time, event, "censoring").before(time[event]))
    assert weight.max() < heaviest(300)  # so that redistribution goes on to the end
    expected, _ = np.histogram(cdf[event], EDGES, weights=weight)
    np.testing.assert_allclose(redistributed(cdf, event, time, EDGES).histogram, expected, rtol=1e-12)


@pytest.mark.parametrize("grid", [None, 0.25])
def test_the_curve_from_which_censorings_are_drawn(grid):
    time, event, _ = rows(grid)
    points, reached = _censoring_curve(time, event)
    np.testing.assert_array_equal(points, np.sort(time[~event]))
    # Of several rows censored at one time the last has the whole drop behind it.
    last = np.append(np.diff(points) > 0, True)
    expected = 1 - fit_kaplan_meier(time, event, "censoring").at(points[last])
    np.testing.assert_allclose(reached[last], expected, rtol=1e-12)


@pytest.mark.parametrize("grid", [None, 0.25])
def test_the_curve_of_cells(grid):
    time, event, _ = rows(grid)
    distinct, cell = np.unique(time, return_inverse=True)
    happened, censored = (np.bincount(cell, weights=which, minlength=distinct.size) for which in (event, ~event))
    at_risk = (happened + censored)[::-1].cumsum()[::-1]
    expected = fit_kaplan_meier(time, event, "censoring").at(distinct)
    np.testing.assert_allclose(_uncensored(at_risk - happened, censored)[1:], expected, rtol=1e-12)
