"""The values that the paper prints in its tables."""

import csv
import io
from functools import cache
from importlib.resources import files

PaperKey = tuple[str, float, str]


@cache
def paper_values(table: str) -> dict[PaperKey, float]:
    """Values of one table by (model, lambda, metric); empty for a table that the paper does not have.

    Examples
    --------
    >>> paper_values("gamma-censored")["lognormal-nll", 0.0, "nll"]
    -0.059
    """
    text = (files("xcal.experiments") / "specs" / "paper.csv").read_text(encoding="utf-8")
    return {
        (line["row"], float(line["lambda"]), line["metric"]): float(line["value"])
        for line in csv.DictReader(io.StringIO(text))
        if line["table"] == table
    }
