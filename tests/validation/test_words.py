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
from xcal.data.surv import Outcome
from xcal.metrics.pit import PitHistogram
from xcal.metrics.spec import Skipped
from xcal.validation import methods
from xcal.validation.result import AuditValue, Concern, DataSummary, Measurements, PartFound, Sentence
from xcal.validation.summary import Training, differing_columns, summarise_data
from xcal.validation.verdict import Finding, in_short, judge, state_of
from xcal.validation.words import broken, to_text, wrapped

NAN = math.nan


def measurements(*values, n_families=2):
    return Measurements(values, (), (), (), (), None, None, (), n_families=n_families)


def data(n_events=500, concerns=()):
    return DataSummary(1000, n_events, 10.0, 5.0, 0, 0, tuple(concerns))


def value(metric, value, lower=NAN, upper=NAN, horizon=None, group=None):
    return AuditValue(metric, horizon, group, value, lower, upper)


def corrected_p(metric, p, horizon=None, group=None):
    """A p-value that is corrected for the tests at horizons already."""
    return value(f"{metric}_p_corrected", p, horizon=horizon, group=group)


def calibrated(p=0.4, excess=(0.0, 0.0, 1e-3), group=None):
    return (
        value("d_calibration", 3e-4, group=group),
        value("d_calibration_floor", 2e-4, group=group),
        value("d_calibration_excess", *excess, group=group),
        value("d_calibration_p", p, group=group),
    )


def of_ratio(ratio, lower, upper, p, horizon=5.0, group=None):
    return value("oe", ratio, lower, upper, horizon, group), corrected_p("oe", p, horizon, group)


def of_slope(slope, lower, upper, p, horizon=5.0, group=None):
    return value("slope", slope, lower, upper, horizon, group), corrected_p("slope", p, horizon, group)


def of_error(ici, lower, upper, p, horizon=5.0, group=None):
    index = value("ici", ici, lower, upper, horizon, group), value("ici_floor", 0.01, horizon=horizon, group=group)
    return *index, corrected_p("ici", p, horizon, group)


PARTS = {
    "oe": of_ratio(1.02, 0.92, 1.13, 0.6),
    "slope": of_slope(0.97, 0.88, 1.06, 0.7),
    "ici": of_error(0.01, 0.0, 0.03, 0.5),
    "d_calibration": calibrated(),
}


def good_but(name=None, *values):
    """Good values of everything, with those of one kind in place of the good ones."""
    return [v for kind, own in PARTS.items() for v in (values if kind == name else own)]


GOOD = good_but()


def verdict(*values, n_families=2, **options):
    return judge("M", measurements(*values, n_families=n_families), data(**options), level=0.95, time_unit="years")


@pytest.mark.parametrize(
    ("lower", "upper", "p", "state"),
    [
        (0.9, 1.1, 0.5, "right"),
        (0.9, 1.1, 1e-3, "right"),  # a test that the interval does not confirm
        (1.02, 1.1, 0.015, "small"),
        (1.3, 1.6, 1e-3, "wrong"),
        (0.5, 0.7, 1e-3, "wrong"),
        (0.5, 0.7, 0.015, "off"),  # outside of the range, and not beyond doubt
        (1.1, 1.4, 1e-3, "off"),
        (1.1, 1.4, 0.2, "unsure"),  # chance, among so many tests
        (0.7, 1.4, 0.5, "unsure"),
        (1.3, 1.6, NAN, "unsure"),
        (NAN, NAN, 1e-3, "unsure"),
    ],
)
def test_a_value_is_judged_by_its_interval_and_its_test(lower, upper, p, state):
    assert state_of(value("oe", 1.0, lower, upper), 1.0, (0.8, 1.25), p) == state


@pytest.mark.parametrize(
    ("upper", "p", "state"),
    [
        (0.04, 1e-3, "small"),  # "good" never stands beside such a p-value
        (0.04, 0.03, "right"),
        (0.06, 1e-3, "off"),
        (0.06, 0.03, "unsure"),
    ],
)
def test_a_distance_may_be_zero_by_its_interval_and_not_by_its_test(upper, p, state):
    assert state_of(value("ici", 0.02, 0.0, upper), 0.0, (0.0, 0.05), p) == state


