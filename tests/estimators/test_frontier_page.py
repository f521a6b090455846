"""The frontier page, in a real browser: what it shows is what the models of the path give on the same rows."""

import base64
import csv
import io
import json
import re
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
from lifelines import KaplanMeierFitter
from scipy.stats import norm

from tests.estimators.simulate import survival_rows
from xcal import Surv, SurvivalData, audit, concordance_index, d_calibration, nll
from xcal.estimators import SurvivalPath, load

DATA, HELD_OUT, TEST = survival_rows(400), survival_rows(200, seed=1), survival_rows(500, seed=2)
SETTINGS = {"hidden": (8,), "epochs": 10, "batch_size": 100, "learning_rate": 1e-2}
LAMBDAS = (0.0, 10.0, 1000.0)
# The slider's order: as they were trained, then recalibrated.
CANDIDATES = [(lam, mapped) for mapped in (False, True) for lam in LAMBDAS]
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def path():
    return SurvivalPath(LAMBDAS, 2, **SETTINGS).fit(DATA.x, DATA.y, validation_data=(HELD_OUT.x, HELD_OUT.y))


@pytest.fixture(scope="module")
def file(path, tmp_path_factory):
    return path.report(tmp_path_factory.mktemp("frontier") / "frontier.html", TEST.x, TEST.y, time_unit="years")


@pytest.fixture(scope="module")
def tab(file, visit_once):
    return visit_once(file)


@pytest.fixture(scope="module")
def on_test(path):
    """A function: the values of a model of the path on the rows of the page, each computed once."""

    @cache
    def values(lam, *, mapped=False, seed=None):
        return expected(path.model(lam, seed, recalibrated=mapped), TEST.x, TEST.y)

    return values


def named(lam, mapped):
    return f"λ = {lam:g}, recalibrated" if mapped else f"λ = {lam:g}"


def settle(tab):
    tab.wait_for_selector("main[aria-busy=false]")


def pick(tab, k):
    tab.locator("input[type=range]").fill(str(k))
    settle(tab)


def chosen_place(path):
    return CANDIDATES.index((path.selection_.lam, path.selection_.recalibrated))


def section(tab, heading):
    return tab.locator("section", has=tab.get_by_role("heading", name=heading, exact=True))


def numbers(place):
    return [float(one) for one in place.locator("data:visible").evaluate_all("all => all.map(one => one.value)")]


def page_data(file):
    """Return what the pictures of a page are made of, with rows of data where the page has columns."""
    data = json.loads(re.search(r'id="page-data">(.*?)</script>', file.read_text(encoding="utf-8"), re.DOTALL)[1])
    for spec in (spec for chart in data["charts"] for spec in chart["specs"]):
        tables = spec["datasets"].items()
        spec["datasets"] = {
            name: [dict(zip(one, row, strict=True)) for row in zip(*one.values(), strict=True)] for name, one in tables
        }
    return data


def expected(model, x, y, horizons=None):
    """D-calibration, floor, p, conditional calibration, concordance, NLL and IBS by the public functions.

    The p-value (simulated for few rows), conditional calibration and IBS are those of an audit.
    """
    time, event = (torch.from_numpy(y[name].copy()) for name in ("time", "event"))
    distribution = model.predict_distribution(x)
    measured = d_calibration(distribution.cdf(time), event, n_bins=10)
    order = concordance_index(time=time, event=event, risk=model.predict(x)).value
    audited = audit(model, x, y, n_bootstrap=0, horizons=horizons)
    p, k, ibs = (audited.value(name).value for name in ("d_calibration_p", "conditional_calibration", "ibs"))
    loss = float(nll(distribution, time, event, density=True).mean())
    return [measured.value, measured.floor, p, k, order, loss, ibs]


def test_it_is_whole_on_a_phone_without_a_network(file, visit):
    tab = visit(file, viewport={"width": 390, "height": 800})
    assert (tab.problems, tab.requests) == ([], [])
    assert file.stat().st_size < 5e6
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    drawn = tab.locator("[data-chart]")
    assert drawn.count() == drawn.locator("svg").count() == 8
    texts = [one.get_attribute("aria-label") for one in tab.locator("[role=graphics-document]").all()]
    assert len(texts) == 8
    assert all(len(text) > 10 for text in texts)
    assert not re.search(r"\b(nan|NaN|None|undefined|null)\b", tab.locator("main").inner_text() + " ".join(texts))


