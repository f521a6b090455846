"""Comparisons as text."""

import csv
import io
import json

from paper.tests.experiments.made_records import as_the_paper, write
from xcal_paper import compare
from xcal_paper.comparison import paper_values
from xcal_paper.report import as_csv, as_json, markdown


def test_what_is_written(small, tmp_path):
    path = small()
    write(tmp_path, path, as_the_paper)
    found = compare(path, results=tmp_path)
    content = json.loads(as_json(found))
    assert content["score"] == 1
    assert len(content["cells"]) == 18
    lines = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert len(lines) == 18
    assert float(lines[0]["paper"]) == paper_values("gamma-censored")["lognormal-nll", 0.0, "nll"]
    page = markdown(found)
    assert "| MTLR | Concordance | 0.988 ± 0.000 [0.988] = |" in page
    assert "recalibrated" in page


def test_missing_cells_are_said(small, tmp_path):
    nothing = compare(small(), results=tmp_path)
    assert json.loads(as_json(nothing))["score"] is None
    assert "18 cells have no record yet" in markdown(nothing)


def test_columns_and_keys_keep_their_names(small, tmp_path):
    # Scripts read these files: the name of a model is under "row", as in the records.
    write(tmp_path, small(), as_the_paper)
    found = compare(small(), results=tmp_path)
    columns = ["row", "lam", "metric", "ours", "spread", "n_seeds", "paper", "mark"]
    assert as_csv(found).splitlines()[0].split(",") == ["table", "variant", "penalty", *columns]
    assert list(json.loads(as_json(found))["cells"][0]) == columns
