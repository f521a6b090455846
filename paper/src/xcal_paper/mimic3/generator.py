"""A folder of any size in the shape of MIMIC-III, from random numbers: for tests, and to measure how time grows.

No row comes from a patient. Files, columns and quirks are those of the real data: headers in upper case, texts in
quotes, "a/b" pressures, wrong and mixed units, events without an admission or a stay, events that name another stay,
transfers, admissions with several stays, children, ages of 300 years, deaths. What is drawn is written at once, some
subjects at a time, so that the size is limited by the disk only.
"""

import gzip
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import as_count, as_number, fail
from xcal._files import new_file
from xcal_paper.mimic3.files import Report, check_installed, silent
from xcal_paper.mimic3.variable_list import categories, items, text_variables, variables

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


# ----------------------------------------------------------------------------------------------------------------------
# A folder of any size in the shape of MIMIC-III, from random numbers: for tests, and to measure how time grows.
#
# No row comes from a patient. Files, columns and quirks are those of the real data: headers in upper case, texts in
# quotes, "a/b" pressures, wrong and mixed units, events without an admission or a stay, events that name another stay,
# transfers, admissions with several stays, children, ages of 300 years, deaths. What is drawn is written at once, some
# subjects at a time, so that the size is limited by the disk only.


# Of the demo: subjects, and events per hour of a stay.
_SUBJECTS = 100
_PER_HOUR = {"CHARTEVENTS": 52.0, "LABEVENTS": 5.2, "OUTPUTEVENTS": 0.8}
_SUBJECTS_TOGETHER = 50
_DAY = 86_400
_START = 4_200_000_000  # seconds since 1970: the year 2103; MIMIC-III moves all dates into that century

_NUMBER, _DATE, _TEXT, _REAL = "number", "date", "text", "real"
_EVENT = {
    "ROW_ID": _NUMBER,
    "SUBJECT_ID": _NUMBER,
    "HADM_ID": _NUMBER,
    "ICUSTAY_ID": _NUMBER,
    "ITEMID": _NUMBER,
    "CHARTTIME": _DATE,
    "VALUE": _TEXT,
    "VALUEUOM": _TEXT,
}
_COLUMNS = {
    "ICUSTAYS": {
        "ROW_ID": _NUMBER,
        "SUBJECT_ID": _NUMBER,
        "HADM_ID": _NUMBER,
        "ICUSTAY_ID": _NUMBER,
        "DBSOURCE": _TEXT,
        "FIRST_CAREUNIT": _TEXT,
        "LAST_CAREUNIT": _TEXT,
        "FIRST_WARDID": _NUMBER,
        "LAST_WARDID": _NUMBER,
        "INTIME": _DATE,
        "OUTTIME": _DATE,
        "LOS": _REAL,
    },
    "ADMISSIONS": {"ROW_ID": _NUMBER, "SUBJECT_ID": _NUMBER, "HADM_ID": _NUMBER, "DEATHTIME": _DATE},
    "PATIENTS": {"ROW_ID": _NUMBER, "SUBJECT_ID": _NUMBER, "GENDER": _TEXT, "DOB": _DATE, "DOD": _DATE},
    "CHARTEVENTS": _EVENT | {"WARNING": _NUMBER, "ERROR": _NUMBER},
    "LABEVENTS": {name: type_ for name, type_ in _EVENT.items() if name != "ICUSTAY_ID"} | {"FLAG": _TEXT},
    "OUTPUTEVENTS": _EVENT,
}
_POOLS = {"CHARTEVENTS": chart_pool, "LABEVENTS": lab_pool, "OUTPUTEVENTS": output_pool}

Columns = dict[str, Any]


