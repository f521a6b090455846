"""Bad input to every method of both estimators: one error that says what was expected and what came."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from tests.estimators.simulate import survival_rows
from xcal import Surv
from xcal.estimators import SurvivalModel, SurvivalPath

NAN, INF = float("nan"), float("inf")
DATA = survival_rows(60)
TIME, EVENT = DATA.y["time"], DATA.y["event"]
FAST = {"epochs": 1, "hidden": (4,)}


def new(kind, **options):
    options = FAST | options
    return kind(**options) if kind is SurvivalModel else kind(**({"lambdas": (0,), "seeds": 1} | options))


@pytest.fixture(scope="module", params=[SurvivalModel, SurvivalPath], ids=lambda k: k.__name__)
def fitted(request):
    return new(request.param).fit(DATA.x, DATA.y)


both = pytest.mark.parametrize("kind", [SurvivalModel, SurvivalPath], ids=lambda k: k.__name__)

METHODS = {
    "predict": lambda m, x: m.predict(x),
    "predict_survival_function": lambda m, x: m.predict_survival_function(x, [1.0]),
    "predict_survival_function (curves)": lambda m, x: m.predict_survival_function(x),
    "predict_cdf": lambda m, x: m.predict_cdf(x, [1.0]),
    "predict_quantile": lambda m, x: m.predict_quantile(x, 0.2),
    "predict_median": lambda m, x: m.predict_median(x),
    "predict_distribution": lambda m, x: m.predict_distribution(x),
    "score": lambda m, x: m.score(x, DATA.y),
    "d_calibration": lambda m, x: m.d_calibration(x, DATA.y),
}
methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())


@methods
@both
def test_unfitted(kind, method):
    with pytest.raises(NotFittedError, match=f"This {kind.__name__} instance is not fitted yet"):
        method(new(kind), DATA.x)


@pytest.mark.parametrize("method", ["select", "summary", "plot", "model", "save"])
def test_unfitted_path(method):
    arguments = {"model": (0,), "save": ("never-written",)}.get(method, ())
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(new(SurvivalPath), method)(*arguments)


def test_unfitted_save():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        new(SurvivalModel).save("never-written")


@methods
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (DATA.x[:, :2], "X has 2 features, but Survival.* is expecting 3 features"),
        (DATA.x[:, 0], "Expected 2D array, got 1D array"),
        (
            np.where(np.arange(180).reshape(60, 3) == 7, NAN, DATA.x),
            r"X: expected no missing .*got NaN in column 1 at row 2",
        ),
        (np.where(np.arange(180).reshape(60, 3) == 7, INF, DATA.x), r"X: expected finite .* column 1 at row 2"),
        (np.full((60, 3), "high"), r"X: expected numbers \(encode categories in the pipeline .*got text"),
        (
            pd.DataFrame({"a": DATA.x[:, 0], "b": DATA.x[:, 1], "d": ["high"] * 60}),
            r"X: expected numeric columns \(encode categories in the pipeline .*got column 'd' of type",
        ),
    ],
    ids=["columns", "one dimension", "NaN", "infinity", "text", "text column"],
)
def test_features_at_predict(fitted, method, x, message):
    with pytest.raises(ValueError, match=message):
        method(fitted, x)


@both
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.where(DATA.x == DATA.x[3, 1], NAN, DATA.x), DATA.y, r"X: .*SimpleImputer.*NaN in column 1 at row 3"),
        (DATA.x[:50], DATA.y, "y: expected 50 rows, as many as X has, got 60"),
        (DATA.x, DATA.y["time"], r"y: expected Surv\(time=..., event=...\)"),
        (DATA.x, None, r"y: expected Surv\(time=..., event=...\), got None"),
        (DATA.x, pd.DataFrame({"time": TIME, "status": EVENT}), "y: expected columns time and event, got"),
        (DATA.x, {"time": np.full(60, NAN), "event": EVENT}, r"y\['time'\]: expected finite times.*got nan at row 0"),
        (DATA.x, {"time": TIME, "event": np.full(60, 2)}, r"y\['event'\]: expected True/False or 0/1.*got 2 at row 0"),
        (DATA.x, Surv(time=TIME, event=np.zeros(60)), "y: expected at least 3 events.*, got 0 among"),
        (DATA.x, Surv(time=TIME, event=np.arange(60) < 2), "at least 3 events, 2 to train on and 1 .*, got 2 among"),
        (DATA.x, Surv(time=np.zeros(60), event=np.ones(60)), "y: expected an event after time 0, got 48"),
        (DATA.x, Surv(time=np.ones(60), event=np.ones(60)), "y: .*two distinct event times .*, got only the time 1"),
        (DATA.x[:1], DATA.y[:1], "minimum of 2 is required"),
    ],
)  # fmt: skip
def test_data_of_fit(kind, x, y, message):
    with pytest.raises(ValueError, match=message):
        new(kind).fit(x, y)


DAY = np.datetime64("2020-01-01", "ns")


@both
@pytest.mark.parametrize(
    ("x", "got"),
    [
        (np.full((60, 3), DAY), r"dtype datetime64\[ns\]"),
        (np.full((60, 3), np.timedelta64(1, "D")), r"dtype timedelta64\[D\]"),
        (np.full((60, 3), pd.Timestamp(DAY), dtype=object), r"Timestamp\('2020-01-01 00:00:00'\)"),
        ([[1.0, 2.0, datetime.date(2020, 1, 1)]] * 60, r"datetime.date\(2020, 1, 1\)"),
        (pd.DataFrame({"a": DATA.x[:, 0], "day": DAY}), "column 'day' of type datetime64"),
        (pl.DataFrame({"day": np.full(60, DAY)}), "column 'day' of type Datetime"),
    ],
    ids=["datetime64", "timedelta64", "timestamps", "list", "pandas", "polars"],
)
def test_dates(kind, x, got):
    # Not the advice for categories: a date is one of too many.
    with pytest.raises(ValueError, match=rf"X: expected num[a-z ]* \(turn dates and durations into [^(]*\), got {got}"):
        new(kind).fit(x, DATA.y)


@both
def test_a_lazy_frame(kind):
    with pytest.raises(
        ValueError, match=r"X: expected a data frame with its rows, got a LazyFrame: call \.collect\(\)"
    ):
        new(kind).fit(pl.DataFrame(DATA.x).lazy(), DATA.y)


@both
def test_objects_that_are_no_numbers(kind):
    with pytest.raises(TypeError, match=r"X: expected numbers, got another kind of object: .*not 'dict'"):
        new(kind).fit(np.full((60, 3), {}, dtype=object), DATA.y)


@pytest.mark.filterwarnings("ignore:.*are too few to learn from")
@both
@pytest.mark.parametrize(("distribution", "to_train"), [("mtlr", 2), ("weibull", 1)])
def test_as_many_events_as_are_needed_are_enough(kind, distribution, to_train):
    def fit(events, validation):
        y = Surv(time=TIME, event=np.arange(60) < events)
        return new(kind, distribution=distribution).fit(DATA.x, y, validation_data=validation)

    for validation, needed in (((DATA.x, DATA.y), to_train), (None, to_train + 1)):
        assert np.isfinite(fit(needed, validation).predict(DATA.x)).all()
        with pytest.raises(ValueError, match=f"y: expected at least {needed} event.*, got {needed - 1} among"):
            fit(needed - 1, validation)


@both
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distribution": "gamma"}, "one of 'mtlr', 'categorical', 'logistic-hazard', 'lognormal', .*got 'gamma'"),
        ({"objective": "brier"}, "objective: expected one of 'nll', 'scrps', 'censored-crps', got 'brier'"),
        ({"interpolation": "cubic"}, "interpolation: expected one of 'step', 'linear', got 'cubic'"),
        ({"hidden": 8}, "hidden: expected a sequence of layer sizes, got 8"),
        ({"hidden": (8, 0)}, "hidden: expected an integer of 1 or more, got 0"),
        ({"dropout": 1.0}, "dropout: expected a number from 0 to below 1"),
        ({"n_time_bins": 0}, "n_time_bins: expected an integer of 1 or more, got 0"),
        ({"n_time_bins": 100}, "n_time_bins: expected at most [0-9]+, the number of events in .*, got 100"),
        ({"calibration_bins": 1.5}, "calibration_bins: expected an integer of 2 or more, got 1.5"),
        ({"calibration_bins": 1}, "calibration_bins: expected an integer of 2 or more, got 1"),
        ({"epochs": 0}, "epochs: expected an integer of 1 or more, got 0"),
        ({"batch_size": -1}, "batch_size: expected an integer of 1 or more, got -1"),
        ({"learning_rate": NAN}, "learning_rate: expected a finite number above 0, got nan"),
        ({"weight_decay": -1.0}, "weight_decay: expected a finite number of 0 or more, got -1.0"),
        ({"patience": 0}, "patience: expected an integer of 1 or more, got 0"),
        ({"validation_fraction": 1.0}, "validation_fraction: expected a number between 0 and 1, got 1.0"),
        ({"random_state": -1}, "random_state: expected an integer of 0 or more, got -1"),
        ({"device": "toaster"}, r"device: expected a device of this machine \(cpu.*, auto\), got 'toaster'"),
    ],
)  # fmt: skip
def test_settings(kind, options, message):
    with pytest.raises(ValueError, match=message):
        new(kind, **options).fit(DATA.x, DATA.y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@both
def test_a_device_that_is_not_there(kind):
    with pytest.raises(ValueError, match=r"device: expected a device of this machine .*, got 'cuda'"):
        new(kind, device="cuda").fit(DATA.x, DATA.y)
    assert new(kind, device="auto").fit(DATA.x, DATA.y).n_features_in_ == 3


@pytest.mark.parametrize("value", [-1, NAN, INF, "10", None])
def test_lambda(value):
    with pytest.raises(ValueError, match="xcal_lambda: expected a finite number of 0 or more"):
        new(SurvivalModel, xcal_lambda=value).fit(DATA.x, DATA.y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lambdas": (0, -1)}, "lambdas: expected finite numbers, zero or larger, got -1.0 at position 1"),
        ({"lambdas": (NAN,)}, "lambdas: expected finite numbers, zero or larger, got nan at position 0"),
        ({"lambdas": ()}, "lambdas: expected at least one lambda"),
        ({"lambdas": 10}, "lambdas: expected a sequence of numbers"),
        ({"lambdas": (1, 1.0)}, "lambdas: expected different weights"),
        ({"seeds": 0}, "seeds: expected an integer of 1 or more, got 0"),
        ({"seeds": (1, -1)}, "seeds: expected a number of seeds, or a sequence of integers"),
        ({"seeds": (1, 1)}, "seeds: expected different seeds"),
        ({"target_dcal": 0}, "target_dcal: expected a number between 0 and 1, got 0"),
        ({"target_dcal": NAN}, "target_dcal: expected a number between 0 and 1, got nan"),
        ({"target_dcal": 0.01, "lambdas": (1, 2)}, "lambdas: expected its default with target_dcal"),
    ],
)
def test_path_settings(options, message):
    with pytest.raises(ValueError, match=message):
        new(SurvivalPath, **options).fit(DATA.x, DATA.y)


@both
def test_fewer_rows_than_calibration_bins(kind):
    penalised = {"xcal_lambda": 1.0} if kind is SurvivalModel else {"lambdas": (0, 1.0)}
    with pytest.raises(
        ValueError, match="calibration_bins: expected at most 12, the number of rows to train on, got 20"
    ):
        new(kind, **penalised).fit(DATA.x[:15], DATA.y[:15])


@both
def test_continuous_distributions_have_no_event_at_zero(kind):
    time = np.where(np.arange(60) == np.flatnonzero(DATA.y["event"])[0], 0.0, DATA.y["time"])
    y = Surv(time=time, event=DATA.y["event"])
    message = r": expected event times larger than zero .*use a discrete one.*, got 1 at time zero"
    for validation in ((DATA.x, DATA.y), None):
        with pytest.raises(ValueError, match=f"y{message}"):
            new(kind, distribution="weibull").fit(DATA.x, y, validation_data=validation)
    with pytest.raises(ValueError, match=f"validation_data{message}"):
        new(kind, distribution="weibull").fit(DATA.x, DATA.y, validation_data=(DATA.x, y))
    assert np.isfinite(new(kind).fit(DATA.x, y).predict(DATA.x)).all()


@both
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(59), "sample_weight: expected 60 rows, as many as X has, got 59"),
        (np.where(np.arange(60) == 3, -1.0, 1.0), "sample_weight: expected finite weights.*got -1.0 at row 3"),
        (np.where(np.arange(60) == 3, NAN, 1.0), "sample_weight: expected finite weights.*got nan at row 3"),
        (np.zeros(60), "sample_weight: expected at least one weight above zero"),
    ],
)  # fmt: skip
def test_weights(kind, weights, message):
    with pytest.raises(ValueError, match=message):
        new(kind).fit(DATA.x, DATA.y, sample_weight=weights)


@both
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DATA.x, r"validation_data: expected \(X, y\) or \(X, y, sample_weight\), got ndarray"),
        ((DATA.x[:, :2], DATA.y), "X has 2 features"),
        ((DATA.x, DATA.y[:5]), "validation_data y: expected 60 rows"),
        ((DATA.x, Surv(time=np.ones(60), event=np.zeros(60))), "validation_data: expected at least one event"),
        ((DATA.x, DATA.y, np.zeros(60)), "validation_data sample_weight: expected at least one weight above zero"),
    ],
)
def test_validation_data(kind, data, message):
    with pytest.raises(ValueError, match=message):
        new(kind).fit(DATA.x, DATA.y, validation_data=data)


@pytest.mark.parametrize("times", [[-1.0], [NAN], [INF], [], [[1.0]]])
@pytest.mark.parametrize("method", ["predict_survival_function", "predict_cdf"])
def test_times(fitted, method, times):
    with pytest.raises(ValueError, match="times: expected"):
        getattr(fitted, method)(DATA.x, times)


@pytest.mark.parametrize("p", [0.0, 1.0, NAN, [0.5, 2.0]])
def test_levels(fitted, p):
    with pytest.raises(ValueError, match="p: expected shares between 0 and 1"):
        fitted.predict_quantile(DATA.x, p)


@both
def test_a_loss_that_is_never_finite(kind):
    # Weights of 1e30 after one step.
    with pytest.raises(ValueError, match=r"fit: expected a finite loss in the first epoch .*learning_rate"):
        new(kind, learning_rate=1e30, distribution="lognormal", epochs=3, batch_size=8).fit(DATA.x, DATA.y)


def test_a_path_of_which_some_models_fail_says_so():
    steep = new(SurvivalPath, lambdas=(0, 1e308), path="always", distribution="lognormal", epochs=3, batch_size=24)
    with pytest.warns(
        ConvergenceWarning, match=r"some models stopped early: lambda 1e\+308, seed 0: model 1: the loss"
    ):
        path = steep.fit(DATA.x, DATA.y)
    assert path.select().xcal_lambda == 0
    assert np.isfinite(path.predict(DATA.x)).all()


@both
def test_few_events_and_times_at_zero_get_a_word(kind):
    for n in (3, 10):
        y = Surv(time=TIME[:n], event=np.ones(n))
        if n == 10:
            y["event"][:2] = False
        with pytest.warns(
            UserWarning, match=rf"{n - 2 * (n > 3)} events among {n} rows are too few to learn from"
        ) as told:
            new(kind, calibration_bins=2).fit(DATA.x[:n], y)
        assert told[0].filename == __file__
    halves = Surv(time=np.where(np.arange(60) % 2, TIME, 0.0), event=np.ones(60))
    with pytest.warns(UserWarning, match=r"30 of 60 events are at time 0, .* add half a unit to all of them"):
        new(kind).fit(DATA.x, halves)


@both
def test_a_path_to_a_file_and_no_columns(kind):
    with pytest.raises(
        ValueError, match=r"X: expected a table, or for fit the path of a parquet file .*got 'rows.csv'"
    ):
        new(kind).fit("rows.csv", DATA.y)
    for nothing in (np.empty((60, 0)), pd.DataFrame(index=range(60))):
        with pytest.raises(ValueError, match=r"0 feature\(s\) .*while a minimum of 1 is required|at least one column"):
            new(kind).fit(nothing, DATA.y)


def test_events_in_words():
    y = {"time": TIME, "event": np.where(EVENT, "dead", "alive")}
    with pytest.raises(
        ValueError, match=r"y\['event'\]: expected .* as in status == 'alive', got the words 'alive', 'dead'"
    ):
        new(SurvivalModel).fit(DATA.x, y)


def test_a_few_per_cent_of_events_at_zero_get_a_word():
    data = survival_rows(300)
    events = np.flatnonzero(data.y["event"])
    few, many = (data.y.copy() for _ in range(2))
    few["time"][events[:2]] = 0.0
    many["time"][events[: round(0.034 * events.size)]] = 0.0
    new(SurvivalModel).fit(data.x, few)
    with pytest.warns(UserWarning, match=r"events are at time 0, .* add half a unit to all of them"):
        new(SurvivalModel).fit(data.x, many)


@pytest.mark.parametrize("encode", [None, "auto"])
def test_columns_of_one_name_are_refused(encode):
    twice = pd.DataFrame(DATA.x, columns=["a"] * DATA.x.shape[1])
    model = new(SurvivalModel, encode=encode).fit(pd.DataFrame(DATA.x).rename(columns=str), DATA.y)
    for use in (lambda: model.predict(twice), lambda: new(SurvivalModel, encode=encode).fit(twice, DATA.y)):
        with pytest.raises(ValueError, match="X: expected columns with different names, got 'a' more than once"):
            use()


FRAME = pd.DataFrame(DATA.x)
Y = pd.DataFrame({"time": TIME, "event": EVENT})
TURNED = FRAME.index[::-1]
READERS = {
    "fit": lambda m, y: m.fit(FRAME, y),
    "fit, validation": lambda m, y: m.fit(FRAME, Y, validation_data=(FRAME, y)),
    "score": lambda m, y: m.score(FRAME, y),
    "d_calibration": lambda m, y: m.d_calibration(FRAME, y),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_an_index_that_contradicts_the_order_is_refused(read):
    model = new(SurvivalModel).fit(FRAME, (Y["time"], Y["event"]))
    read(model, (Y["time"], Y["event"]))
    for y in ((Y["time"][TURNED], Y["event"][TURNED]), (Y["time"], Y["event"][TURNED]), Y.loc[TURNED]):
        with pytest.raises(ValueError, match=r"y\['(time|event)'\]: expected rows with the index of"):
            read(model, y)


def test_weights_in_another_order_are_refused():
    with pytest.raises(ValueError, match="sample_weight: expected rows with the index of X, in its order"):
        new(SurvivalModel).fit(FRAME, Y, sample_weight=Y["time"][TURNED])


def test_a_tuple_of_times_and_events_is_a_target():
    by_tuple, by_frame = (new(SurvivalModel, random_state=0).fit(DATA.x, y) for y in ((TIME, EVENT), Y))
    np.testing.assert_array_equal(by_tuple.predict(DATA.x), by_frame.predict(DATA.x))
