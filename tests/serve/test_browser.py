"""The page in a real browser: the drop, the correction, the report, the calculator."""

import numpy as np
import pandas as pd
import pytest

import xcal
from tests.serve.running import running, wait

DROP = """([name, text]) => {
    const files = new DataTransfer();
    files.items.add(new File([text], name));
    document.getElementById("drop").dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true}));
}"""


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


@pytest.fixture
def tab(browser, server):
    """Return the page, which may ask its own server and nothing else."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    found = context.new_page()
    found.set_default_timeout(60_000)
    found.problems, found.elsewhere = [], []
    found.on("console", lambda message: found.problems.append(f"{message.type}: {message.text}"))
    found.on("pageerror", lambda error: found.problems.append(str(error)))
    own = (server.address, "blob:", "data:")
    context.on("request", lambda one: None if one.url.startswith(own) else found.elsewhere.append(one.url))
    found.goto(server.address)
    yield found
    context.close()
    wait(lambda: server.left() == [] and not server.desk.files)  # closing it deletes what was dropped


def table():
    rng = np.random.default_rng(1)
    rate = rng.uniform(0.02, 0.2, 150)
    happens, leaves = rng.exponential(1 / rate), rng.uniform(2, 30, 150)
    frame = pd.DataFrame(
        {"months": np.minimum(happens, leaves), "status": np.where(happens <= leaves, "dead", "alive")}
    )
    frame["<b>sex</b>"] = rng.choice(["f", "m"], 150)
    frame["start"] = rng.uniform(0, 1, 150)
    return frame.assign(**{f"s_{t}": np.exp(-rate * t) for t in (6, 12, 24)})


def serious(tab):
    """Return what axe finds that keeps people out."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python").Axe()
    found = axe.run(tab).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


def test_from_a_table_to_its_report(tab, tmp_path):
    assert serious(tab) == []
    tab.evaluate(DROP, ["my table.csv", table().to_csv(index=False)])
    tab.get_by_role("heading", name="What was understood").wait_for()
    command = tab.locator("#command")
    wait(lambda: "--event-value=dead" in command.text_content())
    assert "--curves=s_*" in command.text_content()
    assert tab.locator("#options b").count() == 0  # names are text
    # The correction: another group, horizons, no unit.
    tab.get_by_label("<b>sex</b>", exact=True).check()
    tab.get_by_label("Horizons").fill("12")
    tab.get_by_label("Unit of the time").select_option("")
    wait(lambda: "--time-unit" not in command.text_content())
    assert "--horizons=12" in command.text_content()
    assert "--by=<b>sex</b>" in command.text_content()
    assert serious(tab) == []
    tab.get_by_role("button", name="Run it").click()
    tab.get_by_role("heading", name="The answer").wait_for()
    assert "150 rows" in tab.locator("#answer").inner_text()
    assert serious(tab) == []
    with tab.expect_popup() as opened:
        tab.get_by_role("link", name="Open the report").click()
    report = opened.value
    report.wait_for_selector("main[aria-busy=false]")
    assert report.title() == "Validation of my_table.csv"
    assert report.locator("svg").count() > 3
    report.close()
    with tab.expect_download() as saved:
        tab.get_by_role("link", name="All numbers (JSON)").click()
    assert '"horizons": [\n  12.0\n ]' in saved.value.path().read_text()
    assert (tab.problems, tab.elsewhere) == ([], [])


def test_what_is_wrong_is_one_sentence(tab):
    tab.evaluate(DROP, ["table.csv", table().assign(months=-1).to_csv(index=False)])
    tab.get_by_label("Time", exact=True).select_option("months")
    tab.get_by_role("button", name="Run it").click()
    wait(lambda: "expected a time" in tab.locator("#state").inner_text())
    assert tab.locator("#results").is_hidden()
    tab.evaluate(DROP, ["notes.docx", "x"])
    wait(lambda: "expected a table" in tab.locator("#dropped").inner_text())
    assert tab.locator("#asking").is_hidden()


def test_a_saved_model_is_a_calculator(tab, tmp_path, server):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(60, 10, 90), "sex": rng.choice(["f", "m"], 90)})
    y = xcal.Surv(time=rng.exponential(np.exp((60 - X["age"]) / 20)), event=np.ones(90))
    path = xcal.SurvivalPath((0,), 3, epochs=3, encode="auto", cross_fit=0, progress=False).fit(X, y)
    path.save(tmp_path / "model.xcal")
    tab.set_input_files("#file", tmp_path / "model.xcal")
    tab.locator("#curve svg").wait_for()
    assert tab.get_by_text("Not for clinical use.").is_visible()
    assert serious(tab) == []
    before = tab.locator("#curve .line").get_attribute("d")
    tab.get_by_label("age").fill("85")
    wait(lambda: tab.locator("#curve .line").get_attribute("d") != before)
    assert "'age': 85.0" in tab.locator("#call").text_content()
    assert tab.locator("#curve .band").count() == 1
    tab.get_by_label("age").fill("old")
    wait(lambda: "age: expected a number" in tab.locator("#reading").inner_text())
    problems = [one for one in tab.problems if "400" not in one]  # the browser's own note of the refusal
    assert (problems, tab.elsewhere) == ([], [])


def test_the_notice_can_be_switched_off(browser):
    with running(notice=False) as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(server.address)
        assert page.evaluate("getComputedStyle(document.getElementById('notice')).display") == "none"
        context.close()
