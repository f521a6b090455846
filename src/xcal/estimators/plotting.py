"""The picture of a frontier."""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd

from xcal._frontier_axes import finish_frontier, horizontal_label, vertical_label
from xcal.estimators.selection import summarise


def plot_frontier(table: pd.DataFrame, candidates: pd.DataFrame, ax: Any = None) -> Any:
    """Draw D-calibration (log scale) against concordance: means with their spread over seeds, one point per lambda.

    Recalibrated candidates are squares beside them.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    means = summarise(table).dropna(subset=["dcal", "concordance"])
    spread = means[["concordance_sd", "dcal_sd"]].fillna(0.0)
    # On a log scale an error bar must end above zero.
    left = spread["dcal_sd"].clip(upper=0.9 * means["dcal"])
    colour = "#2f6db5"
    # Arrays: matplotlib would make a number of a series with one value, of which pandas disapproves.
    dcal, concordance, right, up = (
        column.to_numpy()
        for column in (means["dcal"], means["concordance"], spread["dcal_sd"], spread["concordance_sd"])
    )
    ax.plot(dcal, concordance, color=colour, linewidth=1, alpha=0.4, zorder=1)
    ax.errorbar(
        dcal,
        concordance,
        xerr=[left.to_numpy(), right],
        yerr=up,
        fmt="o",
        color=colour,
        markersize=5,
        elinewidth=1,
        capsize=2,
        zorder=2,
    )
    mapped = candidates[candidates["recalibrated"].astype(bool)].dropna(subset=["dcal", "concordance"])
    if len(mapped):
        place = {"color": "#c46a1b", "markersize": 5, "zorder": 3, "linestyle": "none", "label": "recalibrated"}
        ax.plot(mapped["dcal"].to_numpy(), mapped["concordance"].to_numpy(), marker="s", **place)
    ax.margins(x=0.15, y=0.12)
    finish_frontier(ax, of="concordance", floor=float(means["dcal_floor"].mean()))
    ax.set_xlabel(horizontal_label("validation rows"))
    ax.set_ylabel(vertical_label("concordance", "validation rows"))
    ax.legend(frameon=False, fontsize=9, loc="best")  # said, so that a slow machine is no warning
    named = means.reset_index().assign(label=lambda lines: [f"λ = {lam:g}" for lam in lines["lambda"]])
    # Of the recalibrated ones only the first is labelled: they lie close together.
    first = mapped.head(1).assign(label=lambda lines: [f"λ = {lam:g}, recalibrated" for lam in lines["lambda"]])
    columns = ["dcal", "concordance", "label"]
    labelled = pd.concat([named[columns], first[columns]], ignore_index=True)
    _label(ax, labelled, pd.concat([labelled, mapped], ignore_index=True))
    return ax


# Where a label may stand: so far from its point, in points, and in these directions (degrees), tried in this order.
_DISTANCES = (6, 12, 20, 30, 42, 56, 72, 90, 110, 132)
_DIRECTIONS = (45, -45, 135, -135, 90, -90, 0, 180, 20, -20, 160, -160, 70, -70, 110, -110)
# From this distance on a line leads from the point to its label.
_FAR = 16


def _label(ax: Any, points: pd.DataFrame, marks: pd.DataFrame) -> None:
    """Write a label near each of `points`, where it covers no other label, none of `marks` and not the legend."""
    ax.get_figure().draw_without_rendering()  # the limits and the layout are known from now on
    taken = [_freeze(ax, ax.get_legend())]
    at = ax.transData.transform(marks[["dcal", "concordance"]].to_numpy(dtype=float))
    for _, row in points.iterrows():
        where = (row["dcal"], row["concordance"])
        text = ax.annotate(
            row["label"],
            where,
            xytext=(0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
        )
        shift, far = _free_place(ax, text.get_window_extent(), taken, at)
        text.set_position(shift)
        taken.append(text.get_window_extent())
        if far:
            line = {"arrowstyle": "-", "color": "#888888", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}
            ax.annotate("", where, xytext=shift, textcoords="offset points", arrowprops=line, zorder=1.5)


def _freeze(ax: Any, legend: Any) -> Any:
    """Keep the legend where it is: "best" would look for a new place, on top of labels, when they are there."""
    box = legend.get_window_extent()
    corner = ax.transAxes.inverted().transform((box.x0, box.y0))
    legend.borderaxespad = 0
    legend.set_loc("lower left")
    legend.set_bbox_to_anchor(tuple(corner), transform=ax.transAxes)
    return box


def _free_place(ax: Any, box: Any, taken: Sequence[Any], marks: Any) -> tuple[tuple[float, float], bool]:
    """Shift of a label that stands on its point, in points, to the nearest free place; and whether that is far.

    In a picture that is too small for its labels, the nearest place within the axes that covers the fewest things.
    """
    inside, per_point = ax.get_window_extent(), ax.get_figure().dpi / 72
    best, fewest = ((0.0, 0.0), False), math.inf
    for distance, degrees in product(_DISTANCES, _DIRECTIONS):
        across, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        # The edge, or the corner, that faces the point is so far from it.
        right = distance * per_point * across + _sign(across) * box.width / 2
        above = distance * per_point * up + _sign(up) * box.height / 2
        moved = box.translated(right, above)
        if moved.x0 < inside.x0 or moved.x1 > inside.x1 or moved.y0 < inside.y0 or moved.y1 > inside.y1:
            continue
        covered = moved.count_overlaps(taken) + moved.count_contains(marks)
        if covered < fewest:
            best, fewest = ((right / per_point, above / per_point), distance >= _FAR), covered
        if covered == 0:
            break
    return best


def _sign(share: float) -> int:
    """Which way a label lies from its point; 0 for straight above, below or beside it."""
    return 0 if abs(share) < 0.01 else int(math.copysign(1, share))
