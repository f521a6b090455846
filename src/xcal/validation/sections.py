"""The sections of a report: one question each, its picture, how to read it, and its numbers."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from xcal.metrics.inputs import rounded_time, said
from xcal.metrics.spec import ACROSS, ACROSS_SITES, Place, Role, beside, shown_in
from xcal.show.charts import p_in_words, time_in_words
from xcal.show.page import (
    Answers,
    Block,
    Callout,
    Cell,
    Chart,
    Copyable,
    Download,
    Figure,
    Figures,
    Key,
    Level,
    Notes,
    Row,
    Section,
    Selector,
    Stack,
    Table,
    Text,
    Varying,
)
from xcal.validation import charts
from xcal.validation.arguments import MIN_EVENTS, MOST_MISSING
from xcal.validation.charts import by_horizon, keys
from xcal.validation.next_steps import precision_in_words
from xcal.validation.result import AuditResult, AuditValue, ForWhom
from xcal.validation.study import probast, tripod
from xcal.validation.table_one import Described, Followed
from xcal.validation.verdict import OFF_LEVEL, conditional_in_words, differs_with_covariates
from xcal.validation.words import (
    COLUMNS,
    ESTIMATORS,
    METHODS,
    VERDICTS,
    at_landmark,
    find,
    interval,
    label,
    listed,
    missing,
    names,
    not_judged,
    range_in_words,
    shown,
    skipped_title,
)

# --- Pieces that the sections of a report share.

Results = Sequence[AuditResult]
Wanted = Sequence[tuple[str, float | None]]


def for_each_horizon(horizons: Sequence[float], make: Callable[[float], Block]) -> Block:
    """Make a block that follows the page's horizon."""
    blocks = tuple(make(t) for t in horizons)
    return blocks[0] if len(blocks) == 1 else Varying("horizon", blocks)


def numbers(results: Results, wanted: Wanted) -> Block:
    """Show numbers with their intervals: tiles for one model, a table for several.

    A distance that is zero at best comes with what a perfect model scores on as many rows.
    """
    if len(results) > 1:
        with_floors = [one for m, t in wanted for one in ((m, t), (beside(m, "floor"), t)) if one[0]]
        wanted = list(dict.fromkeys(with_floors))
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
    # Distances are zero at best, and never of a real model: noise makes them positive.
    floor, excess = (find(result, beside(value.metric, role), value.horizon) for role in _OF_DISTANCES)
    hint = one.hint if floor is None else f"{one.hint}; a perfect model would show {shown(floor)}"
    hint += "" if excess is None else f"; without noise {shown(excess)}"
    return Figure(one.name, shown(value), value.value, ends, hint)


# The selector of a page on which the reader picks one of several models.
MODEL = "model"
_OF_DISTANCES: tuple[Role, ...] = ("floor", "excess")


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
    drawn = charts.values_with_intervals(results, wanted, title=axis, reference=reference)
    return charts.following([drawn], title=title, keys=_point_keys(results), reading=reading)


def _point_keys(results: Results) -> tuple[Key, ...]:
    """Legend of the models' points; one model needs none."""
    return keys(results, "point") if len(results) > 1 else ()


# --- The answer on top: the verdict in words, and the numbers that most readers look for first.


def verdicts(results: Results) -> Block:
    """Return the answer in words; of several models side by side."""
    boxes = []
    for name, result in zip(names(results), results, strict=True):
        level, word = VERDICTS[result.verdict.level]
        told = word if len(results) == 1 else f"{name}: {word.lower()}"
        # What is said of all rows comes before what is said of single groups.
        more = tuple(one.text for one in sorted(result.verdict.said, key=lambda one: one.group is not None))
        title = f"Why, and how sure ({len(more)} sentences)"
        boxes.append(Callout(level, told, result.verdict.headline, (), more, title))  # type: ignore[arg-type]
    return boxes[0] if len(boxes) == 1 else Row(tuple(boxes))


# How the state of an answer looks.
_LEVELS: dict[str, Level] = {
    "right": "good",
    "small": "caution",  # never "good" beside a p-value below .05
    "unsure": "unknown",
    "unknown": "unknown",
    "off": "caution",
    "wrong": "bad",
}


def first_look(result: AuditResult, horizons: Sequence[float]) -> Block:
    """Return the calibration curve, the main numbers, and one sentence for each question."""
    answers = Answers(tuple((one.question, _LEVELS[one.state], one.text) for one in result.verdict.answers))
    side = Stack((*glance(result, horizons), *([answers] if answers.items else [])))
    legend = (*keys([result]), Key("band", "model", "band"), Key("right", "reference", "dashed"))
    if any(charts.same(result.measured.calibration, t) for t in horizons):
        picture = by_horizon(
            horizons, lambda t: charts.calibration([result], t), keys=legend, title="Calibration curve"
        )
    elif any(one.method == "uniform" and one.group is None for one in result.measured.pit):
        perfect = Key("a perfect model, 95 of 100 times", "ink", "dashed")
        title, own = "F at the observed times", (*keys([result], "box"), perfect)
        picture = charts.following([charts.pit([result], "uniform")], title=title, keys=own)
    else:
        return side
    return Row((picture, side), (1, 1))


def main_differences(results: Results, main: Sequence[tuple[str, str, str, str]], words: str) -> list[Block]:
    """Show the differences to read first, with words for those that are more than chance; nothing without any."""
    if not main:
        return []
    first, second = names(results)[:2]
    caption = f"{second} minus {first}, on the same resamples of the rows"
    head = ("", "Difference", f"{100 * results[0].level:g} % interval", f"{second} is")
    return [Table(caption, head, tuple(main), (1, 2)), *([Text(words, "note")] if words else [])]


