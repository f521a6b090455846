"""What an audit leaves for a paper, and the schema of its JSON."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from tests.golden.record import audited
from tests.validation.made_result import HORIZONS, HOSTILE, made_result
from xcal.validation.charts import AT_HORIZON, KINDS
from xcal.validation.export import schema, written_schema

COMMITTED = Path(__file__).parents[2] / "docs" / "audit.schema.json"


@pytest.fixture(scope="module")
def validator():
    content = json.loads(COMMITTED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


def test_the_schema_in_the_docs_is_that_of_the_results():
    """`python -c "from xcal.validation.export import *; print(written_schema(), end='')" > docs/audit.schema.json`."""
    assert COMMITTED.read_text(encoding="utf-8") == written_schema()


@pytest.mark.parametrize("result", [audited, *(lambda k=k: made_result(k) for k in ("full", "risk", "cdf"))])
def test_the_json_of_an_audit_is_valid(validator, result):
    validator.validate(json.loads(result().to_json()))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.pop("verdict"),
        lambda content: content.update(unknown=1),
        lambda content: content["measured"]["values"][0].update(value="much"),
        lambda content: content["data"].update(n=1.5),
        lambda content: content.update(format=content["format"] + 1),
    ],
)
def test_another_json_is_not(validator, spoil):
    content = json.loads(made_result().to_json())
    spoil(content)
    assert not validator.is_valid(content)


def test_nan_and_infinity_have_a_place():
    content = json.loads(replace(made_result(), level=float("inf")).to_json())
    jsonschema.validate(content, schema())
    assert content["level"] == "inf"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    return folder, replace(made_result(), horizons=HORIZONS[:2]).export(folder)


@pytest.mark.ci
def test_every_picture_is_there_in_both_forms(exported):
    folder, files = exported
    assert sorted(folder.iterdir()) == sorted(files)
    names = {path.name for path in files}
    for kind in set(KINDS) - {"sites"}:  # these rows have none
        for name in [f"{kind}-{t:g}" for t in HORIZONS[:2]] if kind in AT_HORIZON else [kind]:
            assert {f"{name}.svg", f"{name}.png"} <= names
    from PIL import Image

    for path in (path for path in files if path.suffix == ".png"):
        with Image.open(path) as picture:
            assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    assert all(b"<svg" in path.read_bytes()[:2000] for path in files if path.suffix == ".svg")


@pytest.mark.ci
def test_tables_are_those_of_the_report(exported):
    import docx

    folder, _ = exported
    document = docx.Document(folder / "tables.docx")
    cells = {cell.text for table in document.tables for row in table.rows for cell in row.cells}
    assert {"Answered by", "23a", "4.7", "age = young"} <= cells
    assert not any(text == "Metric" for text in cells)  # all numbers stand in numbers.csv
    text = "\n".join(one.text for one in document.paragraphs)
    assert made_result().verdict.headline in text
    assert "We validated the model on new rows." in text


@pytest.mark.ci
def test_the_same_audit_makes_the_same_pictures(exported, tmp_path):
    folder, _ = exported
    replace(made_result(), horizons=HORIZONS[:1]).export(tmp_path)
    for name in ("pit.svg", "calibration-1.svg"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_hostile_names_are_text(tmp_path):
    import docx

    replace(made_result("cdf"), model=HOSTILE).export(tmp_path)
    assert HOSTILE in docx.Document(tmp_path / "tables.docx").paragraphs[0].text


def test_without_the_package_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("xcal.validation.export.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "xcal\[docx\]"'):
        made_result().export(tmp_path / "paper")
    assert list(tmp_path.iterdir()) == []
