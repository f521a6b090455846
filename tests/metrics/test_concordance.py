"""Concordance against lifelines, scikit-survival, SurvivalEVAL and pycox, by hand at ties, and by its laws."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines.utils import concordance_index as lifelines_concordance
from lifelines.utils.concordance import _concordance_summary_statistics as lifelines_counts
from sksurv.metrics import concordance_index_ipcw
from sksurv.util import Surv
from SurvivalEVAL.evaluations.discrimination.distributional.time_dependent_concordance import (
    concordance_time_dependent as survivaleval_time_dependent,
)
from SurvivalEVAL.evaluations.discrimination.static.concordance import concordance as survivaleval_concordance

from tests.metrics.simulate import survival_data
from xcal.metrics import concordance_index, evaluate, kaplan_meier
from xcal.metrics import pairs as antolini

# time, event, predicted time; concordant, tied and comparable pairs counted by hand.
HAND_MADE = {
    "no ties, right order": ([1, 2, 3], [1, 1, 1], [1, 2, 3], (3, 0, 3)),
    "no ties, reversed": ([1, 2, 3], [1, 1, 1], [3, 2, 1], (0, 0, 3)),
    "equal predictions count as ties": ([1, 2, 3], [1, 1, 1], [5, 5, 6], (2, 1, 3)),
    "all predictions equal": ([1, 2, 3], [1, 1, 1], [5, 5, 5], (0, 3, 3)),
    "two events at one time are not comparable": ([1, 1, 2], [1, 1, 1], [1, 2, 3], (2, 0, 2)),
    "event and censoring at one time: the event came first": ([1, 1], [1, 0], [1, 2], (1, 0, 1)),
    "event and censoring at one time, wrong order": ([1, 1], [1, 0], [2, 1], (0, 0, 1)),
    "event and censoring at one time, equal predictions": ([1, 1], [1, 0], [2, 2], (0, 1, 1)),
    "the order of the rows at a tie does not matter": ([1, 1], [0, 1], [2, 1], (1, 0, 1)),
    "two censorings at one time are not comparable": ([1, 2, 2], [1, 0, 0], [1, 2, 3], (2, 0, 2)),
    "a censored row opens no pair": ([1, 2, 3], [0, 1, 1], [9, 1, 2], (1, 0, 1)),
    "a row censored later is a partner": ([1, 2, 3], [1, 0, 1], [1, 9, 2], (2, 0, 2)),
    "two events and two censorings at one time": ([2, 2, 2, 2], [1, 1, 0, 0], [1, 2, 1, 3], (2, 1, 4)),
    "time tied with prediction tied among events": ([1, 1, 1], [1, 1, 0], [1, 1, 1], (0, 2, 2)),
    "infinite predictions are later than all others and tie": ([1, 2, 3], [1, 1, 1], [1, np.inf, np.inf], (2, 1, 3)),
    "minus zero equals zero": ([1, 2], [1, 1], [-0.0, 0.0], (0, 1, 1)),
    "an event at time zero": ([0, 0, 1], [1, 0, 1], [1, 2, 3], (2, 0, 2)),
}


@pytest.mark.parametrize("case", HAND_MADE, ids=lambda name: name.replace(" ", "-"))
def test_every_kind_of_tie(case):
    time, event, predicted, (concordant, tied, comparable) = HAND_MADE[case]
    result = concordance_index(time=time, event=event, predicted_time=predicted)
    assert (result.concordant, result.tied, result.comparable) == (concordant, tied, comparable)
    assert result.discordant == comparable - concordant - tied
    assert result.value == pytest.approx((concordant + tied / 2) / comparable, abs=1e-15)
    arrays = (np.array(time, dtype=float), np.array(predicted, dtype=float), np.array(event))
    assert tuple(lifelines_counts(*arrays)) == (concordant, tied, comparable)


def test_nothing_to_compare_is_nan_with_zero_pairs():
    result = concordance_index(time=[1, 2], event=[0, 1], predicted_time=[1, 2])
    assert np.isnan(result.value)
    assert result.comparable == 0


@pytest.mark.parametrize("n", [8, 30, 257, 2000, 70_000])
@pytest.mark.parametrize(("grid", "decimals"), [(None, None), (0.1, None), (None, 1), (0.25, 1), (2.0, 0)])
def test_harrell_equals_lifelines(n, grid, decimals):
    rng = np.random.default_rng(n)
    data = survival_data(n, rng=rng, grid=grid)
    predicted = rng.lognormal(size=n) / data.rate
    if decimals is not None:
        predicted = predicted.round(decimals)
    expected = lifelines_concordance(data.time, predicted, data.event)
    for prediction in ({"predicted_time": predicted}, {"risk": -predicted}):
        result = concordance_index(time=data.time, event=data.event, **prediction)
        assert result.value == pytest.approx(expected, abs=1e-12)


def test_harrell_takes_torch_and_float32():
    data = survival_data(500, rng=np.random.default_rng(0))
    time, risk = data.time.astype(np.float32), data.rate.astype(np.float32)
    expected = lifelines_concordance(time, -risk, data.event)
    result = concordance_index(
        time=torch.from_numpy(time), event=torch.from_numpy(data.event), risk=torch.from_numpy(risk)
    )
    assert result.value == pytest.approx(expected, abs=1e-12)


def training_and_test(seed, grid):
    rng = np.random.default_rng(seed)
    train, test = survival_data(300, rng=rng, grid=grid), survival_data(200, rng=rng, grid=grid)
    return train, test, rng.lognormal(size=200) / test.rate


@pytest.mark.parametrize("grid", [None, 0.25])
@pytest.mark.parametrize("seed", range(4))
def test_uno_equals_scikit_survival(seed, grid):
    train, test, predicted = training_and_test(seed, grid)
    tau = float(np.quantile(train.time, 0.8))
    expected = concordance_index_ipcw(
        Surv.from_arrays(train.event, train.time), Surv.from_arrays(test.event, test.time), -predicted, tau, tied_tol=0
    )[0]
    result = concordance_index(
        time=test.time,
        event=test.event,
        predicted_time=predicted,
        method="uno",
        tau=tau,
        left_limit=False,
        censoring=kaplan_meier(time=train.time, event=train.event, of="censoring"),
    )
    assert result.value == pytest.approx(expected, abs=1e-12)
    assert result.n_dropped == 0


def test_uno_from_the_rows_at_hand_equals_scikit_survival():
    _, test, predicted = training_and_test(7, None)
    same = Surv.from_arrays(test.event, test.time)
    expected = concordance_index_ipcw(same, same, -predicted, tied_tol=0)[0]
    result = concordance_index(time=test.time, event=test.event, predicted_time=predicted, method="uno")
    assert result.value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("grid", [None, 0.25])
def test_uno_with_left_limits_equals_survivaleval(grid):
    train, test, predicted = training_and_test(2, grid)
    tau = float(np.quantile(train.time, 0.8))
    expected = survivaleval_concordance(
        predicted, test.time, test.event, train.time, train.event, method="Uno", ties="Risk", tau=tau
    )[0]
    result = concordance_index(
        time=test.time,
        event=test.event,
        predicted_time=predicted,
        method="uno",
        tau=tau,
        censoring=kaplan_meier(time=train.time, event=train.event, of="censoring"),
    )
    assert result.value == pytest.approx(expected, abs=1e-12)


def test_uno_beyond_the_training_follow_up_is_a_choice():
    curve = kaplan_meier(time=[1, 2, 3, 4], event=[1, 0, 1, 1], of="censoring")
    rows = {"time": [1, 2, 5, 6], "event": [1, 1, 1, 1], "predicted_time": [1, 3, 2, 4], "method": "uno"}
    dropped = concordance_index(**rows, censoring=curve)
    truncated = concordance_index(**rows, censoring=curve, tau=4.5)
    assert dropped.n_dropped == 2
    assert dropped.value == pytest.approx(truncated.value, rel=1e-12)
    with pytest.raises(ValueError, match=r"time: expected events no later.*at row 2"):
        concordance_index(**rows, censoring=curve, outside="raise")
    # Carried on, G stays at 2/3: the event at 5 counts its one pair with that weight. Just before time 2 G is 1.
    clipped = concordance_index(**rows, censoring=curve, outside="clip")
    weight = (3 / 2) ** 2
    assert clipped.comparable == pytest.approx(3 + 2 + weight)
    after = concordance_index(**rows, censoring=curve, outside="clip", left_limit=False)
    assert after.comparable == pytest.approx(3 + 2 * weight + weight)


def test_tau_leaves_out_events_at_or_after_it():
    rows = {"time": [1, 2, 3, 4], "event": [1, 1, 1, 1], "predicted_time": [1, 3, 2, 4]}
    assert concordance_index(**rows, tau=2).comparable == 3
    assert concordance_index(**rows, tau=2.5).comparable == 5


def brute_antolini(time, event, survival_at):
    """The definition, pair by pair; `survival_at(t)` gives every row's survival probability at t."""
    agreed = comparable = 0.0
    for i in np.flatnonzero(event):
        at = survival_at(time[i])
        for j in range(len(time)):
            if time[j] > time[i] or (time[j] == time[i] and not event[j]):
                comparable += 1
                agreed += 1.0 if at[i] < at[j] else 0.5 if at[i] == at[j] else 0.0
    return agreed / comparable


