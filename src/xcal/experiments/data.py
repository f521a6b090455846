"""The rows of a table: loaded once, hashed, and put on the device once."""

import hashlib
import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import fail
from xcal.datasets import SurvivalDataset, SurvivalSplit, load_gamma, load_glioma, load_survival_mnist
from xcal.distributions import quantile_edges
from xcal.experiments.spec import Spec, Variant
from xcal.training import Rows

Integers = npt.NDArray[np.int64]
PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class TableData:
    """What the models of a table are trained and measured on; covariates are on the device.

    Attributes
    ----------
    train, validation, test : Rows
    time, event : ndarray
        Of the test rows, on the host.
    groups : ndarray of int64
        Subgroup of each test row, for D-calibration within groups.
    edges : Tensor
        Time edges of the discrete models.
    hash : str
    """

    train: Rows
    validation: Rows
    test: Rows
    time: npt.NDArray[np.float64]
    event: npt.NDArray[np.bool_]
    groups: Integers
    edges: Tensor
    hash: str


def load_data(spec: Spec, variant: Variant, seed: int, device: torch.device, data_dir: PathLike | None) -> TableData:
    """Load or simulate the rows for a run's seed."""
    chosen = spec.data.seed + (seed if spec.data.per_seed else 0)
    data = _dataset(spec, variant, chosen, data_dir)
    digest = hashlib.sha256()
    for split in data.splits.values():
        # In single precision, as the models see them: the last bits of a simulated double depend on the machine.
        for array in (split.x, split.time.astype(np.float32), split.event):
            digest.update(np.ascontiguousarray(array).tobytes())
    train, validation, test = (_rows(split, device) for split in data.splits.values())
    return TableData(
        train,
        validation,
        test,
        data.test.time,
        data.test.event,
        _groups(spec, data),
        quantile_edges(data.train.time, data.train.event, spec.time_bins),
        digest.hexdigest()[:16],
    )


def _dataset(spec: Spec, variant: Variant, seed: int, data_dir: PathLike | None) -> SurvivalDataset:
    wanted, settings = spec.data, spec.variants[variant]
    if wanted.name == "gamma":
        n = (100_000, 50_000, 50_000) if wanted.n is None else wanted.n
        data = load_gamma(censored=wanted.censored, n=n, seed=seed, bias=settings.bias)
    elif wanted.name == "mnist":
        data = load_survival_mnist(censored=wanted.censored, seed=seed, data_dir=data_dir)
    else:
        data = load_glioma(split_seed=seed, data_dir=data_dir)
    there = tuple(len(split) for split in data.splits.values())
    sizes = wanted.n or there
    if any(asked > found for asked, found in zip(sizes, there, strict=True)):
        fail("data.n", f"at most {list(there)}, the rows of {data.name}", list(sizes))
    if settings.test_rows is not None:
        sizes = (*sizes[:2], min(sizes[2], settings.test_rows))
    train, validation, test = (_first(split, n) for split, n in zip(data.splits.values(), sizes, strict=True))
    return SurvivalDataset(data.name, data.feature_names, train, validation, test)


def _first(split: SurvivalSplit, n: int) -> SurvivalSplit:
    label = None if split.label is None else split.label[:n]
    mean = None if split.mean is None else split.mean[:n]
    return SurvivalSplit(split.x[:n], split.time[:n], split.event[:n], label=label, mean=mean)


def _rows(split: SurvivalSplit, device: torch.device) -> Rows:
    x = torch.from_numpy(np.ascontiguousarray(split.x)).to(device)
    return Rows(x, torch.from_numpy(split.time.astype(np.float32)), torch.from_numpy(split.event))


def _groups(spec: Spec, data: SurvivalDataset) -> Integers:
    """Subgroups of the test rows, none of which any model sees."""
    kind, test = spec.data.groups, data.test
    if kind == "label" and test.label is not None:
        return test.label
    if kind == "mean-quartiles" and test.mean is not None:
        return np.searchsorted(np.quantile(test.mean, [0.25, 0.5, 0.75]), test.mean).astype(np.int64)
    if kind == "age-halves" and "years_to_birth" in data.feature_names:
        age = test.x[:, data.feature_names.index("years_to_birth")]
        return (age > np.median(age)).astype(np.int64)
    fail("data.groups", "groups that these data have", f"{kind!r} for {data.name}")