def test_good_values_on_enough_events_are_trusted():
    found = verdict(*GOOD)
    assert found.level == "trust"
    assert found.headline == "The probabilities of M can be trusted on rows like these."
    assert any("500 events in 1,000 rows" in sentence for sentence in found.sentences)
    assert found.events_needed is None


@pytest.mark.parametrize("n_events", [1, 19, 99])
def test_few_events_are_never_trusted(n_events):
    found = verdict(*GOOD, n_events=n_events)
    assert found.level == "unknown"
    assert "too few to say" in found.headline
    assert found.events_needed >= 100


@pytest.mark.parametrize(
    ("name", "bad", "words"),
    [
        ("oe", of_ratio(1.5, 1.3, 1.7, 1e-3), "too low on average"),
        ("oe", of_ratio(0.6, 0.5, 0.7, 1e-3), "too high on average"),
        ("slope", of_slope(0.5, 0.4, 0.6, 1e-3), "too extreme"),
        ("slope", of_slope(1.6, 1.4, 1.9, 1e-3), "not spread widely enough"),
        ("ici", of_error(0.12, 0.08, 0.16, 1e-3), "off by 12.0 points"),
        ("d_calibration", calibrated(1e-3, (0.01, 0.005, 0.02)), "32 % too many or too few"),
    ],
)
def test_what_is_wrong_is_said(name, bad, words):
    found = verdict(*good_but(name, *bad))
    assert found.level == "distrust"
    assert found.sentences[0].startswith("Wrong: ")
    assert words in found.sentences[0]
    # A number of bins of F is nothing that a reader repeats.
    assert ("other times than predicted" if name == "d_calibration" else words) in found.headline
    # Few events do not take away what is shown beyond doubt: the p-value counts them.
    assert verdict(*good_but(name, *bad), n_events=50).level == "distrust"


def test_p_values_are_multiplied_by_the_families_of_tests():
    """Of two families: .03 is .06, and says nothing."""
    assert verdict(*good_but("oe", *of_ratio(0.6, 0.5, 0.7, 0.012))).level == "unknown"
    assert verdict(*good_but("oe", *of_ratio(0.6, 0.5, 0.7, 0.008))).level == "caution"
    assert verdict(*good_but("oe", *of_ratio(0.6, 0.5, 0.7, 0.004))).level == "distrust"
    assert verdict(*good_but("oe", *of_ratio(0.6, 0.5, 0.7, 0.008)), n_families=3).level == "unknown"


def test_an_error_that_is_real_and_small_does_not_cost_trust_and_is_said():
    found = verdict(*good_but("oe", *of_ratio(0.93, 0.9, 0.96, 1e-3)))
    assert found.level == "trust"
    assert found.sentences[0].startswith("Small, but no chance: risks by 5 years are too high on average")
    dcal = verdict(*good_but("d_calibration", *calibrated(1e-4, (2e-4, 1e-4, 4e-4))))
    assert dcal.level == "trust"
    assert "p < 0.0001" not in " ".join(s for s in dcal.sentences if s.startswith("Good enough"))
    zero = verdict(*good_but("d_calibration", *calibrated(1e-4, (1e-4, 0.0, 4e-4))))
    assert any(s.startswith("Small, but no chance: over all times") for s in zero.sentences)
    assert not any(s.startswith("Good enough") and "D-calibration" in s for s in zero.sentences)


@pytest.mark.parametrize(
    ("mass", "said"),
    [
        (np.linspace(0.06, 0.14, 10), "over all times events come later than predicted"),
        (np.linspace(0.14, 0.06, 10), "over all times events come earlier than predicted"),
        (0.06 + 0.0048 * (np.arange(10) - 4.5) ** 2, "over all times predicted distributions are too narrow"),
        (0.14 - 0.0048 * (np.arange(10) - 4.5) ** 2, "over all times predicted distributions are too wide"),
        (np.tile([0.06, 0.14], 5), "over all times events come at other times than predicted"),
    ],
)
def test_d_calibration_is_told_by_what_its_histogram_shows(mass, said):
    """A headline that a reader can repeat, where the shape is plain: a third of saw teeth is none."""
    pit = PitHistogram("uniform", None, np.linspace(0, 1, 11), mass / mass.sum(), mass, mass)
    measured = replace(measurements(*good_but("d_calibration", *calibrated(1e-4, (0.025, 0.02, 0.03)))), pit=(pit,))
    found = judge("M", measured, data(), level=0.95, time_unit="years")
    assert f"cannot be trusted as they are: {said}" in found.headline
    assert "hold 50 % too many or too few events (D-calibration" in found.sentences[0]


