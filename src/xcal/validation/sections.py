"""The sections of a report: one question each, its picture, how to read it, and its numbers."""

import csv
import io
from collections.abc import Callable, Sequence

from xcal.pages import (
    Block,
    Callout,
    Chart,
    Copyable,
    Download,
    Figure,
    Figures,
    Key,
    Notes,
    Row,
    Section,
    Selector,
    Stack,
    Table,
    Text,
    Varying,
)
from xcal.pages.blocks import Cell
from xcal.validation import charts
from xcal.validation.charts import by_horizon, keys
from xcal.validation.checklist import checklist
from xcal.validation.labels import (
    ESTIMATORS,
    VERDICTS,
    find,
    interval,
    label,
    missing,
    moment,
    names,
    shown,
)
from xcal.validation.measurements import AuditValue
from xcal.validation.result import AuditResult

Results = Sequence[AuditResult]
Wanted = Sequence[tuple[str, float | None]]


def verdicts(results: Results) -> Block:
    """Give the answer in words; of several models side by side."""
    boxes = []
    for name, result in zip(names(results), results, strict=True):
        level, word = VERDICTS[result.verdict.level]
        said = word if len(results) == 1 else f"{name}: {word.lower()}"
        boxes.append(Callout(level, said, result.verdict.headline, result.verdict.sentences))  # type: ignore[arg-type]
    return boxes[0] if len(boxes) == 1 else Row(tuple(boxes))


def for_each_horizon(horizons: Sequence[float], make: Callable[[float], Block]) -> Block:
    """Make a block that follows the page's horizon."""
    blocks = tuple(make(t) for t in horizons)
    return blocks[0] if len(blocks) == 1 else Varying("horizon", blocks)


def numbers(results: Results, wanted: Wanted) -> Block:
    """Show numbers with their intervals: tiles for one model, a table for several."""
    if len(results) > 1:
        rows = [
            (label(metric).name, *(_cell(find(result, metric, horizon)) for result in results))
            for metric, horizon in wanted
        ]
        kept = tuple(row for row in rows if any(cell != "–" for cell in row[1:]))
        columns = tuple(range(1, len(results) + 1))
        return Table("Value, with its interval", ("", *names(results)), kept, columns)
    found = [find(results[0], metric, horizon) for metric, horizon in wanted]
    return Figures(tuple(_tile(value) for value in found if value is not None))


def _cell(value: AuditValue | None) -> Cell:
    if value is None:
        return "–"
    ends = interval(value)
    return (f"{shown(value)} ({ends})" if ends else shown(value), value.value)


def _tile(value: AuditValue) -> Figure:
    one, ends = label(value.metric), interval(value)
    return Figure(one.name, shown(value), value.value, f"{ends}; {one.hint}" if ends else one.hint)


def reasons(results: Results, *parts: str) -> list[Block]:
    """Say in one line per reason why something is missing."""
    lines = []
    for name, result in zip(names(results), results, strict=True):
        for why in missing(result, *parts):
            lines.append(f"Not shown{f' for {name}' if len(results) > 1 else ''}: {why}")
    return [Text(one if one.endswith(".") else f"{one}.", "note") for one in dict.fromkeys(lines)]


def nothing(results: Results, *parts: str) -> list[Block]:
    """Say why a section has no picture."""
    found = reasons(results, *parts)
    return found or [Text("Not shown: the predictions given do not allow this picture.", "note")]


def on_average(results: Results, horizons: Sequence[float]) -> Section:
    """Are the risks right on average?"""
    heading, short = "Are the risks right on average?", "On average"
    if not horizons:
        return Section(heading, tuple(nothing(results, "oe", "mean_risk")), short)
    picture = by_horizon(
        horizons,
        lambda t: charts.observed_and_predicted(results, t),
        keys=(Key("observed (Kaplan-Meier)", "observed"), *keys(results)),
        reading="Where the lines agree, the average prediction is right; where the model's line is above the observed "
        "one, it expects too many events. The upright line is the horizon.",
    )
    metrics = ("oe", "mean_risk", "observed_risk")
    beside = for_each_horizon(horizons, lambda t: numbers(results, [(metric, t) for metric in metrics]))
    blocks: list[Block] = [Row((picture, beside), (2, 1))]
    if len(horizons) > 1:
        wanted = [(moment(t, results[0].time_unit), "oe", t, None) for t in horizons]
        reading = "Events observed for each event expected. 1 is right; an interval that contains 1 cannot rule it out."
        blocks.append(_with_intervals(results, wanted, "O/E", 1.0, "O/E at each horizon", reading))
    return Section(heading, (*blocks, *reasons(results, "oe")), short)