def test_it_is_dark_for_those_who_want_it(file, visit):
    def ground(tab):
        colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(number) for number in re.findall(r"\d+", colour))

    light, dark = visit(file), visit(file, color_scheme="dark")
    assert ground(dark) < 150
    assert ground(light) > 600
    assert dark.problems == []


def test_what_was_chosen_stands_on_top_with_its_reason(path, tab):
    words = tab.locator(".callout").inner_text()
    chosen = named(path.selection_.lam, path.selection_.recalibrated)
    assert tab.locator(".callout .headline").inner_text() == chosen
    assert path.selection_.reason[1:] in words
    assert tab.locator("output").text_content() == chosen
    verdict = audit(path.select(), TEST.x, TEST.y, n_bootstrap=0, time_unit="years", name=chosen).verdict
    assert verdict.headline in words
    assert verdict.sentences[0] in words
    assert tab.locator(".callout").bounding_box()["y"] < tab.locator("section").first.bounding_box()["y"]


@pytest.mark.parametrize("k", range(len(CANDIDATES)))
def test_the_slider_moves_the_values_of_the_model(path, tab, on_test, k):
    lam, mapped = CANDIDATES[k]
    pick(tab, k)
    place = section(tab, "What does calibration cost?")
    np.testing.assert_allclose(numbers(place), on_test(lam, mapped=mapped), rtol=1e-9)
    assert tab.locator("output").text_content() == named(lam, mapped)
    line = f"model = path.model({lam!r}{', recalibrated=True' if mapped else ''})"
    assert line in place.locator(".copyable:visible").inner_text()
    pick(tab, chosen_place(path))


@pytest.mark.parametrize("k", [0, 5])
def test_values_at_the_horizon_are_those_of_the_model(path, tab, k):
    lam, mapped = CANDIDATES[k]
    pick(tab, k)
    place = section(tab, "Are they right for each level of risk?")
    for button in place.locator("input[name=horizon]").all():
        button.check()
        settle(tab)
        t = float(re.search(r"[\d.]+", tab.locator("#said").text_content())[0])
        ratio, mean, seen, ici = numbers(place)[:4]
        predicted = path.model(lam, recalibrated=mapped).predict_cdf(TEST.x, [t])[:, 0]
        observed = 1 - float(KaplanMeierFitter().fit(TEST.y["time"], TEST.y["event"]).predict(t))
        assert [mean, seen] == [pytest.approx(predicted.mean()), pytest.approx(observed)]
        assert ratio == pytest.approx(observed / predicted.mean())
        assert 0 <= ici < 0.5
    place.locator("input[name=horizon]").nth(1).check()
    pick(tab, chosen_place(path))


def test_the_values_are_those_of_an_audit(path, tab):
    """One definition of each metric on every page: D-calibration in ten bins, the likelihood by the density."""
    for k, lam in enumerate(LAMBDAS):
        pick(tab, k)
        dcal, floor, p, _, order, nll, ibs = numbers(section(tab, "What does calibration cost?"))[:7]
        result = audit(path.model(lam), TEST.x, TEST.y, n_bootstrap=0)
        names = ("d_calibration", "d_calibration_floor", "d_calibration_p", "harrell", "nll", "ibs")
        audited = [result.value(name).value for name in names]
        # Concordance by another score than the restricted mean, and IBS with other horizons among its times.
        np.testing.assert_allclose([dcal, floor, p, nll], np.array(audited)[[0, 1, 2, 4]], rtol=1e-9)
        np.testing.assert_allclose([order, ibs], np.array(audited)[[3, 5]], rtol=5e-3)


def test_the_values_that_the_choice_was_based_on_are_listed(path, tab):
    lines = section(tab, "All numbers").locator("table").nth(1).locator("tbody tr")
    names = ["dcal", "dcal_floor", "dcal_p", "conditional", "concordance", "nll"]
    for line, row in zip(lines.all(), path.candidates_.to_dict("records"), strict=True):
        assert line.locator("th").inner_text() == named(row["lambda"], row["recalibrated"])
        assert numbers(line) == [row[name] for name in names]


def test_the_file_to_save_has_every_model_and_every_network(tab, on_test):
    href = tab.get_by_text("Save as CSV").get_attribute("href")
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(href.split("base64,")[1]).decode())))
    assert len(rows) == len(CANDIDATES) + 2 * len(LAMBDAS)
    alone = {(float(row["lambda"]), int(row["seed"])): row for row in rows if row["seed"]}
    for lam in LAMBDAS:
        for seed in (0, 1):
            values = [float(value) for value in list(alone[lam, seed].values())[3:]]
            np.testing.assert_allclose(values, on_test(lam, seed=seed), rtol=1e-9)


