"""An audit in words and tables: names and numbers as people read them, JSON, and a text for an e-mail."""

import json
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from xcal._files import write_whole
from xcal.metrics.inputs import rounded_time
from xcal.metrics.spec import VALUES, Skipped, Value, shown_in
from xcal.show.charts import time_in_words, written
from xcal.validation.result import AtLandmark, AuditResult, AuditValue

# --- How numbers of an audit are written in sentences.


def percent(share: float) -> str:
    """Write a share as a percentage.

    Examples
    --------
    >>> percent(0.25)
    '25.0 %'
    """
    return f"{100 * share:.1f} %"


def broken(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Break a sentence into lines, never between a number and its per cent sign, nor within "p = 0.03".

    Examples
    --------
    >>> broken("bins hold 13 % too many", 12, first="- ", rest="  ")
    ['- bins hold', '  13 % too', '  many']
    >>> broken("as rare, p = 0.03", 14)
    ['as rare,', 'p = 0.03']
    """
    kept = text.replace(" %", "\xa0%")  # no place to break for textwrap
    kept = re.sub(r"\bp ([=<]) (?=[0-9])", "p\xa0\\1\xa0", kept)
    lines = textwrap.wrap(kept, width, initial_indent=first, subsequent_indent=rest, break_long_words=False)
    return [line.replace("\xa0", " ") for line in lines]


def times_in_words(times: Sequence[float], unit: str) -> str:
    """Write some times with their unit, if that is known.

    Examples
    --------
    >>> times_in_words([1.0, 2.0], "years"), times_in_words([1.0], "years"), times_in_words([1.0, 2.5], "")
    ('1 and 2 years', '1 year', 'time 1 and 2.5')
    """
    *before, last = times
    if not unit and before:
        return f"time {listed([f'{t:g}' for t in times])}"
    return listed([*(f"{t:g}" for t in before), time_in_words(last, unit)])


def range_in_words(ends: tuple[float, float], unit: str) -> str:
    """Write a range of times.

    Examples
    --------
    >>> range_in_words((0.05, 6.0), "years"), range_in_words((0.05, 6.0), "")
    ('0.05 to 6 years', '0.05 to time 6')
    """
    first, last = (rounded_time(t) for t in ends)
    return f"{first:g} to {time_in_words(last, unit)}"


def interval_in_words(value: AuditValue, level: float, factor: float = 1.0, digits: int = 2) -> str:
    """Write an interval, times a factor, to stand behind its value; nothing where there is none.

    Examples
    --------
    >>> interval_in_words(AuditValue("oe", 1.0, None, 1.2, 1.05, 1.4), 0.95)
    ', 95 % interval 1.05 to 1.40'
    """
    if not (math.isfinite(value.lower) and math.isfinite(value.upper)):
        return ""
    return f", {100 * level:g} % interval {factor * value.lower:.{digits}f} to {factor * value.upper:.{digits}f}"


def listed(words: Sequence[str]) -> str:
    """Write a list.

    Examples
    --------
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# --- Names and numbers of an audit as people read them: one table for the page and the pictures.


VERDICTS = {
    "trust": ("good", "Can be trusted"),
    "caution": ("caution", "Use with caution"),
    "distrust": ("bad", "Not to be trusted"),
    "unknown": ("unknown", "Cannot be told"),
}

# How D-calibration counts censored rows: in words, and the metric.
ESTIMATORS = {"uniform": "uniform", "km": "Kaplan-Meier", "ipcw": "weighted"}
METHODS = {"uniform": "d_calibration", "km": "d_calibration_km", "ipcw": "d_calibration_ipcw"}


def label(metric: str) -> Value:
    """Return how a metric is called and written; one that is not in the table keeps its own name."""
    return VALUES.get(metric, Value(metric, metric, "small"))


def skipped_title(one: Skipped, unit: str = "") -> str:
    """Write what was not computed with the names that people read.

    Examples
    --------
    >>> skipped_title(Skipped("ici", "", 5.0, "sex = f")), skipped_title(Skipped("antolini", "", interval=True))
    ('ICI by time 5 in sex = f', "Interval of Antolini's C")
    >>> skipped_title(Skipped("group", "", group="sex = f")), skipped_title(Skipped("horizon", "", 5.0))
    ('sex = f', 'Everything by time 5')
    """
    if one.what == "group":
        return str(one.group)
    when = "" if one.horizon is None else f" by {time_in_words(one.horizon, unit)}"
    name = "Everything" if one.what == "horizon" else label(one.what).name
    where = "" if one.group is None else f" in {one.group}"
    return f"{'Interval of ' if one.interval else ''}{name}{when}{where}"


def shown(value: AuditValue) -> str:
    """Write the number of an audit."""
    return written(value.value, label(value.metric).form)


def interval(value: AuditValue, between: str = " to ") -> str:
    """Write the interval, "0.91 to 1.07"; "" if there is none."""
    if math.isnan(value.lower) or math.isnan(value.upper):
        return ""
    form = label(value.metric).form
    return between.join(written(end, form) for end in (value.lower, value.upper))


def names(results: Sequence[AuditResult]) -> list[str]:
    """Return a different name for each model: models of the same name are numbered."""
    plain = [result.model for result in results]
    return [f"{name} ({k + 1})" if plain.count(name) > 1 else name for k, name in enumerate(plain)]


def find(result: AuditResult, metric: str, horizon: float | None = None, group: str | None = None) -> AuditValue | None:
    """Return one number, or None where it was not measured or is NaN."""
    try:
        value = result.value(metric, horizon=horizon, group=group)
    except KeyError:
        return None
    return None if math.isnan(value.value) else value


def missing(result: AuditResult, *metrics: str) -> list[str]:
    """Return why metrics are missing over all rows: each reason once, as "what: why"."""
    lines = [
        f"{skipped_title(one, result.time_unit)}: {one.why}"
        for one in result.measured.skipped
        if one.what in metrics and one.group is None
    ]
    return list(dict.fromkeys(lines))


def not_judged(result: AuditResult) -> list[Skipped]:
    """Return the groups that were too small to judge, with the reason."""
    return [one for one in result.measured.skipped if one.what == "group"]


# --- An audit as a table, as JSON with everything that is needed to draw it again, and as a text for an e-mail.


COLUMNS = ("metric", "horizon", "group", "cause", "value", "lower", "upper")

# Of the JSON: raised when a reader of an older file would misread a newer one.
FORMAT = 2
_WIDTH = 100

# What is wrong comes first, then where, then what is uncertain.
_SENTENCES = 4
_MOST_HORIZONS = 4


def to_frame(result: AuditResult) -> Any:
    """One line per number; a horizon over all times is NaN, the group of all rows and the cause of any event None."""
    import pandas as pd

    rows = [
        tuple(getattr(value, name) if name != "cause" else one.cause or None for name in COLUMNS)
        for one in result.each
        for value in one.values
    ]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"horizon": np.float64, "value": np.float64, "lower": np.float64, "upper": np.float64})


