"""Colours and the look of charts, which name colours as CSS variables: dark, light and print need no redraw."""

from typing import Any

# Name: (light, dark). Okabe and Ito's palette for what must be told apart, greys for the rest.
COLOURS = {
    "page": ("#f4f5f7", "#12151a"),
    "card": ("#ffffff", "#1b2027"),
    "ink": ("#1a1f26", "#e8ebef"),
    "quiet": ("#57606c", "#a3adb9"),
    "line": ("#dde1e6", "#323a45"),
    "grid": ("#eceef1", "#29303a"),
    "model": ("#0072b2", "#56b4e9"),
    "second": ("#d55e00", "#ff9d52"),
    "observed": ("#1a1f26", "#e8ebef"),
    "reference": ("#8a929c", "#7f8996"),
    "with_event": ("#d55e00", "#ff9d52"),
    "without_event": ("#009e73", "#3fd0a4"),
    "censored": ("#8a929c", "#7f8996"),
    "good": ("#00795a", "#3fd0a4"),
    "good_ground": ("#e5f4ef", "#12302a"),
    "caution": ("#8a5a00", "#f0bf4c"),
    "caution_ground": ("#fdf3dc", "#332a14"),
    "bad": ("#b3261e", "#ff8f86"),
    "bad_ground": ("#fcebe9", "#3a1d1c"),
    "unknown": ("#57606c", "#a3adb9"),
    "unknown_ground": ("#eceef1", "#252c35"),
    "focus": ("#0072b2", "#56b4e9"),
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def colour(name: str) -> str:
    """Return the CSS variable of a colour."""
    return f"var(--{name.replace('_', '-')})"


def colour_rules() -> str:
    """Write the variables: light by default, dark as the reader's system or the page's button says, light in print."""
    light, dark = ("".join(f"--{name.replace('_', '-')}:{pair[k]};" for name, pair in COLOURS.items()) for k in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f"@media print{{:root,:root[data-theme=dark],:root:not([data-theme=light]){{color-scheme:light;{light}}}}}\n"
    )


def chart_config() -> dict[str, Any]:
    """Vega-Lite configuration that all charts share."""
    ink, quiet = colour("ink"), colour("quiet")
    axis = {
        "labelColor": quiet,
        "titleColor": quiet,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 500,
        "titlePadding": 8,
        "gridColor": colour("grid"),
        "domainColor": colour("line"),
        "tickColor": colour("line"),
        "tickSize": 4,
        "labelPadding": 5,
    }
    return {
        "font": FONT,
        "background": None,
        "view": {"stroke": None},
        "axis": axis,
        "text": {"color": ink, "font": FONT, "fontSize": 12},
        "title": {"color": ink, "font": FONT},
        "header": {"labelColor": quiet, "titleColor": quiet},
        "legend": {"disable": True},
    }
