"""The packages as a house, drawn from the import contract in pyproject.toml, so that the picture is always true."""

import tomllib
from pathlib import Path

WHAT = {
    "serve": "a page to drop a file on",
    "cli": "the command xcal",
    "validation": "audit: any model on new rows, its report",
    "tuning": "search for settings",
    "estimators": "SurvivalModel, SurvivalPath: the scikit-learn face",
    "recalibration": "one map of F after training",
    "show": "charts, and pages that need no network",
    "interop": "models of other libraries",
    "outofcore": "files larger than memory",
    "metrics": "concordance, Brier score, calibration",
    "training": "fit_path: all models of a path at once",
    "objectives": "likelihood and survival CRPS, one value per row",
    "calibration": "D-calibration, X-CAL",
    "distributions": "F, S, density",
    "networks": "plain torch",
    "datasets": "loaders",
    "data": "rows and targets",
}
WIDTH, MARGIN, ROOM, GAP, ROOF = 760, 20, 54, 10, 64
STYLE = """
    .house text { text-anchor: middle; fill: currentColor; font-family: sans-serif; }
    .house .name { font-size: 15px; font-weight: 600; }
    .house .what { font-size: 11.5px; opacity: 0.8; }
    .house .room { fill: var(--color-background-secondary, #f8f9fb); stroke: currentColor; stroke-opacity: 0.35; }
    .house .heart { fill: #2f6db5; fill-opacity: 0.22; stroke: #2f6db5; }
    .house .roof { fill: none; stroke: currentColor; stroke-opacity: 0.35; stroke-width: 2; }
"""


def floors(pyproject: Path) -> list[list[str]]:
    """Return the packages of each floor, from the top, without the private helpers below them."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    # The first contract of layers is that of xcal; the paper's package has one of its own after it.
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    named = [[part.strip().removeprefix("xcal.") for part in layer.split("|")] for layer in layers]
    return [floor for floor in named if not floor[0].startswith("_")]


def _room(name: str, x: float, y: float, width: float) -> str:
    middle, kind = x + width / 2, "heart" if name == "calibration" else "room"
    return (
        f'  <rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{ROOM}" rx="6" class="{kind}"/>\n'
        f'  <text x="{middle:.0f}" y="{y + 23:.0f}" class="name">{name}</text>\n'
        f'  <text x="{middle:.0f}" y="{y + 41:.0f}" class="what">{WHAT.get(name, "")}</text>\n'
    )


def house(pyproject: Path) -> str:
    """Draw the floors one below the other, as an SVG that takes its colours from the page."""
    rooms, y = "", ROOF
    for floor in floors(pyproject):
        width = (WIDTH - 2 * MARGIN - GAP * (len(floor) - 1)) / len(floor)
        rooms += "".join(_room(name, MARGIN + i * (width + GAP), y, width) for i, name in enumerate(floor))
        y += ROOM + GAP
    centre = WIDTH // 2
    return (
        f'<svg class="house" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 34}" role="img" '
        'aria-labelledby="house-title">\n'
        '  <title id="house-title">The packages of xcal: each floor imports only from those below it</title>\n'
        f"  <style>{STYLE}  </style>\n"
        f'  <path d="M 8 {ROOF - 8} L {centre} 10 L {WIDTH - 8} {ROOF - 8}" class="roof"/>\n'
        f'  <text x="{centre}" y="46" class="what">you</text>\n{rooms}'
        f'  <text x="{centre}" y="{y + 18}" class="what">imports go down, never up · '
        "torch, numpy and scipy are the ground</text>\n</svg>\n"
    )