def marks(tab):
    """For every picture, the selectors that it follows, and its marks."""
    return tab.evaluate(
        """() => JSON.parse(document.getElementById("page-data").textContent).charts.map((chart, k) => [chart.follows,
            [...document.querySelectorAll(`[data-chart="${k}"] svg [class*=mark] :is(path, line, text)`)]
                .map(mark => mark.outerHTML).join()])"""
    )


def test_a_click_on_a_point_moves_every_picture(path, tab):
    start = chosen_place(path)
    other = 2 if start != 2 else 0
    pick(tab, start)
    before = marks(tab)
    assert len(before) == 8
    frontiers = section(tab, "What does calibration cost?").locator("[data-chart]")
    point = frontiers.nth(1).locator(f"path[aria-label*='{named(*CANDIDATES[other])};']")
    point.click(force=True)
    tab.wait_for_function(f"document.querySelector('output').textContent == '{named(*CANDIDATES[other])}'")
    settle(tab)
    after = marks(tab)
    assert all(old[1] != new[1] for old, new in zip(before, after, strict=True))
    pick(tab, start)
    assert marks(tab) == before


def test_the_horizon_moves_the_calibration_curve_alone(tab):
    before = marks(tab)
    buttons = section(tab, "Are they right for each level of risk?").locator("input[name=horizon]")
    buttons.nth(0).check()
    settle(tab)
    for (follows, old), (_, new) in zip(before, marks(tab), strict=True):
        assert (old != new) == ("horizon" in follows)
    buttons.nth(1).check()
    settle(tab)


def test_the_keyboard_picks_a_model(path, tab):
    pick(tab, 1)
    tab.locator("body").click(position={"x": 1, "y": 1})
    for _ in range(2):
        tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.type") == "range"
    tab.keyboard.press("ArrowRight")
    settle(tab)
    assert tab.locator("output").text_content() == tab.locator("#said").text_content() == named(*CANDIDATES[2])
    assert tab.locator("input[type=range]").get_attribute("aria-valuetext") == named(*CANDIDATES[2])
    pick(tab, chosen_place(path))


def rows_with(spec, *names):
    """The largest data set of a chart whose rows have these fields."""
    return max((rows for rows in spec["datasets"].values() if rows and set(names) <= rows[0].keys()), key=len)


def test_points_of_the_frontiers_stand_where_the_values_are(path, file, on_test):
    charts = page_data(file)["charts"][:3]
    values = [on_test(lam, mapped=mapped) for lam, mapped in CANDIDATES]
    networks = [path.model(lam, seed) for lam in LAMBDAS for seed in (0, 1)]
    seeds = [network.d_calibration(TEST.x, TEST.y, n_bins=10).value for network in networks]
    for chart, column in zip(charts, (4, 5, 6), strict=True):
        (spec,) = chart["specs"]
        points = rows_with(spec, "pick", "name")
        assert [row["pick"] for row in points] == list(range(6))
        # Six digits are kept, as in every picture.
        np.testing.assert_allclose([row["x"] for row in points], [one[0] for one in values], rtol=1e-5)
        np.testing.assert_allclose([row["y"] for row in points], [one[column] for one in values], rtol=1e-5)
        labels = [rows[0]["label"] for rows in spec["datasets"].values() if "label" in rows[0]]
        assert f"✓ {path.selection_.lam:g}" in labels
        # The networks alone, each tied to its model.
        alone = rows_with(spec, "x2", "y2")
        np.testing.assert_allclose([row["x"] for row in alone], seeds, rtol=1e-5)
        floor = next(rows[0]["x"] for rows in spec["datasets"].values() if set(rows[0]) == {"x"})
        assert floor == pytest.approx(np.mean([one[1] for one in values]), rel=1e-5)
        assert spec["layer"][0]["encoding"]["x"]["scale"]["type"] == "log"


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_of_the_frontiers_do_not_overlap(file, visit, width):
    tab = visit(file, viewport={"width": width, "height": 900})
    for chart in section(tab, "What does calibration cost?").locator("[data-chart]").all():
        boxes = [one.bounding_box() for one in chart.locator("svg .mark-text.role-mark text").all()]
        assert len(boxes) >= 2
        for one, other in combinations(boxes, 2):
            beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            assert beside or one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]