def glance(result: AuditResult, horizons: Sequence[float]) -> list[Block]:
    """Return the numbers that most readers look for first."""

    def tiles(wanted: Wanted) -> Block:
        """Return the numbers without how they are read, which stands in their sections."""
        found = [find(result, metric, horizon) for metric, horizon in wanted]
        return Figures(tuple(replace(_tile(value, result), note="") for value in found if value is not None))

    if not horizons:
        return [tiles(wanted_in("glance"))]
    at_time = shown_in("glance", at_horizon=True)
    return [for_each_horizon(horizons, lambda t: tiles([(metric, t) for metric in at_time]))]


def wanted_in(place: Place, horizon: float | None = None) -> list[tuple[str, float | None]]:
    """Return the numbers that are shown at a place, at one horizon and over all times."""
    at = [] if horizon is None else [(metric, horizon) for metric in shown_in(place, at_horizon=True)]
    return [*at, *((metric, None) for metric in shown_in(place, at_horizon=False))]


# --- Whether the probabilities are right: on average, for each level of risk, over all times.


def on_average(results: Results, horizons: Sequence[float]) -> Section:
    """Show whether the risks are right on average."""
    heading, short = "Are the risks right on average?", "On average"
    if not horizons:
        return Section(heading, tuple(nothing(results, "horizon", "oe")), short)
    picture = by_horizon(
        horizons,
        lambda t: charts.observed_and_predicted(results, t),
        keys=(Key(f"observed ({results[0].measured.over_time.by})", "observed"), *keys(results)),
        reading="Where the lines agree, the average prediction is right; where the model's line is above the observed "
        "one, it expects too many events. The upright line is the horizon.",
    )
    side: list[Block] = [for_each_horizon(horizons, lambda t: numbers(results, wanted_in("average", t)))]
    if len(horizons) > 1:
        wanted = [(time_in_words(t, results[0].time_unit), "oe", t, None) for t in horizons]
        reading = "Events observed for each event expected. 1 is right; an interval that contains 1 cannot rule it out."
        side.append(with_intervals(results, wanted, "O/E", 1.0, "O/E at each horizon", reading))
    return Section(heading, (beside_picture(results, picture, side), *reasons(results, "horizon", "oe")), short)


def causes(result: AuditResult) -> Section:
    """Show which events come, and of which cause, beside what is predicted."""
    heading, short = "Which event, and when?", "Causes"
    named = list(zip(result.by_cause, charts.INKS, strict=False))
    legend = tuple(Key(name, ink, "band") for name, ink in named)
    picture = charts.following(
        [charts.incidences(result)],
        keys=(*legend, *(Key(f"{name}, predicted", ink, "dashed") for name, ink in named)),
        reading="The bands add up from below: how many have had each event by a time, the others acting too "
        "(Aalen-Johansen). The dashed lines are the mean predictions, added up in the same way: where one runs along "
        "the upper edge of its band, the predictions of all causes up to it are right on average.",
    )
    test = numbers([result], [("cause_calibration", None), ("cause_calibration_p", None)])
    few = [Text("Colours repeat.", "note")] if len(result.by_cause) > len(charts.INKS) else []
    rows = tuple(_cause_line(name, one) for name, one in result.by_cause.items())
    table = Table("The answer for each cause", ("Cause", "Events", "Answer"), rows, (1,))
    cells: list[Block] = []
    if result.measured.cells:
        drawn = [charts.cells(result)]
        cells = [charts.following(drawn, title="D-calibration by cause", keys=legend, reading=_CELLS), test]
    return Section(heading, (picture, *few, table, *cells, *reasons([result], "cause_calibration")), short)


_CELLS = (
    "Events in each tenth of the all-cause F, by cause, and the number that the model expects while rows were observed "
    "(dots): bars that end far from their dots are events of another cause, or at another time, than predicted."
)


def _cause_line(name: str, one: AuditResult) -> tuple[Cell, ...]:
    return name, (f"{one.data.n_events:,}", float(one.data.n_events)), one.verdict.headline


def each_level(results: Results, horizons: Sequence[float], *, picked: bool = False) -> Section:
    """Show whether they are right for each level of risk; of models of which the reader picks one (`picked`), of it."""
    heading, short = "Are they right for each level of risk?", "Level of risk"
    if not any(charts.same(result.measured.calibration, t) for result in results for t in horizons):
        return Section(heading, tuple(nothing(results, "horizon", "ici", "calibration")), short)
    alone = _alone(results, picked)
    pictures = calibration_pictures(alone, horizons)
    places: tuple[Place, ...] = ("average", "level") if picked else ("level",)
    side = _of_picked([_numbers_at(own, places, horizons) for own in alone])
    return Section(heading, (beside_picture(alone[0], pictures, [side]), *reasons(alone[0], "ici", "slope")), short)


def _alone(results: Results, picked: bool) -> list[Results]:
    """Return the models that are shown together: all of them, or each by itself, where the reader picks one."""
    return [[one] for one in results] if picked else [results]


def _of_picked(blocks: Sequence[Block]) -> Block:
    """Return the block of the model that is picked."""
    return blocks[0] if len(blocks) == 1 else Varying(MODEL, tuple(blocks))


def _numbers_at(results: Results, places: Sequence[Place], horizons: Sequence[float]) -> Block:
    return for_each_horizon(horizons, lambda t: numbers(results, [one for p in places for one in wanted_in(p, t)]))


