"""Nothing is told of a few rows: no name, no count, no bin, on the page, in the JSON and on the screen."""

import json
from dataclasses import replace
from functools import cache
from html import unescape

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xcal
from xcal._checks import MIN_CELL
from xcal.metrics.inputs import evened, merged, merged_edges, starts_of
from xcal.validation import result as measurements
from xcal.validation.words import as_plain

RNG = np.random.default_rng(11)
N, TIMES = 260, np.linspace(0.1, 6.0, 40)
RATE = np.exp(RNG.normal(0, 0.7, N))
HAPPENS, LEAVES = RNG.exponential(1 / RATE), RNG.exponential(2.0, N)
TIME, EVENT = np.minimum(HAPPENS, LEAVES), HAPPENS <= LEAVES
WARD = np.where(RNG.random(N) < 0.5, "north", "south").astype(object)
WARD[:3] = ["ward of J. Quux", "ward of A. Quux", "ward of B. Quux"]
WARD[3:9] = "annex"
X = pd.DataFrame({"rate": RATE, "ward": WARD, "marker": RNG.normal(size=N)})


def audited(**options):
    given = {"survival": np.exp(-np.outer(RATE, TIMES)), "times": TIMES, "y": (TIME, EVENT), "X": X, "groups": ["ward"]}
    return xcal.audit(**{"n_bootstrap": 20, "horizons": [0.3, 1.0, 2.5], "progress": False, **given, **options})


@cache
def with_cells_of(few):
    """Return the audit with another smallest cell: one for all tests, none of which changes it."""
    return audited(min_cell=few)


@pytest.fixture(scope="module")
def shown():
    return audited()


def everything(result, folder):
    """All that can leave the machine of who made an audit."""
    page = result.report(folder / "audit.html").read_text(encoding="utf-8")
    return {"page": page, "json": result.to_json(), "screen": repr(result), "table": result.to_frame().to_csv()}


@pytest.fixture(scope="module")
def told(shown, tmp_path_factory):
    return everything(shown, tmp_path_factory.mktemp("shown"))


def test_names_of_tiny_groups_are_nowhere(shown, told, tmp_path):
    for place, text in told.items():
        assert "Quux" not in text, place
    assert "3 groups of fewer than 5 rows" in shown.to_json()
    assert any("3 groups of fewer than 5 rows" in sentence for sentence in shown.verdict.sentences)
    assert "Nothing is shown of fewer than 5 rows" in told["page"]
    asked = everything(with_cells_of(0), tmp_path)
    assert "Nothing is shown of fewer" not in asked["page"]
    assert all("J. Quux" in asked[place] for place in ("page", "json"))
    assert "in 1 rows" in asked["json"]


def test_the_events_of_a_small_group_are_not_counted(shown):
    (annex,) = [one for one in shown.measured.skipped if one.group == "ward = annex"]
    assert 0 < EVENT[3:9].sum() < MIN_CELL or 0 < 6 - EVENT[3:9].sum() < MIN_CELL
    assert annex.why.startswith("fewer than 10 events in 6 rows")
    (counted,) = [one for one in with_cells_of(1).measured.skipped if one.group == "ward = annex"]
    assert counted.why.startswith(f"{EVENT[3:9].sum()} event")


def cells(result):
    """Every number of rows that the pictures tell, or that can be computed from their shares."""
    content = json.loads(result.to_json())["measured"]
    for curve in content["calibration"]:
        yield "risk group", curve["point_rows"]
        yield "bin of risk", curve["risk_counts"]
    for one in content["risks"]:
        for outcome in ("with_event", "without_event", "censored"):
            yield outcome, [one[f"n_{outcome}"]]
            # Neighbours of one height are one cell: each has the mean of them.
            runs = np.split(one[outcome], np.flatnonzero(np.abs(np.diff(one[outcome])) > 1e-12) + 1)
            yield outcome, [round(run.sum() * one[f"n_{outcome}"]) for run in runs]
    yield "still followed", content["over_time"]["at_risk"]


@pytest.mark.parametrize("few", [MIN_CELL, 12])
def test_no_cell_of_the_pictures_is_small(few):
    found = list(cells(with_cells_of(few)))
    assert len(found) > 10
    for what, counts in found:
        assert all(count == 0 or count >= few for count in counts), what
    assert any(0 < count < few for _, counts in cells(with_cells_of(0)) for count in counts)


def test_bins_of_f_hold_no_event_or_enough(shown):
    rows = np.exp(-RATE * TIME)
    everybody = [one for one in shown.measured.pit if one.group is None]
    assert everybody
    for one in everybody:
        counts = np.histogram(1 - rows[EVENT & (TIMES[-1] >= TIME)], one.edges)[0]
        assert all(count == 0 or count >= MIN_CELL - 1 for count in counts)  # curves are read along lines
        assert one.mass.sum() == pytest.approx(1.0)
    whole = [one for one in with_cells_of(0).measured.pit if one.group is None]
    few = [one for one in with_cells_of(40).measured.pit if one.group is None]
    for ours, all_bins in zip(few, whole, strict=True):
        assert 1 <= ours.mass.size < all_bins.mass.size == 10
        kept = np.searchsorted(all_bins.edges, ours.edges[:-1] - 1e-9)
        np.testing.assert_allclose(ours.mass, np.add.reduceat(all_bins.mass, kept), rtol=1e-9)