def test_of_an_average_error_no_more_is_told_than_is_known():
    """The floor is no error of the model, and where the interval holds zero the headline has no number."""
    left = value("ici_excess", 0.101, 0.08, 0.16, 5.0)
    assert (
        "off by 10.1 points on average" in verdict(*good_but("ici", *of_error(0.12, 0.08, 0.16, 1e-3)), left).headline
    )
    found = verdict(*good_but("ici", *of_error(0.056, 0.0, 0.115, 1e-3)), value("ici_excess", 0.05, 0.0, 0.115, 5.0))
    assert found.level == "caution"
    assert found.headline.endswith("with caution: risks by 5 years are not right for each level of risk.")
    words = "(ICI 5.6 points, 95 % interval 0.0 to 11.5; a perfect model would show 1.0; p = 0.001)"
    assert words in found.sentences[0]


def test_a_small_p_value_stands_beside_what_is_good_enough():
    """.03 of one test is .06 among two families: not off, and not hidden either."""
    for name, values in (
        ("oe", (*of_ratio(1.02, 0.92, 1.13, 0.03), value("oe_p", 0.02, horizon=5.0))),
        ("d_calibration", calibrated(0.03)),
    ):
        found = verdict(*good_but(name, *values))
        assert found.level == "trust"
        (said,) = [sentence for sentence in found.sentences if "though a test alone questions it" in sentence]
        shown = "O/E by 5 years: 1.02 (interval 0.92 to 1.13): p = 0.02" if name == "oe" else "0.0002: p = 0.03"
        assert f"{shown}, among all tests p = 0.06." in said
        (good,) = [sentence for sentence in found.sentences if sentence.startswith("Good enough: ")]
        assert ("O/E" in good, "D-calibration" in good) == (name != "oe", name == "oe")
    assert not any("questions" in sentence for sentence in verdict(*GOOD).sentences)


def test_a_slope_that_is_uncertain_is_told_and_costs_no_trust():
    found = verdict(*good_but("slope", *of_slope(0.85, 0.77, 0.93, 0.4)))
    assert found.level == "trust"
    (said,) = [sentence for sentence in found.sentences if "slope" in sentence]
    assert said == (
        "Uncertain, and the average error says how much it can matter: "
        "calibration slope by 5 years: 0.85 (interval 0.77 to 0.93)."
    )
    assert not any("Uncertain" in sentence for sentence in verdict(*GOOD).sentences)


def test_an_average_error_may_not_exceed_a_quarter_of_the_risk():
    rare = value("observed_risk", 0.04, horizon=5.0)  # a quarter of 4 % is 1 point
    assert verdict(*good_but("ici", *of_error(0.006, 0.0, 0.02, 0.5)), rare).level == "unknown"
    assert verdict(*good_but("ici", *of_error(0.006, 0.0, 0.009, 0.5)), rare).level == "trust"


def test_too_few_events_come_with_how_many_would_be_enough():
    """An interval twice as wide as the good range takes four times the events, and to lie in it twice as many again."""
    wide = verdict(*good_but("oe", *of_ratio(1.0, 1.25**-2, 1.25**2, 0.9)))
    assert wide.level == "unknown"
    assert wide.events_needed == 4000
    assert "500 events are too few" in wide.headline
    assert "about 4,000 would be enough" in wide.headline
    error = verdict(*good_but("ici", *of_error(0.03, 0.0, 0.075, 0.9)))
    assert error.events_needed == 2300  # 2 x 500 x (0.075 / 0.05)^2 = 2,250, rounded up


def test_a_wide_slope_alone_does_not_keep_from_trust():
    assert verdict(*good_but("slope", *of_slope(1.0, 0.5, 1.5, 0.9))).level == "trust"


def test_near_the_limit_is_not_too_few_events():
    near = verdict(*good_but("oe", *of_ratio(1.2, 1.15, 1.26, 1e-3)))
    assert near.level == "caution"
    assert "too few" not in near.headline


