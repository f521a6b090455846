"""METABRIC and SUPPORT, as the DeepSurv repository publishes them."""

import csv
import io
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import fail
from xcal.data import SurvivalData
from xcal.datasets.files import METABRIC_CSV, METABRIC_H5, SUPPORT_CSV, SUPPORT_H5, DataFile, optional_module, read_file

_UNITS = {"METABRIC": "months", "SUPPORT": "days"}


def parse_table(name: str, content: bytes) -> SurvivalData:
    """Read the CSV form: columns x0, x1, ..., time, event, split (the last is not used)."""
    try:
        header, *rows = csv.reader(io.StringIO(content.decode("utf-8")))
        features = tuple(header[: header.index("time")])
        values = np.array([row[: len(features) + 2] for row in rows], dtype=np.float64)
        return _table(name, features, values[:, :-2], values[:, -2], values[:, -1])
    # Text that is not UTF-8, no column of times, rows of different lengths, words among the numbers.
    except (ValueError, IndexError, csv.Error) as error:
        fail(name, "a CSV file with columns x0, x1, ..., time, event", f"one that cannot be read ({error})")


def parse_hdf5(name: str, content: bytes) -> SurvivalData:
    """Read the published form: groups train and test, each with x, t and e. The rows of train come first."""
    h5py = optional_module("h5py")
    if h5py is None:
        fail("data_dir", f"the package h5py, to read the HDF5 file of {name}", "none installed")
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            x, time, event = (np.concatenate([file[part][key][:] for part in ("train", "test")]) for key in "xte")
        return _table(name, tuple(f"x{i}" for i in range(x.shape[1])), x, time, event)
    # What h5py raises for a damaged file is of many kinds.
    except Exception as error:
        fail(name, "an HDF5 file with groups train and test of x, t and e", f"one that cannot be read ({error})")


def _table(
    name: str, features: tuple[str, ...], x: npt.NDArray[Any], time: npt.NDArray[Any], event: npt.NDArray[Any]
) -> SurvivalData:
    # The published numbers are float32; through float32 both forms give the same bits.
    observed = time.astype(np.float32).astype(np.float64)
    return SurvivalData(
        x.astype(np.float32), observed, event, feature_names=features, time_unit=_UNITS[name], name=name
    )


def _load(name: str, csv_file: DataFile, h5_file: DataFile, data_dir: str | os.PathLike[str] | None) -> SurvivalData:
    found, content = read_file(csv_file, h5_file, data_dir=data_dir)
    return parse_table(name, content) if found is csv_file else parse_hdf5(name, content)


def load_metabric(data_dir: str | os.PathLike[str] | None = None) -> SurvivalData:
    """Read METABRIC: 1904 breast cancer patients, 9 features, 801 censored, time in months.

    Parameters
    ----------
    data_dir : path, optional
        Folder that holds ``benchmarks/``; see :func:`data_directory`.

    Returns
    -------
    SurvivalData
        Features as published: neither standardised nor named (x0 to x8). One patient has time 0.
    """
    return _load("METABRIC", METABRIC_CSV, METABRIC_H5, data_dir)


def load_support(data_dir: str | os.PathLike[str] | None = None) -> SurvivalData:
    """Read SUPPORT: 8873 seriously ill patients in hospital, 14 features, 2837 censored, time in days.

    Parameters
    ----------
    data_dir : path, optional
        Folder that holds ``benchmarks/``; see :func:`data_directory`.

    Returns
    -------
    SurvivalData
        Features as published: neither standardised nor named (x0 to x13).
    """
    return _load("SUPPORT", SUPPORT_CSV, SUPPORT_H5, data_dir)
