"""Pieces that the sections of a report share."""

from collections.abc import Callable, Sequence

from xcal.pages import (
    Block,
    Chart,
    Figure,
    Figures,
    Row,
    Stack,
    Table,
    Text,
    Varying,
)
from xcal.pages.blocks import Cell
from xcal.validation import charts, performance_charts
from xcal.validation.charts import keys
from xcal.validation.labels import find, interval, label, missing, names, shown
from xcal.validation.measurements import AuditValue
from xcal.validation.result import AuditResult

Results = Sequence[AuditResult]
Wanted = Sequence[tuple[str, float | None]]
# Distances that are zero at best, and never of a real model: noise makes them positive.
_WITH_FLOOR = ("ici", "e50", "e90", "emax", "km_calibration")


def for_each_horizon(horizons: Sequence[float], make: Callable[[float], Block]) -> Block:
    """Make a block that follows the page's horizon."""
    blocks = tuple(make(t) for t in horizons)
    return blocks[0] if len(blocks) == 1 else Varying("horizon", blocks)


def numbers(results: Results, wanted: Wanted) -> Block:
    """Show numbers with their intervals: tiles for one model, a table for several.

    A distance that is zero at best comes with what a perfect model scores on as many rows.
    """
    if len(results) > 1:
        floors = {(f"{metric}_floor", horizon) for metric, horizon in wanted if metric in _WITH_FLOOR} - set(wanted)
        wanted = [one for m, t in wanted for one in ((m, t), *({(f"{m}_floor", t)} & floors))]
        rows = [
            (label(metric).name, *(cell(find(result, metric, horizon)) for result in results))
            for metric, horizon in wanted
        ]
        kept = tuple(row for row in rows if any(one != "–" for one in row[1:]))
        columns = tuple(range(1, len(results) + 1))
        return Table("", ("", *names(results)), kept, columns)
    found = [find(results[0], metric, horizon) for metric, horizon in wanted]
    return Figures(tuple(_tile(value, results[0]) for value in found if value is not None))


def cell(value: AuditValue | None) -> Cell:
    """Show a number with its interval beneath it, or a dash for one that was not measured."""
    return "–" if value is None else (shown(value), value.value, interval(value))


def _tile(value: AuditValue, result: AuditResult) -> Figure:
    one, ends = label(value.metric), interval(value)
    floor = find(result, f"{value.metric}_floor", value.horizon) if value.metric in _WITH_FLOOR else None
    hint = one.hint if floor is None else f"{one.hint}; a perfect model would show {shown(floor)}"
    excess = find(result, f"{value.metric}_excess", value.horizon) if floor is not None else None
    hint += "" if excess is None else f"; without noise {shown(excess)}"
    return Figure(one.name, shown(value), value.value, ends, hint)


def reasons(results: Results, *metrics: str) -> list[Block]:
    """Return in one line per reason why something is missing."""
    lines = []
    for name, result in zip(names(results), results, strict=True):
        who = f" for {name}" if len(results) > 1 else ""
        lines += [f"Not shown{who}: {why}" for why in missing(result, *metrics)]
    return [Text(f"{one}.", "note") for one in dict.fromkeys(lines)]


def nothing(results: Results, *metrics: str) -> list[Block]:
    """Return why a section has no picture."""
    found = reasons(results, *metrics)
    return found or [Text("Not shown: the predictions given do not allow this picture.", "note")]


def beside_picture(results: Results, picture: Block, side: Sequence[Block]) -> Block:
    """Put numbers beside a picture; a table of several models needs more room than tiles."""
    return Row((picture, Stack(tuple(side))), (2, 1) if len(results) == 1 else (3, 2))


def with_intervals(
    results: Results,
    wanted: charts.Wanted,
    axis: str,
    reference: float | None,
    title: str,
    reading: str,
) -> Chart:
    """Draw numbers with their intervals, one line each."""
    spec, alt = performance_charts.values_with_intervals(results, wanted, title=axis, reference=reference)
    legend = keys(results, "point") if len(results) > 1 else ()
    return Chart((spec,), (alt,), title=title, keys=legend, reading=reading)
