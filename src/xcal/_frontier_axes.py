"""The axes that all pictures of a frontier share, so that a reader learns them once.

D-calibration is on the horizontal axis, on a log scale, and left is better. What is paid for it (concordance, NLL) is
on the vertical axis. A dashed line shows the floor, what a perfect model scores on average.
"""

from typing import Any

# What a frontier can show on its vertical axis: the name of the metric and its better direction.
VERTICAL = {
    "concordance": ("concordance", "up"),
    "nll": ("NLL", "down"),
    "dcal_within": ("D-cal within groups", "down"),
}
_FLOOR = {"color": "#888888", "linestyle": "--", "linewidth": 1.0, "zorder": 0, "label": "a perfect model (mean)"}


def horizontal_label(rows: str = "") -> str:
    """Label of the horizontal axis; `rows` names the rows, such as "validation rows"."""
    return f"D-calibration{f' on {rows}' if rows else ''} (left is better)"


def vertical_label(of: str, rows: str = "") -> str:
    """Label of the vertical axis."""
    name, direction = VERTICAL[of]
    return f"{name}{f' on {rows}' if rows else ''} ({direction} is better)"


def finish_frontier(ax: Any, *, of: str, floor: float | None) -> None:
    """Set the scales of axes that hold the points already, and draw the floor."""
    if floor is not None:
        ax.axvline(floor, **_FLOOR)
    ax.set_xscale("log")
    if of == "dcal_within":
        ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis) if of == "dcal_within" else (ax.xaxis,):
        _set_log_ticks(axis)
    ax.spines[["top", "right"]].set_visible(False)


def _set_log_ticks(axis: Any) -> None:
    """Label 1, 2 and 5 of each decade where there are few decades, else the decades alone."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    few = high < low * 50
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_formatter(NullFormatter())


def _short(value: float) -> str:
    return f"{value:.2g}" if value >= 0.01 else f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")
