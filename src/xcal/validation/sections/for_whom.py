"""The section "for whom?": calibration given the covariates, and the subgroup that is most off."""

from xcal.charts.words import p_in_words
from xcal.pages import Block, Chart, Key, Notes, Row, Section, Table, Text
from xcal.validation import charts
from xcal.validation.charts import keys
from xcal.validation.covariates import MOST_MISSING
from xcal.validation.labels import names
from xcal.validation.measurements import ForWhom
from xcal.validation.result import AuditResult
from xcal.validation.sections.parts import Results, nothing, numbers
from xcal.validation.verdict import OFF_LEVEL, conditional_in_words, differs_with_covariates

_METRICS = ("conditional_calibration", "conditional_calibration_noise", "conditional_calibration_p", "subgroup_p")


def for_whom(results: Results) -> Section:
    """Show whether the model is right for all, or for some only."""
    heading, short = "For whom is it right?", "For whom"
    found = [result.measured.for_whom for result in results]
    known = [one for one in found if one is not None]
    if not known:
        return Section(heading, tuple(nothing(results, "conditional_calibration")), short)
    blocks: list[Block] = [Text(_answer(name, result)) for name, result in _named(results)]
    spec, alt = charts.covariate_parts(results)
    parts = Chart(
        (spec,),
        (alt,),
        title="Where F lies, by covariate",
        keys=keys(results, "point") if len(results) > 1 else (),
        reading="0.5 is right. Left of it events come earlier than predicted, right of it later. The covariates that "
        "are furthest off are shown; of twenty intervals about one misses 0.5 by chance.",
    )
    blocks.append(numbers(results, [(metric, None) for metric in _METRICS]))
    worst = known[0].subgroup
    if len(results) > 1 or worst is None:
        blocks.append(parts)
        blocks += [_subgroups(results)] if any(one.subgroup for one in known) else []
    else:
        spec, alt = charts.subgroup(worst)
        histogram = Chart(
            (spec,),
            (alt,),
            title=f"F at the observed times where {worst.rule}",
            keys=(Key("rows that were not searched", "model", "box"), Key("right", "reference", "dashed")),
            reading="The bars of a model that is right for these rows are equally high, up to chance: the upright "
            "lines are 95 % intervals.",
        )
        blocks.append(Row((parts, histogram)))
    return Section(heading, (*blocks, *_columns(known[0])), short)


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
