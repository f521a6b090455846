"""`xcal.audit`: what it takes, what it refuses, and that every form of the same predictions gives the same numbers."""

import numpy as np
import pandas as pd
import pytest

import xcal
from tests.metrics.simulate import survival_data
from tests.validation.simulate import Given, measure
from xcal.validation import arguments as checks
from xcal.validation.audit import shown_progress

TIMES = np.linspace(0.1, 2.5, 12)


@pytest.fixture(scope="module")
def rows():
    return survival_data(240, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def y(rows):
    return xcal.Surv(time=rows.time, event=rows.event)


def audit(*words, **options):
    return xcal.audit(*words, **{"n_bootstrap": 0, "progress": False, **options})


def numbers(result):
    return {(v.metric, v.horizon, v.group): v.value for v in result if not v.metric.endswith("_p")}


def test_every_form_of_curves_gives_the_same_numbers(rows, y):
    curves = rows.survival(TIMES)
    frame = pd.DataFrame(curves, columns=TIMES)
    expected = numbers(audit(survival=curves, times=TIMES, y=y))
    assert len(expected) > 20
    for words, options in [
        ((frame,), {}),
        ((frame.T,), {}),
        ((curves,), {"times": TIMES}),
        ((), {"survival": frame}),
    ]:
        assert numbers(audit(*words, y=y, **options)) == expected
    for outcome in ((rows.time, rows.event), pd.DataFrame({"time": rows.time, "event": rows.event})):
        assert numbers(audit(frame, y=outcome)) == expected


def test_f_alone_and_risk_alone_give_what_they_allow(rows, y):
    cdf = -np.expm1(-rows.rate * rows.time)
    only_f = audit(cdf=cdf, y=y)
    assert only_f.horizons == ()
    assert only_f.value("d_calibration").value == pytest.approx(xcal.d_calibration(cdf, rows.event).value, rel=1e-12)
    assert "oe" not in {value.metric for value in only_f}
    only_risk = audit(risk=rows.probability(1.0), horizons=1.0, y=y)
    assert only_risk.horizons == (1.0,)
    kaplan_meier = xcal.metrics.kaplan_meier(time=rows.time, event=rows.event)
    expected = (1 - kaplan_meier.at(1.0)) / rows.probability(1.0).mean()
    assert only_risk.value("oe", horizon=1.0).value == pytest.approx(expected, rel=1e-12)
    assert "d_calibration" not in {value.metric for value in only_risk}


def test_survival_data_brings_its_outcomes(rows, y):
    class Truth:
        unique_times_ = TIMES

        def predict_survival_function(self, X):
            return np.exp(-np.asarray(X)[:, :1] * TIMES)

    data = xcal.SurvivalData(rows.rate[:, None], rows.time, rows.event, feature_names=("rate",))
    curves = {"survival": rows.survival(TIMES), "times": TIMES, "covariates": {"rate": rows.rate}}
    assert numbers(audit(Truth(), data)) == numbers(audit(**curves, y=y))
    with pytest.raises(ValueError, match="nothing beside SurvivalData"):
        audit(Truth(), data, y)


def test_groups_in_every_form(rows, y):
    sex = np.where(rows.rate > 1, "high", "low")
    X = pd.DataFrame({"rate": rows.rate, "level": sex})
    curves = {"survival": rows.survival(TIMES), "times": TIMES, "y": y}
    expected = numbers(audit(**curves, covariates=X, groups={"level": sex}))
    assert {group for _, _, group in expected} == {None, "level = high", "level = low"}
    assert numbers(audit(**curves, X=X, groups=["level"])) == expected
    for groups in (["level"], "level", X[["level"]], X["level"]):
        found = checks.read_groups(groups, X, 240)
        assert {name: labels.tolist() for name, labels in found.items()} == {"level": sex.tolist()}
    small = np.where(np.arange(240) < 12, "few", "many")
    told = audit(**curves, groups={"size": small})
    assert told.groups == ("size = many",)
    assert any("Too few events to judge: size = few." in sentence for sentence in told.verdict.sentences)
    assert checks.read_groups({"g": [1.0, 2.0, np.nan]}, None, 3)["g"].tolist() == ["1", "2", "missing"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"horizons": [0.5, 99]}, r"horizons: expected times within the follow-up, which ends at about \d"),
        ({"horizons": [-1.0]}, "finite times above 0, got -1.0 at row 0"),
        ({"horizons": 2.55}, "the model's curves cover, which end at 2.5, got 2.55"),
        ({"groups": ["sex"]}, "where X is no data frame, got the name 'sex'"),
        ({"groups": {"rate": np.arange(240.0)}}, r"cut it first: pandas.cut"),
        ({"groups": {"id": [f"p{i}" for i in range(240)]}}, "at most 30 groups, got 240"),
        ({"groups": {"sex": ["f"]}}, r"groups\['sex'\]: expected 240 labels, one per row, got 1"),
        ({"thresholds": [0.0, 0.5]}, "thresholds: expected risks between 0 and 1, got 0.0 at row 0"),
        ({"n_bootstrap": "many"}, "n_bootstrap: expected 'auto' or a number"),
        ({"n_bootstrap": -1}, "n_bootstrap"),
        ({"level": 95}, "level: expected a number between 0 and 1"),
        (
            {"risk": np.zeros(240)},
            "expected one of them, or survival with cdf, got 2 of them",
        ),
        ({"cdf": np.full(240, 2.0)}, r"cdf: expected values in \[0, 1\], got 2.0 at row 0"),
        ({"interpolation": "cubic"}, "interpolation"),
        ({"progress": 3}, "progress"),
        ({"name": ""}, "name: expected a name"),
    ],
)
def test_bad_arguments(rows, y, options, words):
    assert rows.time.max() > 2.55
    with pytest.raises(ValueError, match=words):
        audit(survival=rows.survival(TIMES), times=TIMES, y=y, **options)


