"""Folded parts of a page: closed at first, opened by links and for paper, and drawn all the same."""

import pytest

from xcal.show.page import Chart, Page, Section, Text, write_page

PICTURE = {
    "height": 80,
    "data": {"values": [{"x": 1, "y": 1}]},
    "mark": "point",
    "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}},
}


@pytest.fixture
def tab(tmp_path, visit):
    chart = Chart((PICTURE,), ("a point",), title="Inside")
    sections = (
        Section("Seen", (Text("at once"),), "Seen"),
        Section("First", (Text("of the first"), chart), "First", folded=True),
        Section("Second", (Text("of the second"),), "Second", folded=True),
    )
    return visit(write_page(Page("Folded", sections), tmp_path / "page.html"), unfolded=False)


def test_parts_are_closed_and_open_by_their_links(tab):
    assert tab.get_by_text("at once").is_visible()
    assert tab.get_by_text("of the first").is_hidden()
    tab.get_by_role("link", name="First").click()
    assert tab.get_by_text("of the first").is_visible()
    assert tab.get_by_text("of the second").is_hidden()
    tab.get_by_role("heading", name="Second").click()
    assert tab.get_by_text("of the second").is_visible()
    tab.get_by_role("button", name="Close all parts").click()
    assert tab.get_by_text("of the first").is_hidden()
    assert (tab.problems, tab.requests) == ([], [])


def test_pictures_are_drawn_before_they_are_unfolded(tab):
    assert tab.locator("[data-chart] svg").count() == 1
    tab.get_by_role("button", name="Open all parts").click()
    box = tab.locator("[data-chart] svg").bounding_box()
    assert box["width"] == pytest.approx(tab.locator("[data-chart]").bounding_box()["width"], abs=2)


def test_paper_shows_every_part(tab):
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details:not([open])").count() == 0
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert tab.locator("details[open]").count() == 0


def test_a_page_that_is_opened_at_a_part_shows_it(tab):
    tab.goto(tab.url + "#part-2")
    tab.reload()
    tab.wait_for_selector("main[aria-busy=false]")
    assert tab.get_by_text("of the second").is_visible()
