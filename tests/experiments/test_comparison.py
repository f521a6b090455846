"""Comparing with the paper: the marks by the rules of the table, the score, the shares, and what is written."""

import csv
import io
import json
import math

import numpy as np
import pytest

from xcal.experiments import Record, RecordFile, compare, load_spec
from xcal.experiments.comparison import mark_concordance, mark_dcal, mark_nll
from xcal.experiments.frontier import draw_frontier
from xcal.experiments.headline import headline
from xcal.experiments.pages import write_pages
from xcal.experiments.paper import paper_figures
from xcal.experiments.render import as_csv, as_json, markdown

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


def write(results, path, figures, *, variant="as-published", penalty="paper", seeds=(0, 1), epochs=None):
    """Write records with the figures that ``figures(row, lam, seed)`` returns."""
    full = load_spec(path)
    spec = full.narrowed(epochs=epochs)
    records = [
        Record(
            table=spec.table,
            variant=variant,
            penalty=penalty,
            row=row.name,
            lam=lam,
            seed=seed,
            spec_hash=spec.hash(row, variant, penalty),
            data_hash="",
            epochs=spec.training.epochs,
            best_epoch=0,
            figures=figures(row.name, lam, seed),
            validation={},
            recalibrated=figures(row.name, lam, seed) if lam == 0 else {},
        )
        for row in spec.rows
        for lam in spec.lambdas
        for seed in seeds
    ]
    RecordFile.of(results, spec, variant, penalty, trial=spec.training != full.training).add(records)


def as_the_paper(row, lam, seed):
    """Figures of the paper, a little up with one seed and down with the other."""
    paper = paper_figures("gamma-censored")
    found = {metric: paper[row, lam, metric] for metric in ("nll", "dcal", "concordance")}
    found["nll"] += 0.01 * (-1) ** seed
    return found | {"dcal_floor": 1e-5, "dcal_within": 0.1, "dcal_within_floor": 1e-5, "nll_density": 0.0}


def test_the_papers_own_figures_match(small, tmp_path):
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

    def figures(row, lam, seed):
        # One row is worse in NLL, better in concordance by nothing that matters; another better in D-cal.
        found = as_the_paper(row, lam, seed)
        if row == "lognormal-nll":
            found["nll"] += 1
        if row == "mtlr-i":
            found["dcal"] /= 100
        return found

    write(tmp_path, path, figures)
    found = compare(path, results=tmp_path)
    assert found.score == pytest.approx(16 / 18)
    marks = [cell.mark for cell in found.cells]
    assert (marks.count("worse"), marks.count("better"), marks.count("matched")) == (2, 2, 14)


def test_missing_cells_are_said_and_do_not_count(small, tmp_path):
    path = small()
    nothing = compare(path, results=tmp_path)
    assert math.isnan(nothing.score)
    assert nothing.n_missing == 18
    assert json.loads(as_json(nothing))["score"] is None
    assert "18 cells have no record yet" in markdown(nothing)


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


def test_what_is_written(small, tmp_path):
    path = small()
    write(tmp_path, path, as_the_paper)
    found = compare(path, results=tmp_path)
    content = json.loads(as_json(found))
    assert content["score"] == 1
    assert len(content["cells"]) == 18
    lines = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert len(lines) == 18
    assert float(lines[0]["paper"]) == paper_figures("gamma-censored")["lognormal-nll", 0.0, "nll"]
    page = markdown(found)
    assert "| MTLR | Concordance | 0.988 ± 0.000 [0.988] = |" in page
    assert "recalibrated" in page


def path_figures(nll, concordance):
    """Figures of a path whose D-calibration is 1e-2 / (1 + lambda) and whose other figures are given."""

    def figures(row, lam, seed):
        own = {"dcal": 1e-2 / (1 + lam), "dcal_floor": 1e-5, "nll": nll(lam), "concordance": concordance(lam)}
        return own | {"dcal_within": 0.1, "dcal_within_floor": 1e-5, "nll_density": 0.0}

    return figures


def test_the_headline_counts_levels_at_which_ours_wins_on_both(small, tmp_path):
    path = small(("lambdas = [0, 10]", "lambdas = [0, 1, 10, 100]"))
    write(tmp_path, path, path_figures(lambda lam: 1 + lam, lambda lam: 0.9 - lam / 1000))
    # Ours costs half as much in NLL; in concordance it costs the same at 100 and less before.
    write(
        tmp_path,
        path,
        path_figures(lambda lam: 1 + lam / 2, lambda lam: 0.9 - (lam / 2000 if lam < 100 else 0.1)),
        penalty="ours",
    )
    found = headline(path, results=tmp_path)
    assert len(found.levels) == 9  # three rows, three lambdas above zero
    assert found.share == pytest.approx(2 / 3)
    assert found.share_nll == 1
    assert found.share_concordance == pytest.approx(2 / 3)
    assert "categorical-ni: 2 of 3" in str(found)
    assert json.loads(json.dumps(found.as_dict()))["share"] == pytest.approx(2 / 3)


def test_the_headline_of_the_annealed_penalty(small, tmp_path):
    path = small()
    write(tmp_path, path, path_figures(lambda lam: 2.0, lambda lam: 0.5))
    write(tmp_path, path, path_figures(lambda lam: 1.0, lambda lam: 0.9), penalty="annealed")
    assert headline(path, results=tmp_path).levels == ()
    found = headline(path, penalty="annealed", results=tmp_path)
    assert found.share == 1
    assert "our penalty (annealed) against the paper's at 3 levels" in str(found)
    picture = draw_frontier(path, tmp_path / "frontier.png", results=tmp_path)
    assert picture.stat().st_size > 0


