"""Audits of events with several causes: a published validation, simulated truths, and today's audit for one cause."""

import json
import re

import jsonschema
import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from studies.causes import GRID, drawn, incidences

from xcal import Surv, audit, compare_models
from xcal.data.surv import Outcome
from xcal.metrics.observed import fit_aalen_johansen, two_causes
from xcal.metrics.pseudo_values import doubly_robust, same_for_all
from xcal.validation.export import schema
from xcal.validation.page import report_page

OPTIONS = {"n_bootstrap": 0, "progress": False}
NAMES = ("recurrence", "death")
COLUMNS = ["age", "size", "nodes_positive", "hr_negative"]


@pytest.fixture(scope="module")
def published(real_data):
    """Cox models of both causes by lifelines, and the audit of the validation rows."""
    folder = real_data("competing_risks") / "competing_risks"
    before, rows = (pd.read_csv(folder / f"{name}.csv") for name in ("development", "validation"))
    models = {
        name: CoxPHFitter().fit(before[[*COLUMNS, "time"]].assign(event=before["cause"] == k), "time", "event")
        for k, name in enumerate(NAMES, 1)
    }
    y = Surv(time=rows["time"], cause=rows["cause"], causes=NAMES)
    given = {"horizons": [2, 5], "censoring": "independent", "thresholds": [0.05, 0.1, 0.15, 0.2, 0.25]}
    return models, rows, audit(models, rows[COLUMNS], y, **given, **OPTIONS)


# Horizon: value by metric, of the README beside the data; those of a smooth curve are within .003 of R's loess.
PUBLISHED = {
    2.0: {"observed_risk": 0.048096, "oe": 0.749, "slope": 1.339, "intercept": -0.0728, "auc": 0.8101, "brier": 0.04289}
    | {"ipa": 0.0631, "mean_risk": 0.064195},
    5.0: {"observed_risk": 0.103207, "oe": 0.806, "slope": 1.218, "intercept": -0.1509, "auc": 0.7149, "brier": 0.08730}
    | {"ipa": 0.0568, "mean_risk": 0.128051, "concordance": 0.7097},
}
SMOOTH = {2.0: (0.02088, 0.02149, 0.03311), 5.0: (0.02923, 0.03168, 0.03809)}
RATIO = {2.0: (0.569, 0.987), 5.0: (0.671, 0.968)}
ERRORS = {2.0: {"slope": 0.284, "intercept": 0.158}, 5.0: {"slope": 0.194, "intercept": 0.105}}


class TestPublishedValidation:
    @pytest.mark.parametrize("horizon", [2.0, 5.0])
    def test_every_value(self, published, horizon):
        found = published[2].by_cause["recurrence"]
        for metric, value in PUBLISHED[horizon].items():
            assert found.value(metric, horizon=horizon).value == pytest.approx(value, abs=6e-4 if value > 0.2 else 6e-5)
        for metric, value in zip(("ici", "e50", "e90"), SMOOTH[horizon], strict=True):
            assert found.value(metric, horizon=horizon).value == pytest.approx(value, abs=0.0032)
        ratio = found.value("oe", horizon=horizon)
        assert (ratio.lower, ratio.upper) == pytest.approx(RATIO[horizon], abs=6e-4)
        for metric, error in ERRORS[horizon].items():
            one = found.value(metric, horizon=horizon)
            assert (one.upper - one.lower) / (2 * 1.96) == pytest.approx(error, abs=6e-4)

    def test_net_benefit(self, published):
        curve = published[2].by_cause["recurrence"].measured.decision[1]
        np.testing.assert_allclose(curve.model, [0.05601, 0.03078, 0.01783, 0.01375, 0.00700], atol=6e-6)

    def test_one_event_of_several_is_said_to_be_no_risk(self, published):
        models, rows, _ = published
        y = Surv(time=rows["time"], cause=rows["cause"], causes=NAMES)
        any_event = audit(models["recurrence"], rows[COLUMNS], y, horizons=5, **OPTIONS)
        said = [one for one in any_event.data.concerns if one.serious]
        assert any("is not a risk" in one.effect for one in said)
        assert any_event.cause == ""
        # One minus Kaplan-Meier says .1123 where .1032 had the event.
        one = audit(models["recurrence"], rows[COLUMNS], y, horizons=5, cause="recurrence", **OPTIONS)
        assert (one.cause, one.by_cause) == ("recurrence", {})
        assert one.value("observed_risk", horizon=5).value == pytest.approx(0.103207, abs=1e-6)
        mean = 1 - models["recurrence"].predict_survival_function(rows[COLUMNS], times=[5.0]).to_numpy().mean()
        assert one.value("mean_risk", horizon=5).value == pytest.approx(mean, abs=1e-9)


