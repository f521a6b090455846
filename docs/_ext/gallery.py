"""How the gallery runs the examples: the same scripts as the commands, on fewer rows, so that each takes seconds."""

from pathlib import Path
from typing import Any

# Scripts run in their own folder. The gallery takes its pictures from matplotlib; these files are not needed.
OUT = ["--out", "../docs/_build/pictures"]
# In the order in which they are shown. What is written to extra/ becomes part of the site; see html_extra_path.
SMALL = {
    "frontier.py": ["--out", "../docs/_generated/extra/reports"],
    "train.py": ["--lam", "0", "100", "--epochs", "20"],
    "recalibration.py": [],
    "report.py": ["--resamples", "200", "--out", "../docs/_generated/extra/reports"],
    "censoring.py": ["--n", "4000", "--seeds", "4", "--small-sets", "100", *OUT],
    "assumptions.py": ["--n", "5000", "--seeds", "4"],
    "paper_figures.py": ["--quick", *OUT],
    # Shown but not run, as they start further processes; the tests run them.
    "processes_ddp.py": [],
    "processes_lightning.py": [],
    "processes_accelerate.py": [],
}
# The scripts that are run.
RUN = r"[/\\](?!processes_)[^/\\]+\.py$"


class Order:
    """Sort key of the scripts; sphinx-gallery makes one for each folder. A script that is not listed is an error."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> int:
        """Return the place of a script."""
        return list(SMALL).index(name)


def arguments(gallery_conf: dict[str, Any], script_vars: dict[str, Any]) -> list[str]:
    """Return the arguments for one script; sphinx-gallery calls this before it runs it."""
    return SMALL[Path(script_vars["src_file"]).name]
