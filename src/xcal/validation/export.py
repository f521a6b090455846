"""An audit for a paper: pictures as SVG and PNG, tables for a word processor, numbers, and the schema of its JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from xcal._files import check_target, write_whole
from xcal.show.page import (
    Answers,
    Block,
    Callout,
    Cell,
    Checklist,
    Copyable,
    Figures,
    Notes,
    Row,
    Stack,
    Table,
    Text,
    Varying,
    write_page,
)
from xcal.show.render import draw_on
from xcal.validation.charts import AT_HORIZON, KINDS, SIZE, drawing_of
from xcal.validation.page import report_page
from xcal.validation.result import AuditResult
from xcal.validation.sections import as_csv
from xcal.validation.words import FORMAT, to_json

DPI = 300


def check_export(folder: str | Path) -> Path:
    """Check that an audit can be exported, before anything is computed or written."""
    if find_spec("docx") is None:
        raise ImportError('tables for a word processor need python-docx: pip install "xcal[docx]"')
    target = Path(folder)
    check_target(target / "tables.docx")
    return target


def export(result: AuditResult, folder: str | Path) -> tuple[Path, ...]:
    """Write everything that a paper needs into a folder, and return the files."""
    target = check_export(folder)
    target.mkdir(parents=True, exist_ok=True)
    write_page(report_page(result), target / "report.html")
    to_json(result, target / "audit.json")
    write_whole(target / "numbers.csv", as_csv([result]).encode("utf-8"))
    write_whole(target / "methods.txt", (result.methods + "\n").encode("utf-8"))
    written = [target / name for name in ("report.html", "audit.json", "numbers.csv", "methods.txt")]
    written.append(_tables(result, target / "tables.docx"))
    for kind in KINDS:
        for horizon in result.horizons if kind in AT_HORIZON else (None,):
            written += _picture(result, kind, horizon, target)
    for k, one in enumerate(result.by_cause.values(), 1):
        written += export(one, target / f"cause_{k}")
    return tuple(written)


# --- Pictures.


def _picture(result: AuditResult, kind: str, horizon: float | None, folder: Path) -> Iterator[Path]:
    """Write one picture as SVG and PNG; nothing where the predictions do not allow it."""
    from io import BytesIO

    from matplotlib import rc_context
    from matplotlib.figure import Figure

    drawing = drawing_of(result, kind, horizon)
    if drawing is None:
        return
    name = kind if horizon is None else f"{kind}-{horizon:g}"
    for ending in ("svg", "png"):
        # The same audit makes the same bytes, and text stays text.
        with rc_context({"svg.hashsalt": "xcal", "svg.fonttype": "none"}):
            figure = Figure(figsize=SIZE, layout="constrained")
            draw_on(figure.subplots(), drawing)
            content = BytesIO()
            given: dict[str, Any] = {"metadata": {"Date": None}} if ending == "svg" else {"dpi": DPI}
            figure.savefig(content, format=ending, **given)
        write_whole(folder / f"{name}.{ending}", content.getvalue())
        yield folder / f"{name}.{ending}"


# --- Tables.


def _tables(result: AuditResult, path: Path) -> Path:
    """Write the tables and texts of the report for a word processor; pictures and the list of all numbers apart."""
    from io import BytesIO

    import docx

    page, document = report_page(result), docx.Document()
    document.core_properties.title, document.core_properties.author = page.title, ""
    document.add_heading(page.title, 0)
    document.add_paragraph(page.subtitle)
    options = {one.name: one.options for one in page.selectors}
    for section in (None, *page.sections):
        heading, blocks = ("", page.top) if section is None else (section.heading, section.blocks)
        pieces = list(_pieces(blocks, options, ""))
        if pieces and heading:
            document.add_heading(heading, 1)
        for piece in pieces:
            _add(document, *piece)
    content = BytesIO()
    document.save(content)
    write_whole(path, content.getvalue())
    return path


def _pieces(blocks: tuple[Block, ...], options: Mapping[str, tuple[str, ...]], at: str) -> Iterator[tuple[Block, str]]:
    """Return what a word processor can show, with the horizon that it is about."""
    for block in blocks:
        if isinstance(block, Row | Stack):
            yield from _pieces(block.blocks, options, at)
        elif isinstance(block, Varying):
            for one, name in zip(block.blocks, options.get(block.follows, ()), strict=False):
                yield from _pieces((one,), options, ", ".join(filter(None, (at, name))))
        elif isinstance(block, Table) and block.filterable:
            continue  # every number stands in numbers.csv
        elif isinstance(block, Text) and block.style == "reading":
            continue
        elif isinstance(block, Answers | Callout | Checklist | Copyable | Figures | Notes | Table | Text):
            yield block, at


def _add(document: Any, block: Block, at: str) -> None:
    if isinstance(block, Answers):
        for question, _, sentence in block.items:
            document.add_paragraph(f"{question}: {sentence}")
    elif isinstance(block, Text):
        document.add_paragraph(block.text)
    elif isinstance(block, Copyable):
        for part in block.text.split("\n\n"):
            document.add_paragraph(part)
    elif isinstance(block, Callout):
        document.add_paragraph().add_run(block.headline).bold = True
        for sentence in (*block.sentences, *block.more):
            document.add_paragraph(sentence, style="List Bullet")
    elif isinstance(block, Notes):
        document.add_paragraph().add_run(block.title).bold = True
        for item in block.items:
            document.add_paragraph(item, style="List Bullet")
    elif isinstance(block, Figures):
        _add_table(document, at, ("", "Value", "Interval"), [(f.label, f.shown, f.interval) for f in block.figures])
    elif isinstance(block, Checklist):
        items = [(one.number, one.asks, one.answered, one.where) for one in block.items]
        _add_table(document, block.caption, ("Item", "Asks for", "Answered by", "Where"), items)
    elif isinstance(block, Table):
        # What follows the horizon on the page says its own here.
        caption = ": ".join(filter(None, (at, block.caption)))
        _add_table(document, caption, block.header, [tuple(map(_as_text, row)) for row in block.rows])


def _as_text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    beneath = cell[2] if len(cell) == 3 else ""
    return f"{cell[0]} ({beneath})" if beneath else cell[0]


def _add_table(document: Any, caption: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    if caption:
        document.add_paragraph().add_run(caption).italic = True
    table = document.add_table(rows=1 + len(rows), cols=len(header), style="Light List")
    for line, texts in zip(table.rows, (header, *rows), strict=True):
        for cell, text in zip(line.cells, texts, strict=True):
            cell.text = text
    document.add_paragraph()


# --- The schema of the JSON: the type hints of the results are its rules.


_NUMBER: dict[str, Any] = {"anyOf": [{"type": "number"}, {"type": "null"}, {"enum": ["inf", "-inf"]}]}
_SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: _NUMBER,
}


def schema() -> dict[str, Any]:
    """Return the JSON schema of `AuditResult.to_json`."""
    known: dict[str, Any] = {}
    top = _object(AuditResult, known)
    top["properties"] = {"format": {"const": FORMAT}, "xcal": {"type": "string"}, **top["properties"]}
    top["required"] = ["format", "xcal", *top["required"]]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Audit of a survival model by xcal"}
    return {**head, **top, "$defs": dict(sorted(known.items()))}


def _object(kind: Any, known: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    own = {one.name: _of(hints[one.name], known) for one in fields(kind) if one.name != "draws"}
    return {"type": "object", "properties": own, "required": list(own), "additionalProperties": False}


def _of(hint: Any, known: dict[str, Any]) -> dict[str, Any]:
    origin, options = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if hint is NoneType:
        return {"type": "null"}
    if is_dataclass(hint):
        name = hint.__name__  # type: ignore[union-attr]  # a class, as hints are
        if hint is AuditResult:  # of a cause
            own = fields(AuditResult)
            return {"type": "object", "required": [one.name for one in own]}
        if name not in known:
            known[name] = {}
            known[name] = _object(hint, known)
        return {"$ref": f"#/$defs/{name}"}
    if origin in (Union, UnionType):
        return {"anyOf": [_of(one, known) for one in options]}
    if origin is np.ndarray:
        return {"type": "array", "items": _NUMBER}
    if origin is tuple and options[-1] is Ellipsis:
        return {"type": "array", "items": _of(options[0], known)}
    if origin is tuple:
        items = [_of(one, known) for one in options]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(options[1], known)}
    if all(isinstance(one, str) for one in options):
        return {"enum": list(options)}
    raise TypeError(f"no schema for {hint!r}")


def written_schema() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(schema(), indent=1) + "\n"
