"""Tables of the frontier page: every candidate on its rows, and the values that the choice was based on."""

import csv
import io
import math
from collections.abc import Callable, Sequence

import pandas as pd

from xcal.charts.words import Form, written
from xcal.estimators.frontier.values import Candidate, Values
from xcal.pages import Table
from xcal.pages.blocks import Cell

_UNKNOWN = float("nan")
# Name in files, name for people, how it is written, and where it is found.
_METRICS: tuple[tuple[str, str, Form, Callable[[Values], float]], ...] = (
    ("dcal", "D-calibration", "small", lambda values: values.dcal.value),
    ("dcal_floor", "Floor", "small", lambda values: values.dcal.floor),
    ("dcal_p", "p", "p", lambda values: _UNKNOWN if values.dcal.p_value is None else values.dcal.p_value),
    ("conditional", "Conditional", "small", lambda values: values.conditional),
    ("concordance", "Concordance", "fraction", lambda values: values.concordance),
    ("nll", "NLL", "fraction", lambda values: values.nll),
    ("ibs", "IBS", "fraction", lambda values: values.ibs),
)


def candidate_table(candidates: Sequence[Candidate]) -> Table:
    """Return all candidates on the rows of the page; beneath a value the range of its networks alone."""
    rows = []
    for one in candidates:
        cells: list[Cell] = [one.name]
        for metric, _, form, value in _METRICS:
            alone = [value(seed) for seed in one.seeds.values()]
            ranged = len(alone) > 1 and metric not in ("dcal_floor", "dcal_p")
            beneath = f"{written(min(alone), form)} to {written(max(alone), form)}" if ranged else ""
            cells.append(_cell(value(one.values), form, beneath))
        rows.append(tuple(cells))
    caption = "On the rows of this page. Beneath a value: the lowest and the highest of the networks alone"
    header = ("Model", *(label for _, label, _, _ in _METRICS))
    return Table(caption, header, tuple(rows), tuple(range(1, len(header))))


def validation_table(table: pd.DataFrame) -> Table:
    """Return the values on the validation rows by which the path chose, `SurvivalPath.candidates_`."""
    shown = [(name, label, form) for name, label, form, _ in _METRICS if name in table.columns]
    rows = []
    for line in table.to_dict("records"):
        mapped = ", recalibrated" if line["recalibrated"] else ""
        cells: list[Cell] = [f"λ = {line['lambda']:g}{mapped}"]
        cells += [_cell(_number(line[name]), form) for name, _, form in shown]
        rows.append(tuple(cells))
    caption = (
        "On the validation rows, by which the path chose (path.candidates_). Epochs were chosen on them too, so they "
        "flatter a little; recalibrated ones are cross-fitted"
    )
    header = ("Model", *(label for _, label, _ in shown))
    return Table(caption, header, tuple(rows), tuple(range(1, len(header))))


def as_csv(candidates: Sequence[Candidate]) -> str:
    """Return all values as text in full precision; a line without a seed is the model of all networks together."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["lambda", "recalibrated", "seed", *(name for name, _, _, _ in _METRICS)])
    for one in candidates:
        lines: list[tuple[str, Values]] = [("", one.values)]
        lines += [(str(seed), values) for seed, values in one.seeds.items()]
        for seed, values in lines:
            numbers = (value(values) for _, _, _, value in _METRICS)
            shown = ("" if math.isnan(number) else repr(float(number)) for number in numbers)
            writer.writerow([repr(one.lam), one.recalibrated, seed, *shown])
    return text.getvalue()


def _number(value: float | None) -> float:
    return _UNKNOWN if value is None else float(value)


def _cell(value: float, form: Form, beneath: str = "") -> Cell:
    return "–" if math.isnan(value) else (written(value, form), float(value), beneath)
