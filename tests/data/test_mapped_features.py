"""Features in a file that are changed when they are read."""

import numpy as np
import torch

from xcal.data import SurvivalData
from xcal.data.features import MappedFeatures, pieces, with_masks


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
