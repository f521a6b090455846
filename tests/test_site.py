"""What the site makes of the sources while it is built: formulas, the picture of the packages, pages of records."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS, PAPER = ROOT / "docs", ROOT / "paper" / "docs"


@pytest.fixture(autouse=True)
def extensions(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(DOCS / "_ext"), *sys.path])


@pytest.fixture
def to_mathml():
    pytest.importorskip("latex2mathml", reason="needs the extra docs")
    from mathml import to_mathml

    return to_mathml


def formulas(page):
    """Every formula between dollar signs, outside of code."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    return [a or b for a, b in re.findall(r"\$\$(.*?)\$\$|\$([^$]+)\$", text, flags=re.DOTALL)]


def test_a_power_is_what_the_standard_says(to_mathml):
    mathml = to_mathml("x^2", display="inline")
    assert re.sub(r"</?(math|mrow)\b[^>]*>", "", mathml) == "<msup><mi>x</mi><mn>2</mn></msup>"
    assert 'display="inline"' in mathml


@pytest.mark.parametrize(
    ("latex", "part"),
    [
        (r"\log t", '<mi>log</mi><mspace width="0.167em"/><mi>t</mi>'),
        (r"\log(t)", '<mi>log</mi><mo stretchy="false">'),
        (r"(-1, 2)", '<mo form="prefix">&#x02212;</mo><mn>1</mn>'),
        (r"(a) - 1", "</mo><mo>&#x02212;</mo><mn>1</mn>"),
        (r"x \sim N", "<mo>&#x0223C;</mo>"),
        (r"\max(a, b)", "<mi>max</mi>"),
        (r"\Big( x \Big)^2", 'fence="true" form="postfix"'),
    ],
)
def test_spaces_and_signs_are_those_of_a_typeset_formula(to_mathml, latex, part):
    assert part in to_mathml(latex, display="inline")


def test_every_formula_of_the_pages_can_be_shown(to_mathml):
    shown = {
        page.name: [to_mathml(f, display="inline") for f in formulas(page)]
        for page in [*DOCS.glob("*.md"), *PAPER.glob("*.md")]
    }
    assert len(shown["penalty.md"]) > 30
    assert all(one.startswith("<math") and one.endswith("</math>") for page in shown.values() for one in page)


@pytest.mark.parametrize("latex", [r"\nosuchcommand{x}", r"\mathtt{name}"], ids=["unknown", "style browsers ignore"])
def test_a_formula_that_would_be_shown_wrongly_stops_the_build(to_mathml, latex):
    with pytest.raises(Exception, match="formula: expected LaTeX that MathML can show") as raised:
        to_mathml(latex, display="inline")
    assert type(raised.value).__name__ == "ExtensionError"


def test_the_house_has_every_public_module_on_the_floor_that_the_contract_gives_it():
    from house import WHAT, house

    picture = house(ROOT / "pyproject.toml")
    rooms = re.findall(r'y="(\d+)" class="name">(\w+)<', picture)
    xcal = ROOT / "src" / "xcal"
    packages = {path.parent.name for path in xcal.glob("*/__init__.py")}
    modules = {path.stem for path in xcal.glob("[a-z]*.py")}
    assert {name for _, name in rooms} == packages | modules == set(WHAT)
    height = {name: int(y) for y, name in rooms}
    assert height["cli"] < height["estimators"] < height["training"] < height["calibration"]
    assert height["metrics"] == height["training"]


def test_records_are_pages_without_an_entry_in_the_sidebar(tmp_path):
    from records import record_pages

    (tmp_path / "results" / "table" / "trial").mkdir(parents=True)
    for name in ("README.md", "table/a.jsonl", "table/old.md", "table/.a.lock", "table/trial/b.jsonl"):
        (tmp_path / "results" / name).write_text("# Title\n")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "old.md").touch()

    def write(folder):
        records = sorted(folder.rglob("*.*"))
        assert [path.name for path in records] == ["a.jsonl", "b.jsonl"]
        (folder / "README.md").write_text("# Title\n")
        for path in records:
            path.with_suffix(".png").touch()
            path.with_suffix(".md").write_text("# Title\n")

    record_pages(tmp_path / "results", tmp_path / "pages", write)
    made = {str(path.relative_to(tmp_path / "pages")) for path in (tmp_path / "pages").rglob("*") if path.is_file()}
    assert made == {"README.md", "table/a.md", "table/a.png", "table/trial/b.md", "table/trial/b.png"}
    assert (tmp_path / "pages" / "table" / "a.md").read_text() == "---\norphan: true\n---\n\n# Title\n"
    assert (tmp_path / "pages" / "README.md").read_text() == "# Title\n"


def test_pages_of_the_paper_link_to_the_pages_of_the_site(tmp_path):
    from paper_pages import copy_paper

    (tmp_path / "paper").mkdir()
    text = "# One\n[audit](../../docs/audit.md), [records](../results/README.md), [two](two.md)\n"
    (tmp_path / "paper" / "one.md").write_text(text)
    copy_paper(tmp_path / "paper", tmp_path / "pages")
    expected = "# One\n[audit](../audit.md), [records](../records/README.md), [two](two.md)\n"
    assert (tmp_path / "pages" / "one.md").read_text() == expected


def test_pages_of_studies_link_to_the_pages_of_the_site(tmp_path):
    from study_pages import copy_studies

    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "README.md").write_text("# Studies\n[one](one.md)\n")
    (tmp_path / "studies" / "one.md").write_text("# One\n[audit](../docs/audit.md)\n")
    copy_studies(tmp_path / "studies", tmp_path / "pages")
    assert (tmp_path / "pages" / "README.md").read_text() == "# Studies\n[one](one.md)\n"
    assert (tmp_path / "pages" / "one.md").read_text() == "---\norphan: true\n---\n\n# One\n[audit](../audit.md)\n"
