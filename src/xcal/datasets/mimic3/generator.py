"""A folder of any size in the shape of MIMIC-III, from random numbers: for tests, and to measure how time grows.

No row comes from a patient. Files, columns and quirks are those of the real data: headers in upper case, texts in
quotes, "a/b" pressures, wrong and mixed units, events without an admission or a stay, events that name another stay,
transfers, admissions with several stays, children, ages of 300 years, deaths. What is drawn is written at once, some
subjects at a time, so that the size is limited by the disk only.
"""

import gzip
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import as_count, as_number, fail
from xcal._files import new_file
from xcal.datasets.mimic3.database import check_installed
from xcal.datasets.mimic3.generator_values import Pool, chart_pool, lab_pool, output_pool
from xcal.datasets.mimic3.reporting import Report, silent

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
