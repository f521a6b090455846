"""The table of all metrics: equal to the single functions, reproducible, readable."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.integrate import trapezoid

from tests.metrics.simulate import survival_data
from xcal.calibration import d_calibration
from xcal.metrics import (
    brier_score,
    calibration_slope,
    concordance_index,
    cox_calibration,
    cox_ici,
    cumulative_dynamic_auc,
    evaluate,
    integrated_brier_score,
    integrated_calibration_index,
    kaplan_meier,
    km_calibration,
    observed_expected,
    one_calibration,
    quantile_slope,
    scaled_brier_score,
)
from xcal.metrics.evaluation import read_rows
from xcal.metrics.inputs import at_point, restricted_mean
from xcal.metrics.resamples import Block
from xcal.metrics.spec import METRICS


@pytest.fixture(scope="module")
def data():
    return survival_data(400, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def times():
    return np.linspace(0.05, 3.0, 60)


def test_every_value_is_that_of_its_own_function(data, times):
    survival, rows = data.survival(times, 1.2), {"time": data.time, "event": data.event}
    train = survival_data(300, rng=np.random.default_rng(1))
    censoring = kaplan_meier(time=train.time, event=train.event, of="censoring")
    cdf, predicted, at = -np.expm1(-1.2 * data.rate * data.time), 1 / data.rate, times[20]
    result = evaluate(
        **rows, cdf=cdf, predicted_time=predicted, survival=survival, times=times, at=at, censoring=censoring
    )
    p = 1 - survival[:, 20]
    cox = cox_calibration(p, at=at, **rows)
    slope, ici = quantile_slope(cdf, event=data.event), integrated_calibration_index(p, at=at, **rows)
    line, index = calibration_slope(p, at=at, **rows), cox_ici(p, at=at, **rows)
    expected = {
        "harrell": concordance_index(**rows, predicted_time=predicted).value,
        "uno": concordance_index(**rows, predicted_time=predicted, method="uno", censoring=censoring).value,
        "antolini": concordance_index(**rows, survival=survival, times=times, interpolation="linear").value,
        "auc": cumulative_dynamic_auc(p, at, **rows, censoring=censoring).values[0],
        "brier": brier_score(survival[:, 20], at, **rows, censoring=censoring).values[0],
        "ipa": scaled_brier_score(1 - p, at, **rows, censoring=censoring).values[0],
        "ibs": integrated_brier_score(survival, times, **rows, censoring=censoring).value,
        "d_calibration": d_calibration(cdf, data.event).value,
        "d_calibration_floor": d_calibration(cdf, data.event).floor,
        "d_calibration_p": d_calibration(cdf, data.event).p_value,
        "quantile_slope": slope.slope,
        "quantile_intercept": slope.intercept,
        "oe": observed_expected(p, at=at, **rows).value,
        "slope": line.slope,
        "intercept": line.intercept,
        "one_calibration_p": one_calibration(p, at=at, **rows, cdf=cdf).p_value,
        "ici": ici.value,
        "e50": ici.e50,
        "e90": ici.e90,
        "emax": ici.emax,
        **{f"{name}_floor": ici.distances[name].floor for name in ("ici", "e50", "e90", "emax")},
        "km_calibration": km_calibration(survival, times, **rows).value,
        "cox_slope": cox.slope,
        "cox_intercept": cox.intercept,
        "ici_cox": index.value,
        "e50_cox": index.e50,
        "e90_cox": index.e90,
        "emax_cox": index.emax,
    }
    assert sorted(score.name for score in result.scores) == sorted(expected)
    for name, value in expected.items():
        assert result[name].value == pytest.approx(value, rel=1e-9), name
    # Intervals by formula need no resamples, and are those of the functions.
    ratio = observed_expected(p, at=at, **rows)
    by_formula = {
        "oe": (ratio.lower, ratio.upper),
        "slope": (line.slope_lower, line.slope_upper),
        "intercept": (line.intercept_lower, line.intercept_upper),
        **{name: (distance.lower, distance.upper) for name, distance in ici.distances.items()},
        "cox_slope": (cox.slope_lower, cox.slope_upper),
        "cox_intercept": (cox.intercept_lower, cox.intercept_upper),
    }
    for name, ends in by_formula.items():
        assert (result[name].lower, result[name].upper) == pytest.approx(ends, rel=1e-9)
    dcal = result["d_calibration"]
    assert 0 <= dcal.lower <= dcal.value <= dcal.upper
    by_formula["d_calibration"] = ()
    assert all(np.isnan(score.lower) for score in result.scores if score.name not in by_formula)
    assert result.skipped == {}


def test_curves_alone_give_f_at_the_own_time_and_the_restricted_mean(data, times):
    derived = evaluate(time=data.time, event=data.event, survival=data.survival(times), times=times)
    start = np.concatenate([[0.0], times])
    curves = np.column_stack([np.ones(400), data.survival(times)])
    own = np.array([1 - np.interp(t, start, curve) for t, curve in zip(data.time, curves, strict=True)])
    given = evaluate(time=data.time, event=data.event, predicted_time=trapezoid(curves, start, axis=1))
    assert derived["harrell"].value == pytest.approx(given["harrell"].value, rel=1e-9)
    # Past the end of the grid F is not known: such a row counts as censored there.
    within = evaluate(time=data.time, event=data.event & (data.time <= times[-1]), cdf=own)
    for name in ("d_calibration", "d_calibration_p", "quantile_slope"):
        assert derived[name].value == pytest.approx(within[name].value, rel=1e-9)


def test_a_perfect_model_is_not_accused_because_the_grid_is_short():
    rng = np.random.default_rng(0)
    rate = rng.uniform(0.5, 2.0, 2000)
    happens, censors = rng.exponential(1 / rate), rng.exponential(2.0, 2000)
    time, event = np.minimum(happens, censors), happens <= censors
    for end in (0.5, 1.0, 10.0):
        grid = np.linspace(0.01, end, 200)
        survival = np.exp(-grid * rate[:, None])
        result = evaluate(time=time, event=event, survival=survival, times=grid, metrics=["d_calibration_p"])
        assert result["d_calibration_p"].value > 0.01


def test_d_calibration_by_another_method_and_by_the_names_of_the_result(data):
    cdf = -np.expm1(-1.2 * data.rate * data.time)
    rows = {"time": data.time, "event": data.event}
    chosen = ["d_calibration", "d_calibration_floor"]
    for method, time in (("km", None), ("ipcw", data.time)):
        result = evaluate(**rows, cdf=cdf, metrics=chosen, d_calibration_method=method)
        expected = d_calibration(cdf, data.event, method=method, time=time)
        assert [score.name for score in result.scores] == [*chosen, "d_calibration_p"]
        assert result["d_calibration"].value == pytest.approx(expected.value, rel=1e-12)
        assert result["d_calibration_floor"].value == pytest.approx(expected.floor, rel=1e-12)


def test_one_name_alone():
    result = evaluate(time=[1, 2, 3], event=[1, 1, 1], predicted_time=[1, 2, 3], metrics="harrell")
    assert [score.name for score in result.scores] == ["harrell"]


def test_rising_survival_curves_are_refused():
    with pytest.raises(
        ValueError, match=r"survival: expected curves that do not rise, got 0.9 after 0.5 at row \(1, 1\)"
    ):
        evaluate(time=[1, 2], event=[1, 1], survival=[[0.9, 0.5], [0.5, 0.9]], times=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"survival: expected shape \(rows, 3\).*transpose"):
        evaluate(time=[1, 2], event=[1, 1], survival=np.ones((3, 2)), times=[1.0, 2.0, 3.0])


def test_values_are_held_where_asked():
    # S is 1 until 1, then 0.6 until 2, then 0.2: areas 1.6, and F at the observed times 0.4 and 0.8.
    result = evaluate(
        time=[1.5, 2.0],
        event=[1, 1],
        survival=[[0.6, 0.2], [0.6, 0.2]],
        times=[1.0, 2.0],
        interpolation="previous",
        metrics=["quantile_slope", "harrell"],
    )
    expected = quantile_slope([0.4, 0.8], event=[1, 1])
    assert result["quantile_slope"].value == pytest.approx(expected.slope)
    assert result["harrell"].value == 0.5


def test_a_single_grid_time_has_no_integral():
    result = evaluate(time=[1, 2, 3], event=[1, 1, 1], survival=[[0.3], [0.5], [0.7]], times=[1.5])
    assert "ibs" in result.skipped
    assert np.isfinite(result["antolini"].value)


def test_says_what_it_could_not_compute(data):
    result = evaluate(time=data.time, event=data.event, predicted_time=1 / data.rate)
    assert [score.name for score in result.scores] == ["harrell", "uno"]
    assert result.skipped["d_calibration"] == "it needs F at the observed times"
    assert "not computed: d_calibration, quantile_slope (it needs F" in repr(result)
    with pytest.raises(KeyError, match="'ici'; there are harrell"):
        result["ici"]


def test_bootstrap_intervals_are_reproducible_and_hold_the_value(data, times):
    def run(seed):
        return evaluate(
            time=data.time,
            event=data.event,
            survival=data.survival(times),
            times=times,
            metrics=["harrell", "uno", "ibs", "d_calibration_p"],
            n_bootstrap=60,
            generator=np.random.default_rng(seed),
        )

    first, again, other = run(1), run(1), run(2)
    assert first.scores == again.scores or repr(first) == repr(again)
    assert first["harrell"].lower != other["harrell"].lower
    for name in ("harrell", "uno", "ibs"):
        assert first[name].lower < first[name].value < first[name].upper
    assert np.isnan(first["d_calibration_p"].lower)


@pytest.mark.ci
def test_the_bootstrap_interval_covers_as_often_as_it_says():
    # Harrell's index of uninformative predictions is 0.5 by symmetry.
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(100):
        data = survival_data(100, rng=rng)
        result = evaluate(
            time=data.time,
            event=data.event,
            predicted_time=rng.normal(size=100),
            metrics=["harrell"],
            n_bootstrap=60,
            level=0.9,
            generator=rng,
        )
        covered += result["harrell"].lower < 0.5 < result["harrell"].upper
    # 90 % of 100 with a standard error of 3 %.
    assert 80 <= covered <= 98


@pytest.mark.parametrize("happened", [True, False], ids=["event", "censored"])
def test_a_row_that_the_model_calls_certain_leaves_every_metric_defined(data, times, happened):
    survival, event = data.survival(times), data.event.copy()
    survival[3, 10:], event[3] = 0.0, happened
    time = data.time.copy()
    time[3] = times[20]
    result = evaluate(time=time, event=event, survival=survival, times=times, at=times[25])
    assert [score.name for score in result.scores if not np.isfinite(score.value)] == []


SQUARES = [name for name, metric in METRICS.items() if metric.deviations is not None and metric.evaluated]


@pytest.mark.parametrize("name", SQUARES)
@pytest.mark.parametrize("method", ["uniform", "km"])
def test_a_squared_distance_is_the_length_of_its_deviations(name, method, data, times):
    given = {"time": data.time, "event": data.event, "survival": data.survival(times, 1.3), "times": times, "at": 0.8}
    rows, _ = read_rows(**given, d_calibration_method=method)
    result = evaluate(**given, d_calibration_method=method, metrics=[name])
    own = METRICS[name].deviations(rows)(Block.once_each(rows.line))[0]
    assert np.square(own).sum() == pytest.approx(result[name].value, rel=1e-9)


@pytest.mark.ci
@pytest.mark.parametrize("too_fast", [1.0, 1.6])
def test_intervals_of_distances_reach_a_perfect_model_and_leave_a_wrong_one(too_fast):
    """40 data sets of 250 rows. True distances: zero, or those of hazards 1.6 times too high."""
    rng = np.random.default_rng(3)
    grid = np.linspace(0.05, 3, 30)
    covered = {name: 0 for name in ("d_calibration", "ici", "km_calibration")}
    above_zero = 0
    for _ in range(40):
        data = survival_data(250, rng=rng, censoring_scale=np.inf)
        result = evaluate(
            time=data.time, event=data.event, survival=data.survival(grid, too_fast), times=grid, at=0.7,
            cdf=-np.expm1(-too_fast * data.rate * data.time), metrics=list(covered), n_bootstrap=40, generator=rng,
        )  # fmt: skip
        truth = {"ici": np.abs(data.probability(0.7, too_fast) - data.probability(0.7)).mean()}
        edges = np.arange(11) / 10
        truth["d_calibration"] = np.square(-np.diff((1 - edges) ** (1 / too_fast)) - 0.1).sum()
        for name in covered:
            # KM calibration of a wrong model ends at an event of these rows: its truth is left to the benchmark.
            covered[name] += (name not in truth and too_fast != 1) or (
                result[name].lower <= truth.get(name, 0.0) <= result[name].upper
            )
        above_zero += result["ici"].lower > 0
    # 95 % of 40 are 38, with a standard error of 1.4; forty resamples and the chosen quantile take a little away.
    assert min(covered.values()) >= 32
    assert above_zero <= 4 if too_fast == 1 else above_zero >= 36


def test_as_a_frame(data):
    frame = evaluate(time=data.time, event=data.event, predicted_time=1 / data.rate).to_frame()
    assert list(frame.columns) == ["value", "lower", "upper", "ideal"]
    assert frame.loc["harrell", "ideal"] == 1


def test_the_table_is_aligned(data, times):
    result = evaluate(
        time=data.time,
        event=data.event,
        survival=data.survival(times),
        times=times,
        n_bootstrap=5,
        generator=np.random.default_rng(0),
        metrics=["harrell", "brier"],
    )
    head, title, *lines = repr(result).splitlines()
    assert head.startswith("400 rows, ")
    assert title.split() == ["metric", "value", "95%", "interval", "ideal"]
    assert [line.split()[0] for line in lines] == ["harrell", "brier"]
    assert len({len(line) for line in [title, *lines]}) == 1


def test_the_default_time_is_the_median_event_time(data):
    result = evaluate(time=data.time, event=data.event, predicted_time=1 / data.rate)
    assert result.at == np.median(data.time[data.event])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "cdf, predicted_time, survival: expected at least one kind of prediction, got none"),
        ({"survival": [[0.5], [0.5]]}, "survival, times: expected both or neither, got only one of them"),
        ({"cdf": [0.5, 0.5], "metrics": ["accuracy"]}, "metrics: expected one of 'harrell'.*got 'accuracy'"),
        ({"cdf": [0.5, 0.5], "n_bootstrap": 5}, "generator: expected a numpy.random.Generator"),
        ({"cdf": [0.5, 0.5], "level": 95}, "level: expected a number between 0 and 1, got 95"),
        ({"cdf": [0.5, 0.5], "level": None}, "level: expected a number between 0 and 1, got None"),
        ({"cdf": [0.5, 0.5], "level": "a"}, "level: expected a number between 0 and 1, got 'a'"),
        ({"cdf": [0.5, 0.5], "level": [0.5]}, r"level: expected a number between 0 and 1, got \[0.5\]"),
        ({"cdf": [0.5, 0.5], "metrics": 5}, "metrics: expected names of metrics, got 5"),
        ({"cdf": [0.5, 0.5], "metrics": [5]}, "metrics: expected one of 'harrell'.*got 5"),
        ({"cdf": [0.5, 0.5], "metrics": [["harrell"]]}, "metrics: expected one of 'harrell'.*got \\['harrell'\\]"),
        (
            {"cdf": [0.5, 0.5], "interpolation": np.array(["a", "b"])},
            "interpolation: expected one of 'linear'",
        ),
        ({"cdf": [0.5, 0.5], "censoring": "km"}, "censoring: expected None or kaplan_meier.*got str"),
    ],
)
def test_refuses(given, message):
    with pytest.raises(ValueError, match=message):
        evaluate(time=[1, 2], event=[1, 1], **given)


def test_all_names_are_known():
    assert sum(metric.evaluated for metric in METRICS.values()) == 16


@pytest.mark.ci
def test_importing_the_metrics_pulls_in_only_the_core():
    script = (
        "import sys, xcal.metrics; "
        "print([m for m in ('pandas', 'sklearn', 'matplotlib', 'numba', 'lifelines', 'sksurv') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def values_of(evaluation):
    return {score.name: score.value for score in evaluation.scores}


def test_groups_are_evaluated_as_if_alone():
    rng = np.random.default_rng(0)
    n = 400
    rate, label = rng.uniform(0.5, 2, n), np.array(["a", "b"])[rng.integers(0, 2, n)]
    happens, leaves = rng.exponential(1 / rate), rng.exponential(2.0, n)
    time, event = np.minimum(happens, leaves), happens <= leaves
    times = np.linspace(0.1, 1.5, 8)
    survival = np.exp(-rate[:, None] * times)
    result = evaluate(time=time, event=event, survival=survival, times=times, at=0.8, groups=label)
    assert list(result.groups) == ["a", "b"]
    for name, own in result.groups.items():
        rows = label == name
        alone = evaluate(time=time[rows], event=event[rows], survival=survival[rows], times=times, at=0.8)
        assert values_of(own) == values_of(alone)
        assert (own.n, own.n_events) == (rows.sum(), event[rows].sum())
        assert f"group {name}: {alone!r}" in repr(result)
    whole = evaluate(time=time, event=event, survival=survival, times=times, at=0.8)
    assert values_of(result) == values_of(whole)
    assert whole.groups == {}
    label = label.astype(object)
    label[:4] = "ward of J. Smith"
    few = evaluate(time=time, event=event, survival=survival, times=times, at=0.8, groups=label, metrics=["harrell"])
    assert few.groups["ward of J. Smith"].n == 4
    assert "Smith" not in repr(few)
    assert repr(few).endswith("not shown: 1 group of fewer than 5 rows (.groups has them)")
    with pytest.raises(ValueError, match="groups: expected 400 rows, as many as time has, got 3"):
        evaluate(time=time, event=event, survival=survival, times=times, groups=["a", "b", "a"])


@pytest.mark.parametrize("interpolation", ["linear", "previous"])
def test_the_area_under_a_curve_is_that_of_what_is_read_from_it(interpolation):
    curves, times = np.array([[0.9, 0.5, 0.1], [1.0, 0.8, 0.0]]), np.array([0.5, 2.0, 3.0])
    middles = (np.arange(3000) + 0.5) / 1000
    read = np.mean([at_point(curves, times, t, interpolation) for t in middles], axis=0) * 3.0
    assert restricted_mean(curves, times, interpolation) == pytest.approx(read, abs=1e-9)
