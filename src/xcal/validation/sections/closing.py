"""What the report rests on: the rows, all numbers, the methods, the checklist."""

import csv
import io
import math
from collections.abc import Sequence

from xcal.charts.words import time_in_words
from xcal.metrics.small_cells import rounded_time, said
from xcal.pages import (
    Block,
    Chart,
    Copyable,
    Download,
    Figure,
    Figures,
    Notes,
    Row,
    Section,
    Table,
    Text,
)
from xcal.validation import performance_charts
from xcal.validation.checklist import checklist
from xcal.validation.labels import interval, label, names, shown, skipped_title
from xcal.validation.measurements import AuditValue
from xcal.validation.result import AuditResult
from xcal.validation.sections.parts import (
    Results,
)


def data(result: AuditResult) -> Section:
    """Show what the rows allow."""
    summary, few = result.data, result.min_cell
    reached_by = f"reached by {few} rows or more" if few > 1 else ""
    share = summary.n_events / summary.n
    tiles = (
        Figure("Rows", f"{summary.n:,}", float(summary.n)),
        Figure("Events", f"{summary.n_events:,}", float(summary.n_events), note=f"{share:.0%} of the rows"),
        _time("Median follow-up", summary.median_follow_up, f"{result.time_unit} by reverse Kaplan-Meier"),
        _time("Last time", summary.last_time, ", ".join(filter(None, [result.time_unit, reached_by]))),
        _count("Rows with tied times", summary.n_tied_times, few),
        _count("Rows past the model's last time", summary.n_past_grid, few),
    )
    pictures = (performance_charts.followed(result), performance_charts.uncensored(result))
    titles = ("Rows still followed", "Share not yet censored")
    row = Row(tuple(Chart((spec,), (alt,), title=title) for (spec, alt), title in zip(pictures, titles, strict=True)))
    concerns = sorted(summary.concerns, key=lambda one: not one.serious)
    lines = tuple((one.what, one.effect, "much" if one.serious else "little") for one in concerns)
    notes: Block = Text("Nothing about these rows limits trust in the numbers.")
    if lines:
        notes = Table("What limits trust, and in what", ("About the rows", "What it does", "How much"), lines)
    hidden = [Text(said(few), "note")] if said(few) else []
    return Section("What data is this based on?", (Figures(tiles), row, notes, *hidden), "Data")


def _count(name: str, count: int | None, min_cell: int) -> Figure:
    if count is None:
        return Figure(name, "–", note=f"fewer than {min_cell}")
    return Figure(name, f"{count:,}", float(count))


def _time(name: str, t: float, note: str) -> Figure:
    if math.isnan(t):
        return Figure(name, "–", note="not reached")
    return Figure(name, f"{rounded_time(t):,g}", t, note=note.strip())


def all_numbers(results: Results, differences: Sequence[AuditValue] = ()) -> Section:
    """List every number, to read and to save."""
    blocks: list[Block] = []
    if differences:
        first, second = names(results)[:2]
        caption = (
            f"{second} minus {first}, on the same resamples of the rows; each interval holds for itself, and of the "
            "many lines some exclude 0 by chance"
        )
        blocks.append(_value_table(differences, caption, results[0].time_unit, filterable=False))
    for name, result in zip(names(results), results, strict=True):
        part = "" if result.resampled_rows is None else f" of {result.resampled_rows:,} rows, scaled to all rows"
        source = f" from {result.n_bootstrap:,} resamples{part}" if result.n_bootstrap else ""
        caption = f"{name}: {len(result.values):,} numbers with {result.level:.0%} intervals{source}"
        blocks.append(_value_table(result.values, caption, result.time_unit, filterable=True))
    blocks.append(Download("Save as CSV", "audit.csv", as_csv(results)))
    skipped = [
        f"{skipped_title(one, result.time_unit)}: {one.why}" for result in results for one in result.measured.skipped
    ]
    if skipped:
        blocks.append(Notes(tuple(dict.fromkeys(skipped)), "Not computed"))
    return Section("All numbers", tuple(blocks), "All numbers")


def _value_table(values: Sequence[AuditValue], caption: str, unit: str, *, filterable: bool) -> Table:
    rows = tuple(
        (
            label(value.metric).name,
            "" if value.horizon is None else time_in_words(value.horizon, unit),
            value.group or "",
            (shown(value), value.value) if not math.isnan(value.value) else "–",
            interval(value),
        )
        for value in values
    )
    return Table(caption, ("Metric", "Horizon", "Group", "Value", "Interval"), rows, (3, 4), filterable)


def as_csv(results: Results) -> str:
    """Return all numbers as text, in full precision; the model is the first column if there are several."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    several = len(results) > 1
    writer.writerow([*(["model"] if several else []), "metric", "horizon", "group", "value", "lower", "upper"])
    for name, result in zip(names(results), results, strict=True):
        for one in result.values:
            ends = ("" if math.isnan(end) else repr(end) for end in (one.value, one.lower, one.upper))
            horizon = "" if one.horizon is None else repr(one.horizon)
            writer.writerow([*([name] if several else []), one.metric, horizon, one.group or "", *ends])
    return text.getvalue()


def methods(results: Results) -> Section:
    """Return how it was done, for a paper."""
    blocks: list[Block] = []
    for name, result in zip(names(results), results, strict=True):
        if len(results) > 1:
            blocks.append(Text(name, "lead"))
        blocks.append(Copyable(result.methods, "Copy the methods"))
        if result.reading:
            blocks.append(Notes(result.reading, "How the predictions were read"))
    return Section("Methods", tuple(blocks), "Methods")


def guideline(result: AuditResult) -> Section:
    """List the items of the guideline."""
    return Section("TRIPOD+AI checklist", (checklist(result),), "Checklist")
