"""The engine of a page, in a real browser."""

import base64
import json
import re
from urllib.parse import unquote

import numpy as np
import pytest

from xcal.show import page as page_module
from xcal.show.charts import COLOURS, colour
from xcal.show.page import (
    Callout,
    Chart,
    Checklist,
    ChecklistItem,
    Copyable,
    Download,
    Figure,
    Figures,
    Key,
    Notes,
    Page,
    Row,
    Section,
    Selector,
    Stack,
    Table,
    Text,
    Varying,
    render_page,
    write_page,
)

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script> & 'one' \"two\" \u2028"


def bar(height, label="a", pick=None):
    """A picture with one bar of the given height."""
    row = {"name": label, "y": height, **({} if pick is None else {"pick": pick})}
    return {
        "height": 100,
        "data": {"values": [row]},
        "mark": {"type": "bar", "color": colour("model"), "tooltip": True},
        "encoding": {
            "x": {"field": "name", "type": "nominal"},
            "y": {"field": "y", "type": "quantitative", "scale": {"domain": [0, 4]}},
        },
    }


def page_of(*blocks, selectors=(), **more):
    return Page("A page", (Section("Part", blocks, "Part"),), selectors=selectors, **more)


def bar_height(tab):
    """Height in pixels of the bar that is drawn."""
    path = tab.locator(".mark-rect path").first.get_attribute("d")
    return float(re.search(r"v(-?[\d.]+)", path)[1])


def settle(tab):
    tab.wait_for_selector("main[aria-busy=false]")


def until(tab, condition):
    """Wait; Playwright's own waiting evaluates text inside the page, which the policy forbids."""
    for _ in range(200):
        if tab.evaluate(condition):
            return
        tab.wait_for_timeout(50)
    pytest.fail(f"never: {condition}")


@pytest.fixture
def at(tmp_path):
    return tmp_path / "page.html"


def test_a_page_makes_no_request_and_no_complaint(at, visit):
    tab = visit(write_page(page_of(Chart((bar(1),), ("One bar",))), at))
    assert (tab.problems, tab.requests) == ([], [])
    assert tab.title() == "A page"
    assert at.stat().st_size < 5e6


def test_the_picture_has_its_text_for_those_who_cannot_see_it(at, visit):
    tab = visit(write_page(page_of(Chart((bar(1),), ('One bar & "more"',))), at))
    assert tab.locator("[role=graphics-document]").get_attribute("aria-label") == 'One bar & "more"'


@pytest.mark.parametrize("kind", ["buttons", "list", "slider"])
def test_a_selector_moves_pictures_and_blocks_by_the_keyboard(at, visit, kind):
    chooser = Selector("height", "Height", ("low", "middle", "high"), kind, start=1)
    chart = Chart(tuple(bar(k) for k in (1, 2, 4)), ("one", "two", "four"), follows=("height",))
    varying = Varying("height", (Text("first"), Text("second"), Text("third")))
    tab = visit(write_page(page_of(chart, varying, selectors=(chooser,)), at))
    assert tab.locator("p:visible", has_text="second").count() == 1
    middle = bar_height(tab)
    for _ in range(3):  # the skip link, then the control
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.dataset.selects") == "height":
            break
    assert tab.evaluate("document.activeElement.dataset.selects") == "height"
    tab.keyboard.press("ArrowDown" if kind != "slider" else "ArrowRight")
    tab.wait_for_selector("[aria-label=four]")
    settle(tab)
    assert bar_height(tab) == pytest.approx(2 * middle)
    assert tab.locator("p:visible", has_text="third").count() == 1
    assert tab.locator("p:visible", has_text="second").count() == 0
    assert tab.locator("#said").text_content() == "high"
    assert tab.problems == []


def test_a_click_on_a_point_chooses_too(at, visit):
    chooser = Selector("model", "Model", ("a", "b"), "slider")
    points = Chart((bar(3, pick=1),), ("Points",), picks="model")
    below = Chart((bar(1), bar(2)), ("first", "second"), follows=("model",))
    tab = visit(write_page(page_of(points, below, selectors=(chooser,)), at))
    assert tab.locator("[aria-label=first]").count() == 1
    tab.locator("[data-chart='0'] .mark-rect path").first.click()
    tab.wait_for_selector("[aria-label=second]")
    assert tab.locator("input[type=range]").input_value() == "1"
    assert tab.locator("output").text_content() == "b"


def test_a_signal_follows_without_a_new_drawing(at, visit):
    spec = bar(1)
    spec = {**spec, "params": [{"name": "chosen", "value": 0}]}
    spec["mark"] = {"type": "bar", "opacity": {"expr": "chosen == 1 ? 1 : 0.25"}}
    chart = Chart((spec,), ("Bar",), follows=("which",), signal="chosen")
    tab = visit(write_page(page_of(chart, selectors=(Selector("which", "Which", ("a", "b")),)), at))
    mark = tab.locator(".mark-rect path").first
    assert mark.get_attribute("opacity") == "0.25"
    tab.locator("input[type=radio]").nth(1).check()
    until(tab, "document.querySelector('.mark-rect path').getAttribute('opacity') != '0.25'")
    assert mark.get_attribute("opacity") in ("1", None)
    assert tab.problems == []