def calibration_pictures(alone: Sequence[Results], horizons: Sequence[float]) -> Block:
    """Draw the calibration curve, and the histogram of the risks beneath it."""
    every = [one for own in alone for one in own]
    follows = ((MODEL,) if len(alone) > 1 else ()) + (("horizon",) if len(horizons) > 1 else ())
    curve = charts.following(
        [charts.calibration(own, t, beside=every) for own in alone for t in horizons],
        follows,
        keys=(
            *keys(alone[0]),
            Key("band", "model", "band"),
            Key("groups of risk", "model", "point"),
            Key("right", "reference", "dashed"),
        ),
    )
    histogram = charts.following(
        [charts.risk_histogram(own, t, beside=every) for own in alone for t in horizons],
        follows,
        reading="On the dashed line observed equals predicted. Above it the model promises too little risk, below it "
        "too much. The bars beneath say how many rows have each risk: where there are few, look at the band.",
    )
    return Stack((curve, histogram))


def all_times(results: Results, *, picked: bool = False) -> Section:
    """Show whether they are right over all times; of models of which the reader picks one (`picked`), of it."""
    heading, short = "Are they right over all times?", "All times"
    methods = [m for m in ESTIMATORS if all(any(p.method == m for p in r.measured.pit) for r in results)]
    if not methods:
        return Section(heading, tuple(nothing(results, "d_calibration")), short)
    alone = _alone(results, picked)
    models = (MODEL,) if len(alone) > 1 else ()
    chooser = Selector("estimator", "Censored rows counted", tuple(ESTIMATORS[m] for m in methods))
    histogram = charts.following(
        [charts.pit(own, method, beside=results) for own in alone for method in methods],
        (*models, "estimator"),
        title="F at the observed times",
        keys=(*keys(alone[0], "box"), Key("a perfect model, 95 of 100 times", "ink", "dashed")),
        reading="The bars of a perfect model are equally high, up to chance: each ends within its two dotted lines 95 "
        "of 100 times. High on the left: events come earlier than predicted; on the right: later; at both ends: the "
        "model is too sure.",
    )
    pictures: list[Block] = [histogram]
    if all(result.measured.pp is not None for result in results):
        legend = (*keys(alone[0]), Key("right", "reference", "dashed"))
        reading = "The same without bins. Where the diagonal lies outside of the band, the error is more than chance."
        made = [charts.pp(own) for own in alone]
        pictures.append(charts.following(made, models, title="P-P curve", keys=legend, reading=reading))
    table = _of_picked([_over_all_times(own, methods) for own in alone])
    blocks = (chooser, Row(tuple(pictures)), table)
    return Section(heading, (*blocks, *reasons(alone[0], "d_calibration", "d_calibration_p", "km_calibration")), short)


def _over_all_times(results: Results, methods: Sequence[str]) -> Block:
    table = _d_calibration_table(results, methods)
    if not any(find(result, metric) for result in results for metric, _ in wanted_in("times")):
        return table
    own = numbers(results, wanted_in("times"))
    return Row((table, own), (3, 1)) if len(results) == 1 else Stack((table, own))


