"""From rows to the page: reports of real audits, in a real browser."""

import numpy as np
import pandas as pd
import pytest

import xcal
from xcal.validation.charts import OUTCOME_KEYS

TIMES = np.linspace(0.1, 6, 30)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    n = 400
    x = rng.normal(size=n)
    hazard = 0.25 * np.exp(0.8 * x)
    happens, leaves = rng.exponential(1 / hazard), rng.uniform(1, 7, n)
    # Two groups to judge and one that is too small.
    site = np.where(np.arange(n) < 3, "tiny", np.where(rng.random(n) < 0.5, "north", "south"))
    return hazard, np.minimum(happens, leaves), happens <= leaves, site


def audited(rows, kind, **more):
    hazard, time, event, site = rows
    given = {
        "curves": {"survival": np.exp(-hazard[:, None] * TIMES), "times": TIMES, "horizons": [1, 3]},
        "risk": {"risk": 1 - np.exp(-2 * hazard), "horizons": 2},
        "cdf": {"cdf": 1 - np.exp(-hazard * time)},
    }[kind]
    return xcal.audit(y=(time, event), groups={"site": site}, n_bootstrap=20, progress=False, **given, **more)


@pytest.mark.parametrize("kind", ["curves", "risk", "cdf"])
def test_the_page_shows_what_was_measured(rows, kind, tmp_path, visit):
    result = audited(rows, kind, time_unit="years")
    tab = visit(result.report(tmp_path / "audit.html"))
    assert (tab.problems, tab.requests) == ([], [])
    numbers = tab.locator("section", has=tab.get_by_role("heading", name="All numbers", exact=True))
    shown = [float(value) for value in numbers.locator("tbody data").evaluate_all("all => all.map(one => one.value)")]
    frame = result.to_frame()
    assert shown == frame["value"][frame["value"].notna()].tolist()
    drawn = tab.locator("[data-chart]:visible")
    assert drawn.locator("svg").count() == drawn.count() > 3
    assert result.verdict.headline in tab.locator(".callout").inner_text()
    told = tab.locator("main").inner_text()
    assert "1 group of fewer than 5 rows" in told
    assert "tiny" not in told


def test_two_models_and_their_differences_are_on_one_page(rows, tmp_path, visit):
    hazard, time, event, _ = rows
    curves = {
        name: pd.DataFrame(np.exp(-h[:, None] * TIMES), columns=TIMES) for name, h in (("A", hazard), ("B", hazard**2))
    }
    both = xcal.compare_models(curves, y=(time, event), horizons=[1, 3], n_bootstrap=20, progress=False)
    tab = visit(both.report(tmp_path / "both.html"))
    assert (tab.problems, tab.requests) == ([], [])
    table = tab.get_by_role("table", name="B minus A, on the same resamples of the rows")
    shown = [float(value) for value in table.locator("data").evaluate_all("all => all.map(one => one.value)")]
    assert shown == [value.value for value in both.differences["B"] if not np.isnan(value.value)]


def test_the_legend_of_outcomes_has_the_lines_of_the_picture():
    """Censored rows alone have a dashed line and no ground."""
    shapes = {key.colour: key.shape for key in OUTCOME_KEYS}
    assert shapes == {"with_event": "box", "without_event": "box", "censored": "dashed"}