def test_many_errors_are_counted_and_the_largest_of_each_metric_is_told():
    ratios = [v for at, oe in ((1.0, 1.5), (2.0, 1.9)) for v in of_ratio(oe, oe - 0.1, oe + 0.1, 1e-3, at)]
    errors = [v for at in (1.0, 2.0) for v in of_error(0.1, 0.08, 0.12, 1e-3, at)]
    found = verdict(*ratios, *errors, *of_slope(0.5, 0.4, 0.6, 1e-3))
    assert "O/E 1.90" in found.sentences[0]
    assert "O/E 1.50" not in found.sentences[0]
    # Five values are wrong; O/E and ICI are told once each, and where else they are wrong is named.
    also = "; also O/E by 1 year, the average error (ICI) by 2 years and the calibration slope by 5 years."
    assert found.sentences[0].endswith(also)
    assert found.sentences[0].count(";") == 4  # two of them beside the ICI
    assert found.headline.count("risks by") == 2
    groups = [v for k in range(6) for v in of_ratio(2.0, 1.9, 2.1, 1e-3, group=f"site = {k}")]
    assert verdict(*GOOD, *groups).headline.endswith("not hold in site = 0, site = 1, site = 2 and 3 more groups.")


def test_risks_the_wrong_way_round_are_not_called_too_extreme():
    backwards = verdict(*good_but("slope", *of_slope(-0.8, -1.0, -0.6, 1e-3)))
    assert "higher risks by 5 years come with later events (are they probabilities of survival?)" in backwards.headline
    assert "too extreme" in verdict(*good_but("slope", *of_slope(-0.1, -0.4, 0.2, 1e-3))).headline


def test_sentences_that_a_short_text_leaves_out_are_counted():
    result = made_result(good=False)
    many = tuple(Sentence(f"Sentence {k}.") for k in range(7))
    text = to_text(replace(result, verdict=replace(result.verdict, said=many)))
    assert "Sentence 3." in text
    assert "Sentence 4." not in text
    assert "- 3 more sentences in the report" in text
    assert "more sentence" not in to_text(replace(result, verdict=replace(result.verdict, said=many[:4])))


def test_discrimination_and_its_interval_have_the_same_digits():
    told = verdict(*GOOD, value("harrell", 0.9876, 0.9854, 0.9899)).sentences
    assert "Discrimination: Harrell's C 0.988, 95 % interval 0.985 to 0.990." in told


def test_serious_concerns_ask_for_caution():
    worried = verdict(*GOOD, concerns=[Concern("Few rows", "The value is not known.", True)])
    assert worried.level == "caution"
    assert any("Few rows. The value is not known." in sentence for sentence in worried.sentences)


def test_groups_count_when_they_are_more_than_chance():
    chance = verdict(*GOOD, *of_ratio(1.6, 1.3, 1.9, 0.2, group="sex = f"))
    assert chance.level == "trust"
    wrong = verdict(*GOOD, *of_ratio(1.8, 1.5, 2.2, 1e-3, group="sex = f"))
    assert wrong.level == "caution"
    assert "not hold in sex = f" in wrong.headline
    (said,) = [one for one in wrong.said if one.group == "sex = f"]
    assert said.text.startswith("Where sex = f: risks by 5 years are too low on average")
    off = calibrated(1e-3, (0.01, 0.005, 0.02), group="sex = m")
    assert verdict(*GOOD, *off, value("d_calibration_p_corrected", 0.2, group="sex = m")).level == "trust"
    assert verdict(*GOOD, *off, value("d_calibration_p_corrected", 0.005, group="sex = m")).level == "caution"


def test_parts_of_covariates_count_as_groups_do():
    def with_part(p, ratio=(1.6, 1.3, 1.9)):
        part = PartFound("age > 70", 5.0, 200, 90, *ratio, p)
        found = replace(measurements(*GOOD), parts=(part,))
        return judge("M", found, data(), level=0.95, time_unit="years")

    doubt = with_part(0.04)  # two families: no error is shown, and no trust given before more events
    assert doubt.level == "unknown"
    assert "may not hold in age > 70" in doubt.headline
    told = "In doubt where age > 70, and perhaps chance: risks by 5 years are too low on average (O/E 1.60"
    assert told in " ".join(doubt.sentences)
    assert doubt.events_needed == 730  # 2 x 500 x (log(1.9 / 1.3) / 2 / log(1.25))^2 = 723, rounded up
    assert with_part(0.04, (1.2, 1.1, 1.3)).level == "trust"  # as it looks, not by enough to matter
    found = with_part(1e-3)
    assert found.level == "caution"
    assert "not hold in age > 70" in found.headline
    assert "Where age > 70: risks by 5 years are too low on average (O/E 1.60" in " ".join(found.sentences)
    assert with_part(1e-3, (1.1, 1.05, 1.15)).level == "trust"  # real, and small


