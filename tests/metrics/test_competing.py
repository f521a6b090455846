"""Several causes: Aalen-Johansen, its error and pseudo-values against R, leaving rows out by hand, and one cause."""

import numpy as np
import pandas as pd
import pytest

from xcal._kaplan_meier import fit_kaplan_meier
from xcal.data.surv import Outcome
from xcal.metrics.competing import (
    aalen_johansen,
    auc_of_cause,
    brier_of_cause,
    fit_aalen_johansen,
    horizon_weights,
    incidence_pseudo_values,
)
from xcal.metrics.ici import index_of
from xcal.metrics.observed_expected import slope_of
from xcal.metrics.pseudo_values import jackknife


def rows(n=60, seed=0, ties=True, n_causes=2):
    rng = np.random.default_rng(seed)
    time = rng.exponential(5, n)
    return (np.ceil(time) if ties else time), rng.integers(0, n_causes + 1, n)


@pytest.fixture(scope="module")
def competing_risks(real_data):
    return real_data("competing_risks") / "competing_risks"


@pytest.fixture(scope="module")
def mgus2(real_data):
    return pd.read_csv(real_data("coarsened") / "coarsened" / "mgus2.csv")


@pytest.fixture(scope="module")
def validation(competing_risks):
    rows = pd.read_csv(competing_risks / "validation.csv")
    return rows.merge(pd.read_csv(competing_risks / "predicted_validation.csv"), on="id")