def rows_of(n=600, seed=0, latest=3.0, model="true"):
    x, time, cause = drawn(n, latest, np.random.default_rng(seed))
    return x, Surv(time=time, cause=cause, causes=NAMES), incidences(x, model)


@pytest.fixture(scope="module")
def simulated():
    x, y, curves = rows_of()
    given = {"times": GRID, "horizons": [0.5, 1.0], "covariates": {"x": x}, "time_unit": "years"}
    return x, y, curves, audit(cif=curves, y=y, **given, **OPTIONS)


class TestForms:
    def test_a_frame_and_a_value_say_their_cause(self, simulated):
        found = simulated[3]
        frame = found.to_frame()
        assert frame.columns.tolist() == ["metric", "horizon", "group", "cause", "value", "lower", "upper"]
        assert set(frame["cause"].dropna()) == set(NAMES)
        line = frame[(frame["cause"] == "death") & (frame["metric"] == "oe") & (frame["horizon"] == 1)]
        assert line["value"].item() == found.value("oe", horizon=1.0, cause="death").value
        assert found.value("oe", horizon=1.0, cause="death") == found.by_cause["death"].value("oe", horizon=1.0)
        with pytest.raises(KeyError, match="no cause 'relapse'; there is recurrence, death"):
            found.value("oe", horizon=1.0, cause="relapse")

    @pytest.mark.parametrize("form", ["mapping", "numbers", "object", "one cause"])
    def test_the_same_from_other_forms(self, simulated, form):
        x, y, curves, found = simulated
        given = {"times": GRID, "horizons": [0.5, 1.0], "covariates": {"x": x}, **OPTIONS}

        class Model:
            times_ = GRID

            def predict_cumulative_incidence(self, X, times=None):
                return incidences(X["x"].to_numpy(), "true")

        if form == "object":
            given["covariates"] = None
            other = audit(Model(), pd.DataFrame({"x": x}), y, horizons=[0.5, 1.0], **OPTIONS)
        elif form == "one cause":
            own = audit(cif={"death": curves[:, 1]}, y=y, **given)
            assert (own.cause, own.by_cause) == ("death", {})
            other = found.by_cause["death"]
            # Censoring depends on x here: without the incidence of the other cause it is corrected by levels of risk.
            ratios = [[v.value for v in one if v.metric == "oe"] for one in (own, other)]
            np.testing.assert_allclose(*ratios, rtol=0.02)
            return
        elif form == "mapping":
            other = audit(cif={"death": curves[:, 1], "recurrence": curves[:, 0]}, y=y, **given)
        else:
            numbered = Surv(time=y["time"], cause=y["cause"])
            other = audit(cif=curves, y=numbered, **given)
        for own, name in zip(other.by_cause.values(), NAMES, strict=True):
            for value in found.by_cause[name]:
                if not value.metric.endswith(("_p", "corrected")) and value.group is None:
                    again = own.value(value.metric, horizon=value.horizon).value
                    assert again == pytest.approx(value.value, rel=1e-9, abs=1e-12)

    def test_one_cause_is_an_event_like_any_other(self, simulated):
        _, y, curves, _ = simulated
        happened = y["cause"] == 1
        one = Surv(time=y["time"], cause=happened.astype(int), causes=("recurrence",))
        given = {"survival": 1 - curves[:, 0], "times": GRID, "horizons": [1.0], **OPTIONS}
        plain = audit(y=Surv(time=y["time"], event=happened), **given)
        assert audit(y=one, **given).to_json() == plain.to_json()
        assert plain.by_cause == {}

    def test_everything_is_on_the_page_and_in_the_json(self, simulated, tmp_path):
        found = simulated[3]
        assert found.verdict.level in ("trust", "unknown")  # the incidences are true
        page = report_page(found)
        assert page.selectors[0].options == ("any", *NAMES)
        text = found.report(tmp_path / "causes.html").read_text(encoding="utf-8")
        for name in NAMES:
            assert found.by_cause[name].verdict.headline.split(":")[0][:40] in text
        content = json.loads(found.to_json())
        jsonschema.validate(content, schema())
        assert list(content["by_cause"]) == list(NAMES)
        assert "death, " in str(found)
        assert "death, " in found._repr_html_()

    def test_the_methods_are_those_of_competing_risks(self, published, simulated):
        everything = published[2].methods
        told = everything.split("\n\n")[0]
        assert "recurrence and death were then judged" in told
        for words in ("Aalen-Johansen", "O/E of a cause", "pseudo-observations", "D-calibration by cause"):
            assert words in told
        for one in (everything, published[2].by_cause["death"].methods, simulated[3].methods):
            text, listed = one.split("\n\n")
            cited = [int(one) for group in re.findall(r"\[([\d, ]+)\]", text) for one in group.split(", ")]
            assert list(dict.fromkeys(cited)) == list(range(1, len(listed.splitlines()) + 1))
            assert "van Geloven" in listed
        alone = published[2].by_cause["death"].methods.replace("reverse Kaplan-Meier", "")
        assert "Aalen-Johansen" in alone
        assert "Kaplan-Meier" not in alone
        # Censoring depends on x here, and values of both causes are corrected for it.
        assert "doubly robust pseudo-values (pseudo-observations)" in simulated[3].methods

    def test_all_times_of_one_cause_point_to_all_causes(self, simulated):
        _, y, curves, found = simulated

        def told(result):
            (answer,) = [one for one in result.verdict.answers if one.question == "All times"]
            return answer

        value, p = (found.value(name).value for name in ("cause_calibration", "cause_calibration_p"))
        for one in found.by_cause.values():
            assert told(one).state == "unknown"
            assert f"Of all causes together: D-calibration by cause {value:.2g}, of a" in told(one).text
            assert f"(p = {p:.2f})" in told(one).text
        alone = audit(cif={"death": curves[:, 1]}, y=y, times=GRID, horizons=1.0, **OPTIONS)
        assert "even for no model" in told(alone).text
        # Causes of which the split ignores x: D-calibration of the first event is right, that by cause is not.
        _, y, curves = rows_of(2000, 5, model="even")
        wrong = audit(cif=curves, y=y, times=GRID, horizons=1.0, **OPTIONS)
        assert wrong.value("cause_calibration_p").value < 0.001
        assert told(wrong).state in ("off", "small")
        assert "by cause" in told(wrong).text

    def test_resamples_hold_every_value(self):
        _, y, curves = rows_of(300)
        found = audit(cif=curves, times=GRID, y=y, horizons=1.0, n_bootstrap=40, progress=False)
        for one in found.each:
            for value in one:
                if value.metric in ("auc", "brier", "ipa", "ibs", "concordance", "km_calibration"):
                    assert value.lower <= value.value <= value.upper, value


