"""One table of bad and odd input over every public metric: one clear error, or the value its docstring promises."""

from dataclasses import replace

import numpy as np
import pytest

from tests.metrics.simulate import Data, survival_data
from xcal.metrics import (
    brier_score,
    calibration_curve,
    calibration_slope,
    concordance_index,
    cox_calibration,
    cox_ici,
    cumulative_dynamic_auc,
    decision_curve,
    evaluate,
    follow_up,
    integrated_brier_score,
    integrated_calibration_index,
    kaplan_meier,
    km_calibration,
    net_benefit,
    observed_expected,
    one_calibration,
    pp_curve,
    quantile_slope,
    risk_distribution,
    scaled_brier_score,
)

WITHOUT_TIME = ("quantile_slope", "pp_curve")
TIMES = np.array([0.2, 0.5, 1.0])
AT = 0.5


def nothing(data):
    return {}


def predicted_time(data):
    return {"predicted_time": 1 / data.rate}


def risk(data):
    return {"risk": data.rate}


def curves(data):
    return {"survival": data.survival(TIMES), "times": TIMES}


def cdf_curves(data):
    return {"cdf": 1 - data.survival(TIMES), "times": TIMES}


def probability(data):
    return {"probability": data.probability(AT), "at": AT}


def own_cdf(data):
    return {"cdf": -np.expm1(-data.rate * data.time)}


# name: the function, the predictions it takes, further options. quantile_slope and pp_curve alone take no time.
METRICS = {
    "kaplan_meier": (kaplan_meier, nothing, {}),
    "harrell": (concordance_index, predicted_time, {}),
    "harrell by risk": (concordance_index, risk, {}),
    "uno": (concordance_index, predicted_time, {"method": "uno"}),
    "antolini": (concordance_index, curves, {"interpolation": "previous"}),
    "antolini from F": (concordance_index, cdf_curves, {"interpolation": "linear"}),
    "brier_score": (brier_score, curves, {}),
    "integrated_brier_score": (integrated_brier_score, curves, {}),
    "km_calibration": (km_calibration, curves, {}),
    "quantile_slope": (quantile_slope, own_cdf, {}),
    "integrated_calibration_index": (integrated_calibration_index, probability, {}),
    "calibration_slope": (calibration_slope, probability, {}),
    "cox_ici": (cox_ici, probability, {}),
    "hosmer-lemeshow": (one_calibration, probability, {"method": "hosmer-lemeshow"}),
    "dagostino-nam": (one_calibration, probability, {"method": "dagostino-nam"}),
    "greenwood-nam-dagostino": (one_calibration, probability, {"method": "greenwood-nam-dagostino"}),
    "effective-size": (one_calibration, probability, {}),
    "likelihood-ratio": (one_calibration, lambda data: probability(data) | own_cdf(data), {}),
    "gronnesby-borgan": (
        one_calibration,
        lambda data: probability(data) | own_cdf(data),
        {"method": "gronnesby-borgan"},
    ),
    "cumulative_dynamic_auc": (cumulative_dynamic_auc, risk, {"times": TIMES}),
    "scaled_brier_score": (scaled_brier_score, curves, {}),
    "observed_expected": (observed_expected, probability, {}),
    "cox_calibration": (cox_calibration, probability, {}),
    "net_benefit": (net_benefit, probability, {"threshold": 0.2}),
    "decision_curve": (decision_curve, probability, {"thresholds": [0.2, 0.4]}),
    "calibration_curve": (calibration_curve, probability, {}),
    "risk_distribution": (risk_distribution, probability, {}),
    "follow_up": (follow_up, nothing, {}),
    "pp_curve": (pp_curve, own_cdf, {}),
    "evaluate curves": (evaluate, curves, {}),
    "evaluate F": (evaluate, own_cdf, {}),
    "evaluate times": (evaluate, predicted_time, {}),
}


def arguments(name, data):
    _, predictions, options = METRICS[name]
    given = predictions(data) | options | {"time": data.time, "event": data.event}
    if name in WITHOUT_TIME:
        del given["time"]
    return given


@pytest.fixture
def data():
    return survival_data(40, rng=np.random.default_rng(0))


def refused(name, given, message):
    with pytest.raises(ValueError, match=message):
        METRICS[name][0](**given)


