"""The report: one HTML file that answers one question after another, for one model or for two."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from xcal._checks import fail
from xcal.show.charts import time_in_words
from xcal.show.page import Page, Section, Selector
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
    return Page(
        title=title
        if (title := "" if result.study is None else result.study.title)
        else f"Validation of {result.model}",
        subtitle=f"{result.model}{library}, tested on {summary.n:,} rows with {summary.n_events:,} events",
        selectors=_horizon(horizons, result.time_unit),
        top=(sections.verdicts([result]), sections.first_look(result, horizons)),
        sections=_sections([result], horizons),
        footer=_footer(result),
    )


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
    results: Sequence[AuditResult], horizons: Sequence[float], differences: Sequence[AuditValue] = ()
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
        sections.all_numbers(results, differences),
        sections.methods(results),
        sections.said_by_authors(first, {"discussion": ""}, "What follows", "Discussion"),
        sections.said_by_authors(first, {"statements": ""}, "Statements", "Statements"),
        sections.guideline(first),
    )
    return tuple(replace(section, folded=True) for section in found if section is not None)


def _footer(result: AuditResult) -> str:
    from xcal import __version__

    seed = f", seed {result.seed}" if result.n_bootstrap else ""
    return f"Made by xcal {__version__}{seed}. This file needs no network and sends nothing."
