"""Names that users hold from before `SurvivalData` work for one release, and say what is new."""

from importlib import import_module

import numpy as np
import pytest

from xcal.data import SurvivalData
from xcal_paper import load_gamma

FORMER = [
    ("xcal.training", "Rows"),
    ("xcal.data", "MappedTable"),
    ("xcal.datasets", "SurvivalSplit"),
    ("xcal.datasets", "SurvivalTable"),
]


@pytest.mark.parametrize(("module", "name"), FORMER)
def test_former_classes(module, name):
    home = import_module(module)
    with pytest.warns(FutureWarning, match=rf"{module}\.{name} is now xcal\.data\.SurvivalData"):
        assert getattr(home, name) is SurvivalData
    assert name not in home.__all__


def test_former_rows_are_made_as_before():
    with pytest.warns(FutureWarning, match="SurvivalData"):
        from xcal.training import Rows
    rows = Rows(np.zeros((3, 2)), [1.0, 2.0, 3.0], [1, 0, 1], [1.0, 1.0, 2.0])
    assert rows.weights.tolist() == [1.0, 1.0, 2.0]
    assert Rows(x=np.zeros((3, 2)), time=[1.0, 2.0, 3.0], event=[1, 0, 1]).n == 3


def test_former_columns_of_a_split():
    train = load_gamma(censored=True, n=(20, 5, 5), seed=0).train
    with pytest.warns(FutureWarning, match=r'SurvivalData\.mean is now SurvivalData\.extra\["mean"\]') as seen:
        np.testing.assert_array_equal(train.mean, train.extra["mean"])
    assert [warning.filename for warning in seen] == [__file__]
    with pytest.warns(FutureWarning, match=r"SurvivalData\.label is now SurvivalData\.groups"):
        assert train.label is None
