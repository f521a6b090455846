"""Inside the tools of scikit-learn and scikit-survival, and with data frames."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.estimators.simulate import survival_rows
from xcal.estimators import SurvivalModel, SurvivalPath

DATA = survival_rows(240)
FAST = {"hidden": (4,), "epochs": 2}


def clinical_frame():
    """Rows with a category and missing values, as they come from a hospital."""
    frame = pd.DataFrame(DATA.x.copy(), columns=["age", "marker", "dose"])
    frame["stage"] = np.where(DATA.location > 0, "late", "early")
    frame.loc[::7, "marker"] = np.nan
    return frame


def preparation():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return ColumnTransformer(
        [("numbers", numbers, ["age", "marker", "dose"]), ("stage", OneHotEncoder(sparse_output=False), ["stage"])]
    )


ESTIMATORS = [SurvivalModel(**FAST), SurvivalPath(lambdas=(0.0, 10.0), seeds=1, **FAST)]
both = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)


@both
@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_pipeline(estimator, output):
    frame = clinical_frame()
    with config_context(transform_output=output):
        pipeline = make_pipeline(preparation(), clone(estimator)).fit(frame, DATA.y)
        risk = pipeline.predict(frame)
        score = pipeline.score(frame, DATA.y)
    assert risk.shape == (240,)
    assert 0 <= score <= 1
    assert hasattr(pipeline[-1], "feature_names_in_") == (output != "default")
    plain = make_pipeline(preparation(), clone(estimator)).fit(frame, DATA.y)
    # The steps before may sum a frame and an array in another order.
    np.testing.assert_allclose(plain.predict(frame), risk, rtol=1e-9)


@both
def test_what_belongs_in_the_pipeline_is_named(estimator):
    frame = clinical_frame()
    with pytest.raises(ValueError, match=r"OneHotEncoder for instance.*got column 'stage'"):
        clone(estimator).fit(frame, DATA.y)
    with pytest.raises(ValueError, match=r"SimpleImputer for instance.*got NaN in column 'marker' at row 0"):
        clone(estimator).fit(frame.drop(columns="stage"), DATA.y)


def test_grid_search():
    pipeline = make_pipeline(preparation(), SurvivalModel(**FAST))
    grid = {"survivalmodel__xcal_lambda": np.array([0.0, 10.0]), "survivalmodel__hidden": [(), (4,)]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(clinical_frame(), DATA.y)
    assert len(search.cv_results_["mean_test_score"]) == 4
    assert search.best_estimator_[-1].xcal_lambda == search.best_params_["survivalmodel__xcal_lambda"]


@pytest.mark.parametrize("as_frame", [False, True])
def test_cross_validate(as_frame):
    y = pd.DataFrame({"time": DATA.y["time"], "event": DATA.y["event"]}) if as_frame else DATA.y
    folds = KFold(3, shuffle=True, random_state=0)
    result = cross_validate(SurvivalModel(**FAST), DATA.x, y, cv=folds, error_score="raise", return_estimator=True)
    train, test = next(folds.split(DATA.x))
    alone = SurvivalModel(**FAST).fit(DATA.x[train], DATA.y[train])
    assert result["test_score"][0] == alone.score(DATA.x[test], DATA.y[test])
    assert cross_val_predict(SurvivalModel(**FAST), DATA.x, y, cv=folds).shape == (240,)


def test_sample_weight_through_cross_validation():
    weighted = SurvivalModel(**FAST)
    with config_context(enable_metadata_routing=True):
        weighted.set_fit_request(sample_weight=True)
        result = cross_validate(
            weighted, DATA.x, DATA.y, cv=2, params={"sample_weight": np.ones(240)}, error_score="raise"
        )
    assert np.isfinite(result["test_score"]).all()


@both
def test_clone_forgets_what_was_learnt(estimator):
    fitted = clone(estimator).fit(DATA.x, DATA.y)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "fitted_")


FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame}


@both
@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES.keys())
def test_columns_are_checked(estimator, make):
    columns = {"age": DATA.x[:, 0], "smoker": DATA.x[:, 1] > 0, "visits": np.arange(240) % 5}
    fitted = clone(estimator).fit(make(columns), DATA.y)
    assert fitted.feature_names_in_.tolist() == ["age", "smoker", "visits"]
    as_array = clone(estimator).fit(np.column_stack(list(columns.values())), DATA.y)
    np.testing.assert_array_equal(
        fitted.predict(make(columns)), as_array.predict(np.column_stack(list(columns.values())))
    )
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        fitted.predict(make({name: columns[name] for name in ("smoker", "age", "visits")}))
    with pytest.raises(ValueError, match=r"(?s)feature names should match.*unseen at fit time:\n- weight"):
        fitted.predict(make({"weight": columns["age"], "smoker": columns["smoker"], "visits": columns["visits"]}))
    with pytest.raises(ValueError, match="got column 'visits' of type"):
        fitted.predict(make(columns | {"visits": ["few"] * 240}))
    with pytest.raises(ValueError, match="got NaN in column 'age' at row 2"):
        fitted.predict(make(columns | {"age": [1.0, 2.0, None] * 80}))


def test_nullable_columns_of_pandas():
    frame = pd.DataFrame({"a": pd.array(DATA.x[:, 0], dtype="Float64"), "b": pd.array([1, 2] * 120, dtype="Int64")})
    fitted = SurvivalModel(**FAST).fit(frame, DATA.y)
    frame.loc[5, "b"] = pd.NA
    with pytest.raises(ValueError, match="got NaN in column 'b' at row 5"):
        fitted.predict(frame)


class TestScikitSurvival:
    """Its scorers and metrics take our estimators; its targets are ours."""

    def test_targets(self):
        util = pytest.importorskip("sksurv.util")
        theirs = util.Surv.from_arrays(DATA.y["event"], DATA.y["time"], name_event="died", name_time="days")
        one, other = (SurvivalModel(**FAST).fit(DATA.x, y) for y in (theirs, DATA.y))
        np.testing.assert_array_equal(one.predict(DATA.x), other.predict(DATA.x))

    @both
    def test_scorers(self, estimator):
        metrics = pytest.importorskip("sksurv.metrics")
        times = np.quantile(DATA.y["time"], [0.2, 0.4, 0.6])
        fitted = clone(estimator).fit(DATA.x, DATA.y)
        ours = metrics.integrated_brier_score(DATA.y, DATA.y, fitted.predict_survival_function(DATA.x, times), times)
        scorer = metrics.as_integrated_brier_score_scorer(clone(estimator), times=times).fit(DATA.x, DATA.y)
        np.testing.assert_allclose(scorer.score(DATA.x, DATA.y), -ours)
        outcome = DATA.y["event"], DATA.y["time"]
        # By default risks that are next to each other are tied there.
        theirs = metrics.concordance_index_censored(*outcome, fitted.predict(DATA.x), tied_tol=0)[0]
        np.testing.assert_allclose(fitted.score(DATA.x, DATA.y), theirs)
        for wrap in (
            metrics.as_concordance_index_ipcw_scorer(clone(estimator), tau=times[-1]),
            metrics.as_cumulative_dynamic_auc_scorer(clone(estimator), times=times),
        ):
            assert 0 < wrap.fit(DATA.x, DATA.y).score(DATA.x, DATA.y) < 1

    def test_grid_search_with_a_scorer(self):
        metrics = pytest.importorskip("sksurv.metrics")
        # The study ends at time 1 for all: each fold knows the censoring at all times of the others.
        data = survival_rows(240, censoring="late")
        wrapped = metrics.as_integrated_brier_score_scorer(SurvivalModel(**FAST), times=[0.3, 0.6])
        search = GridSearchCV(wrapped, {"estimator__xcal_lambda": [0.0, 10.0]}, cv=2, error_score="raise")
        search.fit(data.x, data.y)
        assert (search.cv_results_["mean_test_score"] < 0).all()
