"""scikit-learn's own checks of an estimator.

They pass a plain vector as y, which a survival estimator must refuse (`test_a_plain_target_is_refused`). So that the
checks really run, a subclass turns the vector into times that are all events.
"""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_regressors_int,
    check_regressors_no_decision_function,
    parametrize_with_checks,
)

from xcal import Surv
from xcal.estimators import SurvivalModel, SurvivalPath


def as_survival(y):
    if y is None:
        return None
    values = np.abs(np.asarray(y)).astype(float) + 1
    # Some checks have one value of y throughout; a time grid needs two event times.
    return Surv(time=values + np.linspace(0, 0.5, values.size), event=np.ones(values.shape))


class ModelOfPlainTarget(SurvivalModel):
    __doc__ = SurvivalModel.__doc__

    def fit(self, X, y, sample_weight=None, validation_data=None):
        return super().fit(X, as_survival(y), sample_weight, validation_data)

    def score(self, X, y):
        return super().score(X, as_survival(y))


class PathOfPlainTarget(SurvivalPath):
    __doc__ = SurvivalPath.__doc__

    def fit(self, X, y, sample_weight=None, validation_data=None):
        return super().fit(X, as_survival(y), sample_weight, validation_data)

    def score(self, X, y):
        return super().score(X, as_survival(y))


FAST = {"epochs": 2, "hidden": (4,), "calibration_bins": 2}
MODELS = [
    ModelOfPlainTarget(xcal_lambda=1.0, **FAST),
    PathOfPlainTarget(lambdas=(0, 1), seeds=1, **FAST),
]


# Every check that is not met, and why.
WEIGHTS = (
    "a weight of 2 is not a row twice: training takes rows in random batches and holds some out, so another number "
    "of rows is another run (test_weights shows what does hold)"
)
EXCLUDED = {f"check_sample_weight_equivalence_on_{kind}_data": WEIGHTS for kind in ("dense", "sparse")}


@pytest.mark.filterwarnings("ignore:.*are too few to learn from")
@parametrize_with_checks(MODELS, expected_failed_checks=lambda _: EXCLUDED, xfail_strict=True)
def test_checks(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("the estimators take numpy arrays and data frames, and claim nothing about other arrays")
    check(estimator)


# The checks that only regressors get, as far as they make sense for a risk.
@pytest.mark.parametrize("estimator", MODELS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(
    "check", [check_dataframe_column_names_consistency, check_regressors_int, check_regressors_no_decision_function]
)
def test_more_checks(estimator, check):
    check(type(estimator).__name__, estimator)


@pytest.mark.parametrize("estimator", [SurvivalModel(**FAST), SurvivalPath(lambdas=(0,), seeds=1, **FAST)])
def test_a_plain_target_is_refused(estimator):
    with pytest.raises(ValueError, match=r"y: expected Surv\(time=..., event=...\) or a data frame .*, got ndarray"):
        estimator.fit(np.ones((10, 2)), np.arange(10.0))