def generate(folder: str | Path, scale: float = 1.0, seed: int = 0, *, report: Report = silent) -> dict[str, int]:
    """Write a folder of made-up files in the shape of MIMIC-III.

    Parameters
    ----------
    folder
        New or empty folder.
    scale
        Size in units of the open demo, which has 100 subjects and about 760,000 chart events.
    seed
        Other numbers for another seed.
    report
        Called now and then with what is being done, how much is done and how much there is.

    Returns
    -------
    dict
        Number of rows of each table.
    """
    check_installed()
    target = Path(folder)
    subjects = max(1, round(_SUBJECTS * as_number("scale", scale, above=0)))
    as_count("seed", seed, at_least=0)
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        fail("folder", "a new or empty folder", f"{target}, which holds files")
    rows = dict.fromkeys(_COLUMNS, 0)
    with ExitStack() as stack:
        writers = {table: stack.enter_context(_writer(target, table)) for table in _COLUMNS}
        for start in range(0, subjects, _SUBJECTS_TOGETHER):
            number = min(_SUBJECTS_TOGETHER, subjects - start)
            rng = np.random.default_rng([seed, start])
            for table, columns in _tables(rng, start, number):
                size = len(next(iter(columns.values())))
                columns["ROW_ID"] = np.arange(rows[table], rows[table] + size) + 1
                writers[table].write_batch(_batch(table, columns))
                rows[table] += size
            report("subjects", start + number, subjects)
    return rows


@contextmanager
def _writer(folder: Path, table: str) -> Iterator[Any]:
    pa: Any = import_module("pyarrow")
    csv: Any = import_module("pyarrow.csv")
    with (
        new_file(folder / f"{table}.csv.gz") as part,
        # The fastest level: what is drawn compresses little better at others. No time in the header, so that the same
        # seed gives the same bytes.
        part.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as stream,
        pa.PythonFile(stream, "w") as sink,
        csv.CSVWriter(sink, _schema(table)) as writer,
    ):
        yield writer


def _schema(table: str) -> Any:
    pa: Any = import_module("pyarrow")
    types = {_NUMBER: pa.int64(), _DATE: pa.timestamp("s"), _TEXT: pa.string(), _REAL: pa.float64()}
    return pa.schema([(name, types[type_]) for name, type_ in _COLUMNS[table].items()])


def _batch(table: str, columns: Columns) -> Any:
    pa: Any = import_module("pyarrow")
    arrays = []
    for name, type_ in _COLUMNS[table].items():
        values = columns[name]
        if type_ == _DATE:
            values = values.astype("datetime64[s]")
        # Numbers below zero (and the dates before 1000) stand for what is missing.
        missing = None if type_ in (_TEXT, _REAL) else np.asarray(columns[name] == _MISSING)
        arrays.append(pa.array(values, mask=missing) if missing is not None else pa.array(values, from_pandas=True))
    schema = _schema(table)
    return pa.RecordBatch.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema
    )


_MISSING = np.iinfo(np.int64).min


@dataclass(frozen=True)
class _Stays:
    """Stays of some subjects, one entry for each; dates are seconds."""

    subject: npt.NDArray[np.int64]
    admission: npt.NDArray[np.int64]
    stay: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.int64]


def _tables(rng: np.random.Generator, first: int, number: int) -> Iterator[tuple[str, Columns]]:
    """Draw some subjects with all their rows."""
    subject = 10_000 + first + np.arange(number)
    stays = _draw_stays(rng, subject)
    n = len(stays.stay)
    transferred = rng.random(n) < 0.07
    ward = rng.integers(7, 58, n)
    end = stays.begin + stays.seconds
    open_end = rng.random(n) < 0.002
    yield (
        "ICUSTAYS",
        {
            "SUBJECT_ID": stays.subject,
            "HADM_ID": stays.admission,
            "ICUSTAY_ID": stays.stay,
            "DBSOURCE": rng.choice(["carevue", "metavision"], n),
            "FIRST_CAREUNIT": np.full(n, "MICU"),
            "LAST_CAREUNIT": np.where(transferred & (ward % 2 == 0), "CCU", "MICU"),
            "FIRST_WARDID": ward,
            "LAST_WARDID": ward + transferred,
            "INTIME": stays.begin,
            "OUTTIME": np.where(open_end, _MISSING, end),
            "LOS": np.where(open_end, np.nan, np.round(stays.seconds / _DAY, 4)),
        },
    )
    death = np.where(rng.random(n) < 0.12, end - rng.integers(0, 3 * 3600, n), _MISSING)
    admission, last = np.unique(stays.admission, return_index=True)
    yield (
        "ADMISSIONS",
        {"SUBJECT_ID": stays.subject[last], "HADM_ID": admission, "DEATHTIME": death[last]},
    )
    yield "PATIENTS", _patients(rng, subject, stays, death)
    for table in _PER_HOUR:
        yield table, _events(rng, table, stays)


