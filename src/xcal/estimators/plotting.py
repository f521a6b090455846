"""The picture of a frontier."""

from typing import Any

import pandas as pd

from xcal._frontier_axes import finish_frontier, horizontal_label, vertical_label
from xcal.estimators.selection import summarise


def plot_frontier(table: pd.DataFrame, ax: Any = None) -> Any:
    """Draw D-calibration (log scale) against concordance: means with their spread over seeds, one point per lambda."""
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
    ax.margins(x=0.15, y=0.12)
    finish_frontier(ax, of="concordance", floor=float(means["dcal_floor"].mean()))
    _label(ax, means)
    ax.set_xlabel(horizontal_label("validation rows"))
    ax.set_ylabel(vertical_label("concordance", "validation rows"))
    ax.legend(frameon=False, fontsize=9)
    return ax


def _label(ax: Any, means: pd.DataFrame) -> None:
    """Write lambda beside each point, on the other side where the last label would be written over."""
    places: list[tuple[float, float]] = []
    sides: list[str] = []
    for lam, row in means.iterrows():
        place = ax.transData.transform((row["dcal"], row["concordance"]))
        taken = {side for (x, y), side in zip(places, sides, strict=True) if _close(place, (x, y))}
        side = "left" if "right" in taken else "right"
        places.append((place[0], place[1]))
        sides.append(side)
        ax.annotate(
            f"λ = {lam:g}",
            (row["dcal"], row["concordance"]),
            xytext=(7, 7) if side == "right" else (-7, 7),
            ha="left" if side == "right" else "right",
            textcoords="offset points",
            fontsize=9,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
        )


def _close(one: Any, other: Any) -> bool:
    """Whether labels of two points, in pixels, would overlap."""
    return bool(abs(one[0] - other[0]) < 60 and abs(one[1] - other[1]) < 20)