def test_the_histogram_and_its_range_are_those_of_d_calibration(path, tmp_path):
    chart = page_data(path.report(tmp_path / "all.html", TEST.x, TEST.y, min_cell=0))["charts"][3]
    by_mass = chart["specs"][:: len(chart["specs"]) // len(CANDIDATES)]
    for (lam, mapped), spec in zip(CANDIDATES, by_mass, strict=True):
        measured = path.model(lam, recalibrated=mapped).d_calibration(TEST.x, TEST.y, n_bins=10)
        heights = [row["y"] for row in rows_with(spec, "start", "end")]
        np.testing.assert_allclose(heights, measured.histogram, rtol=1e-5, atol=1e-9)
        # The variances of the bins of a perfect model add up to the floor.
        flat = rows_with(spec, "low", "high")
        assert min(row["low"] for row in flat) > 0
        spread = [(row["high"] - row["low"]) / (2 * norm.ppf(0.975)) for row in flat]
        assert np.square(spread).sum() == pytest.approx(measured.floor, rel=1e-4)


def test_bins_and_risk_groups_of_few_rows_are_merged(path, tmp_path):
    few, event = 8, TEST.y["event"]
    file = path.report(tmp_path / "few.html", TEST.x[:60], TEST.y[:60], min_cell=few)
    shown = page_data(file)["charts"]
    by_mass = shown[3]["specs"][:: len(shown[3]["specs"]) // len(CANDIDATES)]
    for (lam, mapped), spec in zip(CANDIDATES, by_mass, strict=True):
        model = path.model(lam, recalibrated=mapped)
        time = torch.from_numpy(TEST.y["time"][:60].copy())
        cdf = model.predict_distribution(TEST.x[:60]).cdf(time).numpy()
        bars = rows_with(spec, "start", "end")
        counts = np.histogram(cdf[event[:60]], [*(bar["start"] for bar in bars), 1.0])[0]
        assert sum(counts) == event[:60].sum()
        assert all(count == 0 or count >= few for count in counts)
        assert len(bars) < 10
    tables = [rows for chart in shown for spec in chart["specs"] for rows in spec["datasets"].values()]
    counted = [row["rows"] for rows in tables for row in rows if "rows" in row]
    assert len(counted) > 10
    assert all(count == 0 or count >= few for count in counted)


def curves_by_name(spec):
    return {rows[0]["row"]: rows for rows in spec["datasets"].values() if "row" in rows[0]}


def test_curves_of_levels_of_risk_are_means_of_the_model(path, file):
    chart = page_data(file)["charts"][-1]
    order = np.argsort(path.model(0.0).predict(TEST.x), kind="stable")
    around = {"low risk": 50, "middle risk": 250, "high risk": 449}  # places in the order, a twentieth of 500 rows each
    for (lam, mapped), spec in zip(CANDIDATES, chart["specs"], strict=True):
        curves = curves_by_name(spec)
        assert list(curves) == list(around)
        for name, place in around.items():
            rows = order[place - 12 : place + 13]
            times = [point["x"] for point in curves[name]]
            model = path.model(lam, recalibrated=mapped)
            survival = model.predict_survival_function(TEST.x[rows], times).mean(axis=0)
            # Times keep six digits on the page.
            np.testing.assert_allclose([point["y"] for point in curves[name]], survival, atol=1e-4)


def test_no_row_is_told_on_the_page_unless_asked(tmp_path):
    # In this unit no other number of the page is as large as a time.
    seen, scaled = (Surv(time=data.y["time"] * 1e4, event=data.y["event"]) for data in (DATA, TEST))
    long = SurvivalPath((0.0, 10.0), 1, **SETTINGS | {"epochs": 1}).fit(DATA.x, seen)
    page = long.report(tmp_path / "page.html", TEST.x, scaled).read_text()
    exact = {f"{time:.{digits}g}" for time in scaled["time"] for digits in (5, 6, 17)}
    assert not {number for number in exact if "." in number} & set(re.findall(r"\d+\.\d+", page))
    early = np.flatnonzero((scaled["time"] > 1e3) & (scaled["time"] < np.median(scaled["time"])))[:2]
    asked = long.report(tmp_path / "asked.html", TEST.x, scaled, patients=early)
    assert set(curves_by_name(page_data(asked)["charts"][-1]["specs"][0])) == {f"row {row}" for row in early}
    assert all(f"{scaled['time'][row]:.6g}" in asked.read_text() for row in early)
    for patients, message in ((range(4), "patients: expected at most 3 row numbers, got 4"), ([500], "below 500")):
        with pytest.raises(ValueError, match=message):
            long.report(tmp_path / "more.html", TEST.x, scaled, patients=list(patients))


@pytest.mark.parametrize(("n", "levels"), [(4, 0), (9, 1), (14, 2), (15, 3)])
def test_few_rows_have_fewer_levels_of_risk(path, tmp_path, n, levels):
    y = TEST.y[:n].copy()
    y["event"][:2] = True
    page = page_data(path.report(tmp_path / "few.html", TEST.x[:n], y, horizons=[float(np.median(y["time"]))]))
    assert len(curves_by_name(page["charts"][-1]["specs"][0])) == levels


def flat(value):
    """Every key, text and number of the data of a page, in its order."""
    if isinstance(value, dict):
        return [part for key, one in value.items() for part in (key, *flat(one))]
    return [part for one in value for part in flat(one)] if isinstance(value, list) else [value]


def assert_same_page(one, other):
    # Sums of numpy may differ in their last digit by where in memory their numbers start.
    ours, theirs = (flat(page_data(file)) for file in (one, other))
    assert len(ours) == len(theirs) > 1000
    for mine, other_one in zip(ours, theirs, strict=True):
        assert mine == (pytest.approx(other_one, rel=1e-5) if isinstance(other_one, float) else other_one)


def test_a_path_from_a_file_makes_the_same_page(path, file, tmp_path):
    path.save(tmp_path / "path.xcal")
    again = load(tmp_path / "path.xcal").report(tmp_path / "again.html", TEST.x, TEST.y, time_unit="years")
    assert_same_page(again, file)


def test_rows_as_survival_data(path, file, tmp_path):
    rows = SurvivalData(TEST.x, TEST.y["time"], TEST.y["event"])
    assert_same_page(path.report(tmp_path / "again.html", rows, time_unit="years"), file)


SMALL = {"hidden": (4,), "epochs": 2}


@pytest.mark.parametrize("kind", ["target", "one seed", "best seed", "few rows", "one weight"])
def test_every_kind_of_path_has_a_page(kind, tmp_path, visit):
    made = {
        "target": lambda: SurvivalPath(seeds=2, target_dcal=0.02, **SETTINGS),
        "one seed": lambda: SurvivalPath((0.0, 10.0), 1, distribution="weibull", **SMALL),
        "best seed": lambda: SurvivalPath((0.0, 10.0), 2, average=False, **SMALL),
        "few rows": lambda: SurvivalPath((0.0, 10.0), 2, **SMALL),
        "one weight": lambda: SurvivalPath((10.0,), 2, **SMALL),
    }[kind]()
    rows = survival_rows(60) if kind == "few rows" else DATA
    fitted = made.fit(rows.x, rows.y)
    tab = visit(fitted.report(tmp_path / "page.html", HELD_OUT.x, HELD_OUT.y, horizons=1.0, time_unit=HOSTILE))
    assert (tab.problems, tab.requests, tab.locator("img").count()) == ([], [], 0)
    assert HOSTILE in tab.locator("main").inner_text()
    # On few rows lambda 0 has a map, fitted and judged on all rows; the validation rows could not judge any.
    candidates = len(fitted.candidates_) + (kind == "few rows")
    assert int(tab.locator("input[type=range]").get_attribute("max")) == candidates - 1
    assert fitted.selection_.reason[1:] in tab.locator(".callout").inner_text()
    found = numbers(section(tab, "What does calibration cost?"))
    np.testing.assert_allclose(found, expected(fitted.select(), HELD_OUT.x, HELD_OUT.y, 1.0), rtol=1e-9)


def test_tied_times_are_measured_as_an_audit_measures_them(path, tmp_path, visit):
    months = Surv(time=np.ceil(4 * TEST.y["time"]) / 4, event=TEST.y["event"])
    tab = visit(path.report(tmp_path / "months.html", TEST.x, months))
    audited = audit(path.select(), TEST.x, months, n_bootstrap=0)
    names = ("d_calibration", "d_calibration_floor", "d_calibration_p", "conditional_calibration")
    found = numbers(section(tab, "What does calibration cost?"))
    assert found[:4] == [pytest.approx(audited.value(name).value) for name in names]


def test_horizons_after_the_training_are_named_as_extrapolated(path, tmp_path, visit):
    last = float(DATA.y["time"].max())
    longer = Surv(time=np.append(TEST.y["time"][:-1], 3 * last), event=TEST.y["event"])
    tab = visit(path.report(tmp_path / "late.html", TEST.x, longer, horizons=[1, 2 * last], time_unit="years"))
    words = section(tab, "Are they right for each level of risk?").locator(".note").last.inner_text()
    assert words == f"Extrapolated, as no row of the training was followed beyond {last:.3g} years: {2 * last:g} years."
    tab.locator("input[name=horizon]").nth(1).check()
    settle(tab)
    model = path.select()
    mean = numbers(section(tab, "Are they right for each level of risk?"))[1]
    assert mean == pytest.approx(model.predict_cdf(TEST.x, [2 * last], extrapolate=True).mean())
    assert tab.problems == []


@pytest.mark.parametrize("kind", ["two rows", "no pair", "all alike", "one time", "a hundred times later"])
def test_rows_that_determine_little_still_make_a_page(path, tmp_path, visit, kind):
    x, y = {
        "two rows": (TEST.x[:2], Surv(time=[1.0, 2.0], event=[True, False])),
        "no pair": (TEST.x[:2], Surv(time=[2.0, 1.0], event=[True, False])),
        "all alike": (np.zeros((20, 3)), TEST.y[:20]),
        "one time": (TEST.x[:30], Surv(time=np.ones(30), event=np.arange(30) % 2 == 0)),
        "a hundred times later": (TEST.x, Surv(time=100 * TEST.y["time"], event=TEST.y["event"])),
    }[kind]
    tab = visit(path.report(tmp_path / "page.html", x, y))
    assert (tab.problems, tab.requests) == ([], [])
    drawn = tab.locator("[data-chart]")
    # Two rows are too few for a mean curve.
    assert drawn.count() == drawn.locator("svg").count() == (7 if len(x) == 2 else 8)
    assert not re.search(r"\b(nan|NaN|None|undefined|null)\b", tab.locator("main").inner_text())


NEVER = Surv(time=TEST.y["time"], event=np.zeros(500, dtype=bool))


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        ((), {}, r"X: expected rows to measure the models on, .*report\(path, X, y\).*got None"),
        ((TEST.x,), {}, "y: expected Surv"),
        ((TEST.x, NEVER), {}, "y: expected at least one event, got 500 censored rows"),
        ((TEST.x[:1], TEST.y[:1]), {}, "X: expected at least 2 rows, got 1"),
        ((TEST.x, TEST.y), {"horizons": [-1.0]}, "horizons: expected finite times above 0"),
        ((TEST.x, TEST.y), {"horizons": 1e6}, "horizons: expected times within the follow-up"),
    ],
)
def test_what_cannot_be_shown_is_refused_and_nothing_is_written(path, tmp_path, rows, more, message):
    with pytest.raises(ValueError, match=message):
        path.report(tmp_path / "page.html", *rows, **more)
    assert list(tmp_path.iterdir()) == []


