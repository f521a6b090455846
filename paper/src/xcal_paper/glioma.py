"""Glioma patients of The Cancer Genome Atlas (appendix, "Data Details for The Cancer Genome Atlas Glioma Data").

First just enough of R's .rda format to read the published file, then its forms, then the loader.
"""

import csv
import io
import lzma
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xcal._checks import BoolArray, as_count, fail
from xcal.data import SurvivalData
from xcal.datasets import DataFile, read_file
from xcal_paper.simulated import Array32, Array64, IntArray, SurvivalDataset

# Type codes of R's serialisation, format version 2 ("R Internals", section 1.8).
_SYMBOL, _PAIRLIST, _CHAR, _INT, _STRINGS, _LIST = 1, 2, 9, 13, 16, 19
_REFERENCE, _NIL = 255, 254
_HAS_ATTRIBUTES, _HAS_TAG = 1 << 9, 1 << 10


def read_string_frame(name: str, content: bytes) -> dict[str, list[str]]:
    """Read the columns of the first object, a data frame of strings; a missing value becomes an empty string."""
    try:
        raw = lzma.decompress(content)
    except (lzma.LZMAError, EOFError) as error:
        fail(name, "an R data file, xz-compressed", f"{len(content)} bytes that do not decompress ({error})")
    if raw[:7] != b"RDX2\nX\n":
        fail(name, "an R data file, xz-compressed, binary, version 2", f"one that begins with {raw[:7]!r}")
    try:
        # Three version numbers follow the seven bytes; the file is a list of name and value.
        _, value = _Reader(raw, 7 + 12).item()[0]
        columns, attributes = value
        return dict(zip(dict(attributes)["names"][0], (column for column, _ in columns), strict=True))
    # What a walk through other bytes ends in; lists within lists without end among it.
    except (struct.error, KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        fail(name, "an R data file with one data frame of strings", f"{type(error).__name__}: {error}")


class _Reader:
    """Walks through the bytes; vectors come as (values, attributes), pairlists as a list of (tag, value)."""

    def __init__(self, raw: bytes, at: int) -> None:
        self.raw = raw
        self.at = at
        self.symbols: list[str] = []
        self.kinds: dict[int, Callable[[int], Any]] = {
            _SYMBOL: self._symbol,
            _PAIRLIST: self._pairlist,
            _CHAR: self._char,
            _INT: self._ints,
            _STRINGS: self._strings,
            _LIST: self._list,
            _REFERENCE: lambda flags: self.symbols[(flags >> 8) - 1],
            _NIL: lambda flags: [],
        }

    def item(self) -> Any:
        flags = self._int()
        return self.kinds[flags & 255](flags)

    def _int(self) -> int:
        (value,) = struct.unpack_from(">i", self.raw, self.at)
        self.at += 4
        return int(value)

    def _symbol(self, flags: int) -> str:
        self.symbols.append(self.item())
        return self.symbols[-1]

    def _char(self, flags: int) -> str:
        length = max(self._int(), 0)  # -1 is R's NA
        self.at += length
        return self.raw[self.at - length : self.at].decode("utf-8", errors="replace")

    def _attributes(self, flags: int) -> list[tuple[str, Any]]:
        return self.item() if flags & _HAS_ATTRIBUTES else []

    def _ints(self, flags: int) -> tuple[list[int], Any]:
        values = [self._int() for _ in range(self._int())]
        return values, self._attributes(flags)

    def _strings(self, flags: int) -> tuple[list[str], Any]:
        # Six million of them, nearly all missing: one call for each would take most of the time.
        values, unpack, raw = [], struct.Struct(">ii").unpack_from, self.raw
        count = self._int()
        at = self.at
        for _ in range(count):
            _, length = unpack(raw, at)
            at += 8
            if length <= 0:
                values.append("")
            else:
                values.append(raw[at : at + length].decode("utf-8", errors="replace"))
                at += length
        self.at = at
        return values, self._attributes(flags)

    def _list(self, flags: int) -> tuple[list[Any], Any]:
        values = [self.item() for _ in range(self._int())]
        return values, self._attributes(flags)

    def _pairlist(self, flags: int) -> list[tuple[str, Any]]:
        pairs = []
        while flags & 255 == _PAIRLIST:
            if flags & _HAS_ATTRIBUTES:
                self.item()
            tag = self.item() if flags & _HAS_TAG else ""
            pairs.append((tag, self.item()))
            flags = self._int()
        return pairs


# ----------------------------------------------------------------------------------------------------------------------
# The glioma table from the forms that were filled in for each patient.
#
# The paper used Firehose's "Clinical Pick Tier 1" file, a choice of fields from the merged clinical forms (one at
# baseline, up to eight at follow-ups). The merged forms are what can still be fetched; this module picks the fields.


_FORMS = (
    "patient",
    "patient.follow_ups.follow_up",
    *(f"patient.follow_ups.follow_up-{i}" for i in range(2, 9)),
)
_DAYS_A_YEAR = 365.25

_BASELINE = {
    "bcr_patient_barcode": "patient.bcr_patient_barcode",
    "tumor_tissue_site": "patient.tumor_tissue_site",
    "gender": "patient.gender",
    "date_of_initial_pathologic_diagnosis": "patient.year_of_initial_pathologic_diagnosis",
    "histological_type": "patient.histological_type",
    "race": "patient.race_list.race",
    "ethnicity": "patient.ethnicity",
}

_FORM_FIELDS = (
    "vital_status",
    "days_to_death",
    "days_to_last_followup",
    "radiation_therapy",
    "karnofsky_performance_score",
    "year_of_form_completion",
    "month_of_form_completion",
    "day_of_form_completion",
)


def pick_fields(name: str, content: bytes) -> list[dict[str, str]]:
    """Read the merged forms and pick one value per field and patient, sorted by barcode; a missing one is empty."""
    columns = read_string_frame(name, content)
    wanted = [*_BASELINE.values(), "patient.days_to_birth"]
    wanted += [f"{form}.{field}" for form in _FORMS for field in _FORM_FIELDS if f"{form}.{field}" in columns]
    count = len(columns["patient.bcr_patient_barcode"])
    rows = ({key: columns[key][i] for key in wanted} for i in range(count))
    return sorted((_pick(row) for row in rows), key=lambda record: record["bcr_patient_barcode"])


def _pick(row: Mapping[str, str]) -> dict[str, str]:
    record = {field: row[column] for field, column in _BASELINE.items()}
    status = _values(row, "vital_status")
    # No patient is dead on one form and alive on a later one, so any "dead" is final.
    dead = "dead" in status
    record["vital_status"] = "1" if dead else "0" if "alive" in status else ""
    if dead:
        record["time"] = next(iter(_values(row, "days_to_death")), "")
    else:
        record["time"] = max(_values(row, "days_to_last_followup"), key=int, default="")
    born = row["patient.days_to_birth"]
    record["years_to_birth"] = str(int(-float(born) // _DAYS_A_YEAR)) if born else ""
    for field in ("radiation_therapy", "karnofsky_performance_score"):
        record[field] = _latest(row, field)
    return record


def _values(row: Mapping[str, str], field: str) -> list[str]:
    """List the field's values on the forms that have one, in the order of the forms."""
    return [value for form in _FORMS if (value := row.get(f"{form}.{field}", ""))]


def _latest(row: Mapping[str, str], field: str) -> str:
    """Return the field on the most recently completed form that has it; of two forms of one day, the later form."""
    dated = []
    for i, form in enumerate(_FORMS):
        if value := row.get(f"{form}.{field}", ""):
            parts = [row.get(f"{form}.{part}_of_form_completion", "") for part in ("year", "month", "day")]
            dated.append(([int(part) if part else 0 for part in parts], i, value))
    return max(dated)[2] if dated else ""


# ----------------------------------------------------------------------------------------------------------------------
# Glioma patients of The Cancer Genome Atlas (appendix, "Data Details for The Cancer Genome Atlas Glioma Data").


GLIOMA_PICKED = DataFile(
    "tcga_gbmlgg/gbmlgg_picked_like.csv",
    "f028a57768b6df0abd19f022cbe85702e48e951df386040435edd15fd2a80872",
    126166,
    origin="derived from the .rda file",
)
GLIOMA_MERGED = DataFile(
    "tcga_gbmlgg/GBMLGG.clinical.20160128.rda",
    "c3a1c692f44678f9853f64343cf479d567369518cbbc69ff057c90b1544f4904",
    1211024,
    (
        "https://raw.githubusercontent.com/RTCGA/RTCGA.clinical.20160128/6abf602ac532d835fde1660789e3c5b721f89e9d/"
        "data/GBMLGG.clinical.20160128.rda",
    ),
)

SIZES = (552, 276, 277)
LARGEST = 5.0
NUMERIC = ("years_to_birth", "date_of_initial_pathologic_diagnosis", "karnofsky_performance_score")
CATEGORICAL = ("tumor_tissue_site", "radiation_therapy", "histological_type", "gender", "race", "ethnicity")

Records = Sequence[Mapping[str, str]]


def usable(records: Records) -> list[Mapping[str, str]]:
    """Patients whose status is known and whose time is known and not negative."""
    return [row for row in records if row["vital_status"] and row["time"] and float(row["time"]) >= 0]


def encode(records: Records) -> tuple[tuple[str, ...], Array64]:
    """Turn records into named columns; a missing number is NaN.

    A category is one column a level, a missing value being a level of its own. A number is one column, and where some
    are missing, a second one says which.
    """
    columns: dict[str, list[float]] = {}
    for field in NUMERIC:
        texts = [row[field] for row in records]
        columns[field] = [float(text) if text else np.nan for text in texts]
        if not all(texts):
            columns[f"{field}=missing"] = [float(not text) for text in texts]
    for field in CATEGORICAL:
        texts = [row[field] or "missing" for row in records]
        for level in sorted(set(texts), key=lambda text: (text == "missing", text)):
            columns[f"{field}={level}"] = [float(text == level) for text in texts]
    return tuple(columns), np.array(list(columns.values()), dtype=np.float64).T


def standardise(values: Array64, train: IntArray) -> Array32:
    """Centre and scale each column by its training rows, then clamp to [-5, 5].

    A missing number (NaN) counts neither in the mean nor in the scale and becomes 0, the mean. A column that is
    constant among the training rows teaches nothing and is 0 in all rows.
    """
    known = values[train]
    centre, scale = np.nanmean(known, axis=0), np.nanstd(known, axis=0)
    constant = scale == 0
    scaled = (values - centre) / np.where(constant, 1.0, scale)
    scaled[np.isnan(scaled)] = 0.0
    scaled[:, constant] = 0.0
    clamped: Array32 = np.clip(scaled, -LARGEST, LARGEST).astype(np.float32)
    return clamped


def load_glioma(*, split_seed: int, data_dir: str | os.PathLike[str] | None = None) -> SurvivalDataset:
    """Read the glioma patients and split them 552 / 276 / 277.

    1105 patients, of whom 490 are censored; time in days until death. Patients without a known status and time, and
    one whose time is negative, are left out; three patients with time 0, all censored, are kept.

    Parameters
    ----------
    split_seed : int
        Decides the split, a plain random one. The paper's own split is not published; 277 test rows move its values.
    data_dir : path, optional
        Folder that holds ``tcga_gbmlgg/``; see :func:`data_directory`.

    Returns
    -------
    SurvivalDataset
        26 features: age (`years_to_birth`), year of diagnosis and Karnofsky score as numbers; tumour site, radiation
        therapy, histological type, gender, race and ethnicity as one column a level; a missing value is a level of
        its own. All are standardised by the training rows and clamped to [-5, 5].
    """
    rng = np.random.default_rng(as_count("split_seed", split_seed, at_least=0))
    found, content = read_file(GLIOMA_PICKED, GLIOMA_MERGED, data_dir=data_dir)
    if found is GLIOMA_PICKED:
        records: Records = list(csv.DictReader(io.StringIO(content.decode("utf-8"))))
    else:
        records = pick_fields(found.path, content)
    records = usable(records)
    if len(records) != sum(SIZES):
        fail(found.path, f"{sum(SIZES)} patients with status and time", len(records))
    names, values = encode(records)
    time = np.array([float(row["time"]) for row in records])
    event: BoolArray = np.array([row["vital_status"] == "1" for row in records])

    train, validation, test = np.split(rng.permutation(len(records)), np.cumsum(SIZES)[:-1])
    x = standardise(values, train)
    data = SurvivalData(x, time, event, feature_names=names, time_unit="days", name="glioma")
    return SurvivalDataset("glioma", *(data[rows] for rows in (train, validation, test)))
