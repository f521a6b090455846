"""Comparing with the paper: the marks by the rules of the table, the score, and which records count."""

import math

import pytest

from xcal_paper import compare
from xcal_paper.comparison import mark_concordance, mark_dcal, mark_nll

from .made_records import as_the_paper, write

NAN = math.nan


@pytest.mark.parametrize(
    ("mark", "ours", "spread", "paper", "expected"),
    [
        # NLL: within .05 or 3 standard deviations of ours.
        (mark_nll, 0.83, NAN, 0.78, "matched"),
        (mark_nll, 0.73, NAN, 0.78, "matched"),
        (mark_nll, 0.831, 0.001, 0.78, "worse"),
        (mark_nll, 0.729, 0.001, 0.78, "better"),
        (mark_nll, 0.98, 0.07, 0.78, "matched"),
        (mark_nll, 0.98, 0.06, 0.78, "worse"),
        (mark_nll, 5.0, 0.49, 0.78, "worse"),
        (mark_nll, 5.0, 0.51, 0.78, "not settled"),
        (mark_nll, 0.78, 0.51, 0.78, "not settled"),
        (mark_nll, 12.0, 1.9, 4.0, "worse"),
        (mark_nll, 12.0, 2.1, 4.0, "not settled"),
        (mark_nll, 0.02, 0.01, 0.01, "matched"),
        (mark_nll, -0.11, 0.0, -0.059, "better"),
        (mark_nll, NAN, NAN, 0.78, "worse"),
        (mark_nll, math.inf, 0.0, 0.78, "worse"),
        # Concordance: within .02.
        (mark_concordance, 0.96, 0.1, 0.98, "matched"),
        (mark_concordance, 0.959, 0.1, 0.98, "worse"),
        (mark_concordance, 0.9, 0.0, 0.879, "better"),
        (mark_concordance, NAN, NAN, 0.98, "worse"),
        # D-cal: within a factor of 2, or 1e-4.
        (mark_dcal, 0.018, 0.0, 0.009, "matched"),
        (mark_dcal, 0.0045, 0.0, 0.009, "matched"),
        (mark_dcal, 0.019, 0.0, 0.009, "worse"),
        (mark_dcal, 0.004, 0.0, 0.009, "better"),
        (mark_dcal, 16e-5, 0.0, 6e-5, "matched"),
        (mark_dcal, 17e-5, 0.0, 6e-5, "worse"),
        (mark_dcal, 0.0, 0.0, 6e-5, "matched"),
        (mark_dcal, 0.0, 0.0, 3e-4, "better"),
        (mark_dcal, NAN, NAN, 6e-5, "worse"),
    ],
)
def test_marks(mark, ours, spread, paper, expected):
    assert mark(ours, spread, paper) == expected


def test_the_papers_own_values_match(small, tmp_path):
    path = small()
    write(tmp_path, path, as_the_paper)
    found = compare(path, results=tmp_path)
    assert found.score == 1
    assert {cell.mark for cell in found.cells} == {"matched"}
    cell = found.cell("mtlr-i", 10.0, "nll")
    assert cell.ours == pytest.approx(cell.paper)
    assert cell.spread == pytest.approx(0.01 * math.sqrt(2))
    assert cell.n_seeds == 2


def test_the_score_is_the_share_of_cells_that_are_not_worse(small, tmp_path):
    path = small()

    def metrics(model, lam, seed):
        # One model is worse in NLL, better in concordance by nothing that matters; another better in D-cal.
        found = as_the_paper(model, lam, seed)
        if model == "lognormal-nll":
            found["nll"] += 1
        if model == "mtlr-i":
            found["dcal"] /= 100
        return found

    write(tmp_path, path, metrics)
    found = compare(path, results=tmp_path)
    assert found.score == pytest.approx(16 / 18)
    marks = [cell.mark for cell in found.cells]
    assert (marks.count("worse"), marks.count("better"), marks.count("matched")) == (2, 2, 14)


def test_missing_cells_are_said_and_do_not_count(small, tmp_path):
    path = small()
    nothing = compare(path, results=tmp_path)
    assert math.isnan(nothing.score)
    assert nothing.n_missing == 18


def test_trials_and_other_penalties_are_not_mixed_up(small, tmp_path):
    path = small()
    write(tmp_path, path, as_the_paper, epochs=1)
    write(tmp_path, path, as_the_paper, penalty="ours")
    assert compare(path, results=tmp_path).n_missing == 18
    assert compare(path, results=tmp_path, epochs=1).score == 1
    assert compare(path, results=tmp_path, penalty="ours").score == 1
    assert compare(path, results=tmp_path, variant="corrected").n_missing == 18


def test_records_of_another_spec_do_not_count(small, tmp_path):
    write(tmp_path, small(), as_the_paper)
    assert compare(small(("hidden = [16]", "hidden = [8]")), results=tmp_path).n_missing == 12
