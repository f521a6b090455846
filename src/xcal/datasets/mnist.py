"""Survival MNIST: times simulated from the digit of each MNIST image (appendix, "Data Details for MNIST")."""

import gzip
import math
import os
import zlib

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, fail
from xcal.data import SurvivalData
from xcal.data._arguments import check_flag, check_seed
from xcal.datasets.files import MNIST, DataFile, read_file
from xcal.datasets.gamma import gamma_times
from xcal.datasets.rows import Array64, SurvivalDataset

RISKS = (11.25, 2.25, 5.25, 5.0, 4.75, 8.0, 2.0, 11.0, 1.75, 10.75)
"""Mean time of the digits 0 to 9. The paper calls it a risk score, though a higher one means a later event."""

CENSORING_QUANTILE = 0.9


def parse_idx(name: str, content: bytes, n_dims: int) -> npt.NDArray[np.uint8]:
    """Read a gzipped IDX file of unsigned bytes: two zeros, type 8, the number of axes, their sizes, the values."""
    try:
        raw = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        fail(name, "a whole gzip file", f"{len(content)} bytes that do not decompress ({error})")
    header = 4 + 4 * n_dims
    if len(raw) < header or raw[:4] != bytes([0, 0, 8, n_dims]):
        fail(name, f"an IDX file of unsigned bytes with {n_dims} axes", f"a file that begins with {raw[:4]!r}")
    shape = tuple(int(size) for size in np.frombuffer(raw, dtype=">u4", count=n_dims, offset=4))
    if len(raw) != header + math.prod(shape):
        fail(name, f"{math.prod(shape)} values, as its header says ({shape})", f"{len(raw) - header}")
    return np.frombuffer(raw, dtype=np.uint8, offset=header).reshape(shape)


def _images_and_labels(
    image_file: DataFile, label_file: DataFile, data_dir: str | os.PathLike[str] | None
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    images = parse_idx(image_file.path, read_file(image_file, data_dir=data_dir)[1], 3)
    labels = parse_idx(label_file.path, read_file(label_file, data_dir=data_dir)[1], 1)
    return images, labels.astype(np.int64)


def _censor(rng: np.random.Generator, time: Array64) -> tuple[Array64, BoolArray]:
    """Censor uniformly between the split's first failure and its 90th percentile."""
    censoring = rng.uniform(time.min(), np.quantile(time, CENSORING_QUANTILE), size=len(time))
    return np.minimum(time, censoring), time <= censoring


def simulate_split(
    images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], seed: np.random.SeedSequence, *, censored: bool
) -> SurvivalData:
    """Draw times for the images of one split."""
    failures, censorings = (np.random.default_rng(child) for child in seed.spawn(2))
    mean = np.asarray(RISKS)[labels]
    time = gamma_times(failures, mean)
    event: BoolArray = np.ones(len(time), dtype=np.bool_)
    if censored:
        time, event = _censor(censorings, time)
    x = images[:, None].astype(np.float32)
    x /= 255
    return SurvivalData(x, time, event, groups=labels, extra={"mean": mean}, name="survival MNIST")


def load_survival_mnist(
    *, censored: bool, seed: int, data_dir: str | os.PathLike[str] | None = None
) -> SurvivalDataset:
    """Read the MNIST images and simulate a time for each from its digit.

    The time of an image is gamma with variance 1e-3 and the mean that the paper's table gives its digit (11.25, 2.25,
    5.25, 5, 4.75, 8, 2, 11, 1.75, 10.75 for 0 to 9). Censoring times are uniform, in each split between its first
    failure time and the 90th percentile of its failure times; about 47 % of the rows are censored.

    Parameters
    ----------
    censored : bool
        False leaves every row an event; images and failure times are the same as with True.
    seed : int
        Decides the times, and which half of the 10,000 test images is validation. The halves are drawn at random
        because the first 5,000 test images are known to be easier than the last.
    data_dir : path, optional
        Folder that holds ``mnist/``; see :func:`data_directory`.

    Returns
    -------
    SurvivalDataset
        60,000 / 5,000 / 5,000 rows. ``x`` has shape (n, 1, 28, 28), float32 in [0, 1] (the byte over 255, not
        standardised); ``groups`` is the digit, which a model must not see, and ``extra["mean"]`` the true mean time.
    """
    check_flag("censored", censored)
    split_seed, *time_seeds = np.random.SeedSequence(check_seed("seed", seed)).spawn(4)
    train_images, train_labels = _images_and_labels(MNIST["train-images"], MNIST["train-labels"], data_dir)
    other_images, other_labels = _images_and_labels(MNIST["t10k-images"], MNIST["t10k-labels"], data_dir)
    order = np.random.default_rng(split_seed).permutation(len(other_labels))
    half = len(order) // 2
    chosen = [
        (train_images, train_labels),
        *((other_images[rows], other_labels[rows]) for rows in (order[:half], order[half:])),
    ]
    train, validation, test = (
        simulate_split(images, labels, child, censored=censored)
        for (images, labels), child in zip(chosen, time_seeds, strict=True)
    )
    name = f"survival MNIST, {'censored' if censored else 'uncensored'}"
    return SurvivalDataset(name, train, validation, test)
