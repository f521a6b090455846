"""Features in a file that are changed when they are read, and what a column holds."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from xcal.data import SurvivalData
from xcal.data.features import MappedFeatures, column_kind, pieces, with_masks
from xcal.validation.arguments import _read


def mapped(tmp_path, n=40):
    values = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    values[::4, 1] = np.nan
    np.save(tmp_path / "x.npy", values)
    return MappedFeatures(np.load(tmp_path / "x.npy", mmap_mode="r"), change=with_masks), values


def test_masks_follow_the_values(tmp_path):
    x, values = mapped(tmp_path)
    expected = np.hstack([np.nan_to_num(values), np.isfinite(values)]).astype(np.float32)
    assert tuple(x.shape) == (40, 6)
    rows = np.array([7, 0, 39, 7])
    for chosen in (slice(None), slice(3, 9), rows):
        np.testing.assert_array_equal(x[chosen], expected[chosen])
        np.testing.assert_array_equal(np.asarray(x.only(chosen)), expected[chosen])
    np.testing.assert_array_equal(x.only(rows).only(np.array([2, 1]))[:], expected[[39, 0]])
    np.testing.assert_array_equal(np.concatenate(list(pieces(x))), expected)
    index = torch.tensor([[1, 2], [3, 0]])
    np.testing.assert_array_equal(x.to(torch.device("cpu")).select(index), expected[index.numpy()])


def test_changes_follow_each_other(tmp_path):
    x, values = mapped(tmp_path)
    doubled = x.changed(lambda rows: 2 * rows)
    np.testing.assert_array_equal(doubled[5:8], 2 * x[5:8])
    assert doubled.shape == x.shape
    fewer = x.changed(lambda rows: rows[:, :2]).only(slice(1, 3)).to(torch.device("cpu"))
    assert tuple(fewer.shape) == (2, 2)
    np.testing.assert_array_equal(fewer[:].numpy(), np.nan_to_num(values[1:3, :2]))


def test_survival_data_takes_them(tmp_path):
    x, _ = mapped(tmp_path)
    data = SurvivalData(x, time=np.arange(40.0), event=np.ones(40))
    assert data[3:5].x.shape == (2, 6)
    assert "features in a file" in repr(data)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pd.array([1, None, 3], dtype="Int64"), "number"),
        (np.array([Decimal("1.5"), None, 2], dtype=object), "number"),
        (pd.array([True, None], dtype="boolean"), "flag"),
        (np.array([True, None], dtype=object), "flag"),
        (pd.Categorical([1, 2]), "category"),
        (np.array(["1", 2], dtype=object), "category"),
        (np.array([datetime.date(2024, 1, 2), None], dtype=object), "date"),
        (np.array([5], dtype="timedelta64[D]"), "duration"),
    ],
)
def test_one_rule_says_what_a_column_holds(column, kind):
    """The readers of features, of subgroups and of the covariates of an audit ask it, so that they agree."""
    assert column_kind(pd.Series(column)) == kind
    assert column_kind(column) == kind


def test_whole_numbers_with_gaps_are_numbers_to_an_audit_too():
    """pandas' own type of them is an array of objects outside pandas."""
    values = pd.Series(np.arange(200) % 50, dtype="Int64")
    values[3] = pd.NA
    read = _read("age", values)
    assert (read.labels, read.values[3]) == (None, np.median(np.delete(np.arange(200) % 50, 3)))
