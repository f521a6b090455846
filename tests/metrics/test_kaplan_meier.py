"""Kaplan-Meier curves against lifelines (events) and scikit-survival (censorings), and by hand at ties."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from sksurv.nonparametric import CensoringDistributionEstimator
from sksurv.util import Surv

from tests.metrics.simulate import survival_data
from xcal.metrics import kaplan_meier


@pytest.mark.parametrize("grid", [None, 0.25, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_survival_equals_lifelines(grid, seed):
    data = survival_data(200, rng=np.random.default_rng(seed), grid=grid)
    fitted = KaplanMeierFitter().fit(data.time, data.event)
    where = np.linspace(0, data.time.max(), 300)
    curve = kaplan_meier(time=data.time, event=data.event)
    np.testing.assert_allclose(curve.at(where), fitted.survival_function_at_times(where), rtol=0, atol=1e-12)


@pytest.mark.parametrize("grid", [None, 0.25])
def test_greenwood_variance_from_the_counts_of_lifelines(grid):
    data = survival_data(300, rng=np.random.default_rng(5), grid=grid)
    fitted = KaplanMeierFitter().fit(data.time, data.event)
    table = fitted.event_table.iloc[1:]
    table = table[table.at_risk > table.observed]
    terms = table.observed / (table.at_risk * (table.at_risk - table.observed))
    for t in np.quantile(data.time, [0.2, 0.5, 0.9]):
        expected = fitted.predict(t) ** 2 * terms[table.index <= t].sum()
        assert kaplan_meier(time=data.time, event=data.event).variance(t) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("grid", [None, 0.25, 1.0])
def test_censoring_equals_scikit_survival(grid):
    data = survival_data(200, rng=np.random.default_rng(1), grid=grid)
    estimator = CensoringDistributionEstimator().fit(Surv.from_arrays(data.event, data.time))
    where = np.linspace(0, data.time.max(), 300)
    curve = kaplan_meier(time=data.time, event=data.event, of="censoring")
    np.testing.assert_allclose(curve.at(where), estimator.predict_proba(where), rtol=0, atol=1e-12)


def test_at_a_tie_events_come_before_censorings():
    # At time 2 one event and one censoring among three at risk: the event meets 3, the censoring only the other 2.
    time, event = [1, 2, 2, 3], [0, 1, 0, 1]
    events = kaplan_meier(time=time, event=event)
    np.testing.assert_allclose(events.at([1, 2, 3]), [1, 2 / 3, 0])
    censorings = kaplan_meier(time=time, event=event, of="censoring")
    np.testing.assert_allclose(censorings.at([1, 2, 3]), [3 / 4, 3 / 8, 3 / 8])


def test_left_limit_excludes_what_happens_at_the_time_itself():
    curve = kaplan_meier(time=[1, 2, 4], event=[1, 1, 1])
    np.testing.assert_allclose(curve.before([1, 1.5, 2, 4]), [1, 2 / 3, 2 / 3, 1 / 3])
    np.testing.assert_allclose(curve.at([1, 1.5, 2, 4]), [2 / 3, 2 / 3, 1 / 3, 0])


def test_stays_at_its_last_value_and_starts_at_one():
    curve = kaplan_meier(time=[1, 2], event=[1, 0])
    np.testing.assert_allclose(curve.at([0, 0.99, 2, 1e9]), [1, 1, 0.5, 0.5])


def test_an_event_at_time_zero_counts_at_zero():
    np.testing.assert_allclose(kaplan_meier(time=[0, 1], event=[1, 1]).at([0.0]), [0.5])


@pytest.mark.parametrize(("event", "of"), [(0, "event"), (1, "censoring")])
def test_without_anything_to_count_the_curve_is_one(event, of):
    curve = kaplan_meier(time=[1, 2, 2], event=[event] * 3, of=of)
    np.testing.assert_array_equal(curve.at([0, 1, 2, 3]), np.ones(4))
    np.testing.assert_array_equal(curve.variance([0, 1, 2, 3]), np.zeros(4))