def test_days_taken_for_years_are_refused_and_few_expected_events_are_not():
    rng = np.random.default_rng(0)
    days, risk = 365 * rng.uniform(1.5, 9.0, 200), np.full(200, 0.3)
    y = xcal.Surv(time=days, event=np.ones(200, dtype=bool))
    for given in ({"risk": risk}, {"survival": 1 - risk[:, None] * [[0.5, 1.0]], "times": [1.0, 2.0]}):
        with pytest.raises(ValueError, match=r"horizons: .*outcomes in days.* got 2, by which 60 events are expected"):
            audit(**given, horizons=2.0, y=y, n_bootstrap=0)
    assert audit(risk=risk / 10, horizons=2.0, y=y, n_bootstrap=0).value("oe", horizon=2.0).value == 0
    # Of few independent patients no event may be chance.
    audit(risk=risk, horizons=2.0, y=y, clusters=np.arange(200) % 10, n_bootstrap=0)


def test_bad_outcomes_and_predictions(rows, y):
    curves = rows.survival(TIMES)
    with pytest.raises(ValueError, match="y: expected the outcomes"):
        audit(curves, times=TIMES)
    with pytest.raises(ValueError, match="y: expected at least one event, got 240 censored rows"):
        audit(curves, times=TIMES, y=(rows.time, np.zeros(240, dtype=bool)))
    with pytest.raises(ValueError, match="expected at least 2 rows"):
        audit(curves[:1], times=TIMES, y=y[:1])
    with pytest.raises(ValueError, match="expected 100 rows"):
        audit(curves, times=TIMES, y=y[:100])
    with pytest.raises(ValueError, match="expected one of them, or survival with cdf, got none"):
        audit(y=y)
    with pytest.raises(ValueError, match="the one time at which risk= was predicted"):
        audit(risk=rows.probability(1.0), y=y)
    with pytest.raises(ValueError, match="None with cdf="):
        audit(cdf=np.full(240, 0.5), y=y, horizons=1.0)
    with pytest.raises(ValueError, match=r"survival: expected probabilities in .*got nan at row"):
        audit(pd.DataFrame(np.where(curves > 0.9, np.nan, curves), columns=TIMES), y=y)


def test_default_horizons_lie_where_rows_are():
    rng = np.random.default_rng(0)
    time, event = rng.exponential(1000, 5000), rng.uniform(size=5000) < 0.5
    found = checks.default_horizons(time, event)
    limit = checks.supported_until(time, event)
    assert np.count_nonzero(time >= limit) >= 250
    quartiles = np.quantile(time[event & (time <= limit)], [0.25, 0.5, 0.75])
    # Readable numbers are at most a third apart: the closest one is within a sixth.
    assert np.allclose(found, quartiles, rtol=1 / 6)
    assert all(float(f"{t:.2g}") == t for t in found)
    assert checks.default_horizons(time, event, end=100.0).max() <= 100
    assert checks.default_horizons(np.array([3.0, 3.0]), np.array([True, True])).tolist() == [3.0]


