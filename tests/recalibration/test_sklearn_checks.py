"""scikit-learn's own checks of `Recalibrated`, cross-fitted over one of our models.

They pass a plain vector as y, which a survival estimator must refuse. So that the checks really run, a subclass turns
the vector into times that are all events, as for the other estimators.
"""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_regressors_int,
    check_regressors_no_decision_function,
    parametrize_with_checks,
)

from tests.estimators.test_sklearn_checks import FAST, as_survival
from xcal import Recalibrated, SurvivalModel


class RecalibratedOfPlainTarget(Recalibrated):
    __doc__ = Recalibrated.__doc__

    def fit(self, X, y):
        return super().fit(X, as_survival(y))

    def score(self, X, y):
        return super().score(X, as_survival(y))


MODELS = [RecalibratedOfPlainTarget(SurvivalModel(**FAST), method, cv=2) for method in ("km", "beta", "csd")]
# Most checks have some 20 rows.
few = pytest.mark.filterwarnings(
    "ignore:recalibration. [0-9]+ events are few:UserWarning", "ignore:[0-9]+ events among [0-9]+ rows:UserWarning"
)


@few
@parametrize_with_checks(MODELS)
def test_checks(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("the estimators take numpy arrays and data frames, and claim nothing about other arrays")
    check(estimator)


@few
@pytest.mark.parametrize("estimator", MODELS, ids=lambda e: e.method)
@pytest.mark.parametrize(
    "check", [check_dataframe_column_names_consistency, check_regressors_int, check_regressors_no_decision_function]
)
def test_more_checks(estimator, check):
    check(type(estimator).__name__, estimator)


def test_a_plain_target_is_refused():
    with pytest.raises(ValueError, match=r"y: expected Surv\(time=..., event=...\) or a data frame .*, got ndarray"):
        Recalibrated(SurvivalModel(), cv=2).fit(np.ones((10, 2)), np.arange(10.0))
