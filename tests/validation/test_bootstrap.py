"""Resamples: the metrics of the rows drawn, the same for every number of threads, with intervals by the known rules."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import norm

from tests.validation.simulate import HORIZONS, THRESHOLDS, TIMES, by_key, measure, sample
from xcal import _devices as _threads
from xcal.data.surv import Outcome
from xcal.metrics import concordance_index, evaluate
from xcal.metrics.estimates import Draws, Estimates, _scaled, bootstrap, estimates
from xcal.metrics.intervals import true_square
from xcal.metrics.of_rows import Asked
from xcal.metrics.resamples import drawn_by_seed
from xcal.metrics.spec import METRICS, Key

LEVEL = 0.9
# Intervals by formula, and values that are no estimates of their own.
FIXED = ("oe", "observed_risk", "slope", "intercept", "ici", "ici_excess", "cox_slope", "cox_intercept")
FIXED += ("d_calibration", "d_calibration_excess", "d_calibration_km_excess", "d_calibration_ipcw_excess")
FIXED += ("km_calibration_excess",)


@pytest.fixture(scope="module")
def given():
    return sample(200, too_fast=1.3, groups=False)


@pytest.fixture(scope="module")
def draws(given):
    rows = given.rows
    found = estimates(rows, [name for name, one in METRICS.items() if one.audited], Asked(LEVEL))
    return rows, found, bootstrap(rows, found, 70, 5, thresholds=THRESHOLDS)


def test_a_draw_is_the_metric_of_the_rows_drawn(given, draws):
    rows, _, drawn = draws
    p = given.predictions
    for number in (0, 69):
        counts = drawn_by_seed(rows.order, None, 5)(number)
        assert counts.sum() == 200
        own = np.repeat(rows.order, counts.astype(int))
        scores = evaluate(
            time=given.time[own], event=given.event[own], survival=p.survival[own], times=TIMES, at=HORIZONS[1]
        )
        pairs = {"harrell": Key("harrell"), "uno": Key("uno"), "antolini": Key("antolini")}
        pairs |= {"brier": Key("brier", HORIZONS[1]), "ibs": Key("ibs"), "d_calibration": Key("d_calibration")}
        for theirs, key in pairs.items():
            assert drawn.values[key][number] == pytest.approx(scores[theirs].value, abs=1e-8), theirs
        assert drawn.values[Key("nll")][number] == pytest.approx(p.nll[own].mean(), rel=1e-12)
        # Of what rests on pseudo-values a draw is that of the rows drawn to first order.
        for theirs, key in (("oe", "oe"), ("slope", "slope"), ("ici", "ici")):
            assert drawn.values[Key(key, HORIZONS[1])][number] == pytest.approx(scores[theirs].value, abs=0.08), theirs


def test_every_value_has_draws_but_those_by_formula_alone_and_p_values(draws):
    _, found, drawn = draws
    without = {key.metric for key in found.values if key not in drawn.values}
    assert without == {
        *("cox_slope", "cox_intercept", "ici_cox", "e50_cox", "e90_cox", "emax_cox"),
        *("one_calibration_p", "d_calibration_p", "e50", "e90", "emax", "ici_excess", "d_calibration_excess"),
        *("ici_floor", "e50_floor", "e90_floor", "emax_floor", "e50_excess", "e90_excess", "emax_excess"),
        *("d_calibration_floor", "d_calibration_km_floor", "d_calibration_ipcw_floor"),
    }


def test_intervals_are_standard_errors_on_a_scale_or_those_of_a_distance(given, draws):
    _, found, drawn = draws
    values = by_key(measure(given, level=LEVEL, n_bootstrap=70, seed=5).values)
    harrell = values["harrell", None]
    error = logit(drawn.values[Key("harrell")]).std(ddof=1)
    expected = norm(logit(harrell.value), error).interval(LEVEL)
    np.testing.assert_allclose(logit([harrell.lower, harrell.upper]), expected, rtol=1e-12)
    for name in ("d_calibration_km", "km_calibration"):
        known = true_square(found.values[Key(name)], drawn.along[Key(name)], drawn.squares[Key(name)], LEVEL)
        shown, excess = values[name, None], values[f"{name}_excess", None]
        np.testing.assert_allclose([shown.lower, shown.upper], [known.lower, known.upper], rtol=1e-9)
        np.testing.assert_allclose([excess.value, excess.lower], [known.excess, known.lower], rtol=1e-9)
    for key, value in values.items():
        if np.isfinite(value.lower) and key[0] not in FIXED:
            assert value.lower <= value.value <= value.upper, key


def test_the_result_depends_on_the_seed_and_not_on_the_threads(given, monkeypatch):
    def values(threads, seed):
        monkeypatch.setattr(_threads, "usable_threads", lambda: threads)
        result = measure(given, n_bootstrap=70, seed=seed)
        band = [curve.upper for curve in result.decision] + [curve.lower for curve in result.decision]
        return np.array([(v.lower, v.upper) for v in result.values]), np.concatenate(band)

    (one, bands), (three, same), (other, _) = values(1, 7), values(3, 7), values(1, 8)
    np.testing.assert_array_equal(one, three)
    np.testing.assert_array_equal(bands, same)
    assert not np.array_equal(one, other, equal_nan=True)


def test_progress_comes_to_the_end(given):
    seen = []
    grouped = given.but(groups={"half": np.where(np.arange(200) < 100, "first", "second")})
    measure(grouped, n_bootstrap=70, progress=lambda done, total: seen.append((done, total)))
    done, totals = zip(*seen, strict=True)
    assert set(totals) == {70 * 400}
    assert list(done) == sorted(done)
    assert done[-1] == totals[0]


def test_bands_hold_their_curves(given):
    result = measure(given, n_bootstrap=60)
    for curve in result.calibration:
        assert (curve.lower <= curve.observed + 0.05).all()
        assert (curve.observed - 0.05 <= curve.upper).all()
        assert (curve.upper - curve.lower > 0).all()
    for curve in result.decision:
        assert (curve.lower <= curve.upper).all()
        assert np.isfinite(curve.lower).all()


def test_two_models_are_drawn_on_the_same_rows(given):
    again = replace(given, predictions=replace(given.predictions, survival=given.predictions.survival**2))
    first, second = (measure(s, n_bootstrap=20, seed=1).draws for s in (given, again))
    # A power of the curves leaves the order of the rows as it is, at every time.
    np.testing.assert_allclose(first[Key("antolini")], second[Key("antolini")], rtol=1e-12)
    np.testing.assert_allclose(first[Key("auc", HORIZONS[0])], second[Key("auc", HORIZONS[0])], rtol=1e-12)
    assert not np.allclose(first[Key("mean_risk", HORIZONS[0])], second[Key("mean_risk", HORIZONS[0])])


def test_single_precision_changes_no_more_than_its_digits():
    exact, single = (measure(sample(200, dtype=d, groups=False), n_bootstrap=20) for d in (np.float64, np.float32))
    for a, b in zip(exact.values, single.values, strict=True):
        assert (a.metric, a.horizon) == (b.metric, b.horizon)
        # An F on an edge of a bin may fall on its other side: one row of 200 moves D-calibration by about 1e-3.
        assert (a.value, a.lower, a.upper) == pytest.approx((b.value, b.lower, b.upper), abs=3e-3, nan_ok=True), a


def test_training_rows_give_the_weights():
    rng = np.random.default_rng(3)
    train = {"training": Outcome(rng.exponential(size=300) + 0.5, rng.uniform(size=300) < 0.3)}
    own, other = sample(200, groups=False), sample(200, groups=False, **train)
    a, b = (measure(s, n_bootstrap=20) for s in (own, other))
    table = {(v.metric, v.horizon): v.value for v in b.values}
    changed = {v.metric for v in a.values if v.value != table[v.metric, v.horizon]}
    assert changed == {"uno", "auc", "brier", "ipa", "ibs"}
    expected = concordance_index(
        time=own.time,
        event=own.event,
        risk=1 - own.predictions.survival[:, 3],
        method="uno",
        censoring=other.rows.censoring,
    )
    assert table["uno", None] == pytest.approx(expected.value, rel=1e-9)


@pytest.mark.ci
def test_intervals_from_a_part_of_the_rows_are_as_wide_as_those_from_all():
    """A quarter of the rows has twice the noise, and the draws are scaled by a half; around the values of all rows."""
    given = sample(3200, too_fast=1.3, groups=False)
    whole = measure(given, n_bootstrap=100, seed=1)
    part = measure(given, n_bootstrap=100, most_rows=800, seed=1)
    # What noise alone gives is known from the resamples.
    drawn = ("_excess", "km_calibration_floor")
    assert [v.value for v in part.values if not v.metric.endswith(drawn)] == [
        v.value for v in whole.values if not v.metric.endswith(drawn)
    ]
    compared = [(a, b) for a, b in zip(whole.values, part.values, strict=True) if b.metric not in FIXED]
    compared = [(a, b) for a, b in compared if np.isfinite(a.upper)]
    assert {"harrell", "antolini", "auc", "brier", "ipa", "d_calibration_km"} <= {a.metric for a, _ in compared}
    for a, b in compared:
        assert b.lower <= b.value <= b.upper
        # The end of an interval from 100 resamples is uncertain by about 15 % of its distance.
        assert (b.upper - b.value) == pytest.approx(a.upper - a.value, rel=0.6), a
    for name in ("oe", "slope", "ici"):
        key = Key(name, float(HORIZONS[1]))
        assert part.draws[key].std() == pytest.approx(whole.draws[key].std(), rel=0.35), name
    for a, b in zip(whole.decision, part.decision, strict=True):
        assert np.median(b.upper - b.lower) == pytest.approx(np.median(a.upper - a.lower), rel=0.3)


def test_what_a_part_differs_by_is_scaled_as_the_deviations_of_its_bins_are():
    """Of a squared distance: scale the noise itself, and take its part along the distance and its square again."""
    rng = np.random.default_rng(0)
    noise, along, scale = rng.normal(size=(50, 6)), rng.normal(size=6), 0.3
    along /= np.linalg.norm(along)
    drawn, benefit = rng.normal(5, 1, size=50), rng.normal(2, 1, size=(50, 3))
    distance, value = Key("d_calibration"), Key("auc", 1.0)
    draws = Draws(
        50,
        {value: drawn},
        {distance: noise @ along},
        {distance: np.square(noise).sum(axis=1)},
        {1.0: benefit},
    )
    own = Draws(1, {value: np.array([5.5])}, {}, {}, {1.0: np.full((1, 3), 2.5)})
    whole = np.array([0.1, 0.2, 0.3])
    scaled = _scaled(draws, own, Estimates({value: 0.7}), {1.0: whole}, scale)
    np.testing.assert_allclose(scaled.along[distance], scale * noise @ along, rtol=1e-12)
    np.testing.assert_allclose(scaled.squares[distance], np.square(scale * noise).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose((scaled.values[value] - 0.7) / scale, drawn - 5.5, rtol=1e-9)
    np.testing.assert_allclose((scaled.benefit[1.0] - whole) / scale, benefit - 2.5, rtol=1e-9)


def test_a_part_of_the_rows_is_the_same_for_two_models(given):
    again = replace(given, predictions=replace(given.predictions, survival=given.predictions.survival**2))
    first, second = (measure(s, n_bootstrap=20, most_rows=100, seed=1).draws for s in (given, again))
    key = Key("antolini")
    np.testing.assert_allclose(first[key], second[key], rtol=1e-12)
    assert first[key].std() > 0