def crossing_curves(n, seed, grid=None):
    rng = np.random.default_rng(seed)
    data = survival_data(n, rng=rng, grid=grid)
    times = np.sort(rng.uniform(0.1, data.time.max(), size=12))
    power = rng.uniform(0.5, 2, size=(n, 1))
    return data, np.exp(-((times * data.rate[:, None]) ** power)), times


@pytest.mark.parametrize("interpolation", ["previous", "linear"])
@pytest.mark.parametrize("grid", [None, 0.25])
@pytest.mark.parametrize("many_events", [1, 10, 10_000])
def test_antolini_equals_the_double_loop(monkeypatch, interpolation, grid, many_events):
    monkeypatch.setattr(antolini, "_MANY_EVENTS", many_events)
    data, survival, times = crossing_curves(120, 3, grid)

    def survival_at(t):
        if interpolation == "previous":
            passed = np.searchsorted(times, t, side="right")
            return survival[:, passed - 1] if passed else np.ones(len(survival))
        start = np.concatenate([[0.0], times])
        return np.array([np.interp(t, start, np.concatenate([[1.0], curve])) for curve in survival])

    result = concordance_index(
        time=data.time, event=data.event, survival=survival, times=times, interpolation=interpolation
    )
    assert result.method == "antolini"
    expected = brute_antolini(data.time, data.event, survival_at)
    assert result.value == pytest.approx(expected, abs=1e-12)


