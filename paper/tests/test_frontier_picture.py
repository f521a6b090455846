"""The picture of a frontier."""

import pytest
from tests.estimators.simulate import survival_rows

from paper.tests.experiments.made_records import as_the_paper, write
from xcal import SurvivalPath
from xcal_paper import compare
from xcal_paper.report import _figure, draw_frontier


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


def test_both_pictures_of_a_frontier_have_the_same_axes(small, tmp_path):
    """The picture of a table and that of `SurvivalPath.plot`: D-calibration across, concordance up, the same words."""
    write(tmp_path, small(), as_the_paper)
    comparison = compare(small(), results=tmp_path)
    panel = _figure([comparison], "concordance").axes[0]
    rows = survival_rows(80)
    path = SurvivalPath(lambdas=(0, 10), seeds=1, epochs=2, hidden=(4,)).fit(rows.x, rows.y)
    ax = path.plot()
    assert (panel.get_xscale(), panel.get_yscale()) == (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    for mine, other in ((panel.get_xlabel(), ax.get_xlabel()), (panel.get_ylabel(), ax.get_ylabel())):
        assert mine == other.replace(" on validation rows", "") != other
    assert panel.get_xlabel().startswith("D-calibration (left")
    floor = "a perfect model (mean)"
    assert floor in panel.get_legend_handles_labels()[1]
    assert floor in ax.get_legend_handles_labels()[1]
    # The points are where the axes say.
    plain = path.candidates_[~path.candidates_["recalibrated"].astype(bool)]
    assert ax.lines[-1].get_xdata() == pytest.approx(plain["dcal"])
    assert ax.lines[-1].get_ydata() == pytest.approx(plain["concordance"])
    assert list(panel.lines[0].get_xdata()) == [comparison.cell("lognormal-nll", lam, "dcal").paper for lam in (0, 10)]
