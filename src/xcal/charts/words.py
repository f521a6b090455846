"""How numbers and times are written on pages."""

import math
from typing import Literal

Form = Literal["ratio", "fraction", "percent", "p", "small"]


def written(value: float, form: Form) -> str:
    """Write one number.

    Examples
    --------
    >>> written(0.98712, "ratio"), written(0.24719, "percent"), written(0.00004, "p"), written(0.000432, "small")
    ('0.99', '24.7%', '< 0.001', '0.00043')
    """
    if math.isnan(value):
        return "–"
    if form == "percent":
        return f"{value:.1%}"
    if form == "p":
        return "< 0.001" if value < 0.001 else f"{value:.3f}"
    if form == "small":
        return f"{value:.2g}"
    return f"{value:.2f}" if form == "ratio" else f"{value:.3f}"


def p_in_words(p_value: float) -> str:
    """Write a p-value in a sentence.

    Examples
    --------
    >>> p_in_words(0.0312), p_in_words(1e-9)
    ('p = 0.031', 'p < 0.0001')
    """
    return "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.2g}"


def time_in_words(time: float, unit: str) -> str:
    """Write a time with its unit, if that is known.

    Examples
    --------
    >>> time_in_words(60.0, "months"), time_in_words(1.0, "years"), time_in_words(1.5, "")
    ('60 months', '1 year', 'time 1.5')
    """
    if not unit:
        return f"time {time:g}"
    return f"{time:g} {unit[:-1] if time == 1 and unit.endswith('s') else unit}"


def time_title(unit: str) -> str:
    """Title of a time axis."""
    return f"Time ({unit})" if unit else "Time"