def changed(values, row, value):
    values = np.array(values, dtype=np.float64)
    values[row] = value
    return values


@pytest.mark.parametrize("name", [name for name in METRICS if name not in WITHOUT_TIME])
@pytest.mark.parametrize(("value", "shown"), [(-1.0, r"-1\.0"), (np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_impossible_times_are_refused_with_their_row(name, value, shown, data):
    given = arguments(name, data) | {"time": changed(data.time, [3, 5], value)}
    refused(name, given, rf"^time: expected finite times, zero or larger, got {shown} at row 3$")


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(("value", "shown"), [(2.0, r"2\.0"), (0.5, r"0\.5"), (np.nan, "nan"), (-1.0, r"-1\.0")])
def test_event_must_be_true_or_false(name, value, shown, data):
    given = arguments(name, data) | {"event": changed(data.event, [4, 9], value)}
    refused(name, given, rf"^event: expected True/False or 0/1, .* got {shown} at row 4$")


@pytest.mark.parametrize("name", METRICS)
def test_lengths_must_agree(name, data):
    given = arguments(name, data)
    refused(name, given | {"event": data.event[:-1]}, r"^event: expected 40 rows, as many as \w+ has, got 39$")
    for argument in ("predicted_time", "risk", "survival", "cdf", "probability"):
        if argument in given and name not in WITHOUT_TIME:
            shorter = given | {argument: given[argument][:-1]}
            refused(name, shorter, rf"^{argument}: expected 40 rows, as many as time has, got 39$")


@pytest.mark.parametrize("name", METRICS)
def test_masked_and_ragged_input_is_refused_by_name(name, data):
    given = arguments(name, data)
    for argument in ("time", "event", "predicted_time", "risk", "survival", "cdf", "probability"):
        if argument not in given:
            continue
        masked = np.ma.masked_array(given[argument], mask=False)
        where = (2, 1) if masked.ndim == 2 else 2
        masked[where] = np.ma.masked
        row = r"\(2, 1\)" if masked.ndim == 2 else "2"
        expected = rf"^{argument}: expected values without a mask, got a masked one at row {row}$"
        refused(name, given | {argument: masked}, expected)
        ragged = [[0.1], [0.2, 0.3]]
        refused(name, given | {argument: ragged}, rf"^{argument}: .* got rows of different lengths$")


@pytest.mark.parametrize("name", METRICS)
def test_no_rows_are_refused(name, data):
    empty = Data(data.time[:0], data.event[:0], data.rate[:0])
    refused(name, arguments(name, empty), r"^(time|cdf): expected at least one row, got an empty array$")


@pytest.mark.parametrize("name", METRICS)
def test_arrays_must_have_one_dimension(name, data):
    given = arguments(name, data) | {"event": data.event[:, None]}
    refused(name, given, r"^event: expected a one-dimensional array, one value per row, got shape \(40, 1\)$")


PROBABILITIES = [
    (name, argument)
    for name in METRICS
    for argument in ("survival", "cdf", "probability")
    if argument in arguments(name, survival_data(2, rng=np.random.default_rng(0)))
]


@pytest.mark.parametrize(("name", "argument"), PROBABILITIES)
@pytest.mark.parametrize("value", [-0.01, 1.01, np.nan, np.inf])
def test_probabilities_must_be_probabilities(name, argument, value, data):
    given = arguments(name, data)
    two_dimensional = np.ndim(given[argument]) == 2
    row = (6, 1) if two_dimensional else 6
    where = r"\(6, 1\)" if two_dimensional else "6"
    given[argument] = changed(given[argument], row, value)
    refused(name, given, rf"^{argument}: expected .*\[0, 1\], got \S+ at row {where}$")


@pytest.mark.parametrize("name", ["harrell", "harrell by risk", "uno", "cumulative_dynamic_auc", "evaluate times"])
def test_a_prediction_of_nan_is_refused_and_infinity_is_an_order(name, data):
    given = arguments(name, data)
    argument = "risk" if "risk" in given else "predicted_time"
    spoilt = given | {argument: changed(given[argument], [7, 8], np.nan)}
    refused(name, spoilt, rf"^{argument}: expected numbers that can be put in order, got nan at row 7$")
    infinite = METRICS[name][0](**given | {argument: changed(given[argument], 7, np.inf)})
    huge = METRICS[name][0](**given | {argument: changed(given[argument], 7, 1e300)})
    assert repr(infinite) == repr(huge)


@pytest.mark.parametrize(
    "name", [name for name, (_, predictions, _) in METRICS.items() if predictions in (curves, cdf_curves)]
)
def test_the_grid_must_increase_and_fit_the_curves(name, data):
    given = arguments(name, data)
    refused(
        name,
        given | {"times": [0.2, 0.2, 1.0]},
        r"^times: expected strictly increasing times, got 0.2 after 0.2 at row 1$",
    )
    refused(
        name,
        given | {"times": [0.2, 0.5]},
        r"expected shape \(rows, 2\), one column for each of times, got shape \(40, 3\)$",
    )
    refused(
        name, given | {"times": [0.2, np.nan, 1.0]}, r"^times: expected finite times, zero or larger, got nan at row 1$"
    )


@pytest.mark.parametrize(
    "name",
    [name for name, (_, predictions, _) in METRICS.items() if predictions is probability],
)
@pytest.mark.parametrize("at", [-1.0, np.nan, np.inf])
def test_the_time_must_be_a_time(name, at, data):
    refused(name, arguments(name, data) | {"at": at}, r"^at: expected a finite time, zero or larger, got ")


def test_the_time_must_be_one_number(data):
    refused(
        "greenwood-nam-dagostino",
        arguments("greenwood-nam-dagostino", data) | {"at": [1, 2]},
        "^at: expected one number",
    )


def test_certain_curves_may_be_given_as_integers():
    result = brier_score([[1, 0], [1, 1]], [0.5, 1.5], time=[1.0, 2.0], event=[1, 1])
    np.testing.assert_array_equal(result.values, [0.0, 0.0])


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("kaplan_meier", "of", "events"),
        ("harrell", "method", "gonen"),
        ("uno", "outside", "nan"),
        ("antolini", "interpolation", "cubic"),
        ("brier_score", "outside", "drop"),
        ("integrated_brier_score", "outside", "nan"),
        ("km_calibration", "interpolation", "cubic"),
        ("greenwood-nam-dagostino", "method", "dn"),
        ("greenwood-nam-dagostino", "outside", "drop"),
        ("integrated_calibration_index", "outside", "drop"),
        ("calibration_slope", "outside", "drop"),
        ("cox_ici", "outside", "drop"),
        ("observed_expected", "interval", "exact"),
        ("cumulative_dynamic_auc", "outside", "clip"),
        ("scaled_brier_score", "outside", "drop"),
        ("observed_expected", "outside", "drop"),
        ("cox_calibration", "outside", "drop"),
        ("evaluate F", "interpolation", "cubic"),
    ],
)
def test_an_unknown_word_is_answered_with_the_known_ones(name, option, value, data):
    refused(name, arguments(name, data) | {option: value}, rf"^{option}: expected one of '.*, got '{value}'$")


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("greenwood-nam-dagostino", "n_risk_groups", 0),
        ("greenwood-nam-dagostino", "n_risk_groups", 2.5),
        ("greenwood-nam-dagostino", "ddof", -1),
        ("cox_ici", "n_knots", 2),
        ("calibration_curve", "n_risk_groups", 0),
        ("risk_distribution", "n_bins", 0),
        ("decision_curve", "n_bootstrap", -1),
        ("pp_curve", "n_points", 1),
        ("evaluate F", "n_bins", 1),
        ("evaluate F", "n_bootstrap", True),
    ],
)
def test_counts_must_be_counts(name, option, value, data):
    refused(name, arguments(name, data) | {option: value}, rf"^{option}: expected an integer of \d or more, got ")


