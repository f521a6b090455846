"""Those who have come to a landmark: against the same rows restricted by hand, and lifelines' risks from there on."""

import json

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, WeibullAFTFitter
from typer.testing import CliRunner

from xcal import Surv, SurvivalModel, audit
from xcal.cli.app import app
from xcal.data.surv import Outcome, clock
from xcal.validation.page import report_page
from xcal.validation.words import to_text

TIMES = np.arange(1, 51) / 20
AT = 0.5


def drawn(n, seed, *, late=0.0, before=1.0, after=1.0):
    """Weibull rows, some entered late, and curves with factors on the hazards before and after time `AT`."""
    rng = np.random.default_rng([n, seed])
    x = rng.normal(size=4 * n)
    happens, leaves = rng.weibull(1.4, 4 * n) * np.exp(-0.6 * x), rng.uniform(0, 2.5, 4 * n)
    entry = np.where(rng.random(4 * n) < late, rng.uniform(0, 1, 4 * n), 0.0)
    there = np.flatnonzero(np.minimum(happens, leaves) > entry)[:n]
    x, happens, leaves, entry = (values[there] for values in (x, happens, leaves, entry))

    def survival(t):
        level, known = ((np.minimum(np.asarray(t), end) * np.exp(0.6 * x[:, None])) ** 1.4 for end in (np.inf, AT))
        return np.exp(-before * known - after * (level - known))

    return x, Surv(time=np.minimum(happens, leaves), event=happens <= leaves, entry=entry), survival


def values(result, group=None):
    """Values that neither resamples nor the number of landmarks change."""
    kept = (v for v in result if v.group == group and not v.metric.endswith(("_excess", "corrected", "_floor")))
    return {(v.metric, v.horizon): v.value for v in kept}


OPTIONS = {"n_bootstrap": 0, "progress": False}


@pytest.fixture(scope="module")
def rows():
    x, y, survival = drawn(500, 0)
    given = {"survival": survival(TIMES), "times": TIMES, "covariates": {"x": x}, "horizons": [0.3, 0.8]}
    return x, y, survival, audit(**given, y=y, landmarks=[0, AT], **OPTIONS)


class TestByHand:
    def test_values_are_those_of_the_rows_alone(self, rows):
        x, y, survival, found = rows
        there = y["time"] > AT
        own = {"survival": (survival(TIMES[TIMES > AT]) / survival([AT]))[there], "times": TIMES[TIMES > AT] - AT}
        later = Surv(time=y["time"][there] - AT, event=y["event"][there])
        alone = audit(**own, y=later, covariates={"x": x[there]}, horizons=[0.3, 0.8], **OPTIONS)
        ours, theirs = values(found, "landmark = 0.5"), values(alone)
        left_out = {key for key in theirs if key[0].startswith(("conditional", "subgroup"))}
        assert set(theirs) - left_out == set(ours)
        for key, value in ours.items():
            assert value == pytest.approx(theirs[key], rel=1e-9), key

    def test_from_the_start_on_it_is_the_audit(self, rows):
        found = rows[-1]
        whole = values(found)
        for key, value in values(found, "landmark = 0").items():
            assert value == pytest.approx(whole[key], rel=1e-12), key

    def test_the_same_words_everywhere(self, rows, tmp_path):
        found = rows[-1]
        assert found.landmarks == ("landmark = 0", "landmark = 0.5")
        (_, one) = found.measured.landmarks
        text = to_text(found)
        assert f"landmark = 0.5 ({one.n} rows, {one.n_events} events): by time 0.8 from there O/E" in " ".join(
            text.split()
        )
        assert "Groups" not in text
        assert "van Houwelingen" in found.methods
        assert "landmark = 0.5" in set(found.to_frame()["group"])
        assert json.loads(found.to_json())["measured"]["landmarks"][1] == {
            "at": 0.5, "name": "landmark = 0.5", "n": one.n, "n_events": one.n_events,
        }  # fmt: skip
        headings = {section.heading for section in report_page(found).sections}
        assert "Is it right for those who have come this far?" in headings
        page = found.report(tmp_path / "page.html").read_text()
        assert f"landmark = 0.5 ({one.n} rows, {one.n_events} events)" in page
        assert found._repr_html_().count("landmark = 0.5") == 1