def test_a_small_error_of_a_part_hides_no_doubt_at_another_horizon():
    small = PartFound("age > 70", None, 200, 190, 1.1, 1.05, 1.15, 0.001)
    larger = PartFound("age > 70", 5.0, 200, 90, 1.6, 1.3, 1.9, 0.04)
    found = replace(measurements(*GOOD), parts=(small, larger))
    answer = judge("M", found, data(), level=0.95, time_unit="years")
    assert answer.level == "unknown"
    assert "In doubt where age > 70, and perhaps chance: risks by 5 years" in " ".join(answer.sentences)
    assert judge("M", replace(found, parts=(small,)), data(), level=0.95, time_unit="years").level == "trust"


def test_groups_that_were_not_judged_are_named_whatever_they_are_called():
    skipped = (
        Skipped("group", "1 event in 9 rows", group="blood in urine = yes"),
        Skipped("ici", "no row has the event by then", 1.0, "sex = f"),
    )
    found = judge("M", replace(measurements(*GOOD), skipped=skipped), data(), level=0.95, time_unit="")
    assert "Too few events to judge: blood in urine = yes." in found.sentences


def test_coarse_times_that_hide_the_answer_are_what_is_told():
    wide = good_but("oe", *of_ratio(0.9, 0.7, 1.3, 0.5))
    far, near = ({5.0: seen} for seen in ((0.9, 1.15), (0.95, 0.99)))
    told = judge("M", replace(measurements(*wide), seen=far), data(), level=0.95, time_unit="months")
    assert told.level == "unknown"
    assert "too coarse" in told.headline
    assert told.events_needed is None
    assert "would tell" not in " ".join(told.sentences)
    assert "too few" in judge("M", replace(measurements(*wide), seen=near), data(), level=0.95, time_unit="").headline
    assert judge("M", replace(measurements(*GOOD), seen=far), data(), level=0.95, time_unit="").level == "trust"


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


NOTHING = measurements()


def test_data_summary_counts():
    made = sample(300)
    found = summarise_data(made.made, Training(), NOTHING)
    assert (found.n, found.n_events) == (300, made.event.sum())
    assert found.n_past_grid == (made.time > made.predictions.times[-1]).sum() > 0
    assert found.n_tied_times == 0
    assert any("past the end of the curves" in concern.what for concern in found.concerns)
    tied = summarise_data(sample(300, grid=0.5).made, Training(), replace(NOTHING, seen={0.6: (0.97, 1.2)}))
    assert tied.n_tied_times >= 290
    (coarse,) = [concern for concern in tied.concerns if concern.what.startswith("Times in whole units")]
    assert "O/E at 0.6 is 0.97 or 1.20" in coarse.effect
    settled = summarise_data(sample(300, grid=0.5, last_seen="end").made, Training(), NOTHING).concerns
    assert any(concern.what.startswith("Times in whole units") for concern in settled)
    exact = summarise_data(sample(300, grid=0.5, last_seen="exact").made, Training(), NOTHING).concerns
    assert not any(concern.what.startswith("Times in whole units") for concern in exact)


def test_few_events_and_few_rows_at_a_horizon():
    small = summarise_data(sample(30, horizons=np.array([0.3, 2.0])).made, Training(), NOTHING)
    told = " ".join(concern.what for concern in small.concerns)
    assert "Few events" in told
    assert "Few rows under observation at time 2" in told
    heavy = sample(400)
    rare = sample(400, event=heavy.event & (np.arange(400) % 8 == 0))
    assert any("Heavy censoring" in concern.what for concern in summarise_data(rare.made, Training(), NOTHING).concerns)


