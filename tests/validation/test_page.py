"""The report of an audit, in a real browser: what it shows is what the result holds."""

import base64
import csv
import io
import re
from dataclasses import fields, replace

import numpy as np
import pytest

from tests.validation.made_result import HORIZONS, HOSTILE, NAN, made_result
from xcal.metrics.spec import Skipped
from xcal.show.charts import time_in_words
from xcal.show.page import write_page
from xcal.validation.page import comparison_page, report_page
from xcal.validation.result import Answer, AuditValue, PartFound, Sentence
from xcal.validation.sections import all_numbers, as_csv, for_whom, numbers
from xcal.validation.words import interval, label, shown

MIDDLE = HORIZONS[1]
QUESTIONS = (("On average", "right"), ("Level of risk", "small"), ("All times", "unsure"), ("For whom", "off"))


def write_report(result, path):
    return result.report(path)


def write_comparison(results, path, **more):
    return write_page(comparison_page(results, **more), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def tab(folder, visit_once):
    """The report of a full result."""
    return visit_once(write_report(made_result(), folder / "full.html"))


def settle(tab):
    tab.wait_for_selector("main[aria-busy=false]")


def choose(tab, horizon):
    tab.locator("input[name=horizon]").nth(HORIZONS.index(horizon)).check()
    settle(tab)


def section(tab, heading):
    return tab.locator("section", has=tab.get_by_role("heading", name=heading, exact=True))


def second_of(result):
    return made_result(good=False, model="Forest")


@pytest.mark.parametrize("kind", ["full", "risk", "cdf", "two"])
def test_every_report_is_whole_without_a_network(kind, folder, visit):
    path = folder / f"{kind}.html"
    if kind == "two":
        write_comparison([made_result(), second_of(made_result())], path)
    else:
        write_report(made_result(kind), path)
    tab = visit(path, viewport={"width": 390, "height": 800})
    assert (tab.problems, tab.requests) == ([], [])
    assert path.stat().st_size < 5e6
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    drawn = tab.locator("[data-chart]:visible")
    assert drawn.count() == tab.locator("[data-chart]").count() > 3
    assert drawn.locator("svg").count() == drawn.count()
    texts = [one.get_attribute("aria-label") for one in tab.locator("[role=graphics-document]").all()]
    assert len(texts) == drawn.count()
    assert all(len(text) > 10 and "NaN" not in text for text in texts)
    assert not re.search(r"\b(nan|None|undefined|null)\b", tab.locator("main").inner_text())


def test_the_answer_comes_first(tab):
    callout, verdict = tab.locator(".callout"), made_result().verdict
    assert "CAN BE TRUSTED" in callout.inner_text()
    assert verdict.headline in callout.inner_text()
    assert verdict.sentences[0] not in callout.inner_text()
    callout.get_by_text("Why, and how sure").click()
    assert all(sentence in callout.inner_text() for sentence in verdict.sentences)
    callout.get_by_text("Why, and how sure").click()
    assert tab.locator(".callout").bounding_box()["y"] < tab.locator("section").first.bounding_box()["y"]


def test_the_first_screen_has_what_most_readers_look_for(folder, visit):
    """Verdict, four numbers with their ranges, one curve, one sentence for each question; the rest is folded."""
    answers = tuple(Answer(name, state, f"Said of {name}.") for name, state in QUESTIONS)
    result = replace(made_result(), verdict=replace(made_result().verdict, answers=answers))
    tab = visit(write_report(result, folder / "first.html"), unfolded=False)
    figures = tab.locator("main > .row .figures:visible > div")
    assert [one.locator("dt").inner_text() for one in figures.all()] == ["O/E", "Calibration slope", "ICI", "AUC"]
    assert all(" to " in one.locator("b").inner_text() for one in figures.all())
    assert tab.locator("[data-chart]:visible svg").count() == 1
    for name, _ in QUESTIONS:
        said = tab.get_by_text(f"Said of {name}.")
        box = said.bounding_box()
        assert box["y"] + box["height"] < 900
        tab.locator(".answers").get_by_role("link", name=name).click()
        part = tab.locator("section", has=tab.locator("h2")).filter(has=tab.locator("details[open]"))
        assert part.count() == 1
        tab.locator("section.folded > details[open] > summary").click()
    assert tab.evaluate("document.documentElement.scrollHeight") < 3000
    assert (tab.problems, tab.requests) == ([], [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_people_out(folder, visit, scheme):
    """What axe calls serious or critical, on a desk and on a phone, folded and open."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python").Axe()
    path = write_report(made_result(), folder / "axe.html")
    for viewport in ({"width": 1280, "height": 900}, {"width": 390, "height": 844}):
        for unfolded in (False, True):
            # axe is put into the page, which its policy forbids to all others.
            tab = visit(path, viewport=viewport, color_scheme=scheme, bypass_csp=True, unfolded=unfolded)
            found = axe.run(tab).response["violations"]
            bad = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
            assert bad == []


def test_every_number_of_the_result_is_in_the_table(tab):
    lines = section(tab, "All numbers").locator("table").first.locator("tbody tr")
    values = made_result().values
    exact = [float(one) for one in lines.locator("data").evaluate_all("all => all.map(one => one.value)")]
    assert exact == [value.value for value in values]
    cells = lines.evaluate_all("all => all.map(line => [...line.cells].map(cell => cell.textContent))")
    assert [row[0] for row in cells] == [label(value.metric).name for value in values]
    assert [row[2] for row in cells] == [value.group or "" for value in values]
    assert [row[3:] for row in cells] == [[shown(value), interval(value)] for value in values]


def test_a_reason_is_told_once():
    few, no_f = "9 events are too few", "it needs F"
    skipped = [Skipped(metric, few, 5.0, group) for group in ("sex = f", "sex = m") for metric in ("ici", "slope")]
    skipped += [Skipped("group", few, group="sex = x"), Skipped("d_calibration", no_f)]
    result = made_result()
    result = replace(result, measured=replace(result.measured, skipped=tuple(skipped)))
    (table,) = [one for one in all_numbers([result]).blocks if getattr(one, "caption", "") == "Not computed"]
    at = time_in_words(5.0, result.time_unit)
    assert table.rows == (
        (f"ICI by {at} and Calibration slope by {at}", "sex = f, sex = m", few),
        ("Everything", "sex = x", few),
        ("D-calibration (uniform)", "all rows", no_f),
    )


def test_parts_of_covariates_are_listed_where_f_is_not_known():
    found = [PartFound("age > 60", 5.0, 40, 9, 0.5, 0.3, 0.8, 0.01), PartFound("sex = f", None, 30, 8, 2, 1, 4, 0.001)]
    result = made_result("risk")
    result = replace(result, measured=replace(result.measured, parts=tuple(found)))
    table = for_whom([result]).blocks[0]
    assert [row[:3] for row in table.rows] == [
        ("sex = f", "30", "all times"),
        ("age > 60", "40", time_in_words(5.0, result.time_unit)),
    ]
    assert [row[3][1] for row in table.rows] == [2, 0.5]


def test_the_file_to_save_has_every_number(tab):
    href = tab.get_by_text("Save as CSV").get_attribute("href")
    text = base64.b64decode(href.split("base64,")[1]).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    values = made_result().values
    assert [float(row["value"]) for row in rows] == [value.value for value in values]
    assert [row["lower"] for row in rows] == [
        "" if value.lower != value.lower else repr(value.lower) for value in values
    ]
    assert rows[0].keys() == {"metric", "horizon", "group", "cause", "value", "lower", "upper"}


@pytest.mark.parametrize("horizon", HORIZONS)
def test_the_selector_moves_numbers(tab, horizon):
    choose(tab, horizon)
    result = made_result()
    for heading, metrics in (
        ("Are the risks right on average?", ("oe", "mean_risk", "observed_risk")),
        (
            "Are they right for each level of risk?",
            ("ici", "ici_floor", "ici_p", "slope", "intercept", "e50", "e90", "emax"),
        ),
        ("How large are the errors overall?", ("brier", "ipa")),
    ):
        tiles = section(tab, heading).locator("[data-follows=horizon]:visible data")
        found = [float(value) for value in tiles.evaluate_all("all => all.map(one => one.value)")]
        assert found == [result.value(metric, horizon=horizon).value for metric in metrics]
    top = tab.locator("main > .row [data-follows=horizon]:visible data").first
    assert top.text_content() == shown(result.value("oe", horizon=horizon))
    choose(tab, MIDDLE)


def test_distances_stand_beside_what_a_perfect_model_scores():
    """Tiles of one model name the floor, the table of two models has a line for it, and nothing else gets one."""
    value = AuditValue("ici", 1.0, None, 0.05, 0.0, 0.1)
    floor = AuditValue("ici_floor", 1.0, None, 0.031, NAN, NAN)
    ratio = AuditValue("oe", 1.0, None, 1.02, 0.9, 1.1)
    result = replace(made_result(), measured=replace(made_result().measured, values=(value, floor, ratio)))
    wanted = [("ici", 1.0), ("oe", 1.0)]
    hints = [figure.note for figure in numbers([result], wanted).figures]
    assert ["0.031" in hint for hint in hints] == [True, False]
    assert [row[0] for row in numbers([result, result], wanted).rows] == ["ICI", "ICI of a perfect model", "O/E"]


def marks(tab):
    """Paths of all pictures that follow the horizon."""
    return tab.evaluate(
        """() => {
        const page = JSON.parse(document.getElementById("page-data").textContent);
        return page.charts.map((chart, k) => [chart.follows.includes("horizon"),
            [...document.querySelectorAll(`[data-chart="${k}"] svg [class*=mark] :is(path, line, text)`)]
                .map(mark => mark.outerHTML).join()]);
        }"""
    )


def test_the_selector_moves_every_picture_of_one_time_and_no_other(tab):
    before = marks(tab)
    choose(tab, HORIZONS[0])
    after = marks(tab)
    choose(tab, MIDDLE)
    assert sum(follows for follows, _ in before) >= 8
    for (follows, old), (_, new) in zip(before, after, strict=True):
        assert (old != new) == follows
    assert marks(tab) == before


def test_points_of_the_calibration_curve_are_those_of_the_result(tab):
    curve = next(c for c in made_result().measured.calibration if (c.horizon, c.group) == (MIDDLE, None))
    points = section(tab, "Are they right for each level of risk?").locator("[data-chart] path[aria-label*='rows']")
    texts = [one.get_attribute("aria-label") for one in points.all()]
    found = [[float(number) for number in re.findall(r"([\d.]+)%", text)[-4:]] for text in texts]
    expected = zip(curve.point_predicted, curve.point_observed, curve.point_lower, curve.point_upper, strict=True)
    assert len(found) == 10
    for one, four in zip(found, expected, strict=True):
        assert one == [pytest.approx(100 * value, abs=0.0501) for value in four]


def test_the_keyboard_reaches_the_selector(tab):
    tab.locator("body").click(position={"x": 1, "y": 1})
    for _ in range(2):
        tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.name") == "horizon"
    tab.keyboard.press("ArrowRight")
    settle(tab)
    assert tab.locator("input[name=horizon]:checked").get_attribute("value") == "2"
    assert tab.locator("#said").text_content() == "5 years"
    choose(tab, MIDDLE)


def test_the_estimator_and_the_group_are_chosen_in_their_sections(tab):
    part = section(tab, "Are they right over all times?")
    before = part.locator("svg").first.inner_html()
    part.get_by_role("radio", name="Kaplan-Meier").check()
    settle(tab)
    assert part.locator("svg").first.inner_html() != before
    groups = section(tab, "Is it right in every group?")
    alone = groups.locator("[role=graphics-document]").nth(2)
    assert "age = young" in alone.get_attribute("aria-label")
    tab.get_by_label("Look into one group").select_option(label="centre = south")
    settle(tab)
    assert "centre = south" in groups.locator("[role=graphics-document]").nth(2).get_attribute("aria-label")


def test_small_groups_are_named_and_not_judged(tab):
    words = section(tab, "Is it right in every group?").inner_text()
    assert "centre = tiny: 4 events: too few to judge" in words
    assert all(group in words for group in made_result().groups)


def test_data_methods_and_checklist_are_there(tab):
    data = section(tab, "What data is this based on?").inner_text()
    assert all(text in data for text in ("1,200", f"{made_result().data.n_events}", "Fewer than 50 events by year 1."))
    assert "We validated the model on new rows." in section(tab, "Methods").inner_text()
    items = section(tab, "TRIPOD+AI and PROBAST+AI").locator("tbody tr")
    answers = {row.locator("th").inner_text(): row.locator("td").nth(1).inner_text() for row in items.all()}
    assert (answers["23a"], answers["24"], answers["4.7"]) == ("audit", "open", "audit")


def test_parts_that_the_predictions_do_not_allow_say_why(folder, visit):
    tab = visit(write_report(made_result("cdf"), folder / "why.html"))
    for heading in ("Are the risks right on average?", "Would it help to decide?"):
        assert "the predictions are F at the observed times only" in section(tab, heading).inner_text()
    assert "puts no rows in order" in section(tab, "Does it tell who is at higher risk?").inner_text()
    assert "it needs survival curves" in section(tab, "How large are the errors overall?").inner_text()
    assert section(tab, "Are they right over all times?").locator("svg").count() == 2


def hostile_result():
    result = made_result()
    old = "age = old"

    def renamed(item):
        return replace(item, group=HOSTILE) if item.group == old else item

    measured = replace(
        result.measured,
        values=tuple(map(renamed, result.measured.values)),
        calibration=tuple(map(renamed, result.measured.calibration)),
        pit=tuple(map(renamed, result.measured.pit)),
        skipped=(Skipped("group", HOSTILE, group=f"x = {HOSTILE}"),),
        for_whom=replace(
            result.measured.for_whom,
            columns=(HOSTILE,),
            left_out=((HOSTILE, "it holds dates"),),
            parts=tuple(replace(part, name=HOSTILE) for part in result.measured.for_whom.parts[:1]),
            subgroup=replace(result.measured.for_whom.subgroup, rule=HOSTILE),
        ),
    )
    groups = tuple(HOSTILE if group == old else group for group in result.groups)
    verdict = replace(result.verdict, headline=HOSTILE, said=(Sentence(HOSTILE),))
    return replace(
        result, model=HOSTILE, library=HOSTILE, groups=groups, measured=measured, verdict=verdict, time_unit=HOSTILE
    )


def test_hostile_names_are_shown_as_text(folder, visit):
    tab = visit(write_report(hostile_result(), folder / "hostile.html"))
    assert (tab.problems, tab.requests) == ([], [])
    assert tab.locator("img").count() == 0
    assert HOSTILE in tab.locator("h1").text_content()
    assert HOSTILE in section(tab, "Is it right in every group?").locator("tbody").text_content()
    assert tab.get_by_label("Look into one group").locator("option").nth(1).text_content() == HOSTILE
    assert section(tab, "For whom is it right?").text_content().count(HOSTILE) >= 4


def test_for_whom_says_what_was_found_and_draws_it(tab):
    own = section(tab, "For whom is it right?")
    text = own.inner_text()
    assert "Calibration differs with the covariates" in text
    assert "Most off are rows with age = old: events come earlier" in text
    assert "id: its whole numbers are all different" in text
    assert own.locator("[data-chart]:visible svg").count() == 2
    found = own.locator("data").evaluate_all("all => all.map(one => Number(one.value))")
    names = ("conditional_calibration", "conditional_calibration_noise", "conditional_calibration_p", "subgroup_p")
    assert found == [made_result().value(name).value for name in names]


def test_for_whom_says_why_it_is_missing(folder, visit):
    tab = visit(write_report(made_result("risk"), folder / "risk_only.html"))
    assert "it needs F at the observed times" in section(tab, "For whom is it right?").inner_text()


@pytest.fixture(scope="module")
def both(folder, visit_once):
    """Two models on one page, with a difference."""
    difference = AuditValue("harrell", None, None, -0.0123456, -0.03, 0.01)
    return visit_once(
        write_comparison([made_result(), second_of(made_result())], folder / "both.html", differences=(difference,))
    )


def test_two_models_share_every_picture(both):
    first, second = made_result(), second_of(made_result())
    assert both.locator(".callout").count() == 2
    table = section(both, "Are the risks right on average?").locator("[data-follows=horizon]:visible tbody tr")
    found = table.first.locator("data").evaluate_all("all => all.map(one => Number(one.value))")
    assert found == [result.value("oe", horizon=MIDDLE).value for result in (first, second)]
    legend = section(both, "Would it help to decide?").locator(".keys").inner_text()
    assert "CoxPHFitter" in legend
    assert "Forest" in legend
    assert "-0.0123456" in both.locator("data").evaluate_all("all => all.map(one => one.value)")
    assert "Forest minus CoxPHFitter" in section(both, "All numbers").inner_text()
    assert section(both, "For whom is it right?").locator("tbody tr").count() == 4 + 2  # numbers, and the subgroups
    assert (both.problems, both.requests) == ([], [])


def test_models_of_one_name_are_numbered():
    page = comparison_page([made_result(), made_result(good=False)])
    assert page.title == "CoxPHFitter (1) and CoxPHFitter (2)"


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (lambda: [made_result()], "results: expected two results to compare, got 1"),
        (
            lambda: [made_result(), made_result(n=600)],
            "results: expected audits of the same rows, got 1200 and 600 rows",
        ),
        (
            lambda: [made_result(), replace(made_result(), time_unit="days")],
            "expected one unit of time, got 'years' and 'days'",
        ),
    ],
)
def test_results_that_cannot_be_compared_are_refused(results, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_comparison(results(), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_horizon_at_which_nothing_was_measured_is_not_offered():
    result = replace(made_result(), horizons=(*HORIZONS, 99.0))
    (horizon,) = report_page(result).selectors
    assert horizon.options == ("1 year", "3 years", "5 years")


def test_many_horizons_become_a_list():
    measured = made_result().measured
    more = tuple(replace(v, horizon=10.0 + k) for k in range(3) for v in measured.values if v.horizon == MIDDLE)
    horizons = (*HORIZONS, 10.0, 11.0, 12.0)
    result = replace(made_result(), horizons=horizons, measured=replace(measured, values=(*measured.values, *more)))
    page = report_page(result)
    assert page.selectors[0].kind == "list"


def test_without_intervals_and_groups_the_checklist_says_so():
    measured = made_result().measured
    values = tuple(replace(v, lower=NAN, upper=NAN) for v in measured.values if v.group is None)
    measured = replace(measured, values=values, for_whom=None)
    result = replace(made_result(), groups=(), measured=measured, n_bootstrap=0)
    page = report_page(result)
    items = {item.number: item.answered for item in page.sections[-1].blocks[0].items}
    assert (items["14"], items["23a"], items["12e"]) == ("open", "open", "audit")
    assert "resamples" not in page.sections[-3].blocks[0].caption


def test_advice_names_the_options_of_commands_beside_those_of_the_function():
    """The page of `xcal fit` and `xcal audit` is the same: there nobody can give `groups=`."""
    measured = replace(made_result().measured, for_whom=None)
    data = replace(made_result().data, compared_with_training=False)
    told = []
    for result in (
        replace(made_result(), groups=(), measured=measured, data=data),
        replace(made_result(), groups=(), data=data),
    ):
        sections = report_page(result).sections
        told += [item.where for item in sections[-1].blocks[0].items]
        told += [block.text for part in sections if part.short == "Groups" for block in part.blocks[:1]]
    advice = [text for text in told if re.search(r"\w=", text)]
    assert {option for text in advice for option in re.findall(r"\w+=", text)} == {"groups=", "sites=", "training="}
    command = {"groups=": "--by", "sites=": "--site", "training=": "--training"}
    for text in advice:
        assert any(option in text and name in text for option, name in command.items())


def blank(item):
    """The same curve with NaN for every number that may be missing."""
    kept = ("horizon", "group", "edges", "risk_edges", "times", "threshold", "predicted", "method", "at_risk")
    new = {}
    for field in fields(item):
        value = getattr(item, field.name)
        if field.name not in kept and isinstance(value, np.ndarray) and value.dtype == np.float64:
            new[field.name] = np.full_like(value, np.nan)
    return replace(item, **new)


def test_a_result_without_numbers_still_makes_a_page(folder, visit):
    measured = made_result().measured
    empty = replace(
        measured,
        values=tuple(replace(value, value=NAN, lower=NAN, upper=NAN) for value in measured.values),
        calibration=tuple(map(blank, measured.calibration)),
        decision=tuple(map(blank, measured.decision)),
        risks=tuple(map(blank, measured.risks)),
        pit=tuple(map(blank, measured.pit)),
        pp=blank(measured.pp),
        over_time=blank(measured.over_time),
    )
    data = replace(made_result().data, median_follow_up=NAN, concerns=())
    result = replace(made_result(), measured=empty, data=data, time_unit="")
    tab = visit(write_report(result, folder / "empty.html"))
    assert (tab.problems, tab.requests) == ([], [])
    assert not re.search(r"\b(nan|NaN|undefined|null)\b", tab.locator("main").inner_text())
    assert tab.get_by_text("time 3", exact=True).count() > 0


def test_many_groups_and_horizons_stay_under_five_megabytes(folder):
    measured = made_result().measured
    groups = tuple(f"site = {k}" for k in range(40))
    horizons = tuple(float(k) for k in range(1, 7))
    (curve,) = (c for c in measured.calibration if (c.horizon, c.group) == (MIDDLE, None))
    pit = measured.pit[0]
    values = [v for v in measured.values if v.horizon == MIDDLE and v.group is None]
    many = replace(
        measured,
        values=tuple(replace(v, horizon=t, group=g) for v in values for t in horizons for g in (None, *groups)),
        calibration=tuple(replace(curve, horizon=t, group=g) for t in horizons for g in (None, *groups)),
        pit=tuple(replace(pit, group=g) for g in (None, *groups)),
    )
    path = write_report(replace(made_result(), horizons=horizons, groups=groups, measured=many), folder / "many.html")
    assert path.stat().st_size < 5e6


def test_the_csv_of_two_models_names_them():
    rows = list(csv.DictReader(io.StringIO(as_csv([made_result(), second_of(made_result())]))))
    assert {row["model"] for row in rows} == {"CoxPHFitter", "Forest"}
