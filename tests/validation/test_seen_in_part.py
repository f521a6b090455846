"""Audits of rows that are seen in part: from an entry on. Truths whose hazards cross, against laws and R's values."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, WeibullAFTFitter

from tests.validation.simulate import Given, measure
from xcal import Surv, audit, d_calibration
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.data.surv import Outcome
from xcal.interop.predictions import ModelPredictions
from xcal.metrics import concordance_index
from xcal.metrics.observed_expected import event_ratio
from xcal.metrics.pseudo_values import doubly_robust, fit_censoring, same_for_all, score_test
from xcal.metrics.spec import Key
from xcal.validation.at_horizon import _Deviations, _World

# Curves whose shape is below 1 fall steeply at first.
TIMES = np.concatenate([np.geomspace(1e-6, 0.1, 80), np.linspace(0.12, 6.0, 200)])


def crossing(x, t):
    """Weibull curves whose shape depends on x."""
    return np.exp(-(np.asarray(t) ** np.exp(0.6 * x)))


def drawn(n, seed, *, late=0.5, share=1.0, since=False, power=1.0):
    """Rows that entered before their time: covariate, outcome, curves and F at the time and at the entry.

    `late` of the candidates enter after 0; censoring by time, or by the time `since` entry; `power` on the hazards.
    """
    rng, m = np.random.default_rng([n, seed]), 6 * n
    x = rng.normal(size=m)
    happens = rng.exponential(size=m) ** np.exp(-0.6 * x)
    entry = np.where(rng.random(m) < late, rng.uniform(0, 0.8, m), 0.0)
    leaves = share * rng.weibull(1.5, m) + (entry if since else 0.0)
    there = np.flatnonzero(np.minimum(happens, leaves) > entry)[:n]
    x, happens, leaves, entry = (values[there] for values in (x, happens, leaves, entry))
    y = Surv(time=np.minimum(happens, leaves), event=happens <= leaves, entry=entry)
    return x, y, crossing(x[:, None], TIMES) ** power, 1 - crossing(x, y["time"]) ** power


@pytest.fixture(scope="module")
def rows():
    x, y, curves, cdf = drawn(800, 1)
    given = {"survival": curves, "times": TIMES, "cdf": cdf, "horizons": [0.2, 0.7], "covariates": {"x": x}}
    return y, audit(**given, y=y, groups={"x": np.where(x > 0, "b", "a")}, n_bootstrap=40, progress=False), given


class TestEntry:
    def test_entry_at_zero_is_no_entry(self):
        _, y, curves, cdf = drawn(300, 2, late=0.0)
        assert "entry" not in y.dtype.names
        given = {"survival": curves, "times": TIMES, "cdf": cdf, "n_bootstrap": 0, "progress": False}
        plain = {"time": y["time"], "event": y["event"]}
        one, other = (audit(**given, y=form) for form in (plain, {**plain, "entry": np.zeros(300)}))
        np.testing.assert_array_equal(one.to_frame()["value"], other.to_frame()["value"])

    def test_values_are_those_of_their_functions(self, rows):
        y, found, given = rows
        early = 1 - crossing(given["covariates"]["x"], y["entry"])
        own = d_calibration(given["cdf"], y["event"], cdf_entry=early)
        for name in ("value", "floor"):
            value = found.value("d_calibration" + ("" if name == "value" else "_floor")).value
            assert value == pytest.approx(getattr(own, name), rel=2e-3)  # F at entry is read along lines
        assert found.value("d_calibration_p").value == pytest.approx(own.p_value, rel=0.02)
        ratio = event_ratio(given["cdf"], y["event"], cdf_entry=early)
        value = found.value("event_ratio")
        assert (value.value, value.lower, value.upper) == pytest.approx(
            (ratio.value, ratio.lower, ratio.upper), rel=1e-3
        )
        score = found.value("harrell")
        assert score.lower < score.value < score.upper

    def test_what_has_no_meaning_is_left_out_with_the_reason(self, rows):
        _, found, _ = rows
        skipped = {one.what: one.why for one in found.measured.skipped}
        for name in ("uno", "antolini", "ibs", "one_calibration_p", "ici_cox", "d_calibration_km", "km_calibration"):
            assert "entry" in skipped[name], name
        names = {value.metric for value in found.values}
        assert {"oe", "slope", "ici", "auc", "brier", "ipa", "event_ratio", "d_calibration_p", "oe_p"} <= names
        assert "Delayed entry" in found.data.concerns[0].what
        assert "left truncation" in found.methods

    def test_a_true_model_is_not_accused_and_a_wrong_one_is(self, rows):
        y, found, given = rows
        assert found.verdict.level in ("trust", "unknown")
        wrong = {**given, "survival": given["survival"] ** 1.6, "cdf": 1 - (1 - given["cdf"]) ** 1.6}
        assert audit(**wrong, y=y, n_bootstrap=0, progress=False).verdict.level == "distrust"

    def test_resamples_agree_with_the_formulas(self, rows):
        _, found, _ = rows
        for metric in ("oe", "slope"):
            value, draws = found.value(metric, horizon=0.7), found.measured.draws[Key(metric, 0.7)]
            assert (value.upper - value.lower) / 3.92 == pytest.approx(draws.std(), rel=0.4)

    def test_the_model_is_asked_at_its_entry(self):
        """A model that knows every time gives F at entry exactly, and the likelihood given entry."""
        x, y, _, _ = drawn(300, 3)
        table = pd.DataFrame({"x": x, "t": y["time"], "e": y["event"], "s": y["entry"]})
        model = WeibullAFTFitter().fit(table, "t", "e", entry_col="s")
        found = audit(model, table[["x"]], y, n_bootstrap=0, progress=False)
        # lifelines: the log-likelihood of the training rows given their entry, per row.
        assert found.value("nll").value == pytest.approx(-model.log_likelihood_ / 300, rel=1e-5)
        at_entry = 1 - model.predict_survival_function(table, times=[0.5]).to_numpy()[0]
        assert (at_entry > 0).all()


class TestPseudoValues:
    @pytest.mark.parametrize(("power", "since"), [(1.0, False), (2.0, False), (2.0, True)])
    def test_one_of_the_two_models_may_be_wrong(self, power, since):
        """Mean pseudo-values are the risks from entry on, wherever the model of the censoring is right."""
        x, y, curves, cdf = drawn(6000, 4, power=power, since=since)
        outcome = Outcome(y["time"], y["event"], entry=y["entry"])
        model = fit_censoring(np.column_stack([x, y["entry"]]), outcome) if since else same_for_all(outcome)
        known = y["entry"] < 0.7
        given = curves[known], TIMES, "linear", 1 - cdf[known], outcome.take(known), 0.7, model.take(known)
        values = doubly_robust(*given, at_entry=crossing(x, y["entry"])[known] ** power)
        risk = 1 - crossing(x, 0.7) / crossing(x, y["entry"])
        for own in (known, known & (x > 0)):
            left = (values - risk[known])[own[known]]
            assert abs(left.mean()) < 3.5 * left.std() / left.size**0.5

    def test_a_cox_model_of_the_censoring_is_that_of_lifelines(self):
        x, y, _, _ = drawn(400, 5)
        table = pd.DataFrame({"x": x, "t": y["time"], "c": ~y["event"], "s": y["entry"]})
        theirs = CoxPHFitter().fit(table, "t", "c", entry_col="s")
        ours = fit_censoring(x[:, None], Outcome(y["time"], y["event"], entry=y["entry"]))
        slope = np.polyfit(x, np.log(ours.factor), 1)[0]
        assert slope == pytest.approx(float(theirs.params_["x"]), rel=1e-5)
        # Its score test at zero is the log-likelihood ratio's neighbour.
        order = np.argsort(y["time"])
        args = x[order], y["time"][order], ~y["event"][order], np.inf, None, y["entry"][order]
        assert score_test(*args) == pytest.approx(float(theirs.log_likelihood_ratio_test().p_value), abs=0.02)


class TestOwnWorld:
    def sampled(self, n, seed):
        x, y, curves, cdf = drawn(n, seed)
        found = audit(survival=curves, times=TIMES, cdf=cdf, y=y, horizons=[0.3, 0.7], n_bootstrap=0, progress=False)
        assert found.horizons == (0.3, 0.7)
        early = 1 - crossing(x, y["entry"])
        p = ModelPredictions("m", "none", n, survival=curves, times=TIMES, cdf=cdf, cdf_entry=early)
        return Given(y["time"], y["event"], p, np.array([0.3, 0.7]), entry=y["entry"]).rows, x

    def test_d_is_what_is_known_less_what_was_predicted_given_entry(self):
        rows, x = self.sampled(80, 6)
        x = x[rows.order]
        for h in rows.risk:
            found = _Deviations(rows, h, rows.cdfs_since_entry[0])
            for k in range(rows.n):
                s, e, t = (float(crossing(x[k], u)) for u in (h, rows.entry[k], rows.time[k]))
                p = 1 - s / e if rows.entry[k] < h else 0.0
                known = 0.0 if rows.time[k] > h else 1.0 if rows.event[k] else 1 - s / t
                assert found.deviation[k] == pytest.approx(known - p, abs=2e-3)
            assert not found.deviation[~found.known].any()

    def test_means_of_the_draws_are_zero(self):
        rows, _ = self.sampled(60, 7)
        moments = [_Deviations(rows, h, rows.cdfs_since_entry[0]) for h in (*rows.risk, None)]
        drawn_ = _World(rows, rows.cdfs_since_entry[0]).draw(moments, 10_000, np.random.default_rng(0))
        for draws in drawn_:
            np.testing.assert_allclose(draws.mean(axis=0), 0, atol=5 * draws.std() / 10_000**0.5 + 2e-3)

    @pytest.mark.ci
    def test_true_models_are_not_accused(self):
        """80 data sets of 200 rows: 5 % of each test, three standard errors being 10 data sets."""
        few = {}
        for seed in range(80):
            x, y, curves, cdf = drawn(200, seed)
            given = {"survival": curves, "times": TIMES, "cdf": cdf, "horizons": [0.3, 0.7]}
            found = audit(**given, y=y, covariates={"x": x}, n_bootstrap=0, progress=False)
            for value in found.values:
                if value.metric.endswith("_p"):
                    few[value.metric, value.horizon] = few.get((value.metric, value.horizon), 0) + (value.value < 0.05)
        assert max(few.values()) <= 11, few


class TestRegistry:
    """R's values, by the files of the reference data."""

    def test_myeloma(self, real_data):
        folder = real_data("coarsened") / "coarsened"
        rows, predicted = (pd.read_csv(folder / f"myeloma{end}.csv") for end in ("", "_predicted"))
        time, event = rows["futime"].to_numpy(np.float64), rows["death"].to_numpy() == 1
        curve = fit_kaplan_meier(time, event, entry=rows["entry"].to_numpy(np.float64))
        np.testing.assert_allclose(
            curve.at([365, 1000, 2000, 4000]), [0.701960, 0.410468, 0.192025, 0.042798], atol=5e-7
        )
        odd = rows[rows["id"] % 2 == 1]
        early, late = (1 - np.exp(-predicted[f"cumhaz_{at}"]) for at in ("entry", "time"))
        ratio = event_ratio(late, predicted["death"], cdf_entry=early)
        assert ratio.value == pytest.approx(1.052067, abs=5e-7)
        risk = -0.066647 * (odd["year"] + 1900 - 1980) / 10 + 0.110710 * (odd["entry"] > 0)
        outcome = {"time": odd["futime"], "event": odd["death"], "entry": odd["entry"]}
        assert concordance_index(**outcome, risk=risk).value == pytest.approx(0.555197, abs=5e-7)

    def test_several_rows_of_one_person(self, real_data):
        folder = real_data("coarsened") / "coarsened"
        rows, predicted = (pd.read_csv(folder / f"pbcseq{end}.csv") for end in ("", "_predicted"))
        odd = rows[rows["id"] % 2 == 1]
        late = predicted.groupby("id")["expected"].cumsum()
        given = {"cdf_entry": 1 - np.exp(predicted["expected"] - late), "clusters": predicted["id"]}
        found = event_ratio(1 - np.exp(-late), predicted["event"], **given)
        assert (found.observed, found.n) == (68, 156)
        assert found.expected == pytest.approx(94.8872, abs=5e-5)
        factors = {"age": 0.059610, "lbili": 1.278171, "albumin": -1.431429, "edema": 1.299988}
        risk = sum(factor * odd[name] for name, factor in factors.items())
        outcome = {"time": odd["stop"], "event": odd["event"], "entry": odd["start"]}
        assert concordance_index(**outcome, risk=risk).value == pytest.approx(0.893812, abs=5e-7)