class TestAgainstR:
    def test_incidence_and_error_are_those_of_survfit(self, competing_risks, validation):
        curves = aalen_johansen(time=validation["time"], cause=validation["cause"])
        expected = pd.read_csv(competing_risks / "aalen_johansen_validation.csv")
        late = expected["time"] + 1e-9  # times are written with fifteen digits
        for of in (1, 2):
            np.testing.assert_allclose(curves.at(late, of=of), expected[f"cif{of}"], rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(curves.error_at(late, of=of), expected[f"se{of}"], rtol=1e-10, atol=1e-13)

    def test_myeloma_precursor_with_ties(self, mgus2):
        curves = aalen_johansen(time=mgus2["time"], cause=mgus2["cause"])
        at = [60, 120, 240, 360]
        np.testing.assert_allclose(curves.at(at, of=1), [0.034104, 0.063722, 0.099814, 0.134042], atol=5.1e-7)
        np.testing.assert_allclose(curves.error_at(at, of=1), [0.004889, 0.006797, 0.009785, 0.020128], atol=5.1e-7)
        np.testing.assert_allclose(curves.at(at, of=2), [0.320367, 0.531818, 0.724028, 0.784208], atol=5.1e-7)
        np.testing.assert_allclose(curves.error_at(at, of=2), [0.012567, 0.014060, 0.015606, 0.020933], atol=5.1e-7)

    @pytest.mark.parametrize("of", [1, 2])
    def test_pseudo_values_are_those_of_the_package(self, competing_risks, validation, of):
        expected = pd.read_csv(competing_risks / f"pseudo_cause{of}_t5.csv")
        time, cause = validation["time"].to_numpy(), validation["cause"].to_numpy()
        found = incidence_pseudo_values(time, cause, 5.0, of=of, n_causes=2)
        np.testing.assert_allclose(np.sort(found), np.sort(expected["pseudo"]), atol=2e-12)

    @pytest.mark.parametrize(
        ("at", "slope", "intercept", "ici", "auc", "brier", "null"),
        [
            (2.0, (1.339, 0.284), (-0.0728, 0.158), 0.02088, 0.8101, 0.04289, 0.04578),
            (5.0, (1.218, 0.194), (-0.1509, 0.105), 0.02923, 0.7149, 0.08730, 0.09256),
        ],
    )
    def test_a_published_validation(self, validation, at, slope, intercept, ici, auc, brier, null):
        time, cause = validation["time"].to_numpy(), validation["cause"].to_numpy()
        p = validation[f"cif1_t{at:.0f}"].to_numpy()
        pseudo = incidence_pseudo_values(time, cause, at, of=1, n_causes=2)
        found = slope_of(p, pseudo, at, 1, 0.95)
        z = 1.959964
        assert found.slope == pytest.approx(slope[0], abs=6e-4)
        assert (found.slope_upper - found.slope) / z == pytest.approx(slope[1], abs=6e-4)
        assert found.intercept == pytest.approx(intercept[0], abs=6e-5)
        assert (found.intercept_upper - found.intercept) / z == pytest.approx(intercept[1], abs=6e-4)
        # R's loess interpolates between the corners of a tree of cells: .0031 at two years.
        assert index_of(p, pseudo, at, 0.95).value == pytest.approx(ici, abs=3.2e-3)
        weight, happened = horizon_weights(
            time, cause, at, of=1, censoring=fit_kaplan_meier(time, cause > 0, "censoring")
        )
        assert auc_of_cause(p, weight, happened) == pytest.approx(auc, abs=6e-5)
        assert brier_of_cause(p, weight, happened) == pytest.approx(brier, abs=6e-6)
        observed = fit_aalen_johansen(time, cause, 2).at(at, of=1)
        assert brier_of_cause(np.full_like(p, observed), weight, happened) == pytest.approx(null, abs=6e-6)


class TestLaws:
    @pytest.mark.parametrize("ties", [True, False])
    @pytest.mark.parametrize("seed", range(3))
    def test_pseudo_values_are_what_leaving_a_row_out_changes(self, seed, ties):
        time, cause = rows(seed=seed, ties=ties, n_causes=3)
        n = time.size
        for at in (1.0, float(np.quantile(time, 0.5)), float(time.max()), float(time.max()) + 1):
            for of in (1, 2, 3):
                whole = fit_aalen_johansen(time, cause, 3).at(at, of=of)
                without = [
                    fit_aalen_johansen(np.delete(time, i), np.delete(cause, i), 3).at(at, of=of) for i in range(n)
                ]
                found = incidence_pseudo_values(time, cause, at, of=of, n_causes=3)
                np.testing.assert_allclose(found, n * whole - (n - 1) * np.array(without), atol=1e-12)

    def test_incidences_and_survival_add_up_to_one(self):
        time, cause = rows(200, seed=5, n_causes=3)
        curves = aalen_johansen(time=time, cause=cause)
        np.testing.assert_allclose(curves.incidence.sum(axis=0) + curves.survival, 1.0, atol=1e-13)
        assert (np.diff(curves.incidence, axis=1) >= 0).all()

    @pytest.mark.parametrize("ties", [True, False])
    def test_one_cause_is_kaplan_meier(self, ties):
        time, cause = rows(150, seed=6, ties=ties, n_causes=1)
        km, curves = fit_kaplan_meier(time, cause > 0), aalen_johansen(time=time, cause=cause)
        np.testing.assert_allclose(1 - curves.at(km.times, of=1), km.survival, atol=1e-13)
        # Greenwood's variance of a product-limit estimate is the infinitesimal jackknife's, where somebody is left.
        left = km.survival > 0
        np.testing.assert_allclose(
            curves.error_at(km.times[left], of=1), np.sqrt(km.variance(km.times[left])), rtol=1e-9, atol=1e-12
        )
        for at in (2.0, 7.0):
            found = incidence_pseudo_values(time, cause, at, of=1, n_causes=1)
            np.testing.assert_allclose(found, jackknife(Outcome(time, cause > 0), at), atol=1e-12)

    def test_errors_are_the_spread_of_the_influences(self):
        """A central difference in the weight of each row, by the estimate itself."""
        time, cause = rows(40, seed=7, n_causes=2)
        step, n = 1e-5, time.size
        at = float(np.quantile(time, 0.7))
        influence = []
        for i in range(n):
            up, down = np.ones(n), np.ones(n)
            up[i], down[i] = 1 + step, 1 - step
            high, low = (fit_aalen_johansen(time, cause, 2, w).at(at, of=2) for w in (up, down))
            influence.append((high - low) / (2 * step))
        curves = fit_aalen_johansen(time, cause, 2)
        assert curves.error_at(at, of=2) == pytest.approx(np.sqrt(np.square(influence).sum()), rel=1e-6)
        pseudo = incidence_pseudo_values(time, cause, at, of=2, n_causes=2, weights=np.ones(n))
        np.testing.assert_allclose(pseudo, curves.at(at, of=2) + n * np.array(influence), atol=1e-6)

    def test_whole_weights_are_rows_that_stand_several_times(self):
        time, cause = rows(50, seed=8)
        counts = np.random.default_rng(1).integers(1, 4, 50)
        weighted = aalen_johansen(time=time, cause=cause, weights=counts)
        repeated = aalen_johansen(time=np.repeat(time, counts), cause=np.repeat(cause, counts))
        np.testing.assert_allclose(weighted.incidence, repeated.incidence, atol=1e-12)

    def test_the_interval_holds_the_estimate(self):
        time, cause = rows(200, seed=9)
        curves = aalen_johansen(time=time, cause=cause)
        low, high = curves.interval(5.0, of=1)
        assert 0 < low < curves.at(5.0, of=1) < high < 1
        assert np.isnan(curves.interval(0.0, of=1)).all()


class TestBadInput:
    @pytest.mark.parametrize(
        ("cause", "message"),
        [
            ([1, 0.5, 2], r"cause: expected 0 for a censored row, or a cause: 1, 2, \.\.\., got 0\.5 at row 1"),
            ([1, np.nan, 2], r"got nan at row 1"),
            ([1, 0, -2], r"got -2 at row 2"),
            ([1, 0], r"same length|2"),
            (["a", "b", "c"], r"a cause: 1, 2, .*got the words 'a', 'b', 'c'"),
            ([1, 0, 4000], r"got 4000 at row 2"),
            ([0, 0, 0], r"at least one event, or n_causes"),
        ],
    )
    def test_causes(self, cause, message):
        with pytest.raises(ValueError, match=message):
            aalen_johansen(time=[1, 2, 3], cause=cause)

    def test_a_cause_that_was_not_named(self):
        with pytest.raises(ValueError, match=r"cause: .*1 to 2, got 3 at row 2"):
            aalen_johansen(time=[1, 2, 3], cause=[1, 2, 3], n_causes=2)

    def test_a_cause_that_is_not_there(self):
        with pytest.raises(ValueError, match="of: expected"):
            aalen_johansen(time=[1, 2, 3], cause=[1, 2, 0]).at(1.0, of=3)
