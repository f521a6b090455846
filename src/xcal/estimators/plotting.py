"""The picture of a frontier."""

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
    _label(ax, pd.concat([named[columns], first[columns]], ignore_index=True))
    return ax


# Where a label may stand beside its point, in points: tried in this order.
_PLACES = ((7, 7), (7, -14), (-7, 7), (-7, -14), (7, 21), (-7, 21), (7, -28), (-7, -28), (7, 35), (-7, 35))


def _label(ax: Any, points: pd.DataFrame) -> None:
    """Write the lambda beside each point, in the first place where it covers no other label and no point."""
    figure = ax.get_figure()
    figure.draw_without_rendering()  # the limits and the layout are known from now on
    pixels = ax.transData.transform(points[["dcal", "concordance"]].to_numpy(dtype=float))
    taken: list[Any] = []
    for place, (_, row) in enumerate(points.iterrows()):
        for right, up in _PLACES:
            text = ax.annotate(
                row["label"],
                (row["dcal"], row["concordance"]),
                xytext=(right, up),
                ha="left" if right > 0 else "right",
                textcoords="offset points",
                fontsize=9,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
            )
            box = text.get_window_extent()
            others = [point for index, point in enumerate(pixels) if index != place]
            if not any(box.overlaps(other) for other in taken) and not any(box.contains(*point) for point in others):
                break
            if (right, up) != _PLACES[-1]:
                text.remove()
        taken.append(box)
