"""Data frames as people have them: `encode="auto"`, its file, and the pipeline that does the same by hand."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.estimators.simulate import survival_rows
from xcal._files import read
from xcal.estimators import SurvivalModel, SurvivalPath, load, make_survival_pipeline
from xcal.estimators.inputs import ColumnCode, Encoding

DATA = survival_rows(240)
FAST = {"hidden": (4,), "epochs": 2}


def clinical():
    """Every kind of column."""
    day = datetime.date(2020, 1, 1)
    frame = pd.DataFrame({"age": DATA.x[:, 0], "marker": DATA.x[:, 1].copy()})
    frame.loc[::7, "marker"] = np.nan
    frame["stage"] = np.where(DATA.location > 0, "late", "early")
    frame["site"] = pd.Categorical(np.array(["a", "b", "c"])[np.arange(240) % 3])
    frame.loc[5, "site"] = np.nan
    frame["smoker"] = DATA.x[:, 2] > 0
    frame["flag"] = pd.array([True, False, None] * 80, dtype="boolean")
    frame["seen"] = pd.to_datetime([day + datetime.timedelta(days=int(i)) for i in range(240)])
    frame["born"] = [day - datetime.timedelta(days=int(i)) for i in range(240)]
    frame["stay"] = pd.to_timedelta(np.arange(240), unit="h")
    return frame


def test_columns_become_numbers():
    frame = clinical()
    encoding = Encoding.of(frame)
    x = encoding(frame)
    widths = {column.name: column.width for column in encoding.columns}
    assert widths == {
        "age": 1, "marker": 2, "stage": 2, "site": 4, "smoker": 1, "flag": 2, "seen": 1, "born": 1, "stay": 1,
    }  # fmt: skip
    assert x.shape == (240, encoding.width) == (240, 15)
    named = dict(zip(widths, np.split(x, np.cumsum(list(widths.values()))[:-1], axis=1), strict=True))
    np.testing.assert_array_equal(named["marker"][:, 0], frame["marker"].fillna(frame["marker"].median()))
    np.testing.assert_array_equal(named["marker"][:, 1], frame["marker"].isna())
    np.testing.assert_array_equal(named["stage"], pd.get_dummies(frame["stage"]).to_numpy(float))
    np.testing.assert_array_equal(named["site"][5], [0, 0, 0, 1])
    np.testing.assert_array_equal(named["seen"][:, 0], np.arange(240))
    np.testing.assert_array_equal(named["born"][:, 0], 239 - np.arange(240))
    np.testing.assert_allclose(named["stay"][:, 0], np.arange(240) / 24)
    np.testing.assert_array_equal(named["flag"][:3], [[1, 0], [0, 0], [0.5, 1]])
    assert Encoding(tuple(read(ColumnCode, column) for column in encoding.as_json())) == encoding


@pytest.mark.parametrize("kind", [SurvivalModel, SurvivalPath])
def test_the_encoding_is_saved(kind, tmp_path):
    options = {"lambdas": (0.0, 1.0), "seeds": 1} if kind is SurvivalPath else {}
    frame = clinical()
    model = kind(encode="auto", **options, **FAST).fit(frame, DATA.y)
    assert model.n_features_in_ == 9
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    risk = model.predict(frame)
    model.save(tmp_path / "model.xcal")
    again = load(tmp_path / "model.xcal")
    assert again.encoding_ == model.encoding_
    np.testing.assert_array_equal(again.predict(frame), risk)
    np.testing.assert_allclose(again.predict(frame.iloc[::-1]), risk[::-1], rtol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match=r"X: expected a data frame with the columns age, marker, .* got ndarray"):
        again.predict(DATA.x)
    chosen = model.select() if kind is SurvivalPath else model
    np.testing.assert_array_equal(chosen.predict(frame), risk)


def test_the_same_model_as_by_hand():
    frame = clinical()[["age", "marker", "stage"]]
    prepare = make_column_transformer(
        ("passthrough", ["age"]), (SimpleImputer(strategy="median", add_indicator=True), ["marker"]),
        (OneHotEncoder(), ["stage"]), sparse_threshold=0,
    )  # fmt: skip
    by_hand = make_pipeline(prepare, SurvivalModel(**FAST)).fit(frame, DATA.y)
    auto = SurvivalModel(encode="auto", **FAST).fit(frame, DATA.y)
    np.testing.assert_allclose(auto.predict(frame), by_hand.predict(frame), rtol=1e-9)


def test_polars():
    frame = clinical()[["age", "marker", "stage", "smoker", "born"]]
    other = pl.DataFrame({name: frame[name].tolist() for name in frame.columns}, nan_to_null=True)
    one, two = (SurvivalModel(encode="auto", **FAST).fit(f, DATA.y).predict(f) for f in (frame, other))
    np.testing.assert_array_equal(one, two)


def test_what_fit_never_saw():
    frame = clinical()[["age", "stage", "site"]]
    model = SurvivalModel(encode="auto", **FAST).fit(frame, DATA.y)
    new = frame.astype({"site": object}).copy()
    new.loc[3, "stage"] = "unknown"
    with pytest.warns(
        UserWarning, match=r"column 'stage' has values that fit never saw \(the first at row 3\)"
    ) as told:
        model.predict(new)
    assert told[0].filename == __file__
    new["age"] = "old"
    with pytest.raises(ValueError, match="X: expected numbers in column 'age', as in fit, got others"):
        model.predict(new)


def test_missing_values_that_fit_never_saw_are_said():
    frame = clinical()[["age", "stage"]]
    model = SurvivalModel(encode="auto", **FAST).fit(frame, DATA.y)
    with pytest.warns(UserWarning, match="'age' has missing values, and fit saw none: the median of fit") as told:
        filled = model.predict(frame.assign(age=np.nan))
    assert told[0].filename == __file__
    np.testing.assert_array_equal(filled, model.predict(frame.assign(age=frame["age"].median())))
    with pytest.warns(UserWarning, match="'stage' has missing values, and fit saw none: none of its categories"):
        model.predict(frame.assign(stage=None))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            [f"patient {i}" for i in range(240)],
            "at most 50 categories.*got 240 different values in column 'new': leave",
        ),
        ([None] * 240, "a value in column 'new', got missing values in every row"),
        ([np.inf] + [1.0] * 239, "finite numbers, got infinity in column 'new' at row 0"),
    ],
)
def test_columns_that_cannot_be_encoded(column, message):
    frame = clinical()[["age"]].assign(new=column)
    with pytest.raises(ValueError, match=message):
        SurvivalModel(encode="auto", **FAST).fit(frame, DATA.y)


def test_without_it_the_error_shows_the_pipeline():
    with pytest.raises(
        ValueError, match=r"make_survival_pipeline\(make_column_transformer\(\(OneHotEncoder.*encode='auto'"
    ):
        SurvivalModel(**FAST).fit(clinical()[["age", "stage"]], DATA.y)
    with pytest.raises(ValueError, match="encode: expected one of 'auto' or None, got 'yes'"):
        SurvivalModel(encode="yes", **FAST).fit(DATA.x, DATA.y)
    # Numbers in an array need none, and a new fit forgets the old one.
    model = SurvivalModel(encode="auto", **FAST).fit(clinical(), DATA.y).fit(DATA.x, DATA.y)
    assert not hasattr(model, "encoding_")
    assert model.predict(DATA.x).shape == (240,)


def test_pipelines_predict_everything_and_prepare_validation_rows():
    frame = clinical()[["age", "stage"]]
    prepare = make_column_transformer((OneHotEncoder(), ["stage"]), remainder="passthrough", sparse_threshold=1)
    pipeline = make_survival_pipeline(prepare, SurvivalModel(**FAST))
    pipeline.fit(frame[:200], DATA.y[:200], validation_data=(frame[200:], DATA.y[200:]))
    x = prepare.fit(frame[:200]).transform(frame)
    alone = SurvivalModel(**FAST).fit(x[:200], DATA.y[:200], validation_data=(x[200:], DATA.y[200:]))
    dense = SurvivalModel(**FAST).fit(
        x.toarray()[:200], DATA.y[:200], validation_data=(x.toarray()[200:], DATA.y[200:])
    )
    np.testing.assert_array_equal(alone.predict(x), dense.predict(x.toarray()))
    np.testing.assert_array_equal(pipeline.predict(frame), alone.predict(x))
    for method, arguments in (
        ("predict_survival_function", ([0.5],)),
        ("predict_cdf", ([0.5],)),
        ("predict_quantile", (0.1,)),
    ):
        np.testing.assert_array_equal(
            getattr(pipeline, method)(frame, *arguments), getattr(alone, method)(x, *arguments)
        )
    np.testing.assert_array_equal(
        pipeline.predict_median(frame, extrapolate=True), alone.predict_median(x, extrapolate=True)
    )
    assert pipeline.d_calibration(frame, DATA.y).value == alone.d_calibration(x, DATA.y).value
    assert pipeline.predict_distribution(frame).batch_shape == (240,)
    with pytest.raises(AttributeError):
        make_survival_pipeline(OneHotEncoder()).predict_cdf  # noqa: B018


def test_a_parquet_file(tmp_path):
    file = tmp_path / "cohort.parquet"
    x = DATA.x.astype(np.float32)
    columns = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "months": DATA.y["time"], "died": DATA.y["event"]}
    pq.write_table(pa.table(columns), file)
    model = SurvivalModel(**FAST).fit(file, {"time": "months", "event": "died"})
    frame = pd.DataFrame(x.astype(float), columns=["a", "b", "c"])
    np.testing.assert_array_equal(model.predict(frame), SurvivalModel(**FAST).fit(frame, DATA.y).predict(frame))
    with pytest.raises(ValueError, match=r"y: expected the names of columns of the file, such as .*, got None"):
        SurvivalModel(**FAST).fit(str(file))
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        SurvivalModel(**FAST).fit(tmp_path / "none.parquet", {"time": "months", "event": "died"})
