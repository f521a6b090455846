"""Several causes: Aalen-Johansen, its error and pseudo-values against R, leaving rows out by hand, and one cause."""

import numpy as np
import pandas as pd
import pytest

from xcal._kaplan_meier import fit_kaplan_meier
from xcal.data.surv import Outcome
from xcal.metrics import (
    brier_score,
    calibration_slope,
    cumulative_dynamic_auc,
    decision_curve,
    integrated_brier_score,
    integrated_calibration_index,
    km_calibration,
    net_benefit,
    observed_expected,
    scaled_brier_score,
)
from xcal.metrics.concordance import concordance_at
from xcal.metrics.observed import aalen_johansen, fit_aalen_johansen
from xcal.metrics.pseudo_values import jackknife


def rows(n=60, seed=0, ties=True, n_causes=2):
    rng = np.random.default_rng(seed)
    time = rng.exponential(5, n)
    return (np.ceil(time) if ties else time), rng.integers(0, n_causes + 1, n)


def of_cause(time, cause, k):
    """Outcome of one cause, the others competing."""
    return Outcome(time, cause == k, competing=(cause > 0) & (cause != k))


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
        found = jackknife(of_cause(time, cause, of), 5.0)
        np.testing.assert_allclose(np.sort(found), np.sort(expected["pseudo"]), atol=2e-12)

    @pytest.mark.parametrize(
        ("at", "oe", "slope", "intercept", "ici", "auc", "brier", "null"),
        [
            (2.0, (0.749, 0.569, 0.987), (1.339, 0.284), (-0.0728, 0.158), 0.02088, 0.8101, 0.04289, 0.04578),
            (5.0, (0.806, 0.671, 0.968), (1.218, 0.194), (-0.1509, 0.105), 0.02923, 0.7149, 0.08730, 0.09256),
        ],
    )
    def test_a_published_validation(self, validation, at, oe, slope, intercept, ici, auc, brier, null):
        given = outcome_of_first(validation)
        p = validation[f"cif1_t{at:.0f}"].to_numpy()
        ratio = observed_expected(p, at=at, interval="greenwood", **given)
        assert (ratio.value, ratio.lower, ratio.upper) == pytest.approx(oe, abs=6e-4)
        found = calibration_slope(p, at=at, **given)
        z = 1.959964
        assert found.slope == pytest.approx(slope[0], abs=6e-4)
        assert (found.slope_upper - found.slope) / z == pytest.approx(slope[1], abs=6e-4)
        assert found.intercept == pytest.approx(intercept[0], abs=6e-5)
        assert (found.intercept_upper - found.intercept) / z == pytest.approx(intercept[1], abs=6e-4)
        # R's loess interpolates between the corners of a tree of cells: .0031 at two years.
        assert integrated_calibration_index(p, at=at, **given).value == pytest.approx(ici, abs=3.2e-3)
        assert cumulative_dynamic_auc(p, at, **given).values[0] == pytest.approx(auc, abs=6e-5)
        scaled = scaled_brier_score(1 - p, at, **given)
        assert scaled.brier[0] == pytest.approx(brier, abs=6e-6)
        assert scaled.null[0] == pytest.approx(null, abs=6e-6)

    def test_its_concordance_and_net_benefit(self, validation):
        given, p = outcome_of_first(validation), validation["cif1_t5"].to_numpy()
        outcome = Outcome(given["time"], given["event"], competing=given["competing"])
        assert concordance_at(p, 5.0, outcome) == pytest.approx(0.7097, abs=6e-5)
        expected = {0.05: 0.05601, 0.10: 0.03078, 0.15: 0.01783, 0.20: 0.01375, 0.25: 0.00700}
        for threshold, value in expected.items():
            assert net_benefit(p, threshold, at=5.0, **given).value == pytest.approx(value, abs=6e-6)
        curve = decision_curve(p, list(expected), at=5.0, **given)
        np.testing.assert_allclose(curve.model, list(expected.values()), atol=6e-6)


def outcome_of_first(validation):
    cause = validation["cause"].to_numpy()
    return {"time": validation["time"].to_numpy(), "event": cause == 1, "competing": cause == 2}


