"""How the gallery runs the examples: the same scripts as the commands, on fewer rows, so that each takes seconds."""

from pathlib import Path
from typing import Any

# Scripts run in their own folder. The gallery takes its pictures from matplotlib; these files are not needed.
OUT = ["--out", "../docs/_build/pictures"]
SMALL = {
    "assumptions.py": ["--n", "5000", "--seeds", "4"],
    "censoring.py": ["--n", "4000", "--seeds", "4", "--small-sets", "100", *OUT],
    "paper_figures.py": ["--quick", *OUT],
    "train.py": ["--lam", "0", "100", "--epochs", "20"],
}


def arguments(gallery_conf: dict[str, Any], script_vars: dict[str, Any]) -> list[str]:
    """Give the arguments for one script; sphinx-gallery calls this before it runs it."""
    return SMALL.get(Path(script_vars["src_file"]).name, [])
