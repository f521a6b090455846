"""The answer on top: the verdict in words, and the numbers that most readers look for first."""

from collections.abc import Sequence

from xcal.pages import Block, Callout, Row, Table, Text
from xcal.validation.labels import VERDICTS, names
from xcal.validation.result import AuditResult
from xcal.validation.sections.parts import Results, for_each_horizon, numbers

# Sentences on single groups that are shown at once; more would hide what is said of all rows.
_FEW = 2


def verdicts(results: Results) -> Block:
    """Return the answer in words; of several models side by side."""
    boxes = []
    for name, result in zip(names(results), results, strict=True):
        level, word = VERDICTS[result.verdict.level]
        said = word if len(results) == 1 else f"{name}: {word.lower()}"
        first, on_groups = _sorted_sentences(result)
        title = f"In groups ({len(on_groups)})"
        boxes.append(Callout(level, said, result.verdict.headline, first, on_groups, title))  # type: ignore[arg-type]
    return boxes[0] if len(boxes) == 1 else Row(tuple(boxes))


def _sorted_sentences(result: AuditResult) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the sentences on all rows, and those on single groups if there are more than a few."""
    said = result.verdict.said
    on_groups = tuple(one.text for one in said if one.group is not None)
    if len(on_groups) <= _FEW:
        return result.verdict.sentences, ()
    return tuple(one.text for one in said if one.group is None), on_groups


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
    metrics = ("oe", "ici", "auc", "ipa")
    over_all = tuple((metric, None) for metric in ("harrell", "d_calibration_p"))
    if not horizons:
        return [numbers([result], over_all)]
    return [for_each_horizon(horizons, lambda t: numbers([result], [*((m, t) for m in metrics), *over_all]))]
