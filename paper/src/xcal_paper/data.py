"""The rows of a table: loaded once, hashed, and put on the device once."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import fail
from xcal.data import SurvivalData
from xcal.data.features import pieces
from xcal.distributions import quantile_edges
from xcal_paper.glioma import load_glioma
from xcal_paper.mimic3.los import data_source, load_mimic_los
from xcal_paper.mimic3.preparation import read_manifest
from xcal_paper.simulated import SurvivalDataset, load_gamma, load_survival_mnist
from xcal_paper.spec import Spec, Variant

Integers = npt.NDArray[np.int64]
PathLike = str | os.PathLike[str]

FIRST_DAY = 24.0  # hours in the unit


@dataclass(frozen=True, eq=False)
class TableData:
    """What the models of a table are trained and measured on, and what follows from it for all of them.

    Attributes
    ----------
    train, validation, test : SurvivalData
        On the device. The groups of the test rows are the subgroups for D-calibration within groups.
    edges : Tensor
        Time edges of the discrete models.
    hash : str
        Of the rows; records carry it.
    clusters : array, optional
        What the test rows belong to where they depend on each other: the subjects of hourly instances.
    name : str
        Name of the data, where a table can be made on several; else empty.
    """

    train: SurvivalData
    validation: SurvivalData
    test: SurvivalData
    edges: Tensor
    hash: str
    clusters: Integers | None = None
    name: str = ""


def load_data(spec: Spec, variant: Variant, seed: int, device: torch.device, data_dir: PathLike | None) -> TableData:
    """Load or simulate the rows for a run's seed."""
    chosen = spec.data.seed + (seed if spec.data.per_seed else 0)
    data = _dataset(spec, variant, chosen, data_dir)
    digest = hashlib.sha256()
    for split in data.splits.values():
        # In single precision, as the models see them: the last bits of a simulated double depend on the machine.
        for piece in (*pieces(split.x), split.time.astype(np.float32), split.event):
            digest.update(np.ascontiguousarray(piece).tobytes())
    groups = _groups(spec, data)
    clusters = np.asarray(data.test.groups, dtype=np.int64) if spec.data.name == "mimic" else None
    if clusters is not None:
        _check_subjects(clusters, groups)
    return TableData(
        data.train.to(device),
        data.validation.to(device),
        data.test.replaced(groups=groups).to(device),
        quantile_edges(data.train.time, data.train.event, spec.time_bins),
        digest.hexdigest()[:16],
        clusters,
        "" if clusters is None else data.name,
    )


def _check_subjects(clusters: Integers, groups: Integers) -> None:
    """Check before hours of training that the test rows can be measured: noise is that between subjects."""
    for label in np.unique(groups):
        if np.unique(clusters[groups == label]).size < 2:
            fail("data", "at least two subjects in every group of the test rows", f"one in group {label}")


def data_part(spec: Spec, data_dir: PathLike | None) -> str:
    """Return which part of the table's data a folder holds: empty for all of it; "demo" or "other" for MIMIC-III.

    Records of a part are kept apart from those of the table.
    """
    if spec.data.name != "mimic":
        return ""
    source = data_source(read_manifest(_prepared_folder(data_dir)))
    return "" if source == "full" else source


def _prepared_folder(data_dir: PathLike | None) -> Path:
    if data_dir is None:
        fail("data_dir", "the folder that xcal mimic prepare has made (--data)", "none")
    return Path(data_dir)


def _dataset(spec: Spec, variant: Variant, seed: int, data_dir: PathLike | None) -> SurvivalDataset:
    wanted, settings = spec.data, spec.variants[variant]
    if wanted.name == "gamma":
        n = (100_000, 50_000, 50_000) if wanted.n is None else wanted.n
        data = load_gamma(censored=wanted.censored, n=n, seed=seed, bias=settings.bias)
    elif wanted.name == "mnist":
        data = load_survival_mnist(censored=wanted.censored, seed=seed, data_dir=data_dir)
    elif wanted.name == "mimic":
        data = load_mimic_los(_prepared_folder(data_dir), death=wanted.death)
    else:
        data = load_glioma(split_seed=seed, data_dir=data_dir)
    there = tuple(len(split) for split in data.splits.values())
    sizes = wanted.n or there
    if any(asked > found for asked, found in zip(sizes, there, strict=True)):
        fail("data.n", f"at most {list(there)}, the rows of {data.name}", list(sizes))
    if settings.test_rows is not None:
        sizes = (*sizes[:2], min(sizes[2], settings.test_rows))
    train, validation, test = (split[:n] for split, n in zip(data.splits.values(), sizes, strict=True))
    return SurvivalDataset(data.name, train, validation, test)


def _groups(spec: Spec, data: SurvivalDataset) -> Integers:
    """Subgroups of the test rows, none of which any model sees."""
    kind, test = spec.data.groups, data.test
    if kind == "label" and test.groups is not None:
        return np.asarray(test.groups, dtype=np.int64)
    if kind == "mean-quartiles" and "mean" in test.extra:
        mean = test.extra["mean"]
        return np.asarray(np.searchsorted(np.quantile(mean, [0.25, 0.5, 0.75]), mean), dtype=np.int64)
    if kind == "age-halves" and "years_to_birth" in data.feature_names:
        age = test.x[:, data.feature_names.index("years_to_birth")]
        return np.asarray(age > np.median(age), dtype=np.int64)
    if kind == "first-day" and "period_length" in test.extra:
        return np.asarray(test.extra["period_length"] > FIRST_DAY, dtype=np.int64)
    fail("data.groups", "a grouping defined for this data set", f"{kind!r} for {data.name}")