def test_a_level_that_ours_never_reaches_is_lost(small, tmp_path):
    path = small()
    write(tmp_path, path, path_figures(lambda lam: 2.0, lambda lam: 0.5))

    def blunt(row, lam, seed):
        return path_figures(lambda lam: 1.0, lambda lam: 0.9)(row, lam, seed) | {"dcal": 0.5}

    write(tmp_path, path, blunt, penalty="ours")
    found = headline(path, results=tmp_path)
    assert found.share == found.share_nll == found.share_concordance == found.share_matched == 0


@pytest.mark.parametrize(
    ("nll", "concordance", "matched"), [(1.04, 0.79, 1), (0.5, 0.9, 1), (1.06, 0.9, 0), (0.5, 0.77, 0)]
)
def test_a_level_is_matched_by_the_rule_of_the_tables(small, tmp_path, nll, concordance, matched):
    path = small()
    write(tmp_path, path, path_figures(lambda lam: 1.0, lambda lam: 0.8))
    write(tmp_path, path, path_figures(lambda lam: nll, lambda lam: concordance), penalty="ours")
    found = headline(path, results=tmp_path)
    assert found.share_matched == matched
    assert f"concordance within .02): {matched:.0%}" in str(found)


def test_between_two_lambdas_the_path_is_a_line(small, tmp_path):
    path = small(("lambdas = [0, 10]", "lambdas = [0, 1, 100]"))

    def with_dcal(values, nll):
        def figures(row, lam, seed):
            return path_figures(nll, lambda _: 0.9)(row, lam, seed) | {"dcal": values[lam]}

        return figures

    write(tmp_path, path, with_dcal({0: 1.0, 1: 1e-2, 100: 1e-4}, lambda lam: {0: 0.0, 1: 2.0, 100: 4.0}[lam]))
    # Ours passes 1e-2 half way, in logarithms, between NLL 1 and 2: at 1.5, below 2. At 1e-4 it is at 2.
    write(
        tmp_path,
        path,
        with_dcal({0: 1.0, 1: 1e-1, 100: 1e-3}, lambda lam: {0: 0.0, 1: 1.0, 100: 2.0}[lam]),
        penalty="ours",
    )
    found = headline(path, results=tmp_path)
    assert [level.our_nll for level in found.levels[:2]] == pytest.approx([1.5, np.nan], nan_ok=True)
    assert [level.nll for level in found.levels[:2]] == [2.0, 4.0]


def test_below_the_floor_d_calibration_does_not_decide(small, tmp_path):
    path = small()

    def at(dcal, nll, concordance):
        def figures(row, lam, seed):
            return path_figures(lambda _: nll, lambda _: concordance)(row, lam, seed) | {
                "dcal": dcal,
                "dcal_floor": 1e-4,
            }

        return figures

    write(tmp_path, path, at(2e-5, 1.0, 0.8))
    write(tmp_path, path, at(1.9e-4, 0.9, 0.9), penalty="ours")
    assert headline(path, results=tmp_path).share == 1


def test_the_corrected_log_normal_is_held_against_the_published_one(small, tmp_path):
    path = small(("lambdas = [0, 10]", "lambdas = [0, 10, 500]"))
    write(tmp_path, path, path_figures(lambda lam: 1.0, lambda lam: 0.9))

    def better(row, lam, seed):
        found = path_figures(lambda lam: 0.5, lambda lam: 0.95)(row, lam, seed)
        return found | {"dcal": found["dcal"] / 2 if lam == 0 else 1.0}

    write(tmp_path, path, better, variant="corrected", penalty="ours")
    found = headline(path, results=tmp_path)
    assert found.lognormal == {
        "lognormal-nll, lambda 0": ["nll", "dcal", "concordance"],
        "lognormal-nll, lambda 10": ["nll", "concordance"],
    }


@pytest.mark.parametrize("of", ["concordance", "nll", "dcal_within"])
def test_the_picture_is_drawn(small, tmp_path, of):
    path = small()
    write(tmp_path, path, as_the_paper)
    target = draw_frontier(path, tmp_path / "deep" / "frontier.png", of=of, results=tmp_path)
    assert target.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_picture_needs_records_and_a_known_axis(small, tmp_path):
    with pytest.raises(ValueError, match="results: expected records to draw, got none for small"):
        draw_frontier(small(), tmp_path / "f.png", results=tmp_path)
    with pytest.raises(ValueError, match="of: expected concordance or nll or dcal_within"):
        draw_frontier(small(), tmp_path / "f.png", of="brier", results=tmp_path)
    with pytest.raises(ValueError, match="table: expected a table of models"):
        draw_frontier("jensen-slack", tmp_path / "f.png", results=tmp_path)


def test_pages_of_all_records(tmp_path):
    write(tmp_path, "gamma-censored", as_the_paper, seeds=(0,))
    write(tmp_path, "gamma-censored", as_the_paper, penalty="ours", seeds=(0,))
    write(tmp_path, "gamma-censored", as_the_paper, epochs=1, variant="corrected", penalty="ours")
    names = {str(path.relative_to(tmp_path)) for path in write_pages(tmp_path)}
    assert names == {
        "README.md",
        *(f"gamma-censored/as-published.{p}.{e}" for p in ("paper", "ours") for e in ("md", "csv")),
        *(f"gamma-censored/as-published.{of}.png" for of in ("concordance", "nll", "dcal_within")),
    }
    index = (tmp_path / "README.md").read_text()
    assert (
        "| [Gamma simulation, censored](gamma-censored/as-published.paper.md) | as-published | paper | 1.00 |" in index
    )
    # The same figures twice: nothing is strictly lower or higher anywhere.
    assert "together, as published: both at 0 of 42 levels, 0%; matched or better at 42." in index


def test_pages_of_nothing(tmp_path):
    assert [path.name for path in write_pages(tmp_path)] == ["README.md"]
