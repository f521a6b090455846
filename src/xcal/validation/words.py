"""How numbers of an audit are written in sentences."""

import math
from collections.abc import Sequence

from xcal.validation.measurements import AuditValue


def percent(share: float) -> str:
    """Write a share as a percentage.

    Examples
    --------
    >>> percent(0.25)
    '25.0 %'
    """
    return f"{100 * share:.1f} %"


def interval_in_words(value: AuditValue, level: float, factor: float = 1.0) -> str:
    """Write an interval to stand behind its value; nothing where there is none.

    Examples
    --------
    >>> interval_in_words(AuditValue("oe", 1.0, None, 1.2, 1.05, 1.4), 0.95)
    ', 95 % interval 1.05 to 1.40'
    """
    if not (math.isfinite(value.lower) and math.isfinite(value.upper)):
        return ""
    digits = 1 if factor > 1 else 2
    return f", {100 * level:g} % interval {factor * value.lower:.{digits}f} to {factor * value.upper:.{digits}f}"


def listed(words: Sequence[str]) -> str:
    """Write a list.

    Examples
    --------
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