class TestConcordance:
    def test_pairs_by_hand(self):
        rng = np.random.default_rng(0)
        time, entry = rng.integers(1, 15, 80).astype(float), rng.integers(0, 14, 80).astype(float)
        there = entry < time
        time, entry = time[there], entry[there]
        event, risk = rng.random(time.size) < 0.6, rng.integers(0, 6, time.size)
        agreed = pairs = 0.0
        for i in np.flatnonzero(event):
            later = (entry < time[i]) & ((time > time[i]) | ((time == time[i]) & ~event))
            pairs += later.sum()
            agreed += (risk[i] > risk[later]).sum() + (risk[i] == risk[later]).sum() / 2
        found = concordance_index(time=time, event=event, entry=entry, risk=risk)
        assert (found.comparable, found.value) == pytest.approx((pairs, agreed / pairs))

    def test_bad_input(self):
        given = {"time": [2, 3], "event": [1, 1], "risk": [1, 2]}
        with pytest.raises(ValueError, match="method: expected 'harrell' beside times of entry"):
            concordance_index(**given, entry=[0, 1], method="uno")
        with pytest.raises(ValueError, match="entry: expected an entry before the time of the row, 3, got"):
            concordance_index(**given, entry=[0, 3])


class TestBadInput:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"cdf": [0.2] * 4}, "cdf: expected a model or survival curves"),
            ({"risk": [0.2] * 4, "horizons": 2}, "risk: expected a model or survival curves"),
            ({"survival": [[0.9, 0.2]] * 4, "times": [1, 5]}, "survival: expected curves at 10 times or more"),
            (
                {"survival": np.tile(np.linspace(0.9, 0.1, 12), (4, 1)), "times": np.arange(12) + 1, "horizons": 0.5},
                "horizons: expected times after the first entry, 1",
            ),
            (
                {
                    "survival": np.tile(np.linspace(0.9, 0.1, 12), (4, 1)),
                    "times": np.arange(12) + 1,
                    "weights": [1, 2, 3, 4],
                },
                "weights: expected None beside times of entry",
            ),
        ],
    )
    def test_words(self, given, message):
        y = Surv(time=[3, 4, 5, 6], event=[1, 0, 1, 1], entry=[1, 1, 2, 3])
        with pytest.raises(ValueError, match=message):
            audit(**given, y=y)

    def test_curves_that_end_in_zero_are_said(self):
        _, y, curves, _ = drawn(200, 8)
        time, entry = y["time"].copy(), np.maximum(y["entry"], 0.01)
        time[0], entry[0] = 0.02, 0.001
        entry[1:] = np.where(entry[1:] < 0.03, 0.03, entry[1:])
        time = np.maximum(time, entry + 1e-3)
        time[0] = 0.02
        event = y["event"].copy()
        event[0] = True
        found = audit(survival=curves, times=TIMES, y=Surv(time=time, event=event, entry=entry), n_bootstrap=0)
        serious = [one.what for one in found.data.concerns if one.serious]
        assert any("had entered by time 0.02 had the event" in what for what in serious)


def test_measure_needs_no_more_than_a_sample():
    x, y, curves, cdf = drawn(300, 9)
    early = 1 - crossing(x, y["entry"])
    p = ModelPredictions("m", "none", 300, survival=curves, times=TIMES, cdf=cdf, cdf_entry=early)
    sample = Given(y["time"], y["event"], p, np.array([0.5]), entry=y["entry"])
    part = measure(sample, n_bootstrap=30, most_rows=100)
    whole = measure(replace(sample), n_bootstrap=30)
    values = [{(v.metric, v.horizon): v for v in found.values} for found in (part, whole)]
    for key in (("brier", 0.5), ("harrell", None)):
        one, other = (found[key] for found in values)
        assert one.value == other.value
        assert (one.upper - one.lower) == pytest.approx(other.upper - other.lower, rel=0.6)