class TestModels:
    def made(self):
        x, y, _ = drawn(400, 1)
        table = pd.DataFrame({"x": x, "t": y["time"], "e": y["event"]})
        return table, y, y["time"] > AT

    def test_a_model_that_knows_every_time(self):
        table, y, there = self.made()
        model = WeibullAFTFitter().fit(table, "t", "e")
        found = audit(model, table[["x"]], y, horizons=[0.4], landmarks=AT, **OPTIONS)
        left = model.predict_survival_function(table[there], times=[0.4], conditional_after=np.full(there.sum(), AT))
        group = {"group": "landmark = 0.5"}
        assert found.value("mean_risk", horizon=0.4, **group).value == pytest.approx(1 - left.mean(axis=None), rel=1e-9)
        shape, scale = np.exp(model.params_["rho_"]["Intercept"]), np.exp(
            model.params_["lambda_"]["Intercept"] + model.params_["lambda_"]["x"] * table["x"])  # fmt: skip
        t, e = y["time"] / scale, y["event"]
        nll = t**shape - (AT / scale) ** shape - e * np.log(shape / scale * t ** (shape - 1))
        assert found.value("nll", **group).value == pytest.approx(nll[there].mean(), rel=1e-9)

    def test_a_step_function(self):
        table, y, there = self.made()
        model = CoxPHFitter().fit(table, "t", "e")
        found = audit(model, table[["x"]], y, horizons=[0.4], landmarks=AT, **OPTIONS)
        steps = model.predict_survival_function(table[there])
        later = (steps[steps.index <= AT + 0.4].iloc[-1] / steps[steps.index <= AT].iloc[-1]).mean()
        assert found.value("mean_risk", horizon=0.4, group="landmark = 0.5").value == pytest.approx(1 - later, rel=1e-9)

    def test_our_own(self):
        table, y, there = self.made()
        x = table[["x"]].to_numpy()
        model = SurvivalModel("mtlr", epochs=3, hidden=(4,), progress=False).fit(x, y)
        found = audit(model, x, y, horizons=[0.4], landmarks=AT, **OPTIONS)
        left = model.predict_survival_function(x[there], [AT + 0.4], after=AT)
        own = found.value("mean_risk", horizon=0.4, group="landmark = 0.5").value
        assert own == pytest.approx(1 - left.mean(), rel=1e-9)


class TestDelayedEntry:
    def test_rows_that_enter_later_count_from_their_entry(self):
        """The risk from the landmark is that from the later of landmark and entry on."""
        _, y, survival = drawn(600, 2, late=0.6)
        given = {"survival": survival(TIMES), "times": TIMES, "horizons": [0.4]}
        found = audit(**given, y=y, landmarks=AT, **OPTIONS)
        there = y["time"] > AT
        start = np.maximum(y["entry"], AT)
        known = there & (start < AT + 0.4)
        risk = 1 - survival([AT + 0.4])[:, 0] / np.array([survival([t])[k, 0] for k, t in enumerate(start)])
        own = found.value("mean_risk", horizon=0.4, group="landmark = 0.5").value
        assert own == pytest.approx(risk[known].mean(), rel=2e-3)  # the curves are read along lines
        assert found.measured.landmarks[0].n == there.sum()

    def test_a_sample_whose_first_rows_died(self):
        """Kaplan-Meier is 0 from the first death on; from a landmark after it nothing is."""
        _, y, survival = drawn(400, 3, late=1.0)
        y["entry"], y["time"] = np.maximum(y["entry"], 0.1), np.maximum(y["time"], 0.12)
        y["entry"][0], y["time"][0], y["event"][0] = 0.01, 0.02, True
        found = audit(survival=survival(TIMES), times=TIMES, y=y, horizons=[0.6], landmarks=[0.2], **OPTIONS)
        assert abs(found.value("ipa", horizon=0.6).value) > abs(
            found.value("ipa", horizon=0.6, group="landmark = 0.2").value
        )


