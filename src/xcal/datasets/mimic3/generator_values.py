"""Texts and units as the raw files of MIMIC-III hold them, quirks included, to draw made-up events from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from xcal.datasets.mimic3.variables import categories, items, text_variables, variables

# Events of a variable among all chart events, in about the proportions of the demo.
_FREQUENCY = {
    "Capillary refill rate": 1,
    "Diastolic blood pressure": 18,
    "Fraction inspired oxygen": 2,
    "Glascow coma scale eye opening": 5,
    "Glascow coma scale motor response": 5,
    "Glascow coma scale total": 3,
    "Glascow coma scale verbal response": 5,
    "Glucose": 4,
    "Heart Rate": 18,
    "Height": 0.2,
    "Mean blood pressure": 18,
    "Oxygen saturation": 18,
    "Respiratory rate": 19,
    "Systolic blood pressure": 18,
    "Temperature": 6,
    "Weight": 0.6,
    "pH": 1,
}
# Share of chart events that measure one of the 17 variables.
_OF_VARIABLES = 0.2
_LAB_ITEMS = frozenset({50809, 50931, 51478, 50817, 50820, 50831, 51094, 51491})


@dataclass(frozen=True)
class Pool:
    """Rows to draw from: item, text of the value and unit, each with its probability."""

    item: tuple[int, ...]
    text: tuple[str | None, ...]
    unit: tuple[str | None, ...]
    probability: tuple[float, ...]


@cache
def chart_pool() -> Pool:
    """Events of CHARTEVENTS."""
    rows = [
        (item.item_id, text, unit, weight)
        for item in items()
        if item.item_id not in _LAB_ITEMS
        for text, unit, weight in _values(item.variable, item.rule)
    ]
    return _pool(rows, _OTHER_CHART, _OF_VARIABLES)


@cache
def lab_pool() -> Pool:
    """Events of LABEVENTS."""
    rows = [
        (item.item_id, text, "mg/dL", weight)
        for item in items()
        if item.item_id in _LAB_ITEMS
        for text, _, weight in _values(item.variable, item.rule)
    ]
    return _pool(rows, ((50868, "19", "mEq/L"), (50882, "27", "mEq/L"), (50893, None, "mg/dL")), 0.05)


@cache
def output_pool() -> Pool:
    """Events of OUTPUTEVENTS, none of which measures a variable."""
    return _pool([], ((40055, "39", "ml"), (40055, "100", "ml"), (226559, "250", "mL")), 0.0)


_OTHER_CHART = (
    (374, "Arm, Right Lower", None),
    (31, 'said "no"', None),
    (224695, "2222221.7", "cmH2O"),
    (581, None, None),
    (128, "Full Code", None),
    (742, "1", None),
)


def _pool(
    rows: Sequence[tuple[int, str | None, str | None, float]],
    others: tuple[tuple[int, str | None, str | None], ...],
    share: float,
) -> Pool:
    """Make a pool in which `rows` have the given share, and other events have the rest."""
    whole = sum(row[3] for row in rows)
    probability = [share * row[3] / whole for row in rows] + [(1 - share) / len(others)] * len(others)
    item, text, unit = zip(*[row[:3] for row in rows], *others, strict=True)
    return Pool(item, text, unit, tuple(probability))


def _values(variable: str, rule: str) -> list[tuple[str | None, str | None, float]]:
    """Texts and units of one item, with weights that add up to the frequency of the variable over its items."""
    texts = _texts(variable)
    units = _UNITS.get(rule, (None,))
    of_variable = sum(item.variable == variable for item in items())
    weight = _FREQUENCY[variable] / of_variable / (len(texts) * len(units))
    return [(text, unit, weight) for text in texts for unit in units]


_UNITS: dict[str, tuple[str | None, ...]] = {
    "oxygen_fraction": ("torr", "%", None),
    "temperature": ("?F", "?C", "Deg. F"),
    "weight": ("kg", "lb", "oz"),
    "height": ("Inch", "cm", None),
}


@cache
def _texts(variable: str) -> tuple[str | None, ...]:
    """Texts of the values of a variable. None: an event without a value, one in some hundred."""
    whole = {
        "Diastolic blood pressure": range(30, 110),
        "Glucose": range(60, 260, 2),
        "Heart Rate": range(45, 150),
        "Height": range(60, 76),
        "Oxygen saturation": range(85, 101),
        "Respiratory rate": range(6, 45),
        "Systolic blood pressure": range(75, 200),
        "Weight": range(45, 140),
    }
    rng = np.random.default_rng([17, variables().index(variable)])
    if variable in whole:
        texts = [str(number) for number in whole[variable]]
    elif variable in categories() and variable in text_variables():
        texts = [member.text for member in categories()[variable]]
    else:
        texts = {
            "Capillary refill rate": ["Normal <3 secs", "Brisk", "Abnormal >3 secs", "Delayed", "Other/Remarks"],
            "Fraction inspired oxygen": ["0.4", "0.5", "1", "40", "50", "60.000003814697266"],
            "Mean blood pressure": [repr(float(np.float32(number))) for number in rng.normal(78, 12, 60)],
            "Temperature": [f"{number:.1f}" for number in [*rng.normal(98.6, 1.2, 30), *rng.normal(37, 0.7, 30)]],
            "pH": [f"{number:.2f}" for number in rng.normal(7.38, 0.06, 30)],
        }[variable]
    odd: dict[str, list[str | None]] = {
        "Diastolic blood pressure": ["120/80", "11647"],
        "Glucose": ["ERROR", "97.5"],
        "Oxygen saturation": ["ERROR", "0.98", "1"],
        "Systolic blood pressure": ["120/80", "133/71"],
        "pH": ["ERROR"],
    }
    return (*texts, *odd.get(variable, []), None)
