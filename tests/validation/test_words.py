"""The data summary, the verdict and the methods, on rows whose truth is known."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import xcal
from tests.metrics.simulate import survival_data
from tests.validation.made_result import made_result
from tests.validation.simulate import sample
from xcal.validation.export import to_text
from xcal.validation.findings import interval_state
from xcal.validation.measurements import AuditValue, Measurements
from xcal.validation.result import Concern, DataSummary
from xcal.validation.summary import Training, differing_columns, summarise_data
from xcal.validation.verdict import judge

NAN = math.nan


def measurements(*values):
    return Measurements(values, (), (), (), (), None, None, ())


def data(n_events=500, concerns=()):
    return DataSummary(1000, n_events, 10.0, 5.0, 0, 0, tuple(concerns))


def value(metric, value, lower=NAN, upper=NAN, horizon=None, group=None):
    return AuditValue(metric, horizon, group, value, lower, upper)


def calibrated(p=0.4, dcal=1e-4):
    return (value("d_calibration", dcal), value("d_calibration_floor", 2e-4), value("d_calibration_p", p))


GOOD = (
    value("oe", 1.02, 0.92, 1.13, 5.0),
    value("cox_slope", 0.97, 0.88, 1.06),
    value("ici", 0.01, 0.0, 0.03, 5.0),
    *calibrated(),
)


def verdict(*values, **options):
    return judge("M", measurements(*values), data(**options), level=0.95, time_unit="years")


@pytest.mark.parametrize(
    ("lower", "upper", "state"),
    [
        (0.9, 1.1, "right"),
        (1.3, 1.6, "wrong"),
        (0.5, 0.7, "wrong"),
        (1.1, 1.4, "off"),
        (0.7, 1.4, "unsure"),
        (NAN, NAN, "unsure"),
        (2.0, 2.0, "unsure"),
    ],
)
def test_an_interval_is_judged(lower, upper, state):
    assert interval_state(value("oe", 1.0, lower, upper), 1.0, (0.8, 1.25)) == state


def test_an_average_error_is_never_zero():
    assert interval_state(value("ici", 0.03, 0.01, 0.06), None, (0.0, 0.05)) == "unsure"
    assert interval_state(value("ici", 0.06, 0.04, 0.08), None, (0.0, 0.05)) == "off"
    assert interval_state(value("ici", 0.03, 0.01, 0.05), None, (0.0, 0.05)) == "right"


def test_good_values_on_enough_events_are_trusted():
    found = verdict(*GOOD)
    assert found.level == "trust"
    assert found.headline == "The probabilities of M can be trusted on rows like these."
    assert any("500 events in 1,000 rows" in sentence for sentence in found.sentences)


@pytest.mark.parametrize("n_events", [1, 19, 99])
def test_few_events_are_never_trusted(n_events):
    found = verdict(*GOOD, n_events=n_events)
    assert found.level == "unknown"
    assert "too few to say" in found.headline


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (value("oe", 1.5, 1.3, 1.7, 5.0), "too low on average"),
        (value("oe", 0.6, 0.5, 0.7, 5.0), "too high on average"),
        (value("cox_slope", 0.5, 0.4, 0.6), "too extreme"),
        (value("cox_slope", 1.6, 1.4, 1.9), "differ too little"),
        (value("ici", 0.12, 0.08, 0.16, 5.0), "off by 12.0 points"),
    ],
)
def test_what_is_wrong_is_said(bad, words):
    others = [v for v in GOOD if v.metric != bad.metric]
    found = verdict(bad, *others)
    assert found.level == "distrust"
    assert found.sentences[0].startswith("Wrong: ")
    assert words in found.sentences[0]
    assert words in found.headline


@pytest.mark.parametrize(
    ("bad", "level"),
    [
        # Twice as wide the interval reaches 1.5 x (1.3 / 1.5)^2 = 1.13, and 2.5 x (1.9 / 2.5)^2 = 1.44.
        (value("oe", 1.5, 1.3, 1.7, 5.0), "unknown"),
        (value("oe", 2.5, 1.9, 3.3, 5.0), "distrust"),
        # And for a slope 0.5 + 2 x 0.2 = 0.9, and 0.3 + 2 x 0.2 = 0.7.
        (value("cox_slope", 0.5, 0.3, 0.7), "unknown"),
        (value("cox_slope", 0.3, 0.1, 0.5), "distrust"),
        (value("ici", 0.12, 0.08, 0.16, 5.0), "unknown"),
        (value("ici", 0.2, 0.14, 0.26, 5.0), "distrust"),
    ],
)
def test_with_few_events_only_what_is_clearly_wrong_is_distrusted(bad, level):
    others = [v for v in GOOD if v.metric != bad.metric]
    found = verdict(bad, *others, n_events=50)
    assert found.level == level
    assert verdict(bad, *others, n_events=100).level == "distrust"
    two = verdict(bad, value("d_calibration", 0.02), *calibrated(p=1e-3)[1:], n_events=50)
    assert two.level == "distrust"
    if level == "unknown":
        assert found.headline.endswith("; what there is speaks against it.")
        assert found.sentences[0].startswith("Wrong, if it is not chance: ")


def test_many_errors_are_counted_and_the_largest_of_each_metric_is_told():
    ratios = [value("oe", ratio, ratio - 0.1, ratio + 0.1, horizon) for horizon, ratio in ((1.0, 1.5), (2.0, 1.9))]
    errors = [value("ici", 0.1, 0.08, 0.12, horizon) for horizon in (1.0, 2.0)]
    found = verdict(*ratios, *errors, value("cox_slope", 0.5, 0.4, 0.6))
    assert "O/E 1.90" in found.sentences[0]
    assert "O/E 1.50" not in found.sentences[0]
    # Five values are wrong; O/E and ICI are told once each.
    assert found.sentences[0].endswith("; 3 more values.")
    assert found.sentences[0].count(";") == 2
    assert found.headline.count("risks by") == 2
    groups = [value("oe", 2.0, 1.9, 2.1, 5.0, f"site = {k}") for k in range(6)]
    assert verdict(*GOOD, *groups).headline.endswith("but not in site = 0, site = 1, site = 2 and 3 more groups.")


def test_risks_the_wrong_way_round_are_not_called_too_extreme():
    reversed_risks = verdict(value("cox_slope", -0.8, -1.0, -0.6), *GOOD[2:])
    assert "higher risks come with later events (are they probabilities of survival?)" in reversed_risks.headline
    assert "too extreme" in verdict(value("cox_slope", -0.1, -0.4, 0.2), *GOOD[2:]).headline


def test_sentences_that_a_short_text_leaves_out_are_counted():
    result = made_result(good=False)
    many = tuple(f"Sentence {k}." for k in range(7))
    text = to_text(replace(result, verdict=replace(result.verdict, sentences=many)))
    assert "Sentence 3." in text
    assert "Sentence 4." not in text
    assert "- 3 more sentences in the report" in text
    assert "more sentence" not in to_text(replace(result, verdict=replace(result.verdict, sentences=many[:4])))


def test_concordance_and_its_interval_have_the_same_digits():
    told = verdict(*GOOD, value("harrell", 0.9876, 0.9854, 0.9899)).sentences
    assert "Rows are put in order with Harrell's concordance 0.988, 95 % interval 0.985 to 0.990." in told


def test_d_calibration_needs_a_test_and_a_size_that_matters():
    others = GOOD[:3]
    assert verdict(*others, *calibrated(p=1e-6, dcal=0.005)).level == "distrust"
    assert verdict(*others, *calibrated(p=0.03, dcal=0.005)).level == "caution"
    assert verdict(*others, *calibrated(p=0.3, dcal=0.005)).level == "caution"
    # A large sample shows an error that does not matter: 1e-5 over the floor is sqrt(1e-5 x 10) = 1 % of a bin.
    assert verdict(*others, *calibrated(p=1e-6, dcal=2.1e-4)).level == "trust"


def test_wide_intervals_and_concerns_ask_for_caution():
    wide = verdict(value("oe", 1.0, 0.6, 1.6, 5.0), *GOOD[1:])
    assert wide.level == "caution"
    assert "too weak" in wide.headline
    without = verdict(*[v for v in GOOD if v.metric != "ici"], value("ici", 0.01, horizon=5.0))
    assert without.level == "caution"
    assert "no interval to judge by, as nothing was resampled" in without.headline
    worried = verdict(*GOOD, concerns=[Concern("Discrete times", "The test is not valid.", True)])
    assert worried.level == "caution"
    assert any("Discrete times. The test is not valid." in sentence for sentence in worried.sentences)


def test_groups_count_when_they_are_more_than_chance():
    chance = verdict(*GOOD, value("oe", 1.3, 1.05, 1.6, 5.0, "sex = f"))
    assert chance.level == "trust"
    wrong = verdict(*GOOD, value("oe", 1.8, 1.5, 2.2, 5.0, "sex = f"))
    assert wrong.level == "caution"
    assert "not in sex = f" in wrong.headline
    tested = [
        value(name, v, group="sex = m")
        for name, v in (("d_calibration", 0.004), ("d_calibration_floor", 2e-4), ("d_calibration_p", 0.01))
    ]
    corrected = value("d_calibration_p_corrected", 0.2, group="sex = m")
    assert verdict(*GOOD, *tested, corrected).level == "trust"
    assert verdict(*GOOD, *tested, value("d_calibration_p_corrected", 0.02, group="sex = m")).level == "caution"


def test_nothing_to_judge_is_unknown():
    assert verdict(value("harrell", 0.7, 0.6, 0.8)).level == "unknown"


def test_verdicts_of_a_true_and_a_false_model():
    """Two thousand rows of a known law: its own probabilities, and those of a law that is twice as fast."""
    rows = survival_data(2000, rng=np.random.default_rng(0))
    y, times = xcal.Surv(time=rows.time, event=rows.event), np.linspace(0.05, 8.0, 160)
    true, false = (
        xcal.audit(survival=rows.survival(times, fast), times=times, y=y, n_bootstrap=0, progress=False)
        for fast in (1.0, 2.0)
    )
    assert true.verdict.level != "distrust"
    assert not any(sentence.startswith("Wrong") for sentence in true.verdict.sentences)
    assert false.verdict.level == "distrust"
    assert "too high on average" in " ".join(false.verdict.sentences)


def test_data_summary_counts():
    made = sample(300)
    found = summarise_data(made, Training())
    assert (found.n, found.n_events) == (300, made.event.sum())
    assert found.n_past_grid == (made.time > made.predictions.times[-1]).sum() > 0
    assert found.n_tied_times == 0
    assert any("past the end of the curves" in concern.what for concern in found.concerns)
    tied = summarise_data(sample(300, grid=0.5), Training())
    assert tied.n_tied_times >= 290
    discrete = [concern for concern in tied.concerns if concern.what.startswith("Discrete times")]
    assert discrete[0].serious


def test_few_events_and_few_rows_at_a_horizon():
    small = summarise_data(sample(30, horizons=np.array([0.3, 2.0])), Training())
    told = " ".join(concern.what for concern in small.concerns)
    assert "Few events" in told
    assert "Few rows under observation at time 2" in told
    heavy = sample(400)
    rare = sample(400, event=heavy.event & (np.arange(400) % 8 == 0))
    assert any("Heavy censoring" in concern.what for concern in summarise_data(rare, Training()).concerns)


def test_training_rows_that_differ_are_named():
    rng = np.random.default_rng(3)
    made = sample(600)
    X = pd.DataFrame({"age": rng.normal(60, 10, 600), "sex": rng.choice(["f", "m"], 600)})
    same = sample(600, seed=1)
    alike = Training(X, X.sample(frac=1, random_state=0), (same.time, same.event))
    assert not [c for c in summarise_data(made, alike).concerns if "training" in c.what]
    assert summarise_data(made, alike).compared_with_training
    assert not summarise_data(made, Training()).compared_with_training
    older = Training(X, X.assign(age=X["age"] + 8), (same.time / 2, same.event))
    told = " ".join(c.what for c in summarise_data(made, older).concerns)
    assert "Covariates differ from those of the training rows: age" in told
    assert "Censoring differs" in told
    assert "Outcomes differ" in told
    assert differing_columns(X, X.assign(sex=rng.choice(["f", "m"], 600, p=[0.9, 0.1]))) == ["sex"]


def test_methods_tell_what_was_computed_and_cite_it():
    made = survival_data(300, rng=np.random.default_rng(0))
    y = xcal.Surv(time=made.time, event=made.event)
    whole = xcal.audit(survival=made.survival([0.5, 1, 2]), times=[0.5, 1, 2], y=y, n_bootstrap=0, time_unit="years")
    assert "Brier" in whole.methods
    assert "Intervals (95 %) are analytic" in whole.methods
    assert "training rows" not in whole.methods
    weighted = xcal.audit(
        survival=made.survival([0.5, 1, 2]), times=[0.5, 1, 2], y=y, n_bootstrap=0, training=y, time_unit="years"
    )
    assert "censoring in the training rows" in weighted.methods
    assert (
        "Risks were assessed at 1 year."
        in xcal.audit(risk=made.probability(1.0), horizons=1, y=y, n_bootstrap=0, time_unit="years").methods
    )
    only_f = xcal.audit(cdf=-np.expm1(-made.rate * made.time), y=y, n_bootstrap=0).methods
    assert "D-calibration" in only_f
    for absent in ("Brier", "O/E", "net benefit", "ROC"):
        assert absent not in only_f
    for text in (whole.methods, only_f):
        body, references = text.split("\n\n")
        listed = references.splitlines()
        assert all(line.startswith(f"[{k}] ") for k, line in enumerate(listed, 1))
        cited = {int(k) for part in body.split("[")[1:] for k in part.split("]")[0].split(",")}
        assert cited == set(range(1, len(listed) + 1))


def test_exports(tmp_path):
    made = survival_data(300, rng=np.random.default_rng(0))
    y = xcal.Surv(time=made.time, event=made.event)
    times = [0.5, 1.0, 2.0]
    result = xcal.audit(
        survival=made.survival(times), times=times, y=y, groups={"g": made.rate > 1}, n_bootstrap=20, progress=False
    )
    frame = result.to_frame()
    assert list(frame.columns) == ["metric", "horizon", "group", "value", "lower", "upper"]
    assert len(frame) == len(result.values)
    text = result.to_json(tmp_path / "audit.json")
    assert (tmp_path / "audit.json").read_text() == text
    read = json.loads(text)
    assert read["horizons"] == list(result.horizons)
    assert [v["value"] for v in read["measured"]["values"]] == [v.value for v in result]
    for kept, drawn in zip(read["measured"]["calibration"], result.measured.calibration, strict=True):
        observed = [NAN if v is None else v for v in kept["observed"]]
        assert np.array_equal(observed, drawn.observed, equal_nan=True)
    assert "draws" not in read["measured"]
    shown = repr(result)
    assert len(shown.splitlines()) <= 32
    assert max(map(len, shown.splitlines())) <= 120
    assert result.verdict.headline.split(":")[0] in shown.replace("\n", " ")
    with pytest.raises(OSError, match="nowhere"):
        result.to_json(tmp_path / "nowhere" / "audit.json")


def test_infinities_become_text_in_json():
    from xcal.validation.export import as_plain

    assert as_plain((NAN, math.inf, -math.inf, np.float32(0.5), np.array([1, 2]))) == [None, "inf", "-inf", 0.5, [1, 2]]
