"""Metrics that merge: equal to the metrics in memory, whatever the chunks and the order of merges."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sksurv.metrics import concordance_index_censored
from sksurv.nonparametric import kaplan_meier_estimator

from tests.metrics.simulate import survival_data
from xcal.metrics import (
    brier_score,
    concordance_index,
    cox_ici,
    integrated_brier_score,
    kaplan_meier,
    mean_nll,
    observed_expected,
    one_calibration,
)
from xcal.metrics.streaming import (
    StreamingBrier,
    StreamingConcordance,
    StreamingCoxICI,
    StreamingKaplanMeier,
    StreamingMeanNLL,
    StreamingObservedExpected,
    StreamingOneCalibration,
)

TIMES = np.array([0.25, 0.5, 1.0])
GRID = np.arange(1, 401) / 16  # all times of `rows(grid=1 / 16)` lie on it
RISKS = np.linspace(0.3, 2.0, 60)


class Rows:
    """Simulated rows, and what each accumulator takes of them."""

    def __init__(self, n=1500, seed=0, grid=None):
        rng = np.random.default_rng(seed)
        data = survival_data(n, rng=rng, grid=grid)
        self.time, self.event, self.risk = data.time, data.event, data.rate
        self.survival = data.survival(TIMES, too_fast=1.2)
        self.cdf = -np.expm1(-1.2 * self.risk * self.time)
        self.nll = rng.normal(2.0, 3.0, n)
        self.n = n

    def take(self, rows):
        new = object.__new__(Rows)
        for name, values in vars(self).items():
            setattr(new, name, values[rows] if isinstance(values, np.ndarray) else len(rows))
        return new

    @property
    def outcome(self):
        return {"time": self.time, "event": self.event}


def risk_of(rows):
    return 1 - rows.survival[:, 1]


def cuts_of(rows, k=10):
    return np.sort(risk_of(rows))[np.arange(1, k) * rows.n // k]


# name: what makes the accumulator for given rows, and what updates it.
ROWS, TIED = Rows(), Rows(grid=1 / 16)
CURVE = StreamingKaplanMeier(at=TIMES).update(**ROWS.outcome).compute("censoring")
METERS = {
    "kaplan_meier": (lambda: StreamingKaplanMeier(at=TIMES), lambda m, r: m.update(**r.outcome)),
    "kaplan_meier coarse": (lambda: StreamingKaplanMeier(at=TIMES, limit=40), lambda m, r: m.update(**r.outcome)),
    "kaplan_meier grid": (lambda: StreamingKaplanMeier(grid=GRID, at=TIMES), lambda m, r: m.update(**r.outcome)),
    "observed_expected": (
        lambda: StreamingObservedExpected(TIMES, limit=100),
        lambda m, r: m.update(1 - r.survival, **r.outcome),
    ),
    "brier": (lambda: StreamingBrier(TIMES, CURVE), lambda m, r: m.update(r.survival, **r.outcome)),
    "nll": (StreamingMeanNLL, lambda m, r: m.update(r.nll)),
    "one_calibration": (
        lambda: StreamingOneCalibration(at=0.5, cuts=cuts_of(ROWS), limit=200),
        lambda m, r: m.update(risk_of(r), **r.outcome),
    ),
    "one_calibration cdf": (
        lambda: StreamingOneCalibration(at=0.5, cuts=cuts_of(ROWS), uses_cdf=True),
        lambda m, r: m.update(risk_of(r), **r.outcome, cdf=r.cdf),
    ),
    "concordance": (StreamingConcordance, lambda m, r: m.update(**r.outcome, risk=r.risk)),
    "concordance coarse": (
        lambda: StreamingConcordance(limit=300),
        lambda m, r: m.update(**r.outcome, risk=r.risk),
    ),
    "concordance grid": (
        lambda: StreamingConcordance(grids=(GRID, RISKS)),
        lambda m, r: m.update(**r.outcome, risk=r.risk),
    ),
    "ici": (lambda: StreamingCoxICI(at=0.5, limit=500), lambda m, r: m.update(risk_of(r), **r.outcome)),
    "ici grid": (
        lambda: StreamingCoxICI(at=0.5, grids=(GRID, np.linspace(0.01, 1, 100))),
        lambda m, r: m.update(risk_of(r), **r.outcome),
    ),
}


def pieces(n, k, rng):
    cuts = np.sort(rng.integers(0, n + 1, k - 1))
    return [piece for piece in np.split(rng.permutation(n), cuts)]


def same_state(one, other):
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)


@pytest.mark.parametrize("name", METERS)
def test_the_state_is_the_same_from_any_pieces_in_any_order(name):
    make, update = METERS[name]
    whole = update(make(), ROWS)
    rng = np.random.default_rng(1)
    for k in (2, 7, 64):
        parts = [update(make(), ROWS.take(rows)) for rows in pieces(ROWS.n, k, rng)]
        parts = [make().load_state_dict(pickle.loads(pickle.dumps(part.state_dict()))) for part in parts]
        while len(parts) > 1:  # merged in pairs drawn at random, not one after another
            i, j = rng.choice(len(parts), 2, replace=False)
            parts[i].merge(parts[j])
            del parts[j]
        # Whole numbers: equal to the last bit, so the results are too.
        same_state(whole, parts[0])
        assert parts[0].n == ROWS.n
    chunked = make()
    for rows in pieces(ROWS.n, 5, rng):
        update(chunked, ROWS.take(rows))
    same_state(whole, chunked)


@pytest.mark.parametrize("name", METERS)
def test_state_is_bounded_and_survives_a_round_trip(name):
    make, update = METERS[name]
    meter = update(make(), ROWS)
    size = sum(values.nbytes for values in meter.state_dict().values())
    update(meter, Rows(n=6000, seed=5))
    if name not in {"concordance", "kaplan_meier"}:  # within their limits these keep every row
        assert sum(values.nbytes for values in meter.state_dict().values()) < 2 * size + 20_000
    assert repr(make().load_state_dict(meter.state_dict()).compute()) == repr(meter.compute())


@pytest.mark.parametrize("name", METERS)
def test_bad_use_is_refused(name):
    make, update = METERS[name]
    with pytest.raises(ValueError, match="call update"):
        make().compute()
    with pytest.raises(ValueError, match="other: expected a Streaming"):
        make().merge(StreamingKaplanMeier(at=[9.0]))
    with pytest.raises(ValueError, match="state: expected the entries"):
        make().load_state_dict({"n": np.array(1)})
    empty = ROWS.take(np.arange(0))
    assert update(make(), empty).n == 0


@pytest.mark.parametrize("rows", [ROWS, TIED], ids=["continuous", "tied"])
@pytest.mark.parametrize("of", ["event", "censoring"])
def test_kaplan_meier_equals_that_of_the_rows(rows, of):
    found = StreamingKaplanMeier().update(**rows.outcome).compute(of)
    expected = kaplan_meier(**rows.outcome, of=of)
    assert found.exact
    assert found.error_bound == 0
    np.testing.assert_array_equal(found.curve.times, expected.times)
    np.testing.assert_allclose(found.curve.survival, expected.survival, rtol=1e-12)
    np.testing.assert_allclose(found.curve.variance(TIMES), expected.variance(TIMES), rtol=1e-12)


def test_kaplan_meier_equals_scikit_survival():
    times, survival = kaplan_meier_estimator(ROWS.event, ROWS.time)
    found = StreamingKaplanMeier().update(**ROWS.outcome).compute()
    np.testing.assert_allclose(found.curve.at(times), survival, rtol=1e-12)


@pytest.mark.parametrize("of", ["event", "censoring"])
def test_kaplan_meier_on_a_grid_is_exact_where_the_times_lie_on_it(of):
    found = StreamingKaplanMeier(grid=GRID).update(**TIED.outcome).compute(of)
    assert found.exact
    np.testing.assert_allclose(found.curve.at(GRID), kaplan_meier(**TIED.outcome, of=of).at(GRID), rtol=1e-12)


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 200),
    st.sampled_from(["event", "censoring"]),
    st.integers(2, 30),
    st.booleans(),
)
def test_the_range_of_a_coarse_curve_holds_that_of_the_rows(seed, n, of, limit, on_grid):
    rng = np.random.default_rng(seed)
    time = rng.exponential(size=n) * 10 ** rng.uniform(-3, 3)
    if rng.random() < 0.3:
        time = np.round(time, 1)
    event = rng.random(n) < rng.random()
    at = np.unique(np.quantile(time, [0.2, 0.7]))
    grid = np.union1d(at, np.quantile(time, rng.random(5))) if on_grid else None
    found = StreamingKaplanMeier(at=at, limit=limit, grid=grid).update(time=time, event=event).compute(of)
    exact = kaplan_meier(time=time, event=event, of=of)
    low, high = found.bounds(at)
    for bound in (exact.at(at) - low, high - exact.at(at), found.curve.at(at) - low, high - found.curve.at(at)):
        assert (bound >= -1e-12).all()
    # At every row, what Brier's weights use.
    least, most = found.relative_range(at[-1])
    early = time[time <= at[-1]]
    ratio = found.curve.at(early)[exact.at(early) > 0] / exact.at(early)[exact.at(early) > 0]
    assert (ratio >= least - 1e-12).all()
    assert (ratio <= most + 1e-12).all()


@pytest.mark.parametrize("rows", [ROWS, TIED], ids=["continuous", "tied"])
def test_observed_expected_equals_that_of_the_rows(rows):
    found = StreamingObservedExpected(TIMES).update(1 - rows.survival, **rows.outcome).compute()
    for k, t in enumerate(TIMES):
        expected = observed_expected(1 - rows.survival[:, k], at=t, **rows.outcome, interval="greenwood")
        for name in ("value", "lower", "upper", "observed", "expected", "n_events"):
            assert getattr(found.results[k], name) == pytest.approx(getattr(expected, name), rel=1e-12), name
    assert (found.error_bound == 0).all()


def test_observed_expected_past_the_follow_up_is_unknown():
    found = StreamingObservedExpected([1.0, 99.0]).update(np.full((ROWS.n, 2), 0.5), **ROWS.outcome).compute()
    assert np.isfinite(found.results[0].value)
    assert np.isnan(found.results[1].value)


def test_the_bound_of_observed_expected_holds():
    coarse = StreamingObservedExpected(TIMES, limit=20).update(1 - ROWS.survival, **ROWS.outcome).compute()
    for k, t in enumerate(TIMES):
        exact = observed_expected(1 - ROWS.survival[:, k], at=t, **ROWS.outcome).value
        assert 0 < abs(coarse.results[k].value - exact) <= coarse.error_bound[k] < 0.2


@pytest.mark.parametrize("rows", [ROWS, TIED], ids=["continuous", "tied"])
@pytest.mark.parametrize("left_limit", [False, True])
def test_brier_equals_that_of_the_rows(rows, left_limit):
    times = np.append(TIMES, 99.0)
    survival = np.column_stack([rows.survival, np.full(rows.n, 0.1)])
    curve = StreamingKaplanMeier(at=times).update(**rows.outcome).compute("censoring")
    found = StreamingBrier(times, curve, left_limit=left_limit).update(survival, **rows.outcome).compute()
    expected = brier_score(survival, times, **rows.outcome, left_limit=left_limit)
    np.testing.assert_allclose(found.score.values, expected.values, rtol=1e-12)
    np.testing.assert_array_equal(found.score.estimable, [True, True, True, False])
    whole = integrated_brier_score(survival, times, **rows.outcome, left_limit=left_limit)
    assert found.integrated.value == pytest.approx(whole.value, rel=1e-12)
    assert found.integrated.stop == whole.stop
    assert (found.error_bound[:3] == 0).all()


@pytest.mark.parametrize("limit", [10, 40, 200])
def test_the_bound_of_brier_holds(limit):
    curve = StreamingKaplanMeier(at=TIMES, limit=limit).update(**ROWS.outcome).compute("censoring")
    found = StreamingBrier(TIMES, curve).update(ROWS.survival, **ROWS.outcome).compute()
    exact = brier_score(ROWS.survival, TIMES, **ROWS.outcome).values
    assert (np.abs(found.score.values - exact) <= found.error_bound).all()
    assert (np.abs(found.score.values - exact) > 0).any()
    whole = integrated_brier_score(ROWS.survival, TIMES, **ROWS.outcome).value
    assert abs(found.integrated.value - whole) <= found.integrated_error_bound


@pytest.mark.parametrize("rows", [ROWS, TIED], ids=["continuous", "tied"])
@pytest.mark.parametrize(
    ("method", "uses_cdf"),
    [
        ("likelihood-ratio", True),
        ("gronnesby-borgan", True),
        ("effective-size", False),
        ("hosmer-lemeshow", False),
        ("dagostino-nam", False),
        ("greenwood-nam-dagostino", False),
    ],
)
@pytest.mark.parametrize("at", [0.5, 0.0625])
def test_one_calibration_equals_that_of_the_rows(rows, method, uses_cdf, at):
    p = -np.expm1(-1.2 * rows.risk * at)
    cuts = np.sort(p)[np.arange(1, 10) * rows.n // 10]
    cdf = {"cdf": rows.cdf} if uses_cdf else {}
    meter = StreamingOneCalibration(at=at, cuts=cuts, method=method, uses_cdf=uses_cdf)
    found = meter.update(p, **rows.outcome, **cdf).compute()
    expected = one_calibration(p, at=at, **rows.outcome, method=method, **cdf)
    assert found.exact
    assert found.result.statistic == pytest.approx(expected.statistic, rel=1e-11)
    assert found.result.p_value == pytest.approx(expected.p_value, rel=1e-10)
    assert found.result.degrees_of_freedom == expected.degrees_of_freedom
    np.testing.assert_allclose(found.result.predicted, expected.predicted, rtol=1e-12)
    np.testing.assert_allclose(found.result.observed, expected.observed, rtol=1e-12)
    np.testing.assert_array_equal(found.result.sizes, expected.sizes)


def test_one_calibration_of_coarse_times_has_a_range():
    meter = StreamingOneCalibration(at=0.5, cuts=cuts_of(ROWS), limit=60)
    found = meter.update(risk_of(ROWS), **ROWS.outcome).compute()
    exact = one_calibration(risk_of(ROWS), at=0.5, **ROWS.outcome, method="effective-size")
    assert not found.exact
    assert (found.lower <= exact.observed).all()
    assert (exact.observed <= found.upper).all()
    assert (found.upper - found.lower < 0.1).all()


def test_mean_nll_equals_that_of_the_rows():
    found = StreamingMeanNLL().update(ROWS.nll[:700]).update(ROWS.nll[700:]).compute()
    expected = mean_nll(ROWS.nll)
    assert found.value == pytest.approx(expected.value, rel=1e-13)
    assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-12)
    assert StreamingMeanNLL().update([np.inf, 1.0]).compute().value == np.inf
    # Sums of floats lose this: the mean of the three is one third.
    assert StreamingMeanNLL().update([1e120, 1.0]).update([-1e120]).compute().value == 1 / 3


@pytest.mark.parametrize("rows", [ROWS, TIED], ids=["continuous", "tied"])
@pytest.mark.parametrize("rounded", [False, True])
def test_concordance_equals_that_of_the_rows(rows, rounded):
    risk = np.round(rows.risk, 1) if rounded else rows.risk
    found = StreamingConcordance().update(**rows.outcome, risk=risk).compute()
    expected = concordance_index(**rows.outcome, risk=risk)
    assert found.concordance == expected
    assert found.error_bound == 0
    theirs = concordance_index_censored(rows.event, rows.time, risk)
    if rows is ROWS:  # scikit-survival leaves out an event and a censoring of one time
        assert found.value == pytest.approx(theirs[0], rel=1e-12)


def test_concordance_on_grids_is_exact_where_the_rows_lie_on_them():
    risk = np.round(TIED.risk, 1)
    grids = GRID, np.unique(risk)
    found = StreamingConcordance(grids=grids, limit=1).update(**TIED.outcome, risk=risk).compute()
    expected = concordance_index(**TIED.outcome, risk=risk)
    assert found.concordance.concordant == expected.concordant
    assert found.concordance.tied == expected.tied
    assert found.concordance.comparable == expected.comparable
    assert found.error_bound == pytest.approx(0, abs=1e-12)


@settings(max_examples=80)
@given(st.integers(0, 10**6), st.integers(2, 150), st.integers(1, 60), st.booleans())
def test_the_range_of_a_coarse_concordance_holds_that_of_the_rows(seed, n, limit, on_grid):
    rng = np.random.default_rng(seed)
    time, event = rng.exponential(size=n) + 0.01, rng.random(n) < rng.random()
    risk = rng.normal(size=n) - rng.random() * time
    for values in (time, risk):
        if rng.random() < 0.4:
            values[:] = np.round(values, 1)
    grids = (np.sort(rng.exponential(size=6)), np.sort(rng.normal(size=7))) if on_grid else None
    found = StreamingConcordance(limit=limit, grids=grids).update(time=time, event=event, risk=risk).compute()
    exact = concordance_index(time=time, event=event, risk=risk).value
    if np.isfinite(exact) and np.isfinite(found.value):
        assert found.lower - 1e-12 <= exact <= found.upper + 1e-12
        assert abs(found.value - exact) <= found.error_bound + 1e-12


def test_quantile_grids_give_a_narrow_range():
    rows = Rows(n=20_000, seed=2)
    grids = tuple(np.unique(np.quantile(x, np.linspace(0, 1, 257))) for x in (rows.time, rows.risk))
    found = StreamingConcordance(grids=grids).update(**rows.outcome, risk=rows.risk).compute()
    exact = concordance_index(**rows.outcome, risk=rows.risk).value
    assert abs(found.value - exact) < 2e-4
    assert found.error_bound < 1.2 / 128


@pytest.mark.parametrize("rows", [ROWS, TIED], ids=["continuous", "tied"])
def test_ici_equals_that_of_the_rows(rows):
    p = risk_of(rows)
    found = StreamingCoxICI(at=0.5).update(p[:500], time=rows.time[:500], event=rows.event[:500])
    found = found.update(p[500:], time=rows.time[500:], event=rows.event[500:]).compute()
    expected = cox_ici(p, at=0.5, **rows.outcome)
    assert found.exact
    assert found.resolution == 0
    for name in ("value", "e50", "e90", "emax"):
        # Newton's method stops at a decrement of 1e-10; rows in another order end in other last digits.
        assert getattr(found.index, name) == pytest.approx(getattr(expected, name), rel=1e-9), name
    np.testing.assert_allclose(found.index.observed, expected.observed, rtol=1e-9)


def test_ici_on_a_grid_is_that_of_rows_moved_to_it():
    rows, grid = TIED, np.linspace(0.02, 1, 50)
    p = risk_of(rows)
    meter = StreamingCoxICI(at=0.5, grids=(GRID, grid)).update(p, **rows.outcome)
    found = meter.compute()
    moved = grid[np.searchsorted(grid, p)] - 0.01
    expected = cox_ici(moved, at=0.5, **rows.outcome)
    assert not found.exact
    assert found.resolution == pytest.approx(0.01)
    assert found.index.value == pytest.approx(expected.value, rel=1e-9)
    assert found.index.e90 == pytest.approx(expected.e90, rel=1e-9)
    assert found.index.value == pytest.approx(cox_ici(p, at=0.5, **rows.outcome).value, rel=0.05)


def test_a_part_of_many_deaths_of_one_time_stands_for_all(monkeypatch):
    rows = Rows(n=4000, seed=4, grid=1 / 4)
    p = np.round(risk_of(rows), 2)
    exact = StreamingCoxICI(at=0.5).update(p, **rows.outcome).compute().index.value
    monkeypatch.setattr("xcal.metrics.cox._MANY_DEATHS", 0)
    shown = StreamingCoxICI(at=0.5).update(p, **rows.outcome).compute().index.value
    assert 0 < abs(shown / exact - 1) < 1e-6  # the midpoint rule with 256 points


def test_constant_predictions():
    found = StreamingCoxICI(at=0.5).update(np.full(TIED.n, 0.5), **TIED.outcome).compute()
    expected = cox_ici(np.full(TIED.n, 0.5), at=0.5, **TIED.outcome)
    assert found.index.value == pytest.approx(expected.value, rel=1e-12)
    assert found.index.smoother == "constant"


def test_float32_rows_give_what_they_give_in_memory():
    time, risk = ROWS.time.astype(np.float32), ROWS.risk.astype(np.float32)
    found = StreamingConcordance().update(time=time, event=ROWS.event, risk=risk).compute().concordance
    assert found == concordance_index(time=time, event=ROWS.event, risk=risk)


def test_every_setting_is_compared():
    pairs = itertools.pairwise(
        [
            StreamingOneCalibration(at=0.5, cuts=[0.3]),
            StreamingOneCalibration(at=0.5, cuts=[0.4]),
            StreamingOneCalibration(at=0.6, cuts=[0.4]),
            StreamingOneCalibration(at=0.6, cuts=[0.4], method="dagostino-nam"),
        ]
    )
    for one, other in pairs:
        with pytest.raises(ValueError, match="same settings"):
            one.merge(other)


@pytest.mark.parametrize(
    ("meter", "given", "match"),
    [
        (StreamingKaplanMeier(), {"time": [1.0, -1.0], "event": [1, 1]}, "time: expected finite times"),
        (StreamingKaplanMeier(), {"time": [1.0, 2.0], "event": [1, 2]}, "event: expected True/False or 0/1"),
        (StreamingConcordance(), {"time": [1.0], "event": [1], "risk": [np.nan]}, "risk: expected numbers"),
        (StreamingConcordance(), {"time": [1.0], "event": [1], "risk": [1.0, 2.0]}, "risk: expected 1 rows"),
        (StreamingCoxICI(at=1.0), {"probability": [1.5], "time": [1.0], "event": [1]}, "probability: expected values"),
        (StreamingMeanNLL(), {"nll": [np.nan]}, "nll: expected numbers"),
        (StreamingBrier(TIMES, CURVE), {"survival": [[0.5]], "time": [1.0], "event": [1]}, "survival: expected shape"),
        (
            StreamingOneCalibration(at=1.0, cuts=[0.5]),
            {"probability": [0.5], "time": [1.0], "event": [1], "cdf": [0.5]},
            "cdf: expected F at the observed times",
        ),
    ],
)
def test_bad_rows_are_refused_and_leave_the_state_as_it_was(meter, given, match):
    before = meter.state_dict()
    with pytest.raises(ValueError, match=match):
        meter.update(**given)
    for name, values in meter.state_dict().items():
        np.testing.assert_array_equal(values, before[name])


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: StreamingKaplanMeier(grid=[1.0, 2.0], at=[1.5]), "at: expected points of the grid"),
        (lambda: StreamingKaplanMeier(limit=0), "limit: expected an integer"),
        (lambda: StreamingConcordance(grids=([2.0, 1.0], [1.0])), "grids, times: expected increasing numbers"),
        (lambda: StreamingOneCalibration(at=1.0, cuts=[0.5], grid=[2.0]), "grid: expected a grid with the time 1"),
        (lambda: StreamingOneCalibration(at=1.0, cuts=[0.5], method="likelihood-ratio"), "cdf: expected F"),
        (lambda: StreamingBrier(TIMES, None), "censoring: expected"),
    ],
)
def test_bad_settings_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_a_damaged_state_is_refused():
    meter = StreamingConcordance(limit=100).update(**ROWS.outcome, risk=ROWS.risk)
    state = meter.state_dict()
    for name, values in {"pairs.counts": np.zeros((2, 3), np.int64), "pairs.level": np.array(99)}.items():
        with pytest.raises(ValueError, match="state"):
            StreamingConcordance(limit=100).load_state_dict(state | {name: values})
    with pytest.raises(ValueError, match="whole numbers of shape"):
        StreamingMeanNLL().load_state_dict(StreamingMeanNLL().state_dict() | {"values": np.zeros(3)})


def test_times_without_events_are_no_empty_chunk():
    meter = StreamingObservedExpected([1.0])
    for time, event in (([], [1]), ([0.5], [])):
        with pytest.raises(ValueError, match=r"time: expected|event: expected"):
            meter.update([[0.2]], time=time, event=event)
    assert meter.update(np.empty((0, 1)), time=[], event=[]).n == 0