def _with_intervals(
    results: Results,
    wanted: Sequence[tuple[str, str, float | None, str | None]],
    axis: str,
    reference: float | None,
    title: str,
    reading: str,
) -> Chart:
    spec, alt = charts.values_with_intervals(results, wanted, title=axis, reference=reference)
    legend = keys(results, "point") if len(results) > 1 else ()
    return Chart((spec,), (alt,), title=title, keys=legend, reading=reading)


def each_level(results: Results, horizons: Sequence[float]) -> Section:
    """Are they right for each level of risk?"""
    heading, short = "Are they right for each level of risk?", "Level of risk"
    drawn = [t for t in horizons if any(charts.same(result.measured.calibration, t) for result in results)]
    if not drawn or len(drawn) < len(horizons):
        return Section(heading, tuple(nothing(results, "calibration", "ici")), short)
    pictures = calibration_pictures(results, horizons)
    metrics = ("ici", "e50", "e90", "emax", "one_calibration_p")
    beside = [for_each_horizon(horizons, lambda t: numbers(results, [(metric, t) for metric in metrics]))]
    if any(find(result, "cox_slope") for result in results):
        beside += [Text("Over the whole follow-up", "note")]
        beside += [numbers(results, [("cox_slope", None), ("cox_intercept", None)])]
    row = Row((pictures, Stack(tuple(beside))), (2, 1))
    return Section(heading, (row, *reasons(results, "calibration", "ici")), short)


def calibration_pictures(results: Results, horizons: Sequence[float]) -> Block:
    """Draw the calibration curve, and the histogram of the risks beneath it."""
    curve = by_horizon(
        horizons,
        lambda t: charts.calibration(results, t),
        keys=(*keys(results), Key("band and groups of risk", "model", "band"), Key("right", "reference", "dashed")),
    )
    histogram = by_horizon(
        horizons,
        lambda t: charts.risk_histogram(results, t),
        reading="On the dashed line observed equals predicted. Above it the model promises too little risk, below it too "
        "much. The bars beneath say how many rows have each risk: where there are few, look at the band.",
    )
    return Stack((curve, histogram))


def all_times(results: Results) -> Section:
    """Are they right over all times?"""
    heading, short = "Are they right over all times?", "All times"
    methods = [m for m in ESTIMATORS if all(any(p.method == m for p in r.measured.pit) for r in results)]
    if not methods:
        return Section(heading, tuple(nothing(results, "d_calibration", "pit")), short)
    made = [charts.pit(results, method) for method in methods]
    chooser = Selector("estimator", "Censored rows counted", tuple(ESTIMATORS[m] for m in methods))
    histogram = Chart(
        tuple(spec for spec, _ in made),
        tuple(alt for _, alt in made),
        follows=("estimator",),
        title="F at the own times",
        keys=(*keys(results, "box"), Key("a perfect model, 95 of 100 times", "ink", "dashed")),
        reading="Of a perfect model all bars are equally high, up to the dashed range. High on the left: events come "
        "earlier than predicted; on the right: later; at both ends: the model is too sure.",
    )
    pictures: list[Block] = [histogram]
    if all(result.measured.pp is not None for result in results):
        spec, alt = charts.pp(results)
        legend = (*keys(results), Key("right", "reference", "dashed"))
        reading = "The same without bins. A line that leaves its band away from the diagonal is more than chance."
        pictures.append(Chart((spec,), (alt,), title="P-P curve", keys=legend, reading=reading))
    blocks: list[Block] = [chooser, Row(tuple(pictures)), _d_calibration_table(results, methods)]
    extra = numbers(results, [("km_calibration", None)])
    if any(find(result, "km_calibration") for result in results):
        blocks.append(extra)
    return Section(heading, (*blocks, *reasons(results, "d_calibration")), short)