@pytest.mark.parametrize(
    "name",
    ["uno", "brier_score", "integrated_brier_score", "scaled_brier_score", "cumulative_dynamic_auc", "evaluate curves"],
)
def test_the_censoring_curve_must_be_one(name, data):
    survival_curve = kaplan_meier(time=data.time, event=data.event)
    refused(name, arguments(name, data) | {"censoring": survival_curve}, r"^censoring: .* got a curve of 'event'$")


def values(result):
    """Every number of a result that summarises the rows."""
    if hasattr(result, "scores"):
        return {score.name: score.value for score in result.scores}
    if hasattr(result, "survival"):
        return {"survival": result.survival}
    if hasattr(result, "estimable"):
        return {"values": result.values}
    names = (
        "model",
        "observed",
        "point_observed",
        "with_event",
        "median",
        "value",
        "slope",
        "intercept",
        "statistic",
        "p_value",
        "e50",
        "e90",
        "emax",
    )
    return {name: getattr(result, name) for name in names if hasattr(result, name)}


# Unusual but possible data; every metric answers with numbers, or with NaN for what the rows do not determine.
POSSIBLE = {
    "as usual": lambda data: data,
    "a time of zero": lambda data: replace(data, time=changed(data.time, 0, 0.0)),
    "no events": lambda data: replace(data, event=np.zeros(40)),
    "all events": lambda data: replace(data, event=np.ones(40)),
    "one row with an event": lambda data: Data(np.array([1.5]), np.array([1]), np.array([1.0])),
    "one censored row": lambda data: Data(np.array([1.5]), np.array([0]), np.array([1.0])),
    "one unique time": lambda data: replace(data, time=np.full(40, 1.5)),
    "one unique time, all events": lambda data: replace(data, time=np.full(40, 1.5), event=np.ones(40)),
    "all times zero": lambda data: replace(data, time=np.zeros(40)),
    "equal predictions": lambda data: replace(data, rate=np.ones(40)),
    "integer input": lambda data: replace(data, time=np.ceil(data.time).astype(int), event=data.event.astype(int)),
}