def test_the_end_of_follow_up_is_reached_by_enough_rows(shown):
    last = shown.measured.over_time.times[-1]
    assert np.count_nonzero(last <= TIME) >= MIN_CELL
    assert shown.data.last_time == last
    assert with_cells_of(0).data.last_time == TIME.max()


def test_thresholds_that_part_a_few_rows_have_no_net_benefit(shown):
    for curve in shown.measured.decision:
        risk = -np.expm1(-RATE * curve.horizon)  # horizons lie between times of the curves, read along lines
        above = np.array([np.count_nonzero(risk >= threshold) for threshold in curve.threshold])
        clearly_few = (above == 2) | (above == N - 2)
        clearly_enough = (above >= 8) & (above <= N - 8)
        assert np.isnan(curve.model[clearly_few]).all()
        assert np.isfinite(curve.model[clearly_enough]).all()
    assert all(np.isfinite(curve.model).all() for curve in with_cells_of(0).measured.decision)


def test_no_time_and_no_covariate_of_a_row_is_written(told):
    for place, text in told.items():
        for name, values in (("time", TIME), ("rate", RATE), ("marker", X["marker"])):
            found = [value for value in values if repr(float(value)) in text or f"{value:.8g}" in text]
            assert not found, (place, name)


def test_values_and_verdict_are_those_of_all_rows(shown):
    of_all = with_cells_of(0)
    assert as_plain(shown.values) == as_plain(of_all.values)
    assert shown.verdict.headline == of_all.verdict.headline
    assert shown.min_cell == MIN_CELL == json.loads(shown.to_json())["min_cell"]
    assert of_all.min_cell == 0


def test_an_outcome_of_a_few_rows_has_no_picture():
    time, event = TIME + 0.5, EVENT.copy()
    early = np.argsort(RATE)[:2]
    time[early], event[early] = 0.1, True
    given = {"risk": 1 - np.exp(-0.3 * RATE), "horizons": 0.3, "y": (time, event), "survival": None, "times": None}
    found = audited(**given)
    assert found.measured.risks == ()
    assert any(one.what == "risks" and "fewer than 5 rows" in one.why for one in found.measured.skipped)
    assert len(audited(**given, min_cell=0).measured.risks) == 1


def test_counts_of_the_data_section(tmp_path):
    time = np.minimum(TIME, 5.9)
    time[7] = 6.5
    found = audited(y=(time, EVENT))
    assert found.data.n_past_grid is None
    (past,) = [one.what for one in found.data.concerns if "past the end of the curves" in one.what]
    assert past.startswith("Fewer than 5 rows with a time past")
    texts = everything(found, tmp_path)
    assert not any("1 row" in text for text in texts.values())
    assert "Rows past the model's last time" in unescape(texts["page"])
    assert audited(y=(time, EVENT), min_cell=0).data.n_past_grid == 1


def test_events_of_a_part_are_not_counted_where_they_are_few():
    part = measurements.PartFound("age > 70", 1.0, 40, None, 3.0, 2.0, 4.0, 1e-6)
    from tests.validation.made_result import made_result
    from xcal.validation.verdict import in_parts

    measured = replace(made_result().measured, parts=(part,))
    (finding,) = in_parts(measured, 0.95, "years")
    assert finding.words.endswith("; 40 rows)")


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30), st.integers(0, 9))
def test_merged_cells_are_empty_or_large_and_hold_all_rows(counts, few):
    cell = merged(counts, few)
    together = np.add.reduceat(counts, starts_of(cell))
    assert together.sum() == sum(counts)
    assert cell[0] == 0
    assert set(np.diff(cell)) <= {0, 1}
    if sum(counts) >= few:
        assert all(count == 0 or count >= few for count in together)
    else:
        assert np.count_nonzero(together) <= 1
    if few < 2:
        assert together.tolist() == counts
    edges = merged_edges(np.arange(len(counts) + 1.0), cell)
    assert edges.size == together.size + 1
    assert (edges[0], edges[-1]) == (0, len(counts))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30), st.integers(0, 9))
def test_evened_cells_keep_their_sum_within_what_is_merged(counts, few):
    cell, even = merged(counts, few), evened(np.array(counts), few)
    for k in range(cell[-1] + 1):
        own = cell == k
        assert np.ptp(even[own]) == 0
        assert even[own].sum() == pytest.approx(np.array(counts)[own].sum())


def test_empty_cells_at_the_ends_are_not_joined():
    assert merged([0, 0, 3, 4, 2, 0, 0, 0], 5).tolist() == [0, 1, 2, 2, 2, 3, 4, 5]
