"""Glioma patients of The Cancer Genome Atlas (appendix, "Data Details for The Cancer Genome Atlas Glioma Data")."""

import csv
import io
import os
from collections.abc import Mapping, Sequence

import numpy as np

from xcal._checks import BoolArray, fail
from xcal.data import SurvivalData
from xcal.data._arguments import check_seed
from xcal.datasets.files import GLIOMA_MERGED, GLIOMA_PICKED, read_file
from xcal.datasets.glioma_forms import pick_fields
from xcal.datasets.rows import Array32, Array64, IntArray, SurvivalDataset

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
    rng = np.random.default_rng(check_seed("split_seed", split_seed))
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