def test_resamples_stay_within_a_minute_of_work():
    assert [checks.read_resamples("auto", n)[0] for n in (10, 10_000, 20_000, 1_000_000)] == [1000, 1000, 500, 200]
    assert [checks.read_resamples("auto", n)[1] for n in (50_000, 50_001)] == [None, 10_000]
    assert checks.read_resamples(0, 10) == (0, None)
    assert checks.read_resamples(70, 1_000_000) == (70, None)


def test_training_rows_in_every_form(rows):
    y = xcal.Surv(time=rows.time, event=rows.event)
    X = pd.DataFrame({"rate": rows.rate})
    for given in (y, (rows.time, rows.event), (X, y), xcal.SurvivalData(X, rows.time, rows.event)):
        _, outcome = checks.read_training(given)
        assert np.array_equal(outcome.time, rows.time)
        assert np.array_equal(outcome.event, rows.event)
    assert checks.read_training((X, y))[0] is X


def test_progress_is_told(rows, y):
    seen = []
    audit(survival=rows.survival(TIMES), times=TIMES, y=y, n_bootstrap=20, progress=lambda *step: seen.append(step))
    assert all(0 <= done <= total for done, total in seen)


def test_a_progress_that_cannot_be_told():
    for given, got in ((len, "which takes"), ("yes", "got 'yes'")):
        expected = f"progress: expected True, False, None or a function .*{got}"
        with pytest.raises(ValueError, match=expected), shown_progress(given):
            raise AssertionError("too late")


def test_rows_past_the_end_of_the_curves_count_as_censored_also_where_f_is_exact(rows):
    from xcal.interop import ModelPredictions

    end = 1.0
    cdf = -np.expm1(-rows.rate * np.minimum(rows.time, end))
    found = ModelPredictions("m", "none", 240, survival=rows.survival([0.5, end]), times=np.array([0.5, end]), cdf=cdf)
    sample = Given(rows.time, rows.event, found, np.array([0.5]), np.array([0.5]))
    value = next(v.value for v in measure(sample, n_bootstrap=0).values if v.metric == "d_calibration")
    expected = xcal.d_calibration(cdf, rows.event & (rows.time <= end)).value
    assert value == pytest.approx(expected, rel=1e-12)
    assert expected != pytest.approx(xcal.d_calibration(cdf, rows.event).value, rel=1e-3)


def test_a_value_that_is_not_there_is_answered_with_what_is():
    rng = np.random.default_rng(0)
    y = (rng.exponential(size=60), np.full(60, True))
    result = xcal.audit(risk=rng.uniform(0.3, 0.7, 60), horizons=1.0, y=y, n_bootstrap=0)
    with pytest.raises(KeyError, match=r"no 'oe' at horizon 2.0 in group None; its horizons .* are \(1.0, None"):
        result.value("oe", horizon=2.0)
    with pytest.raises(KeyError, match=r"no 'O/E' at horizon 1.0 in group None; there are .*oe"):
        result.value("O/E", horizon=1.0)


def test_weights_are_those_of_the_training_rows_unless_these_are_censored_otherwise():
    made = survival_data(400, rng=np.random.default_rng(0), censoring_scale=1.0)
    given = {"survival": made.survival([0.5, 1.0]), "times": [0.5, 1.0], "horizons": 1.0, "n_bootstrap": 0}
    y = (made.time, made.event)

    def brier(**options):
        result = xcal.audit(**given, y=y, **options)
        return result.value("brier", horizon=1.0).value, result

    alone, _ = brier()
    alike = survival_data(400, rng=np.random.default_rng(1), censoring_scale=1.0)
    found, told = brier(training=(alike.time, alike.event))
    assert found != alone
    assert abs(found - alone) < 0.02
    assert "in the training rows" in told.methods
    # The training rows were followed up for long: by their weights every censored row here would count for nothing.
    longer = survival_data(400, rng=np.random.default_rng(2), censoring_scale=50.0)
    found, told = brier(training=(longer.time, longer.event))
    assert found == alone
    assert "in the training rows" not in told.methods
    assert any(concern.what.startswith("Censoring differs") for concern in told.data.concerns)


FEW = np.array([0.5, 1.0, 2.0])