def test_models_are_compared_by_cause(simulated):
    x, y, *_ = simulated

    class Model:
        times_ = GRID

        def __init__(self, model):
            self.model = model

        def predict_cumulative_incidence(self, X, times=None):
            return incidences(X["x"].to_numpy(), self.model)

    models = {"true": Model("true"), "even": Model("even")}
    both = compare_models(models, pd.DataFrame({"x": x}), y, horizons=1.0, n_bootstrap=30, progress=False)
    death = both.of_cause("death")
    (difference,) = [one for one in death.differences["even"] if (one.metric, one.horizon) == ("brier", 1.0)]
    own = [both[name].value("brier", horizon=1.0, cause="death").value for name in ("even", "true")]
    assert difference.value == pytest.approx(own[0] - own[1])
    assert difference.lower < difference.value < difference.upper
    with pytest.raises(ValueError, match="cause: expected a cause that every model was judged for"):
        both.of_cause("relapse")


class TestTruth:
    @pytest.mark.ci
    def test_a_true_model_is_not_accused_and_wrong_ones_are_found(self):
        for model, wrong in (("true", False), ("x 1.25", True), ("even", True)):
            x, y, curves = rows_of(2000, 5, model=model)
            given = {"times": GRID, "horizons": [0.5, 1.0], "covariates": {"x": x}}
            found = audit(cif=curves, y=y, **given, **OPTIONS)
            bad = found.verdict.level in ("caution", "distrust")
            assert bad == wrong, (model, found.verdict)
            assert (found.value("cause_calibration_p").value < 0.01) == wrong

    @pytest.mark.ci
    def test_censoring_that_depends_on_covariates_is_corrected(self):
        """Against outcomes of the same rows that nothing censored: the mean of doubly robust values is their share."""
        rng = np.random.default_rng(3)
        x, time, cause = drawn(8000, 1e9, rng)
        leaves = rng.exponential(1.5 * np.exp(-1.5 * x))
        seen, of = np.minimum(time, leaves), np.where(leaves < time, 0, cause)
        truth = np.mean((time <= 1.0) & (cause == 1))
        curves = incidences(x, "true")
        given = {"times": GRID, "horizons": [1.0], "covariates": {"x": x}, **OPTIONS}
        found = audit(cif=curves, y=Surv(time=seen, cause=of), **given)
        assert found.by_cause["1"].measured.censoring.corrected
        assert found.value("observed_risk", horizon=1.0, cause="1").value == pytest.approx(truth, abs=0.012)
        left = audit(cif=curves, y=Surv(time=seen, cause=of), censoring="independent", **given)
        assert abs(left.value("observed_risk", horizon=1.0, cause="1").value - truth) > 0.015

    def test_doubly_robust_values_without_curves_are_aalen_johansen(self):
        """With everybody's own Aalen-Johansen curve in place of predictions the values have its mean."""
        _, time, cause = drawn(400, 2.0, np.random.default_rng(0))
        outcome = Outcome(time, cause == 1, competing=cause == 2)
        outcome = outcome.take(outcome.order())
        curves = fit_aalen_johansen(outcome.time, two_causes(outcome), 2)
        of_cause, free = (np.tile(one, (400, 1)) for one in (1 - curves.incidence[0], curves.survival))
        own = (1 - curves.at(outcome.time, of=1), np.interp(outcome.time, curves.times, curves.survival))
        given = (of_cause, curves.times, "previous", own[0], outcome, 1.0, same_for_all(outcome))
        found = doubly_robust(*given, free=(free, own[1]))
        assert found.mean() == pytest.approx(float(curves.at(1.0, of=1)), abs=2e-3)