def to_json(result: AuditResult, path: str | Path | None = None) -> str:
    """Everything as JSON text: NaN and infinity, which JSON does not have, become null and "inf" or "-inf"."""
    from xcal import __version__

    text = json.dumps({"format": FORMAT, "xcal": __version__, **as_plain(result)}, indent=1, allow_nan=False) + "\n"
    if path is not None:
        write_whole(Path(path), text.encode("utf-8"))
    return text


def as_plain(value: Any) -> Any:
    """Turn results, arrays and tuples into what JSON knows."""
    if is_dataclass(value) and not isinstance(value, type):
        # "draws" are kept for comparisons of models only: thousands of numbers that draw nothing.
        return {field.name: as_plain(getattr(value, field.name)) for field in fields(value) if field.name != "draws"}
    if isinstance(value, dict):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [as_plain(item) for item in value.tolist()]
    if isinstance(value, tuple | list):
        return [as_plain(item) for item in value]
    if isinstance(value, np.generic):
        return as_plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


# What a person looks for first, in the order of the text: over all times, and at each horizon.
_OVERALL, _AT_HORIZON = (shown_in("text", at_horizon=at_horizon) for at_horizon in (False, True))


def to_text(result: AuditResult, *, next_steps: bool = True) -> str:
    """Write the answer and the main values, about 30 lines, to be read in a terminal or an e-mail.

    `next_steps` are the Python calls that give more, in the last line.
    """
    source = "" if result.library == "none" else f" ({result.library})"
    data = result.data
    lines = [f"Audit of {result.model}{source}: {data.n:,} rows, {data.n_events:,} events", ""]
    lines += wrapped(result.verdict.headline)
    for sentence in result.verdict.sentences[:_SENTENCES]:
        lines += wrapped(sentence, "- ")
    more = len(result.verdict.sentences) - _SENTENCES
    if more > 0:
        lines.append(f"- {more} more sentence{'' if more == 1 else 's'} in the report")
    whole = {(value.metric, value.horizon): value for value in result.values if value.group is None}
    overall = [whole[name, None] for name in _OVERALL if (name, None) in whole]
    if overall:
        numbers = (f"{label(value.metric).name:<28}{_number(value)}{_averaged(value, result)}" for value in overall)
        lines += ["", *numbers]
    lines += _table(result, whole)
    for one in result.by_cause.values():
        lines += ["", *wrapped(f"{one.cause}, {one.data.n_events:,} events: {one.verdict.headline}")]
        lines += _table(one, {(value.metric, value.horizon): value for value in one.values if value.group is None})
    lines += ["", *(line for row in _landmarks(result) for line in wrapped(": ".join(row)))] if result.landmarks else []
    lines.append("")
    lines.append(f"{_intervals(result)}{_groups(result)}")
    if next_steps:
        lines.append('.report("audit.html") writes the report, .to_frame() gives every number.')
    return "\n".join(lines)