class TestVerdict:
    def test_a_model_that_is_wrong_later_is_named(self):
        """Right until the landmark, hazards 1.8 times too high from there on, and the horizon before it."""
        x, y, survival = drawn(2500, 4, after=1.8)
        given = {"survival": survival(TIMES), "times": TIMES, "horizons": [0.4], "covariates": {"x": x}}
        found = audit(**given, y=y, landmarks=[AT], **OPTIONS)
        assert any(one.group == "landmark = 0.5" and "too high" in one.text for one in found.verdict.said)

    def test_a_true_model_is_not_accused(self):
        _, y, survival = drawn(1500, 5)
        given = {"survival": survival(TIMES), "times": TIMES, "horizons": [0.4]}
        found = audit(**given, y=y, landmarks=[0.3, 0.6], **OPTIONS)
        assert found.verdict.level in ("trust", "unknown")


class TestBadInput:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"landmarks": [0.3, 9]}, r"landmarks: expected times before the last event, at about 1\.92, got 9"),
            ({"landmarks": [-1]}, "landmarks: expected finite times of zero or larger, got -1.0 at row 0"),
            ({"landmarks": "soon"}, "landmarks: "),
            ({"landmarks": 0.3, "groups": {"landmark": np.arange(100) % 2}}, "groups: expected another name than"),
            (
                {"landmarks": 0.3, "survival": None, "cdf": np.full(100, 0.5)},
                "landmarks: expected None with risks or F",
            ),
            (
                {"landmarks": 0.3, "survival": np.full((100, 2), 0.5), "times": [1, 2], "horizons": 1},
                "landmarks: expected one of the times of the curves",
            ),
        ],
    )
    def test_words(self, given, message):
        _, y, survival = drawn(100, 6)
        whole = {"survival": survival(TIMES), "times": TIMES if given.get("survival", 1) is not None else None}
        with pytest.raises(ValueError, match=message):
            audit(**{**whole, **given}, y=y, **OPTIONS)

    def test_what_cannot_be_judged_is_named(self):
        _, y, survival = drawn(300, 7)
        short = TIMES[TIMES < 1]
        found = audit(survival=survival(short), times=short, y=y, horizons=[0.4], landmarks=[0.5, 1.2], **OPTIONS)
        told = {one.group: one.why for one in found.measured.skipped if one.what == "group"}
        assert told == {"landmark = 1.2": f"the model's curves end at {short[-1]:g}"}
        late = [one for one in found.measured.skipped if one.what == "horizon"]
        assert not late
        other = audit(survival=survival(short), times=short, y=y, horizons=[0.6], landmarks=[0.5], **OPTIONS)
        assert [(one.group, one.horizon) for one in other.measured.skipped if one.what == "horizon"] == [
            ("landmark = 0.5", 0.6)
        ]


def test_the_command_line(tmp_path):
    _, y, survival = drawn(300, 8)
    columns = {f"s_{t:.4f}": s for t, s in zip(TIMES, survival(TIMES).T, strict=True)}
    pd.DataFrame({"t": y["time"], "e": y["event"].astype(int), **columns}).to_csv(tmp_path / "p.csv", index=False)
    words = ["audit", str(tmp_path / "p.csv"), "--time", "t", "--event", "e", "--curves", "s_*", "--horizons", "0.4"]
    told = CliRunner().invoke(app, [*words, "--landmarks", "0.3,0.6", "--resamples", "0"])
    assert told.exit_code == 0, told.output
    assert "landmark = 0.3 (" in told.output
    assert "landmark = 0.6 (" in told.output


def test_clocks():
    np.testing.assert_array_equal(clock(np.array([0.4, 0.3 + 0.1, 1e3 + 0.3]), 0.3), [0.1, 0.1, 1e3])
    outcome = Outcome(np.array([2.0, 5.0, 7.0]), np.array([True, False, True]), entry=np.array([0.0, 1.0, 4.0]))
    later = outcome.after(3.0, outcome.time > 3)
    assert (later.time.tolist(), later.entry.tolist()) == ([2, 4], [0, 1])
    assert outcome.after(4.0, outcome.time > 4).entry is None