X, Y, CURVES = rows_of(60)
FALLS = CURVES.copy()
FALLS[3, 0, 50] = 0.0
OVER = CURVES.copy()
OVER[2] *= 3.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cif": FALLS}, r"cif\[3\].*never fall in time|cif.*never fall in time.*row 3"),
        ({"cif": OVER}, r"cif.*(add up to at most 1|probabilities in \[0, 1\])"),
        ({"cif": CURVES[:, :, :-1]}, "cif"),
        ({"cif": CURVES[:50]}, "cif: expected shape"),
        ({"cif": CURVES, "times": None}, "times: expected the times of the last dimension of cif, got None"),
        (
            {"cif": CURVES, "cause": "relapse"},
            "cause: expected one of the causes of y: recurrence, death, got 'relapse'",
        ),
        ({"cif": CURVES, "cause": 3}, "cause: expected one of the causes of y: recurrence, death, got 3"),
        (
            {"cif": {"death": CURVES[:, 1]}, "cause": "recurrence"},
            "cause: expected a cause that the model knows: death",
        ),
        ({"cif": {"relapse": CURVES[:, 1]}}, "model: expected causes among those of y: recurrence, death"),
        ({"cdf": np.full(60, 0.5), "times": None, "cause": "death"}, "cause: expected None with cdf="),
        ({"cif": CURVES, "survival": CURVES[:, 0]}, "model, survival, cif, cdf, risk: expected one of them"),
        ({"cif": CURVES, "landmarks": 0.2, "cause": "death"}, "landmarks: expected None where one cause is judged"),
        (
            {"cif": CURVES, "y": Surv(time=Y["time"], cause=np.minimum(Y["cause"], 1), causes=NAMES)},
            "y: expected an event of every cause that is judged .*, got none of 'death'",
        ),
        ({"cif": CURVES, "y": Surv(time=Y["time"], event=Y["event"]), "cause": 1}, "cause: expected None where y has"),
        (
            {"cif": CURVES, "training": Surv(time=[1, 2, 3], cause=["other", "death", 0], causes=("other", "death"))},
            "training: expected the causes of y: recurrence, death, got 'other'",
        ),
        (
            {"cif": CURVES, "y": Surv(time=Y["time"] + 1, cause=Y["cause"], entry=np.ones(60) / 2)},
            "y: expected rows under observation from the start",
        ),
    ],
)
def test_what_cannot_be_audited_is_refused(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        audit(**{"y": Y, "times": GRID, "horizons": None, **given}, **OPTIONS)
