"""Simulated times: the paper's gamma data and survival MNIST, and what the loaders of this package return."""

import gzip
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, as_count, as_flag, fail
from xcal.data import SurvivalData
from xcal.datasets import DataFile, read_file

IntArray = npt.NDArray[np.int64]
Array32 = npt.NDArray[np.float32]
Array64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalDataset:
    """A data set that comes in three splits.

    Beside `SurvivalData`, because the splits belong to the data set: others have published results on them.

    Attributes
    ----------
    name : str
    train, validation, test : SurvivalData

    Examples
    --------
    >>> from xcal_paper import load_gamma
    >>> data = load_gamma(censored=False, n=(60, 30, 30), seed=0)
    >>> data
    SurvivalDataset(gamma, uncensored: train 60 rows, validation 30, test 30; 32 features; 0 censored)
    >>> data.train.x.shape, data.train.time.shape, data.train.event.dtype
    ((60, 32), (60,), dtype('bool'))
    """

    name: str
    train: SurvivalData
    validation: SurvivalData
    test: SurvivalData

    @property
    def splits(self) -> dict[str, SurvivalData]:
        """The three splits by name, in the order train, validation, test."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name for each column of `x`; empty for images."""
        return tuple(self.train.feature_names)

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in self.train.x.shape[1:])
        censored = sum(int(np.sum(~split.event)) for split in self.splits.values())
        sizes = f"train {len(self.train)} rows, validation {len(self.validation)}, test {len(self.test)}"
        return f"SurvivalDataset({self.name}: {sizes}; {shape} features; {censored} censored)"


# ----------------------------------------------------------------------------------------------------------------------
# The simulated gamma data of the paper (appendix, "Data Details for Simulation Study").


VARIANCE = 1e-3
"""Variance of each row's failure time, whatever its mean (also in survival MNIST)."""

N_FEATURES = 32
FEATURE_VARIANCE = 10.0
WEIGHT_BOUND = 0.1

# A mean of .01 has a gamma shape of .1, whose draws can be too small for float32. They become the smallest normal
# float32, so that a time is positive in either precision.
SMALLEST_TIME = float(np.finfo(np.float32).tiny)


def gamma_times(rng: np.random.Generator, mean: Array64) -> Array64:
    """One draw a row of a gamma with the given mean and variance 1e-3 (shape mean²/v, scale v/mean)."""
    return np.maximum(rng.gamma(shape=mean**2 / VARIANCE, scale=VARIANCE / mean), SMALLEST_TIME)


def load_gamma(
    *, censored: bool, n: Sequence[int] = (100_000, 50_000, 50_000), seed: int, bias: bool = False
) -> SurvivalDataset:
    r"""Simulate gamma failure times whose log-mean is linear in 32 normal features.

    .. math:: x_i \sim N(0, 10 I_{32}), \quad w_d \sim U(-0.1, 0.1), \quad \mu_i = \exp(w^\top x_i), \quad
        t_i \sim \mathrm{Gamma}(\text{mean } \mu_i, \text{variance } 10^{-3})

    Censoring times are drawn likewise with other weights, so failure and censoring are independent given the features;
    about half of the rows are censored.

    Parameters
    ----------
    censored : bool
        False discards the censoring times: every row is an event. Features, weights and failure times are the same as
        with True.
    n : three ints
        Rows of train, validation and test.
    seed : int
        The same seed gives the same data. The three splits share the weights and nothing else: each has its own
        random stream, so that changing the size of one leaves the others as they are.
    bias : bool
        True adds a constant, drawn from U(-0.1, 0.1), to each linear function, as the published code does (its
        failure and its censoring times each have one). The paper's text has none.

    Returns
    -------
    SurvivalDataset
        With the true mean of each row's failure time in ``extra["mean"]``.

    Examples
    --------
    >>> data = load_gamma(censored=True, n=(1000, 500, 500), seed=0)
    >>> bool((data.train.time > 0).all()), bool(0.4 < data.train.event.mean() < 0.6)
    (True, True)
    """
    as_flag("censored", censored)
    as_flag("bias", bias)
    if isinstance(n, str) or not isinstance(n, Sequence) or len(n) != 3:
        fail("n", "three numbers of rows: train, validation, test", repr(n))
    sizes = [as_count(f"n[{i}]", size, at_least=1) for i, size in enumerate(n)]
    weight_seed, *split_seeds = np.random.SeedSequence(as_count("seed", seed, at_least=0)).spawn(4)

    rng = np.random.default_rng(weight_seed)
    failure_weights, censoring_weights = rng.uniform(-WEIGHT_BOUND, WEIGHT_BOUND, size=(2, N_FEATURES))
    # Drawn last, so that the weights do not depend on the option.
    failure_bias, censoring_bias = rng.uniform(-WEIGHT_BOUND, WEIGHT_BOUND, size=2) if bias else (0.0, 0.0)

    names = tuple(f"x{i}" for i in range(N_FEATURES))
    name = f"gamma, {'censored' if censored else 'uncensored'}{', with bias' if bias else ''}"

    def draw(size: int, split_seed: np.random.SeedSequence) -> SurvivalData:
        features, failures, censorings = (np.random.default_rng(child) for child in split_seed.spawn(3))
        x = features.normal(scale=np.sqrt(FEATURE_VARIANCE), size=(size, N_FEATURES)).astype(np.float32)
        # From the features as stored, so that `mean` is exact for them.
        mean = np.exp(x.astype(np.float64) @ failure_weights + failure_bias)
        time = gamma_times(failures, mean)
        event = np.ones(size, dtype=np.bool_)
        if censored:
            censoring = gamma_times(censorings, np.exp(x.astype(np.float64) @ censoring_weights + censoring_bias))
            event = time <= censoring
            time = np.minimum(time, censoring)
        return SurvivalData(x, time, event, extra={"mean": mean}, feature_names=names, name=name)

    return SurvivalDataset(name, *(draw(size, child) for size, child in zip(sizes, split_seeds, strict=True)))


# ----------------------------------------------------------------------------------------------------------------------
# Survival MNIST: times simulated from the digit of each MNIST image (appendix, "Data Details for MNIST").


def _mnist(name: str, size: int, sha256: str) -> DataFile:
    mirrors = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    return DataFile(f"mnist/{name}", sha256, size, tuple(mirror + name for mirror in mirrors))


MNIST = {
    "train-images": _mnist(
        "train-images-idx3-ubyte.gz", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "train-labels": _mnist(
        "train-labels-idx1-ubyte.gz", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    "t10k-images": _mnist(
        "t10k-images-idx3-ubyte.gz", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
    ),
    "t10k-labels": _mnist(
        "t10k-labels-idx1-ubyte.gz", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
    ),
}

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
    as_flag("censored", censored)
    split_seed, *time_seeds = np.random.SeedSequence(as_count("seed", seed, at_least=0)).spawn(4)
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
