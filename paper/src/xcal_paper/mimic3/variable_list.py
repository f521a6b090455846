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


# ----------------------------------------------------------------------------------------------------------------------
# How a value's text becomes a number, rule by rule, as SQL.
#
# The rules are the benchmark's, with what they really do: a fraction of inspired oxygen is divided by 100 even where it
# is a fraction already, and a temperature is taken for Fahrenheit from 79 on, whatever its unit says. No value is
# removed as an outlier.


# Texts that the benchmark's reader of CSV files took for missing. "None" is no such text: it is an eye opening.
MISSING_TEXTS = (
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "n/a",
    "nan",
    "null",
)

_PLAIN_NUMBER = r"regexp_full_match(value, '\d+(\.\d*)?|\.\d+')"
_TWO_NUMBERS = r"'^(\d+)/(\d+)$'"
_OUNCES = "(rule = 'weight_ounces' OR contains(unit, 'oz'))"
_POUNDS = "(rule = 'weight_pounds' OR contains(unit, 'lb'))"
_INCHES = "(rule = 'height_inches' OR contains(unit, 'in'))"

# Decimal literals would make DuckDB compute with decimals; e-notation keeps to doubles, as the benchmark does.
_KILOGRAMS = f"""
    (CASE WHEN {_OUNCES} THEN x / 16e0 ELSE x END) * (CASE WHEN {_OUNCES} OR {_POUNDS} THEN 453592e-6 ELSE 1e0 END)"""

# From the columns value, unit (lower case), rule and x (value as a number, or null).
NUMBER = f"""
    CASE
    WHEN rule = 'systolic' AND contains(value, '/') THEN TRY_CAST(regexp_extract(value, {_TWO_NUMBERS}, 1) AS DOUBLE)
    WHEN rule = 'diastolic' AND contains(value, '/') THEN TRY_CAST(regexp_extract(value, {_TWO_NUMBERS}, 2) AS DOUBLE)
    WHEN rule IN ('systolic', 'diastolic') THEN x
    WHEN rule = 'capillary_refill' THEN
        CASE WHEN value IN ('Normal <3 secs', 'Brisk') THEN 0e0
             WHEN value IN ('Abnormal >3 secs', 'Delayed') THEN 1e0 END
    WHEN rule = 'oxygen_fraction' THEN CASE WHEN contains(unit, 'torr') THEN x ELSE x / 100e0 END
    WHEN rule = 'number' THEN CASE WHEN {_PLAIN_NUMBER} THEN x END
    WHEN rule = 'saturation' THEN CASE WHEN {_PLAIN_NUMBER} THEN CASE WHEN x <= 1 THEN x * 100e0 ELSE x END END
    WHEN rule = 'temperature' THEN CASE WHEN x >= 79 THEN (x - 32e0) * 5e0 / 9e0 ELSE x END
    WHEN starts_with(rule, 'weight') THEN {_KILOGRAMS}
    WHEN starts_with(rule, 'height') THEN CASE WHEN {_INCHES} THEN round_even(x * 254e-2, 0) ELSE x END
    END"""

# Where a value that is no number is missing by the rule itself. Elsewhere the benchmark would stop; we count it.
_MAY_BE_NO_NUMBER = "rule IN ('text', 'number', 'saturation', 'capillary_refill')"

_FROM = """
    FROM (SELECT *, lower(coalesce(raw_unit, '')) AS unit,
              CASE WHEN isfinite(TRY_CAST(value AS DOUBLE)) THEN TRY_CAST(value AS DOUBLE) END AS x
          FROM {staged} JOIN items USING (item_id))"""


def cleaned(staged: str) -> str:
    """Build the query of cleaned events from a source with stay_id, subject_id, charttime, item_id, value, raw_unit."""
    return f"""
        SELECT stay_id, subject_id, charttime, variable, CASE WHEN rule = 'text' THEN value END AS text,
            {NUMBER} AS number, rule, {_MAY_BE_NO_NUMBER} AS may_be_no_number {_FROM.format(staged=staged)}"""