def _d_calibration_table(results: Results, methods: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, result in zip(names(results), results, strict=True):
        p = find(result, "d_calibration_p")
        for method in methods:
            metric = METHODS[method]
            value, floor = find(result, metric), find(result, beside(metric, "floor"))
            who = f"{name}, {ESTIMATORS[method]}" if len(results) > 1 else ESTIMATORS[method]
            rows.append((who, cell(value), cell(floor), cell(p)))
    caption = (
        "D-calibration: 0 is right, and a perfect model scores the floor on average. The test is the same for all."
    )
    return Table(caption, ("Censored rows", "D-calibration", "Floor", "p"), tuple(rows), (1, 2, 3))


# --- The section "for whom?": calibration given the covariates, and the subgroup that is most off.


def for_whom(results: Results) -> Section:
    """Show whether the model is right for all, or for some only."""
    heading, short = "For whom is it right?", "For whom"
    found = [result.measured.for_whom for result in results]
    known = [one for one in found if one is not None]
    if not known:
        return Section(heading, (*_parts_found(results), *nothing(results, "conditional_calibration")), short)
    blocks: list[Block] = [Text(_answer(name, result)) for name, result in _named(results)]
    parts = charts.following(
        [charts.covariate_parts(results)],
        title="Where F lies, by covariate",
        keys=_point_keys(results),
        reading="0.5 is right. Left of it events come earlier than predicted, right of it later. The covariates that "
        "are furthest off are shown; of twenty intervals about one misses 0.5 by chance.",
    )
    blocks.append(numbers(results, wanted_in("covariates")))
    worst = known[0].subgroup
    if len(results) > 1 or worst is None:
        blocks.append(parts)
        blocks += [_subgroups(results)] if any(one.subgroup for one in known) else []
    else:
        histogram = charts.following(
            [charts.subgroup(worst)],
            title=f"F at the observed times where {worst.rule}",
            keys=(Key("rows that were not searched", "model", "box"), Key("right", "reference", "dashed")),
            reading="The bars of a model that is right for these rows are equally high, up to chance: the upright "
            "lines are 95 % intervals.",
        )
        blocks.append(Row((parts, histogram)))
    return Section(heading, (*blocks, *_parts_found(results), *_columns(known[0])), short)


def _parts_found(results: Results) -> list[Block]:
    """List the parts of covariates of which a test shows that the risks are not right on average."""
    rows: list[tuple[Cell, ...]] = []
    for name, result in zip(names(results), results, strict=True):
        for part in sorted(result.measured.parts, key=lambda one: one.p_value):
            when = "all times" if part.horizon is None else time_in_words(part.horizon, result.time_unit)
            ratio = AuditValue("oe", part.horizon, part.name, part.value, part.lower, part.upper)
            who = f"{part.name}, {name}" if len(results) > 1 else part.name
            rows.append((who, f"{part.n:,}", when, cell(ratio), (p_in_words(part.p_value), part.p_value)))
    if not rows:
        return []
    caption = "Where risks are not right on average, or in doubt; p-values are corrected for all such tests"
    return [Table(caption, ("Rows with", "Rows", "By", "O/E", "Test"), tuple(rows), (1, 3, 4))]


def _named(results: Results) -> list[tuple[str, AuditResult]]:
    """Return the results that ask "for whom?" with the name of the model, which is not said of one model alone."""
    named = [(n, result) for n, result in zip(names(results), results, strict=True) if result.measured.for_whom]
    return [(f"{name}: " if len(results) > 1 else "", result) for name, result in named]


def _answer(name: str, result: AuditResult) -> str:
    """Return in words what the test and the search found, with the levels that the verdict has."""
    one = result.measured.for_whom
    assert one is not None
    differs = differs_with_covariates(result.measured)
    shown = "differs" if differs else "does not visibly differ"
    words = f"{name}Calibration {shown} with the covariates ({conditional_in_words(one)})."
    worst = one.subgroup
    if worst is None:
        return f"{words} There are too few rows to search for a subgroup."
    where = f"rows with {worst.rule}: {worst.finding}"
    tested = f"{worst.n:,} rows; {p_in_words(worst.p_value)} on {worst.n_tested:,} that were not searched"
    if 2 * result.measured.n_families * worst.p_value < OFF_LEVEL:
        return f"{words} Most off are {where} ({tested})."
    return f"{words} The search named {where}, which the other half of the rows does not confirm ({tested})."


def _subgroups(results: Results) -> Table:
    """List the subgroup of each model that is most off."""
    rows = []
    for name, result in zip(names(results), results, strict=True):
        found = result.measured.for_whom
        worst = None if found is None else found.subgroup
        if worst is not None:
            rows.append((name, worst.rule, worst.finding, f"{worst.n:,}", (p_in_words(worst.p_value), worst.p_value)))
    caption = "The subgroup that is most off, searched on one half of the rows and tested on the other"
    return Table(caption, ("Model", "Rows with", "What is off", "Rows", "Test"), tuple(rows), (3, 4))


def _columns(one: ForWhom) -> list[Block]:
    """Return which columns were asked about, and which could not be."""
    asked = (
        f"Asked about: {', '.join(one.columns)}. A column that is known only after the start has no place here. Where "
        f"up to {MOST_MISSING:.0%} of the numbers of a column are missing, its median stands for them."
    )
    lines = [f"{name}: {why}" for name, why in one.left_out]
    return [Text(asked, "note"), *([Notes(tuple(lines), "Columns that were left out")] if lines else [])]


# --- Whether the model orders patients, how large its errors are, and whether it would help to decide.


def ordering(results: Results, horizons: Sequence[float]) -> Section:
    """Show whether the model orders patients."""
    heading, short = "Does it tell who is at higher risk?", "Ordering"
    ordered = shown_in("order", at_horizon=False)
    over_all = [m for m in ordered if any(find(result, m) for result in results)]
    at_time = [t for t in horizons if any(find(result, "auc", t) for result in results)]
    pictures = []
    if over_all:
        wanted: list[tuple[str, str, float | None, str | None]] = [(label(m).name, m, None, None) for m in over_all]
        reading = "Of two patients, how often the one with the higher risk has the event first. 0.5 is a coin."
        pictures.append(with_intervals(results, wanted, "Concordance", None, "Concordance over all times", reading))
    if at_time:
        wanted = [(time_in_words(t, results[0].time_unit), "auc", t, None) for t in at_time]
        reading = "How often a patient with the event by then had a higher risk than one without it. 0.5 is a coin."
        pictures.append(with_intervals(results, wanted, "AUC", None, "AUC at each horizon", reading))
    if not pictures:
        return Section(heading, tuple(nothing(results, *ordered, "auc", "horizon")), short)
    blocks: list[Block] = [Row(tuple(pictures))]
    if len(results) > 1:
        blocks.append(numbers(results, [(metric, None) for metric in over_all]))
    return Section(heading, (*blocks, *reasons(results, *ordered, "auc")), short)


def overall_error(results: Results, horizons: Sequence[float]) -> Section:
    """Show how large the errors are."""
    heading, short = "How large are the errors overall?", "Overall error"
    has_curve = any(np.isfinite(result.measured.over_time.brier).any() for result in results)
    at_time, everywhere = shown_in("error", at_horizon=True), shown_in("error", at_horizon=False)
    metrics = [m for m in at_time if any(find(r, m, t) for r in results for t in horizons)]
    blocks: list[Block] = []
    side: list[Block] = []
    if metrics:
        side.append(for_each_horizon(horizons, lambda t: numbers(results, [(m, t) for m in metrics])))
    over_all = [(m, None) for m in everywhere if any(find(result, m) for result in results)]
    if over_all:
        side += [Text(f"Over all times{_range(results)}", "note"), numbers(results, over_all)]
    if has_curve:
        moments: Sequence[float | None] = horizons or [None]
        made = [charts.brier(results, t) for t in moments]
        picture = charts.following(
            made,
            keys=(*keys(results), Key("Kaplan-Meier, which knows no covariates", "reference", "dashed")),
            reading="The squared error of the risks, lower is better. The gap to the dashed line is what the "
            "covariates save; IPA is that gap as a share.",
        )
        blocks.append(beside_picture(results, picture, side))
    else:
        blocks += side
    if not blocks:
        return Section(heading, tuple(nothing(results, "horizon", *at_time, *everywhere)), short)
    return Section(heading, (*blocks, *reasons(results, *at_time, *everywhere)), short)


def _range(results: Results) -> str:
    """Return in words over which times the Brier score was averaged; curves may end at different times."""
    ends = [result.measured.ibs_range for result in results if result.measured.ibs_range is not None]
    told = [range_in_words(one, results[0].time_unit) for one in ends]
    return f"; the Brier score averaged from {' and '.join(dict.fromkeys(told))}" if told else ""


def usefulness(results: Results, horizons: Sequence[float]) -> Section:
    """Show whether the model helps to decide."""
    heading, short = "Would it help to decide?", "Usefulness"
    if not any(charts.same(result.measured.decision, t) for result in results for t in horizons):
        return Section(heading, tuple(nothing(results, "horizon", "net_benefit", "decision")), short)
    legend = (*keys(results), Key("act on everybody", "reference", "dashed"), Key("act on nobody", "reference"))
    picture = by_horizon(
        horizons,
        lambda t: charts.decision(results, t),
        keys=legend,
        reading="Choose the risk at which you would act. The model helps where its line is above both others; the "
        "height is the net share of patients rightly acted on.",
    )
    return Section(heading, (picture, *reasons(results, "net_benefit", "decision")), short)


def by_outcome(results: Results, horizons: Sequence[float]) -> Section:
    """Show the risks of those with and without the event."""
    heading, short = "Which risks did those with the event have?", "Risks"
    if not any(charts.same(result.measured.risks, t) for result in results for t in horizons):
        return Section(heading, tuple(nothing(results, "horizon", "risks")), short)

    def picture(name: str, result: AuditResult) -> Chart:
        return by_horizon(
            horizons,
            lambda t: charts.risks_by_outcome(result, t, results),
            keys=charts.OUTCOME_KEYS,
            title=name if len(results) > 1 else "",
            reading="The further the two colours are apart, the better the model separates. Each group sums to 100%; "
            "of censored rows the outcome is not known.",
        )

    pictures = tuple(picture(name, result) for name, result in zip(names(results), results, strict=True))
    return Section(heading, (Row(pictures) if len(pictures) > 1 else pictures[0],), short)


# --- The section on groups: where the model is off, and where that cannot be told.


def groups(results: Results, horizons: Sequence[float]) -> Section:
    """Show calibration within groups."""
    shared = [group for group in _shared(results) if group not in (*results[0].sites, *results[0].landmarks)]
    heading, short = "Is it right in every group?", "Groups"
    if not shared:
        text = "No groups were given. With groups= (in commands --by) the report shows calibration within each of them."
        return Section(heading, (Text(text, "note"), *_not_judged(results)), short)
    blocks: list[Block] = []
    if horizons:
        pictures = [_forest(results, horizons, shared, metric) for metric in ("oe", "ici")]
        blocks.append(Row(tuple(pictures)))
    blocks.append(_table(results, horizons, shared, "Group"))
    blocks += _within(results, horizons, shared)
    return Section(heading, (*blocks, *_not_judged(results)), short)


def landmarks(results: Results, horizons: Sequence[float]) -> Section | None:
    """Show whether it is right for those who have come this far; None where no landmarks were given."""
    shared = [name for name in _shared(results) if name in results[0].landmarks]
    if not shared:
        return None
    text = (
        "Those who have come to a landmark without the event, with their risks from there on. Horizons count from the "
        "landmark, all else is as for all rows."
    )
    pictures = [_forest(results, horizons, shared, metric) for metric in ("oe", "ici", "auc")] if horizons else []
    blocks: list[Block] = [Text(text), Row(tuple(pictures[:2])), *pictures[2:]] if pictures else [Text(text)]
    blocks.append(_table(results, horizons, shared, "Landmark"))
    blocks += _within(results, horizons, shared, "landmark")
    return Section("Is it right for those who have come this far?", tuple(blocks), "Come this far")


def _shared(results: Results) -> list[str]:
    """Return the groups that were judged for every model."""
    return [group for group in results[0].groups if all(group in result.groups for result in results)]


_ACROSS: dict[Role, str] = {
    "sites": "Mean over sites",
    "new_site": "A new site",
    "sites_tau2": "tau²",
    "sites_i2": "I²",
}


def sites(results: Results, horizons: Sequence[float]) -> Section | None:
    """Show whether it is right at every site, and what to expect at a new one; None where there are no sites."""
    shared = [group for group in _shared(results) if group in results[0].sites]
    if not shared:
        return None
    heading, short = "Is it right at every site?", "Sites"
    if not horizons:
        return Section(heading, tuple(nothing(results, "horizon", "oe")), short)
    drawn = [m for m in ("oe", "slope", "auc") if sum(bool(find(results[0], m, horizons[-1], g)) for g in shared) > 1]
    pictures = [_forest(results, horizons, shared, metric, across=True) for metric in drawn]
    blocks: list[Block] = [Row(tuple(pictures[:2])), *pictures[2:], _table(results, horizons, shared, "Site")]
    if (small := results[0].measured.small_sites) in shared:
        text = f"Sites with fewer than {MIN_EVENTS} events are too small to be judged alone"
        blocks.append(Text(f"{text}: {small}, which take no part in the means over sites.", "note"))

    def over(t: float) -> Table:
        caption = (
            "Over sites, by random effects. The interval of a new site is where the value of one that took no part is "
            "expected; I² is the share of the differences that is not chance"
        )
        rows = [
            (
                label(metric).name if len(results) == 1 else f"{label(metric).name}, {name}",
                *(cell(find(result, beside(metric, role), t)) for role in ACROSS),
            )
            for metric in ACROSS_SITES
            for name, result in zip(names(results), results, strict=True)
        ]
        kept = tuple(row for row in rows if any(one != "–" for one in row[1:]))
        return Table(caption, ("", *(_ACROSS[role] for role in ACROSS)), kept, tuple(range(1, len(ACROSS) + 1)))

    if any(over(t).rows for t in horizons):
        blocks.append(for_each_horizon(horizons, over))
    lines = [f"{label(one.what).name}: {one.why}" for result in results for one in result.measured.skipped
             if label(one.what).role == "sites"]  # fmt: skip
    if lines:
        blocks.append(Notes(tuple(dict.fromkeys(lines)), "Not averaged over sites"))
    return Section(heading, tuple(blocks), short)


# Axis, reference, title and how to read it, of the values that are drawn by group.
_FORESTS = {
    "oe": (
        "O/E",
        1.0,
        "Observed per expected events",
        "1 is right. Left of it the model expects too many events in the group, right of it too few.",
    ),
    "slope": (
        "Calibration slope",
        1.0,
        "Calibration slope",
        "1 is right. Left of it risks are too extreme, right of it not spread widely enough.",
    ),
    "auc": (
        "AUC",
        0.5,
        "Who has the event by then (AUC)",
        "1 separates them, 0.5 is chance. A site with a narrow mix of patients has a lower AUC with the same model.",
    ),
    "ici": (
        "ICI",
        0.0,
        "Distance from the observed risk (ICI)",
        "Mean distance of predicted from observed risk; 0 is best, and small groups lie further out by chance.",
    ),
}


def _forest(
    results: Results, horizons: Sequence[float], shared: Sequence[str], metric: str, *, across: bool = False
) -> Chart:
    """Draw a value of all rows and of each group; across sites with their mean and what a new one may have."""
    axis, reference, title, reading = _FORESTS[metric]

    def picture(t: float) -> charts.Drawn:
        wanted = [("All rows", metric, t, None), *((group, metric, t, group) for group in shared)]
        if across:
            wanted += [("Mean of sites", beside(metric, "sites"), t, None)]
            wanted += [("A new site", beside(metric, "new_site"), t, None)]
        return charts.values_with_intervals(results, wanted, title=axis, reference=reference)

    return by_horizon(horizons, picture, keys=_point_keys(results), title=title, reading=reading)


def _table(results: Results, horizons: Sequence[float], shared: Sequence[str], what: str) -> Table:
    """D-calibration of each group, with its floor and its corrected p-value; O/E, of sites ICI, at each horizon."""
    unit, metric = results[0].time_unit, "ici" if what == "Site" else "oe"
    shown_as = label(metric).name
    header = [what, *(f"{shown_as} at {time_in_words(t, unit)}" for t in horizons)]
    header += ["D-calibration", "Floor", "p (Holm)"]
    rows = []
    for name, result in zip(names(results), results, strict=True):
        counted = {one.name: at_landmark(one) for one in result.measured.landmarks}
        for group in shared:
            who = counted.get(group, group)
            cells: list[Cell] = [f"{who}, {name}" if len(results) > 1 else who]
            cells += [cell(find(result, metric, t, group)) for t in horizons]
            whole = ("d_calibration", "d_calibration_floor", "d_calibration_p_corrected")
            rows.append((*cells, *(cell(find(result, one, None, group)) for one in whole)))
    table = _without_empty_columns(Table("", tuple(header), tuple(rows), tuple(range(1, len(header)))))
    corrected = "; p-values are corrected for the number of groups" if header[-1] in table.header else ""
    return replace(table, caption=f"{what}s{corrected}")


def _without_empty_columns(table: Table) -> Table:
    kept = [k for k in range(len(table.header)) if k == 0 or any(row[k] != "–" for row in table.rows)]
    header = tuple(table.header[k] for k in kept)
    rows = tuple(tuple(row[k] for k in kept) for row in table.rows)
    return Table(table.caption, header, rows, tuple(range(1, len(header))))


def _within(results: Results, horizons: Sequence[float], shared: Sequence[str], what: str = "group") -> list[Block]:
    """Let the reader choose a group, and show its calibration curve and its histogram."""
    pictures: list[Block] = []
    legend = keys(results)
    curves = [group for group in shared if all(_has_curves(result, horizons, group) for result in results)]
    if horizons and len(curves) == len(shared):
        made = [charts.calibration(results, t, group) for t in horizons for group in shared]
        follows = ("horizon", what) if len(horizons) > 1 else (what,)
        reading = "As above, for the rows of this group alone."
        right = Key("right", "reference", "dashed")
        pictures.append(
            charts.following(
                made, follows, title=f"Calibration curve in the {what}", keys=(*legend, right), reading=reading
            )
        )
    method = _group_method(results, shared)
    if method:
        made = [charts.pit(results, method, group) for group in shared]
        perfect = Key("a perfect model, 95 of 100 times", "ink", "dashed")
        title, reading = (
            f"F at the observed times in the {what}",
            f"Flat is right. Censored rows: {ESTIMATORS[method]}.",
        )
        pictures.append(
            charts.following(made, (what,), title=title, keys=(*keys(results, "box"), perfect), reading=reading)
        )
    if not pictures:
        return []
    return [Selector(what, f"Look into one {what}", tuple(shared), "list"), Row(tuple(pictures))]


def _has_curves(result: AuditResult, horizons: Sequence[float], group: str) -> bool:
    return all(charts.same(result.measured.calibration, t, group) is not None for t in horizons)


def _group_method(results: Results, shared: Sequence[str]) -> str | None:
    """Return the first estimator that every model has for every group."""
    for method in ESTIMATORS:
        have = [{one.group for one in result.measured.pit if one.method == method} for result in results]
        if all(set(shared) <= groups_of for groups_of in have):
            return method
    return None


def _not_judged(results: Results) -> list[Block]:
    """Name the groups that are too small to be judged."""
    lines = [f"{one.group}: {one.why}" for result in results for one in not_judged(result)]
    return [Notes(tuple(dict.fromkeys(lines)), "Groups that were not judged")] if lines else []


# --- What the report rests on: the rows, all numbers, the methods, the checklist.


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
    followed = charts.following([charts.followed(result)], title="Rows still followed")
    row = Row((followed, charts.following([charts.uncensored(result)], title="Share not yet censored")))
    concerns = sorted(summary.concerns, key=lambda one: not one.serious)
    described = [*_told(result, "data"), *characteristics(result), *_told(result, "predictors")]
    lines = tuple((one.what, one.effect, "much" if one.serious else "little") for one in concerns)
    notes: Block = Text("Nothing about these rows limits trust in the numbers.")
    if lines:
        notes = Table("What limits trust, and in what", ("About the rows", "What it does", "How much"), lines)
    hidden = [Text(said(few), "note")] if said(few) else []
    return Section("What data is this based on?", (Figures(tiles), row, *described, notes, *hidden), "Data")


def characteristics(result: AuditResult) -> list[Block]:
    """Show Table 1: the rows, beside the training rows where these were given, and for how long they were followed."""
    table = result.table_one
    if table is None:
        return []
    before = table.training_follow_up
    shown = [(line, _described(line.rows, table.min_cell)) for line in table.lines]
    rows: list[tuple[Cell, ...]] = []
    for k, (line, own) in enumerate(shown):
        what = line.name if not line.label else f"{line.name}: {line.label}"
        then = "–" if line.training is None else _described(line.training, table.min_cell)
        # That of the whole column, in its first line.
        again = k > 0 and table.lines[k - 1].name == line.name
        nothing_said = "" if again else "–"
        said_once = nothing_said if again or math.isnan(line.difference) else f"{line.difference:.2f}"
        difference: Cell = (said_once, line.difference) if said_once not in ("", "–") else said_once
        rows.append((what, own, then, difference))
    for what, tell in _FOLLOWED.items():
        both = [tell(one, result.time_unit) if one is not None else "–" for one in (table.follow_up, before)]
        rows.append((what, both[0], both[1], "–"))
    header = ("", f"These rows (n = {table.follow_up.n:,})", f"Training rows (n = {before.n:,})" if before else "", "")
    header = (*header[:3], "Standardised difference") if before else ("", header[1], "", "")
    caption = "Table 1: mean (standard deviation) and median (quartiles) of numbers, rows and share of labels"
    kept = _without_empty_columns(Table(caption, header, tuple(rows), (1, 2, 3)))
    lines = tuple(f"{name}: {why}" for name, why in table.left_out)
    return [kept, *([Notes(lines, "Columns that are not described")] if lines else [])]


def _described(one: Described, min_cell: int) -> Cell:
    if math.isnan(one.value):
        return f"fewer than {min_cell}" if one.n is None else "–"
    if math.isnan(one.sd):
        return (f"{one.n:,} ({one.value:.1%})", one.value)
    # As many decimals as show three digits of the standard deviation.
    decimals = max(0, 2 - math.floor(math.log10(one.sd))) if one.sd > 0 else 2
    return (
        f"{one.value:,.{decimals}f} ({one.sd:,.{decimals}f})",
        one.value,
        f"{one.median:g} ({one.lower_quartile:g} to {one.upper_quartile:g})",
    )


def _quartiles(one: Followed, unit: str) -> str:
    if math.isnan(one.median):
        return "median not reached"
    ends = [f"{t:g}" if not math.isnan(t) else "not reached" for t in (one.lower_quartile, one.upper_quartile)]
    return f"{one.median:g} ({ends[0]} to {ends[1]}) {unit}".strip()


_FOLLOWED: dict[str, Callable[[Followed, str], str]] = {
    "Events": lambda one, _: f"{one.n_events:,} ({one.n_events / one.n:.1%})",
    "Follow-up, median (quartiles)": _quartiles,
    "Time under observation, all rows": lambda one, unit: f"{one.person_time:,g} {unit}".strip(),
}


def _told(result: AuditResult, part: str, title: str = "") -> list[Block]:
    """Return what the authors say of a part of their study."""
    said = () if result.study is None else result.study.told(part)
    return [Notes(tuple(f"{name}: {text}" for name, text in said), title)] if said else []


def said_by_authors(result: AuditResult, parts: dict[str, str], heading: str, short: str) -> Section | None:
    """Return a section of what only the authors know; None where they say nothing."""
    blocks = [block for part, title in parts.items() for block in _told(result, part, title)]
    return Section(heading, tuple(blocks), short) if blocks else None


# --- Whether there are enough rows, and what an update of the model would change.


def sample_size(result: AuditResult, horizons: Sequence[float]) -> Section | None:
    """Show how precise the values are, and how many events would be enough; None where nothing has an interval."""
    found = {t: [one for one in result.precision() if one.horizon == t] for t in horizons}
    if not any(found.values()):
        return None
    blocks: list[Block] = [for_each_horizon(horizons, lambda t: Text(precision_in_words(found[t], result.time_unit)))]
    picture = by_horizon(
        horizons,
        lambda t: charts.precision(result, t),
        keys=charts.PRECISION_KEYS,
        title="Width of the interval for the number of events",
        reading="Divided by the width to aim for: at 1 and below, the interval is narrow enough. The upright line is "
        "these rows.",
    )

    def table(t: float) -> Table:
        lines = tuple(
            (
                label(one.metric).name,
                (f"{one.upper - one.lower:.3f}", one.upper - one.lower, f"{one.lower:.3f} to {one.upper:.3f}"),
                f"{one.width:g}",
                (f"{one.n_needed:,}", float(one.n_needed)),
            )
            for one in found[t]
        )
        return Table("", ("", "Width of the interval", "To aim for", "Events for that"), lines, (1, 2, 3))

    note = (
        "Widths to aim for: of O/E, slope and AUC those that Riley and others use (BMJ 2024;384:e074821), of the ICI "
        "what is good enough. Rows like these are assumed, with the same values."
    )
    if (most := result.verdict.events_needed) is not None:
        note += (
            f" That the probabilities can be trusted takes more to say, about {most:,} events: each interval must lie "
            "within what is good enough."
        )
    blocks += [
        Row((picture, for_each_horizon(horizons, table)), (1, 1)),
        Text(note, "note"),
        *_told(result, "analysis"),
    ]
    return Section("Are there enough rows?", tuple(blocks), "Sample size")


_UPDATES = {"large": "In the large", "slope": "Intercept and slope", "map": "Map of F"}


def updates(results: Results, horizons: Sequence[float]) -> Section | None:
    """Show calibration before and after each update; None where none was fitted."""
    if len(results) > 1 or not results[0].measured.updates:
        return None
    result = results[0]

    def table(t: float) -> Table:
        own = [one for one in result.measured.updates if one.horizon == t]
        lines = []
        for metric in ("oe", "slope", "ici", "brier"):
            after = [next((v for v in one.values if v.metric == metric), None) for one in own]
            lines.append((label(metric).name, *map(cell, [find(result, metric, t), *after])))
        header = ("", "As predicted", *(_UPDATES[one.how] for one in own))
        return Table("", header, tuple(lines), tuple(range(1, len(header))))

    text = (
        "Each row is predicted by an update that was fitted to other rows (five folds), so that this is what new rows "
        "may expect. An update in the large moves all risks, one with a slope also spreads them more or less, and a "
        "map of F changes all times at once."
    )
    blocks = (Text(text), for_each_horizon(horizons, table), *reasons([result], "updates"))
    return Section("What would an update change?", blocks, "Updates")


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
        blocks.append(_value_table(differences, caption, results[0].time_unit))
    for name, result in zip(names(results), results, strict=True):
        part = "" if result.resampled_rows is None else f" of {result.resampled_rows:,} rows, scaled to all rows"
        source = f" from {result.n_bootstrap:,} resamples{part}" if result.n_bootstrap else ""
        caption = f"{name}: {len(result.values):,} numbers with {result.level:.0%} intervals{source}"
        blocks.append(_value_table(result.values, caption, result.time_unit))
    blocks.append(Download("Save as CSV", "audit.csv", as_csv(results)))
    if skipped := _not_computed(results):
        caption = "Not computed"
        blocks.append(Table(caption, ("What", "In", "Why"), skipped))
    return Section("All numbers", tuple(blocks), "All numbers")


def _not_computed(results: Results) -> tuple[tuple[str, str, str], ...]:
    """Return what was not computed, of which rows, and why: a line for each reason, as many values may share it."""
    what: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for one in result.measured.skipped:
            # A group that was not judged at all is named among its own.
            name = "Everything" if one.what == "group" else skipped_title(replace(one, group=None), result.time_unit)
            known = what.setdefault((one.why, one.group or "all rows"), [])
            known += [name] if name not in known else []
    where: dict[tuple[str, str], list[str]] = {}
    for (why, group), titles in what.items():
        where.setdefault((listed(titles), why), []).append(group)
    return tuple((titles, ", ".join(groups), why) for (titles, why), groups in where.items())


def _value_table(values: Sequence[AuditValue], caption: str, unit: str) -> Table:
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
    return Table(caption, ("Metric", "Horizon", "Group", "Value", "Interval"), rows, (3, 4), filterable=True)


def as_csv(results: Results) -> str:
    """Return all numbers as text, in full precision; the model is the first column if there are several."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    several = len(results) > 1
    writer.writerow([*(["model"] if several else []), *COLUMNS])
    for name, result in zip(names(results), results, strict=True):
        for one in result.values:
            ends = ("" if math.isnan(end) else repr(end) for end in (one.value, one.lower, one.upper))
            horizon = "" if one.horizon is None else repr(one.horizon)
            writer.writerow([*([name] if several else []), one.metric, horizon, one.group or "", result.cause, *ends])
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
    """List the items of the guidelines, and who answers them."""
    return Section("TRIPOD+AI and PROBAST+AI", (tripod(result), probast(result)), "Checklists")