# What is not determined, for each kind of data; everything else must be finite.
NO_PAIRS = {"harrell", "harrell by risk", "uno", "antolini", "antolini from F"}
# No event by one of the times: nobody to tell apart, nothing that the Kaplan-Meier curve gets wrong, no risk set.
NO_EVENT_YET = {"cumulative_dynamic_auc", "scaled_brier_score", "cox_calibration", "calibration_slope"}
UNDEFINED = {
    "no events": NO_PAIRS | NO_EVENT_YET | {"km_calibration", "quantile_slope", "pp_curve"},
    "all events": {"follow_up"},
    "one row with an event": NO_PAIRS | NO_EVENT_YET | {"km_calibration", "follow_up"},
    "one censored row": NO_PAIRS | NO_EVENT_YET | {"km_calibration", "quantile_slope", "pp_curve"},
    "one unique time": NO_EVENT_YET | {"km_calibration"},
    "one unique time, all events": NO_PAIRS | NO_EVENT_YET | {"km_calibration", "follow_up"},
    "equal predictions": {"cox_calibration", "calibration_slope", "pp_curve"},
    "integer input": NO_EVENT_YET,
    # After time zero nobody is left: no time of the grid lies within the follow-up.
    "all times zero": {"km_calibration", "brier_score", "integrated_brier_score", "quantile_slope"}
    | NO_EVENT_YET
    | {
        "observed_expected",
        "calibration_curve",
        "pp_curve",
        "integrated_calibration_index",
        "cox_ici",
        "dagostino-nam",
        "greenwood-nam-dagostino",
        "gronnesby-borgan",
        "hosmer-lemeshow",
        "effective-size",
        "likelihood-ratio",
    },
}


# `evaluate` warns of tied times, which some of these data have; tests/calibration/test_discrete_time.py asks for it.
@pytest.mark.filterwarnings("ignore:the [0-9]+ events have [0-9]+ distinct times only:UserWarning")
@pytest.mark.parametrize("case", POSSIBLE)
@pytest.mark.parametrize("name", METRICS)
def test_possible_data_give_the_documented_value(name, case, data):
    possible = POSSIBLE[case](data)
    result = METRICS[name][0](**arguments(name, possible))
    if name.startswith("evaluate"):
        # Each number is that of its own function; here, that one undefined metric does not take the others with it.
        table = values(result)
        assert len(table) == len(result.to_frame()) > 0
        assert case != "as usual" or np.isfinite(list(table.values())).all()
        return
    finite = {key: np.isfinite(value).all() for key, value in values(result).items()}
    if name in UNDEFINED.get(case, ()):
        assert not all(finite.values()), finite
    else:
        assert all(finite.values()), finite
