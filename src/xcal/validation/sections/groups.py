"""The section on groups: where the model is off, and where that cannot be told."""

from collections.abc import Sequence

from xcal.charts.words import time_in_words
from xcal.pages import Block, Chart, Key, Notes, Row, Section, Selector, Table, Text
from xcal.pages.blocks import Cell, Spec
from xcal.validation import charts, performance_charts
from xcal.validation.charts import keys
from xcal.validation.labels import ESTIMATORS, find, names, not_judged
from xcal.validation.result import AuditResult
from xcal.validation.sections.parts import Results, cell


def groups(results: Results, horizons: Sequence[float]) -> Section:
    """Show calibration within groups."""
    shared = [group for group in results[0].groups if all(group in result.groups for result in results)]
    heading, short = "Is it right in every group?", "Groups"
    if not shared:
        text = "No groups were given. With groups= (in commands --by) the report shows calibration within each of them."
        return Section(heading, (Text(text, "note"), *_not_judged(results)), short)
    blocks: list[Block] = []
    if horizons:
        pictures = [_forest(results, horizons, shared, metric) for metric in ("oe", "ici")]
        blocks.append(Row(tuple(pictures)))
    blocks.append(_table(results, horizons, shared))
    blocks += _within(results, horizons, shared)
    return Section(heading, (*blocks, *_not_judged(results)), short)


def _forest(results: Results, horizons: Sequence[float], shared: Sequence[str], metric: str) -> Chart:
    """Draw O/E or ICI of all rows and of each group."""
    made = []
    for t in horizons:
        wanted: list[tuple[str, str, float | None, str | None]] = [("All rows", metric, t, None)]
        wanted += [(group, metric, t, group) for group in shared]
        title = {"oe": "O/E", "ici": "ICI"}[metric]
        reference = 1.0 if metric == "oe" else 0.0
        made.append(performance_charts.values_with_intervals(results, wanted, title=title, reference=reference))
    reading = {
        "oe": "1 is right. Left of it the model expects too many events in the group, right of it too few.",
        "ici": "Mean distance of predicted from observed risk; 0 is best, and small groups lie further out by chance.",
    }[metric]
    return Chart(
        tuple(spec for spec, _ in made),
        tuple(alt for _, alt in made),
        follows=("horizon",) if len(made) > 1 else (),
        keys=keys(results, "point") if len(results) > 1 else (),
        title={"oe": "Observed per expected events", "ici": "Distance from the observed risk (ICI)"}[metric],
        reading=reading,
    )


def _table(results: Results, horizons: Sequence[float], shared: Sequence[str]) -> Table:
    """D-calibration of each group, with its floor and its corrected p-value; O/E at each horizon."""
    unit = results[0].time_unit
    header = ["Group", *(f"O/E at {time_in_words(t, unit)}" for t in horizons), "D-calibration", "Floor", "p (Holm)"]
    rows = []
    for name, result in zip(names(results), results, strict=True):
        for group in shared:
            cells: list[Cell] = [f"{group}, {name}" if len(results) > 1 else group]
            cells += [cell(find(result, "oe", t, group)) for t in horizons]
            metrics = ("d_calibration", "d_calibration_floor", "d_calibration_p_corrected")
            rows.append((*cells, *(cell(find(result, metric, None, group)) for metric in metrics)))
    caption = "Groups; p-values are corrected for the number of groups"
    return _without_empty_columns(Table(caption, tuple(header), tuple(rows), tuple(range(1, len(header)))))


def _without_empty_columns(table: Table) -> Table:
    kept = [k for k in range(len(table.header)) if k == 0 or any(row[k] != "–" for row in table.rows)]
    header = tuple(table.header[k] for k in kept)
    rows = tuple(tuple(row[k] for k in kept) for row in table.rows)
    return Table(table.caption, header, rows, tuple(range(1, len(header))))


def _within(results: Results, horizons: Sequence[float], shared: Sequence[str]) -> list[Block]:
    """Let the reader choose a group, and show its calibration curve and its histogram."""
    pictures: list[Block] = []
    legend = keys(results)
    curves = [group for group in shared if all(_has_curves(result, horizons, group) for result in results)]
    if horizons and len(curves) == len(shared):
        made = [charts.calibration(results, t, group) for t in horizons for group in shared]
        follows = ("horizon", "group") if len(horizons) > 1 else ("group",)
        reading = "As above, for the rows of this group alone."
        right = Key("right", "reference", "dashed")
        pictures.append(_follower(made, follows, "Calibration curve in the group", (*legend, right), reading))
    method = _group_method(results, shared)
    if method:
        made = [charts.pit(results, method, group) for group in shared]
        perfect = Key("a perfect model, 95 of 100 times", "ink", "dashed")
        title, reading = "F at the observed times in the group", f"Flat is right. Censored rows: {ESTIMATORS[method]}."
        pictures.append(_follower(made, ("group",), title, (*keys(results, "box"), perfect), reading))
    if not pictures:
        return []
    return [Selector("group", "Look into one group", tuple(shared), "list"), Row(tuple(pictures))]


def _follower(
    made: Sequence[tuple[Spec, str]], follows: tuple[str, ...], title: str, legend: tuple[Key, ...], reading: str
) -> Chart:
    specs, alts = tuple(spec for spec, _ in made), tuple(alt for _, alt in made)
    return Chart(specs, alts, follows=follows, title=title, keys=legend, reading=reading)


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
