"""How precisely the rows of an audit estimate its main values, and how many events would be enough.

Riley and others (Statistics in Medicine 2021;40:4230-4251 and 2022;41:1280-1295, BMJ 2024;384:e074821) plan the size of
a validation by the widths of intervals: of O/E, of the calibration slope, of the c statistic. Before a study these
follow from what is assumed of risks and censoring. After it they are known, and the interval of a value shrinks with
the root of the number of rows like these.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcal._checks import as_number, fail
from xcal.metrics.intervals import times_as_many
from xcal.metrics.spec import ACROSS_SITES, VALUES
from xcal.show.charts import time_in_words
from xcal.validation.result import AuditResult
from xcal.validation.words import label, listed

# Widths of intervals to aim for: of O/E, slope and c statistic as Riley and others do, of the ICI what is good enough.
WIDTHS: Mapping[str, float] = {"oe": 0.2, "slope": 0.4, "auc": 0.1, "ici": 0.05}
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Precision:
    """How precisely one value is estimated.

    Attributes
    ----------
    metric, horizon : str, float
        Which value.
    value, lower, upper : float
        As measured.
    width : float
        Width that the interval should have.
    n_events : int
        Events of these rows, over the whole follow-up.
    n_needed : int
        About how many events of rows like these would give that width; two digits.
    """

    metric: str
    horizon: float
    value: float
    lower: float
    upper: float
    width: float
    n_events: int
    n_needed: int

    @property
    def enough(self) -> bool:
        """Whether the interval is no wider."""
        return self.upper - self.lower <= self.width


def precision(result: AuditResult, widths: Mapping[str, float]) -> tuple[Precision, ...]:
    """Return the precision of the values that have an interval, at each horizon, in the order of `WIDTHS`."""
    for metric, width in widths.items():
        if metric not in WIDTHS:
            fail("widths", f"names among {', '.join(WIDTHS)}", repr(metric))
        as_number(f"width of {metric}", width, above=0)
    wanted, found = {**WIDTHS, **widths}, []
    for value in (v for m in wanted for v in result.values if (v.metric, v.group) == (m, None)):
        scale = ACROSS_SITES.get(value.metric, VALUES[value.metric].scale)
        times = times_as_many(value.lower, value.upper, wanted[value.metric], scale)
        if value.horizon is not None and math.isfinite(times):
            events, ends = result.data.n_events, (value.value, value.lower, value.upper)
            needed = rounded_up(max(1.0, events * times))
            if value.upper - value.lower <= wanted[value.metric]:  # two digits may be more than there are
                needed = min(needed, events)
            found.append(Precision(value.metric, value.horizon, *ends, wanted[value.metric], events, needed))
    return tuple(found)


def rounded_up(number: float) -> int:
    """Return a number as two digits and zeros, not below it.

    Examples
    --------
    >>> rounded_up(1234.0), rounded_up(7.2)
    (1300, 8)
    """
    digits = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return int(math.ceil(number / digits - _ROUNDING) * digits)


def precision_in_words(found: Sequence[Precision], time_unit: str) -> str:
    """Write how precise the values at one horizon are, and how many events would be enough for all of them."""
    if not found:
        return "No value has an interval at this horizon."
    one = found[0]
    enough = [label(each.metric).name for each in found if each.enough]
    lacking = [each for each in found if not each.enough]
    at = time_in_words(one.horizon, time_unit)
    told = f"{one.n_events:,} events give {listed(enough)} by {at} an interval that is narrow enough" if enough else ""
    if not lacking:
        return f"{told}."
    most = max(lacking, key=lambda each: each.n_needed)
    names = listed([label(each.metric).name for each in lacking])
    short = f"{names} by {at} would take more" if enough else f"{one.n_events:,} events are too few for {names} by {at}"
    need = f"about {most.n_needed:,} for {'it' if len(lacking) == 1 else 'all of them'}"
    return f"{told}; {short}: {need}." if enough else f"{short}: {need} to have an interval as narrow as is aimed for."