def test_of_very_many_rows_some_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("xcal.estimators.frontier_page.MOST_ROWS", 100)
    fitted = SurvivalPath((0.0, 10.0), 1, **SMALL).fit(DATA.x, DATA.y)
    text = fitted.report(tmp_path / "page.html", HELD_OUT.x, HELD_OUT.y).read_text(encoding="utf-8")
    assert f"on 100 rows (drawn at random from {len(HELD_OUT.x)}) with" in text


def test_rows_that_belong_together_are_counted_once(path, tmp_path):
    again = np.repeat(np.arange(100), 3)
    x, y, labels = TEST.x[again], TEST.y[again], [f"patient {k}" for k in again]
    rows, patients = (
        path.report(tmp_path / f"{name}.html", x, y, clusters=clusters).read_text()
        for name, clusters in (("rows", None), ("patients", labels))
    )
    assert "300 rows with" in rows
    assert "300 rows in 100 clusters with" in patients
    cdf = path._predicting_model().cdf_at_own(x, np.ascontiguousarray(y["time"]))
    by_rows, by_patients = (d_calibration(cdf, y["event"], n_bins=10, clusters=c).floor for c in (None, labels))
    assert by_patients > 2 * by_rows
    for floor, page in ((by_rows, rows), (by_patients, patients)):
        assert f"of a perfect model about {floor:.2g}" in page
    with pytest.raises(ValueError, match="clusters"):
        path.report(tmp_path / "no.html", x, y, clusters=labels[:5])