def test_of_a_few_points_of_a_curve_the_horizons_are_these_and_f_is_not_guessed():
    """Straight lines through three points of a true curve are no F: D-calibration would call it wrong."""
    many = survival_data(1500, rng=np.random.default_rng(3))
    given = {"survival": many.survival(FEW), "times": FEW, "y": (many.time, many.event), "progress": False}
    alone = audit(**given, n_bootstrap=0)
    assert alone.horizons == (0.5, 1.0, 2.0)
    assert "d_calibration" not in {value.metric for value in alone}
    (why,) = [one.why for one in alone.measured.skipped if one.what == "d_calibration"]
    assert "curves at 3 times do not tell" in why
    exact = -np.expm1(-many.rate * many.time)
    both = audit(**given, cdf=exact, n_bootstrap=0)
    within = many.event & (many.time <= 2.0)
    # Past the last of the times a row counts as censored there, with the F of there.
    expected = xcal.d_calibration(np.where(many.time > 2.0, 1 - np.exp(-2.0 * many.rate), exact), within)
    assert both.value("d_calibration").value == pytest.approx(expected.value, rel=1e-9)
    assert both.verdict.level in ("trust", "unknown")
    assert any("as given, not read off the curves at 3 times" in sentence for sentence in both.reading)


def test_curves_on_the_very_times_of_the_rows_need_not_be_many():
    months = np.arange(1.0, 6.0)
    rng = np.random.default_rng(4)
    time, event = rng.integers(1, 6, 300).astype(float), rng.random(300) < 0.5
    result = audit(survival=np.tile(np.exp(-0.2 * months), (300, 1)), times=months, y=(time, event), n_bootstrap=0)
    assert "d_calibration" in {value.metric for value in result}


@pytest.mark.ci
def test_a_model_with_exact_f_is_not_accused_where_the_times_end_early():
    """A true model of lifelines, asked at times that end before the follow-up: later events count as censored there."""
    from lifelines import WeibullAFTFitter

    off = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        frame = pd.DataFrame({"x": rng.normal(size=1000)})
        happens = np.exp(0.4 * frame["x"]) * rng.weibull(1.5, 1000)
        leaves = rng.uniform(0.3, 1.8, 1000)
        frame["time"], frame["event"] = np.minimum(happens, leaves), happens <= leaves
        fitted = WeibullAFTFitter().fit(frame, "time", "event")
        times = np.linspace(0.05, 1.0, 20)
        result = audit(fitted, frame[["x"]], frame[["time", "event"]], times=times, n_bootstrap=0, progress=False)
        off.append(result.value("d_calibration_p").value < 0.05)
    assert sum(off) <= 2


def test_rows_that_an_index_says_are_others_are_refused(rows):
    X = pd.DataFrame({"rate": rows.rate}, index=[f"p{k}" for k in range(240)])
    frame = pd.DataFrame({"time": rows.time, "event": rows.event}, index=X.index)
    shuffled = frame.sample(frac=1, random_state=0)
    given = {"survival": rows.survival(TIMES), "times": TIMES, "X": X, "n_bootstrap": 0}
    assert numbers(audit(**given, y=frame)) == numbers(audit(**given, y=(frame["time"], frame["event"])))
    with pytest.raises(ValueError, match=r"y\['time'\]: expected rows with the index of X, .* the same labels"):
        audit(**given, y=shuffled)
    with pytest.raises(ValueError, match=r"y\['event'\]: expected rows with the index of X"):
        audit(**given, y=(frame["time"], shuffled["event"]))
    for name in ("groups", "clusters", "covariates"):
        labels = pd.Series(np.where(rows.rate > 1, "a", "b"), index=X.index, name="g").loc[shuffled.index]
        option = {name: labels.to_frame() if name == "covariates" else labels}
        with pytest.raises(ValueError, match=rf"{name}.*: expected rows with the index of X"):
            audit(**given, y=frame, **option)


def test_a_time_that_few_rows_reach_is_named_where_it_is_no_horizon(rows):
    """Somebody predicted for it: to leave it out without a word looks like an oversight."""
    late = float(np.sort(rows.time)[-3])
    times = np.array([0.0, 0.3, 1.0, late])
    given = {"survival": rows.survival(times), "times": times, "y": (rows.time, rows.event), "n_bootstrap": 0}
    found = audit(**given)
    assert found.horizons == (0.3, 1.0)  # nothing happens by time 0
    (named,) = [one for one in found.measured.skipped if one.what == "horizon"]
    assert named.horizon == late
    assert "few rows are still under observation" in named.why
    asked = audit(**given, horizons=[1.0, late])
    assert not [one for one in asked.measured.skipped if one.what == "horizon"]
