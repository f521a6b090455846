"""Every picture of a report with matplotlib."""

import io
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.validation.made_result import HORIZONS, HOSTILE, made_result
from xcal.show import render
from xcal.show.charts import Label, Mark, Ring
from xcal.validation.charts import KINDS, calibration, decision
from xcal.validation.charts import plot as draw
from xcal.validation.words import shown


def axes():
    return Figure().subplots()


def saved(ax):
    """Draw for real: text and ticks are only laid out then."""
    file = io.BytesIO()
    ax.figure.savefig(file, format="svg")
    return file.getvalue().decode()


def texts(ax):
    return " ".join(text.get_text().replace("\n", " ") for text in ax.texts)


@pytest.mark.parametrize("result", ["full", "risk", "cdf"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws_or_says_why_not(kind, result):
    ax = axes()
    assert draw(made_result(result), kind, ax) is ax
    assert len(saved(ax)) > 1000
    drawn = bool(ax.lines or ax.collections or ax.patches)
    assert drawn != texts(ax).startswith("Not shown: ")
    if result == "full" and kind != "sites":  # it has none
        assert drawn


def test_the_reason_is_that_of_the_result():
    ax = draw(made_result("cdf"), "decision", axes())
    assert "the predictions are F at the observed times only" in texts(ax)
    assert "puts no rows in order" in texts(draw(made_result("cdf"), "discrimination", axes()))


@pytest.mark.parametrize("horizon", HORIZONS)
@pytest.mark.parametrize("group", [None, "age = old"])
def test_the_calibration_curve_is_that_of_the_horizon_and_group(horizon, group):
    ax = draw(made_result(), "calibration", axes(), horizon=horizon, group=group)
    curve = next(c for c in made_result().measured.calibration if (c.horizon, c.group) == (horizon, group))
    lines = [line.get_xydata() for line in ax.lines]
    assert any(np.array_equal(line, np.column_stack([curve.predicted, curve.observed])) for line in lines)
    points = np.column_stack([curve.point_predicted, curve.point_observed])
    assert any(np.array_equal(line, points) for line in lines)


def test_the_words_of_a_picture_say_of_whom_it_is():
    """They stand for the picture where nobody sees it."""
    result = made_result()
    for group in (None, "age = old"):
        _, words = calibration([result], HORIZONS[1], group)
        assert ("in the group age = old" in words) == (group is not None)
        for metric in ("ici", "emax"):
            value = next(v for v in result if (v.metric, v.horizon, v.group) == (metric, HORIZONS[1], group))
            assert shown(value) in words


def test_the_decision_curve_shows_the_model_everybody_and_nobody():
    ax = draw(made_result(), "decision", axes(), horizon=3.0)
    curve = next(c for c in made_result().measured.decision if c.horizon == 3.0)
    shown = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_array_equal(shown["model"], curve.model)
    np.testing.assert_array_equal(shown["act on everybody"], curve.treat_all)
    assert set(shown["act on nobody"]) == {0}


def test_groups_are_listed_with_their_values():
    ax = draw(made_result(), "groups", axes(), horizon=5.0)
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names == ["All rows", *made_result().groups]
    points = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
    expected = [made_result().value("oe", horizon=5.0, group=g).value for g in (None, *made_result().groups)]
    assert points == expected


def test_a_group_may_have_any_name():
    result = made_result()
    values = tuple(replace(v, group=HOSTILE) if v.group == "age = old" else v for v in result.measured.values)
    hostile = replace(result, groups=(HOSTILE,), measured=replace(result.measured, values=values))
    ax = draw(hostile, "groups", axes())
    # As SVG the text is outlines; that it is drawn at all shows that dollar signs were not read as a formula.
    assert len(saved(ax)) > 1000


def test_without_axes_there_is_a_new_figure():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    ax = made_result().plot("pp")
    assert len(plt.get_fignums()) == len(before) + 1
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("pie", {}, "kind: expected one of 'observed', 'oe', 'calibration', .*, got 'pie'"),
        ("oe", {"horizon": 2.0}, r"horizon: expected one of the result's horizons \(1, 3, 5\), got 2.0"),
        ("pit", {"group": "nobody"}, "group: expected one of the groups .'age = young', .*, got 'nobody'"),
        ("pp", {"group": "age = old"}, "group: expected None, as only calibration and pit are drawn by group"),
    ],
)
def test_what_cannot_be_drawn_is_one_clear_error(kind, more, message):
    with pytest.raises(ValueError, match=message):
        draw(made_result(), kind, axes(), **more)


def test_every_mark_is_drawn_on_pages_and_in_papers():
    only_on_pages = {Ring, Label}  # of what can be picked
    for mark in get_args(Mark):
        assert render._layers.dispatch(mark) is not render._layers.dispatch(object)
        drawn = render._draw.dispatch(mark) is not render._draw.dispatch(object)
        assert drawn != (mark in only_on_pages)


def test_a_page_and_a_paper_show_the_same_numbers():
    drawing, _ = decision([made_result()], 3.0)
    ax = axes()
    render.draw_on(ax, drawing)
    spec = render.to_vega(drawing)
    lines = [layer for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    in_paper = {line.get_label(): line.get_ydata() for line in ax.lines}
    for layer, label in zip(lines, ("act on everybody", "model"), strict=True):
        on_page = [row["y"] for row in spec["datasets"][layer["data"]["name"]]]
        np.testing.assert_allclose(on_page, in_paper[label], rtol=1e-5)
    assert (ax.get_xlabel(), ax.get_ylabel()) == tuple(lines[0]["encoding"][x]["axis"]["title"] for x in "xy")
