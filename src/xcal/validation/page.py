"""The report: one HTML file that answers one question after another, for one model or for two."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from xcal._checks import fail
from xcal.show.charts import time_in_words
from xcal.show.page import Block, Page, Section, Selector, Stack, Varying
from xcal.validation import sections
from xcal.validation.result import AuditResult, AuditValue
from xcal.validation.words import names

# More than this many horizons do not fit beside each other on a phone.
_MOST_BUTTONS = 4


def report_page(result: AuditResult) -> Page:
    """Return the page of one model."""
    library = f" ({result.library})" if result.library not in ("", "none") else ""
    summary = result.data
    horizons = _measured([result])
    by_cause = (Selector(CAUSE, "Cause", ("any", *result.by_cause), "buttons"),) if result.by_cause else ()
    return Page(
        title=title
        if (title := "" if result.study is None else result.study.title)
        else f"Validation of {result.model}",
        subtitle=f"{result.model}{library}, tested on {summary.n:,} rows with {summary.n_events:,} events",
        selectors=(*by_cause, *_horizon(horizons, result.time_unit)),
        top=_of_causes([(sections.verdicts([one]), sections.first_look(one, horizons)) for one in result.each]),
        sections=_by_cause(result, horizons) if result.by_cause else _sections([result], horizons),
        footer=_footer(result),
    )


# The selector of a page on which the reader picks one of several causes, or all of them.
CAUSE = "cause"


def _of_causes(blocks: Sequence[tuple[Block, ...]]) -> tuple[Block, ...]:
    """Return the blocks of the cause that is picked, of which each has its own."""
    return blocks[0] if len(blocks) == 1 else (Varying(CAUSE, tuple(Stack(one) for one in blocks)),)


def _by_cause(result: AuditResult, horizons: Sequence[float]) -> tuple[Section, ...]:
    """Return the sections of all events, those with values of each cause followed by its selector."""
    found: list[Section] = []
    of_each = [{one.short: one for one in _sections([own], horizons)} for own in result.by_cause.values()]
    for section in _sections([result], horizons, each=result.each):
        parts = [section, *(own[section.short] for own in of_each if section.short in own)]
        if section.short in _FOR_ALL or len(parts) < len(result.each):
            found.append(section)
        else:
            found.append(replace(section, blocks=_of_causes([one.blocks for one in parts])))
    return (replace(sections.causes(result), folded=True), *found)


# Sections about all events together.
_FOR_ALL = ("Data", "All numbers", "Methods", "Checklists", "Background", "Discussion", "Statements")


def comparison_page(
    results: Sequence[AuditResult],
    *,
    differences: Sequence[AuditValue] = (),
    main: Sequence[tuple[str, str, str, str]] = (),
    words: str = "",
) -> Page:
    """Return the page of two models on the same axes.

    Parameters
    ----------
    results : two results
        Audits of the same rows.
    differences : sequence of AuditValue
        Second minus first model, with intervals, for a table.
    main : sequence of tuple of str
        The differences to read first: of what, how large, the interval, and whether the second model is better or
        worse.
    words : str
        How sure these words are.
    """
    if len(results) != 2:
        fail("results", "two results to compare", len(results))
    first, second = results
    if first.data.n != second.data.n or first.data.n_events != second.data.n_events:
        fail("results", "audits of the same rows", f"{first.data.n} and {second.data.n} rows")
    if first.time_unit != second.time_unit:
        fail("results", "one unit of time", f"{first.time_unit!r} and {second.time_unit!r}")
    horizons = _measured(results)
    one, other = names(results)
    return Page(
        title=f"{one} and {other}",
        subtitle=f"Two models tested on the same {first.data.n:,} rows with {first.data.n_events:,} events",
        selectors=_horizon(horizons, first.time_unit),
        top=(sections.verdicts(results), *sections.main_differences(results, main, words)),
        sections=_sections(results, horizons, differences),
        footer=_footer(first),
    )


def _measured(results: Sequence[AuditResult]) -> tuple[float, ...]:
    """Return the horizons at which something was measured of every model; others are named among what is missing."""
    have = [{value.horizon for value in result.values} for result in results]
    return tuple(t for t in results[0].horizons if all(t in horizons for horizons in have))


def _horizon(horizons: Sequence[float], unit: str) -> tuple[Selector, ...]:
    """Return the selector that moves every panel; with one horizon there is nothing to select."""
    if len(horizons) < 2:
        return ()
    kind: Literal["buttons", "list"] = "buttons" if len(horizons) <= _MOST_BUTTONS else "list"
    # The middle one: the first is often early, with few events, and the last late, with few rows.
    return (Selector("horizon", "Horizon", tuple(time_in_words(t, unit) for t in horizons), kind, len(horizons) // 2),)


def _sections(
    results: Sequence[AuditResult],
    horizons: Sequence[float],
    differences: Sequence[AuditValue] = (),
    each: Sequence[AuditResult] = (),
) -> tuple[Section, ...]:
    first = results[0]
    found = (
        sections.said_by_authors(first, {"background": ""}, "Why this was done", "Background"),
        sections.on_average(results, horizons),
        sections.each_level(results, horizons),
        sections.all_times(results),
        sections.for_whom(results),
        sections.groups(results, horizons),
        sections.sites(results, horizons),
        sections.landmarks(results, horizons),
        sections.ordering(results, horizons),
        sections.overall_error(results, horizons),
        sections.usefulness(results, horizons),
        sections.by_outcome(results, horizons),
        sections.updates(results, horizons),
        sections.data(first),
        sections.sample_size(first, horizons) if len(results) == 1 else None,
        sections.all_numbers(each or results, differences),
        sections.methods(each or results),
        sections.said_by_authors(first, {"discussion": ""}, "What follows", "Discussion"),
        sections.said_by_authors(first, {"statements": ""}, "Statements", "Statements"),
        sections.guideline(first),
    )
    return tuple(replace(section, folded=True) for section in found if section is not None)


def _footer(result: AuditResult) -> str:
    from xcal import __version__

    seed = f", seed {result.seed}" if result.n_bootstrap else ""
    return f"Made by xcal {__version__}{seed}. This file needs no network and sends nothing."