def test_the_default_reading_is_that_of_evaluate():
    data, survival, times = crossing_curves(120, 3)
    rows = {"time": data.time, "event": data.event, "survival": survival, "times": times}
    default = concordance_index(**rows)
    start = np.concatenate([[0.0], times])

    def survival_at(t):
        return np.array([np.interp(t, start, np.concatenate([[1.0], curve])) for curve in survival])

    assert default.value == pytest.approx(brute_antolini(data.time, data.event, survival_at), abs=1e-12)
    assert default.value == pytest.approx(evaluate(**rows)["antolini"].value, abs=1e-12)
    assert default.value != concordance_index(**rows, interpolation="previous").value


@pytest.mark.parametrize("grid", [None, 0.25])
def test_antolini_equals_survivaleval(grid):
    data, survival, times = crossing_curves(150, 8, grid)
    # Its risk scores have one column for each event: F of every row at the last grid time before the event.
    moments = data.time[data.event]
    with_start = np.column_stack([np.ones(150), survival])
    risk = 1 - with_start[:, np.searchsorted(times, moments, side="right")]
    expected = survivaleval_time_dependent(risk, data.time, data.event, method="Antolini", ties="Risk")[0]
    ours = concordance_index(time=data.time, event=data.event, survival=survival, times=times, interpolation="previous")
    assert ours.value == pytest.approx(expected, abs=1e-12)


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pycox imports what its dependencies have deprecated
def test_antolini_equals_pycox_where_they_agree():
    pycox = pytest.importorskip("pycox.evaluation.concordance")
    data, survival, times = crossing_curves(150, 4)
    # pycox needs an index for every row: rows before the first grid time are kept out, since it has no S(0) = 1.
    keep = data.time >= times[0]
    time, event, survival = data.time[keep], data.event[keep], survival[keep]
    index = np.searchsorted(times, time, side="right") - 1
    ours = concordance_index(time=time, event=event, survival=survival, times=times, interpolation="previous").value
    # Without ties in time or prediction both of its variants are the same and equal to ours.
    for method in ("antolini", "adj_antolini"):
        theirs = pycox.concordance_td(time, event.astype(int), survival.T.copy(), index, method=method)
        assert ours == pytest.approx(theirs, abs=1e-12)