def test_two_selectors_choose_from_a_grid_of_pictures(at, visit):
    one, two = Selector("one", "One", ("a", "b")), Selector("two", "Two", ("x", "y", "z"))
    alts = tuple(f"{a}{b}" for a in one.options for b in two.options)
    chart = Chart(tuple(bar(1) for _ in alts), alts, follows=("one", "two"))
    tab = visit(write_page(page_of(chart, two, selectors=(one,)), at))
    tab.locator("input[name=one]").nth(1).check()
    tab.locator("input[name=two]").nth(2).check()
    tab.wait_for_selector("[aria-label=bz]")


def test_a_picture_in_a_hidden_block_is_drawn_when_it_is_shown(at, visit):
    hidden = Varying("which", (Text("none"), Chart((bar(2),), ("late",))))
    tab = visit(write_page(page_of(hidden, selectors=(Selector("which", "Which", ("a", "b")),)), at))
    assert tab.locator("svg").count() == 0
    tab.locator("input[type=radio]").nth(1).check()
    tab.wait_for_selector("[aria-label=late]")


def hostile_page():
    blocks = (
        Text(HOSTILE),
        Notes((HOSTILE,), HOSTILE),
        Callout("bad", HOSTILE, HOSTILE, (HOSTILE,)),
        Figures((Figure(HOSTILE, HOSTILE, 1.0, HOSTILE, HOSTILE),)),
        Chart((bar(1, HOSTILE),), (HOSTILE,), keys=(Key(HOSTILE, "model"),), title=HOSTILE, reading=HOSTILE),
        Table(HOSTILE, (HOSTILE, "b"), ((HOSTILE, (HOSTILE, 2.0, HOSTILE)),), filterable=True),
        Copyable(HOSTILE, HOSTILE),
        Download(HOSTILE, HOSTILE, HOSTILE),
        Checklist(HOSTILE, (ChecklistItem(HOSTILE, HOSTILE, "audit", HOSTILE),)),
        Row((Stack((Text(HOSTILE),)), Text("b"))),
        Selector("one", HOSTILE, (HOSTILE, "b"), "list"),
        Selector("two", HOSTILE, (HOSTILE, "b"), "slider"),
    )
    bars = (Selector("three", HOSTILE, (HOSTILE, "b")),)
    return Page(HOSTILE, (Section(HOSTILE, blocks, HOSTILE),), HOSTILE, bars, (Text(HOSTILE),), HOSTILE)


def test_hostile_text_is_shown_as_text(at, visit):
    tab = visit(write_page(hostile_page(), at))
    assert (tab.problems, tab.requests) == ([], [])
    assert tab.locator("img").count() == 0
    seen = tab.locator("main").text_content()
    assert seen.count("<img src=x onerror=alert(1)>") > 20
    assert tab.title().startswith("<img src=x")
    tab.locator("[data-chart='0'] .mark-rect path").first.hover()
    tab.wait_for_selector("#vg-tooltip-element.visible")
    assert "<img src=x" in tab.locator("#vg-tooltip-element").text_content()
    assert tab.locator("img").count() == 0
    assert tab.problems == []


def test_nothing_but_the_pages_own_scripts_can_run(at, visit):
    tab = visit(write_page(page_of(Chart((bar(1),), ("One bar",))), at))
    policy = tab.locator("meta[http-equiv]").get_attribute("content")
    assert "unsafe-eval" not in policy
    assert "default-src 'none'" in policy
    add = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
    tab.evaluate(f"() => {{ {add} }}")
    assert tab.evaluate("window.ran") is None
    assert "Content Security Policy" in tab.problems[0]


def test_what_is_not_a_number_is_null_and_no_text_can_end_the_data():
    chart = Chart(({"data": {"values": [{"x": float("nan"), "y": np.float64(2), "z": "</script><!--"}]}},), ("",))
    text = render_page(page_of(chart))
    data = re.search(r'id="page-data">(.*?)</script>', text, flags=re.DOTALL)[1]
    assert "<" not in data
    assert json.loads(data)["charts"][0]["specs"][0]["data"]["values"] == [{"x": None, "y": 2.0, "z": "</script><!--"}]


def test_numbers_are_on_the_page_in_full(at, visit):
    tab = visit(write_page(page_of(Figures((Figure("Pi", "3.14", 3.141592653589793),))), at))
    assert tab.locator("data").get_attribute("value") == "3.141592653589793"
    assert tab.locator("data").text_content() == "3.14"


def test_a_page_without_pictures_has_no_library():
    assert len(render_page(page_of(Text("Words")))) < 50_000