def test_brier_scores_are_those_of_hazardous(validation):
    from hazardous.metrics import brier_score_incidence, integrated_brier_score_incidence

    y = pd.DataFrame({"event": validation["cause"], "duration": validation["time"]})
    # Without ties of events and censorings both weigh an event by the same G.
    y.loc[y["event"] == 0, "duration"] += 1e-6 * np.arange((y["event"] == 0).sum())
    times = np.array([1.0, 2.0, 3.0, 4.0])
    for k in (1, 2):
        p = validation[[f"cif{k}_t{t:.0f}" for t in times]].to_numpy()
        cause = y["event"].to_numpy()
        given = {"time": y["duration"].to_numpy(), "event": cause == k, "competing": (cause > 0) & (cause != k)}
        expected = brier_score_incidence(y, y, p, times, event_of_interest=k)
        np.testing.assert_allclose(brier_score(1 - p, times, **given).values, expected, rtol=0, atol=1e-12)
        whole = integrated_brier_score_incidence(y, y, p, times, event_of_interest=k)
        assert integrated_brier_score(1 - p, times, **given).value == pytest.approx(whole, abs=1e-12)


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
                found = jackknife(of_cause(time, cause, of), at)
                np.testing.assert_allclose(found, n * whole - (n - 1) * np.array(without), atol=1e-12)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_half_of_the_censored_rows_of_a_moment_may_have_left_before(self, weighted):
        """Pseudo-values are what a small change of one weight does to the actuarial estimate."""
        time, cause = rows(60, seed=3)
        outcome, n, at = of_cause(time, cause, 1), time.size, 6.0
        w = np.random.default_rng(2).uniform(0.5, 2, n) if weighted else np.ones(n)

        def estimate(weight):
            total, left, incidence = weight.sum(), 1.0, 0.0
            for moment in np.unique(time[time <= at]):
                here = time == moment
                at_risk = total - 0.5 * weight[here & (cause == 0)].sum()
                incidence += left * weight[here & (cause == 1)].sum() / at_risk
                left *= 1 - weight[here & (cause > 0)].sum() / at_risk
                total -= weight[here].sum()
            return incidence

        found = jackknife(outcome, at, seen=0.5, weights=w)
        for i in range(0, n, 7):
            up, down = w.copy(), w.copy()
            up[i], down[i] = w[i] + 1e-5, w[i] - 1e-5
            slope = (estimate(up) - estimate(down)) / 2e-5
            assert found[i] == pytest.approx(estimate(w) + w.sum() * slope, abs=1e-6)
        if not weighted:
            jack = jackknife(outcome, at, seen=0.5)
            for i in range(0, n, 7):
                without = np.ones(n)
                without[i] = 0.0
                assert jack[i] == pytest.approx(n * estimate(w) - (n - 1) * estimate(without), abs=1e-10)

    def test_nothing_competes_is_one_event_to_the_bit(self):
        rng = np.random.default_rng(4)
        time, event, n = rng.exponential(2.0, 300), rng.random(300) < 0.6, 300
        p, given = rng.random(n) * 0.8 + 0.1, {"time": time, "event": event}
        nothing = {**given, "competing": np.zeros(n, dtype=bool)}
        curves, grid = np.sort(rng.random((n, 3)))[:, ::-1], [0.5, 1.0, 2.0]
        for one in (given, nothing):
            one["found"] = [
                brier_score(curves, grid, **{k: one[k] for k in one if k != "found"}).values.tolist(),
                cumulative_dynamic_auc(p, 1.5, **{k: one[k] for k in one if k != "found"}).values.tolist(),
            ]
        np.testing.assert_allclose(given["found"][0], nothing["found"][0], rtol=1e-13)
        np.testing.assert_allclose(given["found"][1], nothing["found"][1], rtol=1e-13)
        del given["found"], nothing["found"]
        for metric in (observed_expected, calibration_slope, integrated_calibration_index):
            one, other = metric(p, at=1.5, **given), metric(p, at=1.5, **nothing)
            assert vars(one)["lower" if hasattr(one, "lower") else "slope"] == pytest.approx(
                vars(other)["lower" if hasattr(other, "lower") else "slope"], rel=1e-10
            )
        one, other = (km_calibration(curves, grid, **x).value for x in (given, nothing))
        assert one == pytest.approx(other, rel=1e-12)
        one, other = (net_benefit(p, 0.4, at=1.5, **x).value for x in (given, nothing))
        assert one == pytest.approx(other, rel=1e-12)

    @pytest.mark.parametrize("seed", range(3))
    def test_concordance_is_the_sum_over_all_pairs(self, seed):
        time, cause = rows(80, seed=seed)
        outcome, n = of_cause(time, cause, 1), time.size
        risk = np.round(np.random.default_rng(seed).random(n), 1)
        g = fit_kaplan_meier(time, cause > 0, "censoring").before(time)
        at, agreed, comparable = 5.0, 0.0, 0.0
        for i in np.flatnonzero((cause == 1) & (time <= at)):
            for j in range(n):
                if time[j] > time[i] or (time[j] == time[i] and cause[j] != 1):
                    weight = 1 / g[i] ** 2
                elif cause[j] == 2 and time[j] < time[i]:
                    weight = 1 / (g[i] * g[j])
                else:
                    continue
                agreed += weight * ((risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j]))
                comparable += weight
        assert concordance_at(risk, at, outcome) == pytest.approx(agreed / comparable, abs=1e-12)

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
            found = jackknife(of_cause(time, cause, 1), at)
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
        pseudo = jackknife(of_cause(time, cause, 2), at, weights=np.ones(n))
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