def test_antolini_from_distribution_functions():
    data, survival, times = crossing_curves(200, 5)
    rows = {"time": data.time, "event": data.event, "times": times, "interpolation": "linear"}
    from_survival, from_cdf = concordance_index(**rows, survival=survival), concordance_index(**rows, cdf=1 - survival)
    assert from_cdf.value == pytest.approx(from_survival.value, abs=1e-12)


def test_antolini_keeps_apart_what_rounds_to_one():
    tiny = np.array([[3e-20], [2e-20], [1e-20]])
    rows = {"time": [1, 2, 3], "event": [1, 1, 1], "times": [0.5], "interpolation": "linear"}
    assert concordance_index(**rows, cdf=tiny).value == 1.0
    assert concordance_index(**rows, survival=1 - tiny).value == 0.5


def test_antolini_of_curves_that_never_cross_is_harrell():
    data = survival_data(400, rng=np.random.default_rng(6), grid=0.25)
    times = np.unique(data.time)
    curves = concordance_index(
        time=data.time, event=data.event, survival=data.survival(times), times=times, interpolation="previous"
    )
    risk = concordance_index(time=data.time, event=data.event, risk=data.rate)
    assert curves.value == pytest.approx(risk.value, abs=1e-12)


@st.composite
def predictions(draw):
    n = draw(st.integers(2, 40))
    time = draw(st.lists(st.integers(0, 8), min_size=n, max_size=n))
    event = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    predicted = draw(st.lists(st.integers(-5, 5), min_size=n, max_size=n))
    order = draw(st.permutations(range(n)))
    return np.array(time), np.array(event), np.array(predicted, dtype=float), np.array(order)


def same(left, right):
    assert (np.isnan(left.value) and np.isnan(right.value)) or left.value == pytest.approx(right.value, abs=1e-12)


@pytest.mark.parametrize("method", ["harrell", "uno"])
@given(data=predictions())
@settings(max_examples=60, deadline=None)
def test_laws(method, data):
    time, event, predicted, order = data

    def index(time, event, predicted):
        return concordance_index(time=time, event=event, predicted_time=predicted, method=method)

    original = index(time, event, predicted)
    reverse = index(time, event, -predicted)
    if not np.isnan(original.value):
        assert reverse.value == pytest.approx(1 - original.value, abs=1e-12)
        assert 0 <= original.value <= 1
    same(index(time[order], event[order], predicted[order]), original)
    same(index(time, event, np.exp(predicted)), original)
    same(index(3.0 * time, event, predicted), original)
    same(concordance_index(time=time, event=event, risk=-predicted, method=method), original)


def test_which_direction_must_be_said():
    with pytest.raises(ValueError, match="predicted_time, risk: expected exactly one of the two, got neither"):
        concordance_index(time=[1, 2], event=[1, 1])
    with pytest.raises(ValueError, match="predicted_time, risk: expected exactly one of the two, got both"):
        concordance_index(time=[1, 2], event=[1, 1], predicted_time=[1, 2], risk=[1, 2])
    with pytest.raises(ValueError, match="survival, cdf: expected exactly one of the two, got neither"):
        concordance_index(time=[1, 2], event=[1, 1], risk=[1, 2], method="antolini")
    with pytest.raises(ValueError, match="times: expected the grid"):
        concordance_index(time=[1, 2], event=[1, 1], survival=[[0.5], [0.4]])