def _draw_stays(rng: np.random.Generator, subject: npt.NDArray[np.int64]) -> _Stays:
    """Draw admissions of the subjects (1.3 on average) and stays of the admissions (1.05)."""
    admissions_of = 1 + rng.poisson(0.29, len(subject))
    owner = np.repeat(subject, admissions_of)
    admission = 100_000 + 20 * (owner - 10_000) + np.concatenate([np.arange(k) for k in admissions_of])
    admitted = _START + rng.integers(0, 90 * 365 * _DAY // 60, len(owner)) * 60
    stays_of = 1 + (rng.random(len(owner)) < 0.055)
    row = np.repeat(np.arange(len(owner)), stays_of)
    order = np.concatenate([np.arange(k) for k in stays_of])
    # Median 2.6 days and mean 4.4, as in the demo; a second stay begins when a long first one is over.
    seconds = np.minimum(rng.lognormal(np.log(2.6 * _DAY), 1.02, len(row)), 60 * _DAY).astype(np.int64)
    begin = admitted[row] + order * 65 * _DAY + rng.integers(0, 7200, len(row))
    return _Stays(owner[row], admission[row], 200_000 + 2 * (admission[row] - 100_000) + order, begin, seconds)


def _patients(
    rng: np.random.Generator, subject: npt.NDArray[np.int64], stays: _Stays, death: npt.NDArray[np.int64]
) -> Columns:
    born_before = np.searchsorted(stays.subject, subject)
    years = rng.integers(19, 89, len(subject))
    odd = rng.random(len(subject))
    years = np.where(odd < 0.02, 300, np.where(odd > 0.98, 4, years))
    latest = np.full(len(subject), _MISSING)
    np.maximum.at(latest, np.searchsorted(subject, stays.subject), death)
    day = np.where(latest == _MISSING, _MISSING, latest // _DAY * _DAY)
    birth = (stays.begin[born_before] - years * 365 * _DAY) // _DAY * _DAY
    return {
        "SUBJECT_ID": subject,
        "GENDER": rng.choice(["F", "M"], len(subject)),
        "DOB": birth,
        "DOD": day,
    }


def _events(rng: np.random.Generator, table: str, stays: _Stays) -> Columns:
    """Draw events of one table, in random order as in the real files, at full hours more often than between them."""
    number = rng.poisson(_PER_HOUR[table] * stays.seconds / 3600)
    row = np.repeat(np.arange(len(number)), number)
    rng.shuffle(row)
    n = len(row)
    # From two hours before the stay to two hours after it.
    offset = (rng.random(n) * (stays.seconds[row] + 4 * 3600)).astype(np.int64) - 2 * 3600
    step = np.where(rng.random(n) < 0.7, 3600, 60)
    pool: Pool = _POOLS[table]()
    drawn = rng.choice(len(pool.item), n, p=np.asarray(pool.probability))
    odd = rng.random(n)
    stay = np.where(odd < 0.002, stays.stay[row] + 7, np.where(odd < 0.01, _MISSING, stays.stay[row]))
    # A tenth belongs to admissions that have no stay; of laboratory values many name none.
    without = 0.17 if table == "LABEVENTS" else 0.0
    odd = rng.random(n)
    admission = np.where(odd < 0.1, stays.admission[row] + 10, stays.admission[row])
    return {
        "SUBJECT_ID": stays.subject[row],
        "HADM_ID": np.where(odd > 1 - without, _MISSING, admission),
        "ICUSTAY_ID": stay,
        "ITEMID": np.asarray(pool.item)[drawn],
        "CHARTTIME": (stays.begin[row] + offset) // step * step,
        "VALUE": np.asarray(pool.text, object)[drawn],
        "VALUEUOM": np.asarray(pool.unit, object)[drawn],
        "WARNING": np.zeros(n, np.int64),
        "ERROR": np.zeros(n, np.int64),
        "FLAG": np.full(n, None),
    }