def to_html(result: AuditResult) -> str:
    """Write the answer and the main values for a notebook: the same as `to_text`."""
    data, said = result.data, "".join(f"<li>{escape(sentence)}</li>" for sentence in result.verdict.sentences)
    title = f"Audit of {result.model}: {data.n:,} rows, {data.n_events:,} events"
    whole = {(value.metric, value.horizon): value for value in result.values if value.group is None}
    first = result.horizons[:_MOST_HORIZONS]
    overall = [whole[name, None] for name in _OVERALL if (name, None) in whole]
    head = ["", *(f"at {time_in_words(horizon, result.time_unit)}" for horizon in first)]
    lines = [(f"{label(value.metric).name}{_averaged(value, result)}", _cell(value)) for value in overall]
    parts = [html_table(["", "over all times"], lines)]
    rows = _at_horizons(whole, first)
    parts += [html_table(head, [(name, *map(_cell, values)) for name, values in rows])] if rows else []
    for one in result.by_cause.values():
        own = {(value.metric, value.horizon): value for value in one.values if value.group is None}
        parts.append(f"<p>{escape(one.cause)}, {one.data.n_events:,} events: {escape(one.verdict.headline)}</p>")
        parts.append(html_table(head, [(name, *map(_cell, values)) for name, values in _at_horizons(own, first)]))
    parts += [html_table(["come to", "from there on"], _landmarks(result))] if result.landmarks else []
    end = f"<p>{escape(_intervals(result))}{escape(_groups(result))}</p>"
    return f"<p>{escape(title)}</p><p><b>{escape(result.verdict.headline)}</b></p><ul>{said}</ul>{''.join(parts)}{end}"


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table for a notebook."""
    lines = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"


def wrapped(text: str, bullet: str = "", most: int = 3) -> list[str]:
    """Break a sentence into lines, at most so many."""
    wrapped = broken(text, _WIDTH, bullet, " " * len(bullet))
    if len(wrapped) > most:
        wrapped = [*wrapped[: most - 1], wrapped[most - 1][: _WIDTH - 4].rsplit(" ", 1)[0] + " ..."]
    return wrapped


def _number(value: AuditValue) -> str:
    return f"{shown(value):<10}{_ends(value)}".rstrip()


def _averaged(value: AuditValue, result: AuditResult) -> str:
    """Return in words over which times the Brier score was averaged; "" for other values."""
    ends = result.measured.ibs_range
    if value.metric != "ibs" or ends is None:
        return ""
    return f", averaged from {range_in_words(ends, result.time_unit)}"


def _ends(value: AuditValue) -> str:
    """Write the interval in brackets; "" where there is none."""
    ends = interval(value, ", ")
    return ends and f"[{ends}]"


def _table(result: AuditResult, whole: dict[tuple[str, float | None], AuditValue]) -> list[str]:
    """One column for each of the first four horizons."""
    first = result.horizons[:_MOST_HORIZONS]
    rows = _at_horizons(whole, first)
    if not rows:
        return []
    head = f"{'at':<20}" + "".join(f"{time_in_words(horizon, result.time_unit):>24}" for horizon in first)
    return ["", head, *(f"{name:<20}" + "".join(f"{_cell(value):>24}" for value in values) for name, values in rows)]


def _at_horizons(
    whole: dict[tuple[str, float | None], AuditValue], horizons: Sequence[float]
) -> list[tuple[str, list[AuditValue | None]]]:
    """Return the main values at horizons: the name of each, and one value per horizon."""
    return [
        (label(name).name, [whole.get((name, horizon)) for horizon in horizons])
        for name in _AT_HORIZON
        if any((name, horizon) in whole for horizon in horizons)
    ]


def _cell(value: AuditValue | None) -> str:
    if value is None or math.isnan(value.value):
        return "-"
    return f"{shown(value)} {_ends(value)}".rstrip()


def _intervals(result: AuditResult) -> str:
    part = "" if result.resampled_rows is None else f" of {result.resampled_rows:,} rows, scaled to all"
    whole = "" if result.data.n_clusters is None else f" of {result.data.n_clusters:,} clusters"
    whole += "" if result.data.n_effective is None else " of rows with their weights"
    how = f"{result.n_bootstrap:,} resamples{whole}{part}, seed {result.seed}" if result.n_bootstrap else "no resamples"
    return f"Intervals: {100 * result.level:g} %, {how}."


def _groups(result: AuditResult) -> str:
    number = len(result.groups) - len(result.landmarks)
    return f" Groups: {number} judged." if number else ""


def at_landmark(one: AtLandmark) -> str:
    """Write which rows have come to a landmark.

    Examples
    --------
    >>> at_landmark(AtLandmark(365.0, "landmark = 365", 1200, 310))
    'landmark = 365 (1,200 rows, 310 events)'
    """
    events = "" if one.n_events is None else f", {one.n_events:,} events"
    return f"{one.name} ({one.n:,} rows{events})"


def _landmarks(result: AuditResult) -> list[tuple[str, str]]:
    """Return those who have come to each landmark, and the main values at the middle horizon from there on."""
    found = []
    for one in result.measured.landmarks:
        values = [v for v in result.values if v.group == one.name and v.horizon is not None]
        horizons = [h for h in result.horizons if any(v.horizon == h for v in values)]
        if not horizons:
            found.append((at_landmark(one), "no horizon is reached by enough rows"))
            continue
        middle = horizons[len(horizons) // 2]
        main = {v.metric: v for v in values if v.horizon == middle}
        told = [f"{label(name).name} {_cell(main[name])}" for name in ("oe", "ici", "auc") if name in main]
        found.append((at_landmark(one), f"by {time_in_words(middle, result.time_unit)} from there {listed(told)}"))
    return found