def _d_calibration_table(results: Results, methods: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, result in zip(names(results), results, strict=True):
        p = find(result, "d_calibration_p")
        for method in methods:
            metric = "d_calibration" if method == "uniform" else f"d_calibration_{method}"
            value, floor = find(result, metric), find(result, f"{metric}_floor")
            who = f"{name}, {ESTIMATORS[method]}" if len(results) > 1 else ESTIMATORS[method]
            rows.append((who, _cell(value), _cell(floor), _cell(p)))
    caption = "D-calibration: 0 is right, and a perfect model scores the floor on average. The test is the same for all."
    return Table(caption, ("Censored rows", "D-calibration", "Floor", "p"), tuple(rows), (1, 2, 3))


def ordering(results: Results, horizons: Sequence[float]) -> Section:
    """Does it order patients?"""
    heading, short = "Does it tell who is at higher risk?", "Ordering"
    over_all = [m for m in ("harrell", "uno", "antolini") if any(find(result, m) for result in results)]
    at_time = [t for t in horizons if any(find(result, "auc", t) for result in results)]
    pictures = []
    if over_all:
        wanted: list[tuple[str, str, float | None, str | None]] = [(label(m).name, m, None, None) for m in over_all]
        reading = "Of two patients, how often the one with the higher risk has the event first. 0.5 is a coin."
        pictures.append(_with_intervals(results, wanted, "Concordance", None, "Concordance over all times", reading))
    if at_time:
        wanted = [(moment(t, results[0].time_unit), "auc", t, None) for t in at_time]
        reading = "How often a patient with the event by then had a higher risk than one without it. 0.5 is a coin."
        pictures.append(_with_intervals(results, wanted, "AUC", None, "AUC at each horizon", reading))
    if not pictures:
        return Section(heading, tuple(nothing(results, "harrell", "uno", "antolini", "auc")), short)
    figures = numbers(results, [*((m, None) for m in over_all), *(("auc", t) for t in at_time[:0])])
    return Section(heading, (Row(tuple(pictures)), figures, *reasons(results, "harrell", "uno", "antolini", "auc")), short)


def overall_error(results: Results, horizons: Sequence[float]) -> Section:
    """How large are the errors?"""
    heading, short = "How large are the errors overall?", "Overall error"
    has_curve = any(_any_finite(result.measured.over_time.brier) for result in results)
    metrics = [m for m in ("brier", "ipa") if any(find(r, m, t) for r in results for t in horizons)]
    blocks: list[Block] = []
    side: list[Block] = []
    if metrics:
        side.append(for_each_horizon(horizons, lambda t: numbers(results, [(m, t) for m in metrics])))
    over_all = [(m, None) for m in ("ibs", "nll") if any(find(result, m) for result in results)]
    if over_all:
        side += [Text("Over all times", "note"), numbers(results, over_all)]
    if has_curve:
        moments: Sequence[float | None] = horizons or [None]
        made = [charts.brier(results, t) for t in moments]
        picture = Chart(
            tuple(spec for spec, _ in made),
            tuple(alt for _, alt in made),
            follows=("horizon",) if len(made) > 1 else (),
            keys=(*keys(results), Key("Kaplan-Meier, which knows no covariates", "reference", "dashed")),
            reading="The squared error of the risks, lower is better. The gap to the dashed line is what the covariates "
            "save; IPA is that gap as a share.",
        )
        blocks.append(Row((picture, Stack(tuple(side))), (2, 1)))
    else:
        blocks += side
    if not blocks:
        return Section(heading, tuple(nothing(results, "brier", "ipa", "ibs")), short)
    return Section(heading, (*blocks, *reasons(results, "brier", "ipa", "ibs", "nll")), short)


def _any_finite(values: Sequence[float]) -> bool:
    return any(value == value for value in values)


def usefulness(results: Results, horizons: Sequence[float]) -> Section:
    """Would it help to decide?"""
    heading, short = "Would it help to decide?", "Usefulness"
    drawn = [t for t in horizons if all(charts.same(result.measured.decision, t) for result in results)]
    if not drawn or len(drawn) < len(horizons):
        return Section(heading, tuple(nothing(results, "decision", "net_benefit")), short)
    legend = (*keys(results), Key("act on everybody", "reference", "dashed"), Key("act on nobody: 0", "reference", "dashed"))
    picture = by_horizon(
        horizons,
        lambda t: charts.decision(results, t),
        keys=legend,
        reading="Choose the risk at which you would act. The model helps where its line is above both others; the height "
        "is the net share of patients rightly acted on.",
    )
    return Section(heading, (picture, *reasons(results, "decision", "net_benefit")), short)


def by_outcome(results: Results, horizons: Sequence[float]) -> Section:
    """Which risks did those with and without the event have?"""
    heading, short = "Which risks did those with the event have?", "Risks"
    drawn = [t for t in horizons if all(charts.same(result.measured.risks, t) for result in results)]
    if not drawn or len(drawn) < len(horizons):
        return Section(heading, tuple(nothing(results, "risks", "risk distribution")), short)

    def picture(name: str, result: AuditResult) -> Chart:
        return by_horizon(
            horizons,
            lambda t: charts.risks_by_outcome(result, t),
            keys=charts.outcome_keys(result),
            title=name if len(results) > 1 else "",
            reading="The further the two colours are apart, the better the model separates. Each group sums to 100%; of "
            "censored rows the outcome is not known.",
        )

    pictures = tuple(picture(name, result) for name, result in zip(names(results), results, strict=True))
    return Section(heading, (Row(pictures) if len(pictures) > 1 else pictures[0],), short)


def data(result: AuditResult) -> Section:
    """What the rows allow."""
    summary = result.data
    unit = f" {result.time_unit}" if result.time_unit else ""
    share = summary.n_events / summary.n
    tiles = (
        Figure("Rows", f"{summary.n:,}", float(summary.n)),
        Figure("Events", f"{summary.n_events:,}", float(summary.n_events), f"{share:.0%} of the rows"),
        Figure("Median follow-up", written_time(summary.median_follow_up), summary.median_follow_up, f"{unit.strip()} by reverse Kaplan-Meier".strip()),
        Figure("Last time", written_time(summary.last_time), summary.last_time, unit.strip()),
        Figure("Rows with tied times", f"{summary.n_tied_times:,}", float(summary.n_tied_times)),
        Figure("Rows past the model's last time", f"{summary.n_past_grid:,}", float(summary.n_past_grid)),
    )
    pictures = (charts.followed(result), charts.uncensored(result))
    titles = ("Rows still followed", "Share not yet censored")
    row = Row(tuple(Chart((spec,), (alt,), title=title) for (spec, alt), title in zip(pictures, titles, strict=True)))
    concerns = [f"{one.what} {one.effect}" for one in sorted(summary.concerns, key=lambda one: not one.serious)]
    notes: Block = (
        Notes(tuple(concerns), "What limits trust") if concerns else Text("Nothing about these rows limits the figures.")
    )
    return Section("What data is this based on?", (Figures(tiles), row, notes), "Data")


def written_time(t: float) -> str:
    """Write a time, or a dash for one that is not known."""
    return "–" if t != t else f"{t:.3g}"


def all_numbers(results: Results, differences: Sequence[AuditValue] = ()) -> Section:
    """Every number, to read and to save."""
    blocks: list[Block] = []
    if differences:
        first, second = names(results)[:2]
        caption = f"{second} minus {first}, on the same resamples of the rows"
        blocks.append(_value_table(differences, caption, results[0].time_unit, filterable=False))
    for name, result in zip(names(results), results, strict=True):
        level = f"{result.level:.0%} intervals" + (f" from {result.n_bootstrap:,} resamples" if result.n_bootstrap else "")
        caption = f"{name}: {len(result.values):,} numbers with {level}"
        blocks.append(_value_table(result.values, caption, result.time_unit, filterable=True))
    blocks.append(Download("Save as CSV", "audit.csv", as_csv(results)))
    skipped = [f"{what}: {why}" for result in results for what, why in result.measured.skipped]
    if skipped:
        blocks.append(Notes(tuple(dict.fromkeys(skipped)), "Not computed"))
    return Section("All numbers", tuple(blocks), "All numbers")


def _value_table(values: Sequence[AuditValue], caption: str, unit: str, *, filterable: bool) -> Table:
    rows = tuple(
        (
            label(value.metric).name,
            "" if value.horizon is None else moment(value.horizon, unit),
            value.group or "",
            (shown(value), value.value) if value.value == value.value else "–",
            interval(value),
        )
        for value in values
    )
    return Table(caption, ("Metric", "Horizon", "Group", "Value", "Interval"), rows, (3, 4), filterable)


def as_csv(results: Results) -> str:
    """Give all numbers as text, in full precision; the model is the first column if there are several."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    several = len(results) > 1
    writer.writerow([*(["model"] if several else []), "metric", "horizon", "group", "value", "lower", "upper"])
    for name, result in zip(names(results), results, strict=True):
        for one in result.values:
            ends = ("" if end != end else repr(end) for end in (one.value, one.lower, one.upper))
            horizon = "" if one.horizon is None else repr(one.horizon)
            writer.writerow([*([name] if several else []), one.metric, horizon, one.group or "", *ends])
    return text.getvalue()


def methods(results: Results) -> Section:
    """How it was done, for a paper."""
    blocks: list[Block] = []
    for name, result in zip(names(results), results, strict=True):
        if len(results) > 1:
            blocks.append(Text(name, "lead"))
        blocks.append(Copyable(result.methods, "Copy the methods"))
        if result.reading:
            blocks.append(Notes(result.reading, "How the predictions were read"))
    return Section("Methods", tuple(blocks), "Methods")


def guideline(result: AuditResult) -> Section:
    """Which items of the guideline are answered."""
    return Section("TRIPOD+AI checklist", (checklist(result),), "Checklist")
