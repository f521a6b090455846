"""Two well-known benchmark tables, as `xcal.data.SurvivalData`. The data of the paper are in the package xcal_paper.

Loaders read files from a data directory: the argument `data_dir`, else the environment variable ``XCAL_DATA``, else a
cache folder of the user. Importing this package reads no file.
"""

import csv
import hashlib
import io
import os
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import fail
from xcal._files import cache_folder
from xcal.data import SurvivalData

__all__ = [
    "data_directory",
    "load_metabric",
    "load_support",
]


# --- Where data files lie, which ones are the right ones, and how an absent one is fetched.


@dataclass(frozen=True)
class DataFile:
    """One file that a loader reads."""

    path: str  # place inside the data directory
    sha256: str
    size: int | None  # bytes, where known
    # Public addresses of exactly this file, the preferred one first; empty when there is none
    urls: tuple[str, ...] = ()
    origin: str = ""  # what a file without a public address is made from, for the reader of an error message
    needs: tuple[str, ...] = ()  # packages without which it cannot be read

    @property
    def described(self) -> str:
        """Size and checksum, as an error message says them."""
        return f"sha256 {self.sha256}" if self.size is None else f"{self.size} bytes, sha256 {self.sha256}"


_DEEPSURV = (
    "https://raw.githubusercontent.com/jaredleekatzman/DeepSurv/41eed003e5b892c81e7855e400861fa7a2d9da4f/"
    "experiments/data/"
)


def _deepsurv(folder: str, name: str, sha256: str) -> DataFile:
    return DataFile(f"benchmarks/{name}", sha256, None, (f"{_DEEPSURV}{folder}/{name}",), needs=("h5py",))


METABRIC_CSV = DataFile(
    "benchmarks/metabric_deepsurv.csv",
    "14432981467be459fcd1a8b7480247642b153b5bf786d1d683ac2d291f253019",
    153484,
    origin="a CSV form of the .h5 file",
)

METABRIC_H5 = _deepsurv(
    "metabric",
    "metabric_IHC4_clinical_train_test.h5",
    "e959131973c906c7e8b1e662c81160914768156a6da145a9bfed9b9ee8bf3e72",
)

SUPPORT_CSV = DataFile(
    "benchmarks/support_deepsurv.csv",
    "711d3747f8d234936d4c1211c9a71568e9bd6d0114d78931015897695dffc0b4",
    677937,
    origin="a CSV form of the .h5 file",
)

SUPPORT_H5 = _deepsurv(
    "support", "support_train_test.h5", "e398f49930e4efc4ecd675a72ac547f0d1ae25ccf13f6a1024cded12ea88a83e"
)


def data_directory(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder in which data files are looked for.

    Parameters
    ----------
    data_dir : path, optional
        Used as it is when given. Else the environment variable ``XCAL_DATA``, when set and not empty. Else ``xcal`` in
        the user's cache folder: ``$XDG_CACHE_HOME`` or ``~/.cache``; ``~/Library/Caches`` on macOS; ``%LOCALAPPDATA%``
        on Windows.

    Returns
    -------
    pathlib.Path
        The folder, which need not exist.

    Examples
    --------
    >>> data_directory("somewhere").name
    'somewhere'
    """
    if data_dir is not None:
        if not isinstance(data_dir, str | os.PathLike):
            fail("data_dir", "a path", repr(data_dir))
        return Path(data_dir).expanduser()
    if chosen := os.environ.get("XCAL_DATA"):
        return Path(chosen).expanduser()
    return cache_folder()


def read_file(*files: DataFile, data_dir: str | os.PathLike[str] | None = None) -> tuple[DataFile, bytes]:
    """Read the first of `files` that is there, or fetch one; the content is checked either way.

    Parameters
    ----------
    *files : DataFile
        Forms of the same data, any of which will do. One that is present but wrong is an error, not a reason to look
        at the next.
    data_dir : path, optional
        See `data_directory`.

    Returns
    -------
    file : DataFile
        The one that was read.
    content : bytes

    Raises
    ------
    ValueError
        A file is wrong, truncated or unreadable; or none is there and none could be fetched.
    """
    root = data_directory(data_dir)
    for file in files:
        path = root / file.path
        try:
            if not path.exists():
                continue
            content = path.read_bytes()
        except OSError as error:
            fail("data_dir", f"a readable file {path}", _reason(error))
        _check_content(file, content, str(path))
        return file, content
    return _fetch(files, root)


def _check_content(file: DataFile, content: bytes, place: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        cut = "truncated" if file.size is not None and len(content) < file.size else "wrong"
        where = f"; the right one: {file.urls[0]}" if file.urls else ""
        fail(
            "data_dir",
            f"{place} with {file.described}",
            f"a {cut} file with {len(content)} bytes, sha256 {found} (left as it is{where})",
        )


def _fetch(files: tuple[DataFile, ...], root: Path) -> tuple[DataFile, bytes]:
    """Download the first file with a public address, into its place in `root`."""
    pooch = optional_module("pooch")
    fetchable = [file for file in files if file.urls]
    readable = [file for file in fetchable if all(optional_module(package) for package in file.needs)]
    if pooch is None:
        problem = "the package pooch, which would fetch it, is not installed"
    elif not readable:
        problem = f"reading what could be fetched needs {', '.join(fetchable[0].needs)}"
    else:
        content, problem = _download(pooch, readable[0], root / readable[0].path)
        if content is not None:
            return readable[0], content
    fail("data_dir", _wanted(files, root), f"no such file, and {problem}")


def _wanted(files: tuple[DataFile, ...], root: Path) -> str:
    """Each acceptable file with its full path and its source."""
    wanted = []
    for file in files:
        needs = f", readable with {' and '.join(file.needs)}" if file.needs else ""
        source = f"from {file.urls[0]}" if file.urls else file.origin
        wanted.append(f"{root / file.path} ({source}{needs})")
    return f"the file {' or '.join(wanted)}"


def _download(pooch: Any, file: DataFile, path: Path) -> tuple[bytes | None, str]:
    """Try each address in turn; return the content, or None and why each address failed.

    The file is fetched into a folder of its own beside `path`, checked, then moved: it appears whole or not at all.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=".fetching-", dir=path.parent)
    except OSError as error:
        fail("data_dir", f"a folder that can be written, to keep {path}", _reason(error))
    failures = []
    with scratch as folder:
        for url in file.urls:
            try:
                got = Path(pooch.retrieve(url, known_hash=f"sha256:{file.sha256}", fname=path.name, path=folder))
                content = got.read_bytes()
                _check_content(file, content, url)
                # A copy of our own: pooch's file can be read by its owner only, whatever the umask says.
                whole = Path(folder) / "whole"
                whole.write_bytes(content)
                os.replace(whole, path)
            # What requests raises for the network is an OSError; pooch says ValueError to a wrong checksum.
            except (OSError, ValueError) as error:
                failures.append(f"{url}: {_reason(error)}")
            else:
                return content, ""
    return None, f"fetching it failed ({'; '.join(failures)})"


def optional_module(package: str) -> Any:
    """Return the module, or None where it is not installed."""
    try:
        return import_module(package)
    except ImportError:
        return None


def _reason(error: Exception) -> str:
    """Return an exception as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


# --- METABRIC and SUPPORT, as the DeepSurv repository publishes them.

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
