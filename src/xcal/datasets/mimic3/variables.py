"""The 17 variables, the items that measure them, their categories, and the names of all columns made from them.

The facts are those of the public benchmark (Harutyunyan et al., Scientific Data 6:96, 2019), kept in two tables beside
this module: ``items.csv`` and ``categories.csv``. Variables keep the benchmark's names ("Glascow" included), so that
its files and ours can be compared.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# Rules whose value stays the text of the raw file; those variables have no cleaning in the benchmark.
TEXT_RULE = "text"

# Sub-periods of a variable's own span from its first to its last value: name, from the start or the end, percent.
SUB_PERIODS = (
    ("all", "first", 100),
    ("first_10", "first", 10),
    ("first_25", "first", 25),
    ("first_50", "first", 50),
    ("last_10", "last", 10),
    ("last_25", "last", 25),
    ("last_50", "last", 50),
)
FUNCTIONS = ("min", "max", "mean", "std", "skew", "count")


@dataclass(frozen=True)
class Item:
    """One item id of the raw files: the variable that it measures and the rule that cleans its values."""

    item_id: int
    variable: str
    rule: str


@dataclass(frozen=True)
class Category:
    """One text that a categorical variable can hold: its number, and its place among the one-hot columns."""

    text: str
    number: float
    place: int


@cache
def items() -> tuple[Item, ...]:
    """All items that are read, sorted by variable and id."""
    return tuple(Item(int(row["item_id"]), row["variable"], row["rule"]) for row in _table("items.csv"))


@cache
def variables() -> tuple[str, ...]:
    """Names of the variables, in the order of all tables.

    Examples
    --------
    >>> len(variables()), variables()[8]
    (17, 'Heart Rate')
    """
    return tuple(sorted({item.variable for item in items()}))


@cache
def text_variables() -> tuple[str, ...]:
    """Variables whose values stay text in the time series, as the benchmark leaves them."""
    return tuple(sorted({item.variable for item in items() if item.rule == TEXT_RULE}))


@cache
def categories() -> dict[str, tuple[Category, ...]]:
    """For each categorical variable its categories, by place."""
    found: dict[str, list[Category]] = {}
    for row in _table("categories.csv"):
        found.setdefault(row["variable"], []).append(Category(row["text"], float(row["number"]), int(row["place"])))
    return {variable: tuple(sorted(members, key=lambda one: one.place)) for variable, members in found.items()}


def feature_names(*, masks: bool = False) -> tuple[str, ...]:
    """Names of the 714 statistics, in the order variable, sub-period, function; with the masks, of all 1,428 columns.

    Examples
    --------
    >>> names = feature_names(masks=True)
    >>> len(names), names[8 * 42 + 8], names[-1]
    (1428, 'heart_rate.first_10.mean', 'ph.last_50.count.defined')
    """
    names = tuple(
        f"{column_name(variable)}.{period}.{function}"
        for variable in variables()
        for period, _, _ in SUB_PERIODS
        for function in FUNCTIONS
    )
    return names + tuple(f"{name}.defined" for name in names) if masks else names


def discretised_names() -> tuple[str, ...]:
    """Names of the 76 columns of one hour: 59 values, then 17 masks.

    Examples
    --------
    >>> len(discretised_names()), discretised_names()[0]
    (76, 'capillary_refill_rate=0.0')
    """
    values: list[str] = []
    for variable in variables():
        name = column_name(variable)
        members = categories().get(variable)
        values += [name] if members is None else [f"{name}={member.text}" for member in members]
    return (*values, *(f"{column_name(variable)}.measured" for variable in variables()))


def column_name(variable: str) -> str:
    """Name of a variable within a column's name.

    Examples
    --------
    >>> column_name("Heart Rate")
    'heart_rate'
    """
    return variable.lower().replace(" ", "_")


def _table(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()))