def test_training_rows_that_differ_are_named():
    rng = np.random.default_rng(3)
    made = sample(600)
    X = pd.DataFrame({"age": rng.normal(60, 10, 600), "sex": rng.choice(["f", "m"], 600)})
    same = sample(600, seed=1)
    alike = Training(X, X.sample(frac=1, random_state=0), Outcome(same.time, same.event))
    assert not [c for c in summarise_data(made.made, alike, NOTHING).concerns if "training" in c.what]
    assert summarise_data(made.made, alike, NOTHING).compared_with_training
    assert not summarise_data(made.made, Training(), NOTHING).compared_with_training
    older = Training(X, X.assign(age=X["age"] + 8), Outcome(same.time / 2, same.event))
    told = " ".join(c.what for c in summarise_data(made.made, older, NOTHING).concerns)
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


def test_methods_say_what_tests_at_horizons_were_compared_with(monkeypatch):
    """A model without whole curves has no world to draw from, and rows of one patient are not drawn one by one."""
    made = survival_data(300, rng=np.random.default_rng(0))
    given = {"y": xcal.Surv(time=made.time, event=made.event), "n_bootstrap": 0, "progress": False}
    times = np.linspace(0.1, 3.0, 30)
    curves = {"survival": made.survival(times), "times": times, "horizons": 1.0}
    assert "compared with draws from the model's own curves;" in xcal.audit(**curves, **given).methods
    alone = xcal.audit(risk=made.probability(1.0), horizons=1.0, **given)
    assert "compared with random signs of the rows;" in alone.methods
    # Three times are no whole curve: F at the observed times is not read from them.
    few = {"survival": made.survival([0.5, 1, 2]), "times": [0.5, 1, 2]}
    assert "compared with random signs of the rows;" in xcal.audit(**few, **given).methods
    together = xcal.audit(**curves, **given, clusters=np.arange(300) // 3)
    assert "compared with random signs of whole clusters;" in together.methods
    monkeypatch.setattr(methods, "MANY_EVENTS", 100)
    assert "compared with the normal law of such sums;" in xcal.audit(**curves, **given).methods


def test_exports(tmp_path):
    made = survival_data(300, rng=np.random.default_rng(0))
    y = xcal.Surv(time=made.time, event=made.event)
    times = [0.5, 1.0, 2.0]
    result = xcal.audit(
        survival=made.survival(times), times=times, y=y, groups={"g": made.rate > 1}, n_bootstrap=20, progress=False
    )
    frame = result.to_frame()
    assert list(frame.columns) == ["metric", "horizon", "group", "cause", "value", "lower", "upper"]
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
    from xcal.validation.words import as_plain

    assert as_plain((NAN, math.inf, -math.inf, np.float32(0.5), np.array([1, 2]))) == [None, "inf", "-inf", 0.5, [1, 2]]


def test_a_phrase_names_the_horizons_where_a_value_has_one():
    def short(horizon):
        value = AuditValue("oe", horizon, None, 1.04, 0.86, 1.26)
        return in_short([Finding(value, "unclear", "", "")], "months")

    assert short(12.0) == ["O/E by 12 months: 1.04 (interval 0.86 to 1.26)"]
    assert short(None) == ["O/E 1.04 (interval 0.86 to 1.26)"]


@pytest.mark.parametrize("n_words", [5, 40, 60, 61, 70])
def test_long_sentences_are_cut_at_a_word(n_words):
    """At most three lines, none longer than those of the whole sentence, and nothing is cut that fits."""
    text = " ".join(["five4"] * n_words)
    whole, shown = broken(text, 100, "- ", "  "), wrapped(text, "- ")
    if len(whole) <= 3:
        assert shown == whole
        return
    assert len(shown) == 3
    assert shown[:2] == whole[:2]
    assert shown[2].endswith("five4 ...")
    assert 90 < len(shown[2]) <= 100
    assert whole[2].startswith(shown[2].removesuffix(" ..."))


def test_events_at_time_zero_are_a_concern():
    """The F of such a row is 0, whatever the model: 40 of 400 events are serious, six are not."""
    rows = survival_data(400, rng=np.random.default_rng(8))
    for many in (0, 6, 60):
        time = np.where(np.arange(400) < many, 0.0, rows.time)
        event = rows.event | (np.arange(400) < many)
        found = xcal.audit(survival=rows.survival([0.5, 1.0]), times=[0.5, 1.0], y=(time, event), n_bootstrap=0)
        told = [concern for concern in found.data.concerns if "at time 0" in concern.what]
        assert [concern.what for concern in told] == [f"{many} events at time 0"] * (many > 0)
        assert [concern.serious for concern in told] == [many > event.sum() / 10] * (many > 0)
