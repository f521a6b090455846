"""How numbers of an audit are written in sentences."""

import math
import re
import textwrap
from collections.abc import Sequence

from xcal.charts.words import time_in_words
from xcal.metrics.small_cells import rounded_time
from xcal.validation.measurements import AuditValue


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