def test_lines_of_a_table_can_be_looked_for(at, visit):
    table = Table("Lines", ("Name", "Value"), (("Brier at 1 year", "1"), ("AUC at 1 year", "2")), filterable=True)
    tab = visit(write_page(page_of(table), at))
    tab.get_by_label("Show lines with").fill("auc year")
    assert tab.locator("tbody tr:visible").all_text_contents() == ["AUC at 1 year2"]


def test_a_file_can_be_saved_from_the_page(at, visit):
    tab = visit(write_page(page_of(Download("Save", "numbers.csv", "a,b\nÄ,2\n")), at))
    with tab.expect_download() as download:
        tab.get_by_text("Save").click()
    assert download.value.suggested_filename == "numbers.csv"
    assert download.value.path().read_text(encoding="utf-8") == "a,b\nÄ,2\n"
    href = tab.get_by_text("Save").get_attribute("href")
    assert base64.b64decode(unquote(href).split("base64,")[1]).decode() == "a,b\nÄ,2\n"


def test_text_can_be_copied(at, visit):
    tab = visit(
        write_page(page_of(Copyable("First.\n\nSecond.")), at), permissions=["clipboard-read", "clipboard-write"]
    )
    tab.get_by_role("button", name="Copy").click()
    tab.wait_for_selector("button:has-text('Copied')")
    assert tab.evaluate("navigator.clipboard.readText()") == "First.\n\nSecond."


def ground(tab):
    return tab.evaluate("getComputedStyle(document.body).backgroundColor")


def rgb(code):
    return f"rgb({', '.join(str(int(code[k : k + 2], 16)) for k in (1, 3, 5))})"


def test_dark_follows_the_system_and_the_button_and_print_is_light(at, visit):
    path = write_page(page_of(Chart((bar(1),), ("One bar",))), at)
    light, dark = map(rgb, COLOURS["page"])
    tab = visit(path, color_scheme="dark")
    assert ground(tab) == dark
    ink = "getComputedStyle(document.querySelector('.mark-rect path')).fill"
    assert tab.evaluate(ink) == rgb(COLOURS["model"][1])
    tab.locator("#theme").click()
    assert ground(tab) == light
    assert tab.evaluate(ink) == rgb(COLOURS["model"][0])
    tab.locator("#theme").click()
    assert ground(tab) == dark
    tab.emulate_media(media="print")
    assert tab.evaluate(ink) == rgb(COLOURS["model"][0])


def test_pictures_fit_a_narrow_window_again(at, visit):
    tab = visit(write_page(page_of(Chart((bar(1),), ("One bar",))), at))
    wide = tab.locator("svg").bounding_box()["width"]
    tab.set_viewport_size({"width": 390, "height": 800})
    # The attribute, as the style sheet alone would shrink what was drawn for the wide window.
    until(tab, f"document.querySelector('svg')?.getAttribute('width') < {wide / 2}")
    settle(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.locator("svg").bounding_box()["width"] == pytest.approx(
        tab.locator(".chart").bounding_box()["width"], abs=2
    )


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (page_of(Chart((bar(1),), ("",), follows=("nobody",))), "chart: expected a selector of the page .it has none"),
        (page_of(Chart((bar(1),), ("a", "b"))), "chart: expected 1 specifications and texts, got 1 and 2"),
        (page_of(Selector("a b", "", ("x",))), "selectors: expected names of letters, digits and underscores"),
        (page_of(Selector("a", "", ("x",)), Selector("a", "", ("x",))), "each once, got 'a'"),
        (page_of(Selector("a", "", ("x",), start=1)), "selector a: expected a start among its 1 options, got 1"),
    ],
)
def test_a_page_that_cannot_work_is_not_written(at, page, message):
    at.write_text("old")
    with pytest.raises(ValueError, match=message):
        write_page(page, at)
    assert at.read_text() == "old"
    assert [path.name for path in at.parent.iterdir()] == ["page.html"]


def test_the_script_of_charts_is_made_once_and_a_damaged_or_read_only_cache_costs_time_alone(tmp_path, monkeypatch):
    import vl_convert

    made = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda: made.append(1) or "draw();\r\n")
    monkeypatch.setattr("xcal.show.page.cache_folder", lambda: tmp_path / "caches")

    def script():
        page_module._vega.cache_clear()  # as in a new process
        return page_module._vega()

    try:
        assert [script(), script()] == ["draw();\n"] * 2
        assert len(made) == 1
        (kept,) = (tmp_path / "caches").iterdir()
        kept.write_bytes(kept.read_bytes().replace(b"draw", b"steal"))
        assert script() == "draw();\n"
        assert len(made) == 2
        (tmp_path / "a file").touch()
        monkeypatch.setattr("xcal.show.page.cache_folder", lambda: tmp_path / "a file" / "caches")
        assert script() == "draw();\n"
        assert len(made) == 3
    finally:
        page_module._vega.cache_clear()
