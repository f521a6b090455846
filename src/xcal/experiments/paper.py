"""The paper's figures, as printed."""

import csv
import io
from functools import cache
from importlib.resources import files

PaperKey = tuple[str, float, str]


@cache
def paper_figures(table: str) -> dict[PaperKey, float]:
    """Figures of one table by (row, lambda, metric); none for a table that the paper does not have.

    Examples
    --------
    >>> paper_figures("gamma-censored")["lognormal-nll", 0.0, "nll"]
    -0.059
    """
    text = (files("xcal.experiments") / "specs" / "paper.csv").read_text(encoding="utf-8")
    return {
        (line["row"], float(line["lambda"]), line["metric"]): float(line["value"])
        for line in csv.DictReader(io.StringIO(text))
        if line["table"] == table
    }
