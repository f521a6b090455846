"""The picture of a frontier: its labels can be read however close the points are."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from xcal.estimators.frontier_page import plot_frontier

LAMBDAS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)


def tables(spread):
    """Tables of twelve weights whose points are `spread` apart, and of their recalibrated candidates."""
    rng = np.random.default_rng(0)
    dcal, concordance = 3e-3 * np.exp(spread * rng.normal(size=12)), 0.7 + 0.05 * spread * rng.normal(size=12)
    lines = pd.DataFrame({"lambda": LAMBDAS, "dcal": dcal, "concordance": concordance, "dcal_floor": 1e-3})
    for name in ("nll", "nll_gap_se", "dcal_gap_se", "dcal_p", "conditional"):
        lines[name] = 1.0
    for name in ("nll_sd", "dcal_sd", "concordance_sd"):
        lines[name] = 0.0
    both = (lines.assign(recalibrated=False), lines.assign(recalibrated=True, dcal=0.9 * dcal))
    return lines, pd.concat(both, ignore_index=True)


@pytest.mark.parametrize("spread", [0.0, 1e-3, 0.1, 1.0])
def test_labels_cover_no_other_label_no_point_and_not_the_legend(spread):
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    lines, candidates = tables(spread)
    ax = plot_frontier(lines, candidates)
    ax.figure.canvas.draw()
    written = [text for text in ax.texts if text.get_text()]
    assert len(written) == 13
    boxes = [text.get_window_extent() for text in written]
    legend = ax.get_legend().get_window_extent()
    assert not any(one.overlaps(other) for one, other in combinations([*boxes, legend], 2))
    points = ax.transData.transform(candidates[["dcal", "concordance"]].to_numpy())
    assert not any(box.count_contains(points) for box in boxes)
    inside = ax.get_window_extent()
    assert all(inside.x0 <= box.x0 and box.x1 <= inside.x1 for box in boxes)
    assert all(inside.y0 <= box.y0 and box.y1 <= inside.y1 for box in boxes)
    plt.close("all")
