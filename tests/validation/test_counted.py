"""Every metric on rows that count, against its public function on rows repeated as often."""

from dataclasses import replace

import numpy as np
import pytest
from lifelines import KaplanMeierFitter

from tests.metrics.simulate import survival_data
from tests.validation.simulate import THRESHOLDS, TIMES, sample
from xcal import d_calibration
from xcal.metrics import (
    concordance_index,
    cumulative_dynamic_auc,
    decision_curve,
    integrated_brier_score,
    kaplan_meier,
    km_calibration,
    observed_expected,
    scaled_brier_score,
)
from xcal.metrics.auc import CountedAUC, CountedValues
from xcal.metrics.concordance import antolini_indices, uno_weights
from xcal.metrics.errors import brier_scores, integrated_scores, null_brier_scores
from xcal.metrics.net_benefit import CountedBenefit, benefit_of_values
from xcal.metrics.of_rows import Asked, counted_coverage, coverage, no_quantiles
from xcal.metrics.pairs import CountedPairs
from xcal.metrics.pit import CountedCurve, CountedRedistribution, bin_shares, uniform_masses
from xcal.metrics.resamples import Block, Timeline

N = 150
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


class Case:
    """Rows, several resamples of them, and the repeated rows of each."""

    def __init__(self, *, grid, training, interpolation="linear", risk_digits=None):
        given = {"grid": grid, "groups": False, "interpolation": interpolation, "last_seen": "exact"}
        self.rows = sample(N, seed=3, too_fast=1.3, **given).rows
        if training:
            rng = np.random.default_rng(9)
            other = survival_data(80, rng=rng, grid=grid)
            self.censoring = kaplan_meier(time=other.time, event=other.event, of="censoring")
        else:
            self.censoring = None
        self.line = Timeline(self.rows.outcome, self.censoring)
        rng = np.random.default_rng(4)
        counts = [np.ones(N), *(np.bincount(rng.integers(N, size=N), minlength=N) for _ in range(5))]
        # Few rows drawn many times: follow-up that ends early, ties in everything.
        counts.append(np.bincount(rng.integers(N // 2, size=N), minlength=N))
        self.block = Block(self.line, np.array(counts, dtype=np.float64))
        self.risk = {h: r if risk_digits is None else np.round(r, risk_digits) for h, r in self.rows.risk.items()}

    def repeated(self):
        """Places of the rows of each resample."""
        return [np.repeat(np.arange(N), line.astype(int)) for line in self.block.counts]

    def outcome(self, rows):
        return {"time": self.rows.time[rows], "event": self.rows.event[rows]}


@pytest.fixture(params=[(None, False), (0.125, False), (None, True), (0.125, True)], ids=str)
def case(request):
    grid, training = request.param
    return Case(grid=grid, training=training)


def held(ours, theirs):
    """Equal, NaN where the other is, and not NaN throughout."""
    theirs = np.array(theirs, dtype=np.float64)
    np.testing.assert_allclose(ours, theirs, **CLOSE)
    assert np.isfinite(theirs).any()


@pytest.mark.parametrize("digits", [None, 1])
def test_harrell_and_uno(case, digits):
    score = case.rows.score if digits is None else np.round(case.rows.score, digits)
    pairs = CountedPairs(case.rows.outcome, score)
    harrell, uno = pairs.indices(case.block.counts, [np.ones((1, N)), uno_weights(case.block)])
    given = [{**case.outcome(rows), "predicted_time": score[rows]} for rows in case.repeated()]
    held(harrell, [concordance_index(**g).value for g in given])
    held(uno, [concordance_index(**g, method="uno", censoring=case.censoring).value for g in given])


@pytest.mark.parametrize("interpolation", ["linear", "previous"])
@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("grid", [None, 0.125])
def test_antolini(interpolation, digits, grid):
    case = Case(grid=grid, training=False, interpolation=interpolation)
    survival = case.rows.survival if digits is None else np.round(case.rows.survival, digits)
    ours = antolini_indices(case.rows.outcome, survival, TIMES, interpolation, case.block.counts.astype(np.float32))
    held(
        ours,
        [
            concordance_index(
                **case.outcome(rows), survival=survival[rows], times=TIMES, interpolation=interpolation
            ).value
            for rows in case.repeated()
        ],
    )


@pytest.mark.parametrize("digits", [None, 1])
def test_auc(case, digits):
    for h, risk in case.risk.items():
        score = risk if digits is None else np.round(risk, digits)
        theirs = [
            cumulative_dynamic_auc(score[rows], h, **case.outcome(rows), censoring=case.censoring).values[0]
            for rows in case.repeated()
        ]
        held(CountedAUC(case.line, score, h).values(case.block), theirs)


def test_brier_scores(case):
    for h, risk in case.risk.items():
        theirs = [
            scaled_brier_score(1 - risk[rows], h, **case.outcome(rows), censoring=case.censoring)
            for rows in case.repeated()
        ]
        held(brier_scores(case.block, 1 - risk[:, None], np.array([h]))[:, 0], [t.brier[0] for t in theirs])
        held(null_brier_scores(case.block, h), [t.null[0] for t in theirs])
    scores = brier_scores(case.block, case.rows.survival, TIMES)
    integrals = [
        integrated_brier_score(case.rows.survival[rows], TIMES, **case.outcome(rows), censoring=case.censoring)
        for rows in case.repeated()
    ]
    held(scores, [i.curve.values for i in integrals])
    held(integrated_scores(scores, TIMES), [i.value for i in integrals])


def test_observed_risk(case):
    for h, risk in case.risk.items():
        theirs = [
            observed_expected(risk[rows], at=h, **case.outcome(rows), outside="clip").observed
            for rows in case.repeated()
        ]
        held(1 - case.block.survival_at(h), theirs)


def test_net_benefit(case):
    for h, risk in case.risk.items():
        theirs = [decision_curve(risk[rows], THRESHOLDS, at=h, **case.outcome(rows)).model for rows in case.repeated()]
        held(CountedBenefit(case.line, risk, THRESHOLDS, h).values(case.block), theirs)


@pytest.mark.parametrize("digits", [None, 1])
def test_values_from_pseudo_values_are_those_of_the_outcomes_where_nobody_is_censored(digits):
    """Without censoring pseudo-values are outcomes, and each value is that of its public function on repeated rows."""
    rng = np.random.default_rng(2)
    data = survival_data(N, rng=rng, censoring_scale=np.inf)
    h, happened = 0.7, np.full(N, True)
    risk = data.probability(h, 1.3) if digits is None else np.round(data.probability(h, 1.3), digits)
    counts = np.array([np.ones(N), *(np.bincount(rng.integers(N, size=N), minlength=N) for _ in range(4))])
    core = CountedValues(risk, (data.time <= h).astype(float))
    found, benefit = core.accuracy(counts), benefit_of_values(risk, (data.time <= h) * 1.0, counts, THRESHOLDS)
    for k, own in enumerate(np.repeat(np.arange(N), line.astype(int)) for line in counts):
        outcome = {"time": data.time[own], "event": happened[own]}
        scaled = scaled_brier_score(1 - risk[own], h, **outcome)
        expected = (cumulative_dynamic_auc(risk[own], h, **outcome).values[0], scaled.brier[0], scaled.values[0])
        assert (found["auc"][k], found["brier"][k], found["ipa"][k]) == pytest.approx(expected, rel=1e-9)
        held(benefit[k], decision_curve(risk[own], THRESHOLDS, at=h, **outcome).model)


@pytest.mark.parametrize("heavy", [False, True])
def test_masses_of_d_calibration(case, heavy):
    cdf, event = case.rows.cdf, case.rows.cdf_event
    if heavy:  # most rows censored: redistribution stops early
        event = event & (np.random.default_rng(5).uniform(size=N) < 0.2)
    bins = bin_shares(cdf, event)
    km = CountedRedistribution(bins, event, cdf).masses(case.block)
    ipcw = CountedRedistribution(bins, event, case.rows.time).masses(case.block)
    theirs = {
        method: [
            d_calibration(cdf[rows], event[rows], method=method, time=case.rows.time[rows], p_value=None).histogram
            for rows in case.repeated()
        ]
        for method in ("uniform", "km", "ipcw")
    }
    held(uniform_masses(case.block, bins), theirs["uniform"])
    held(km, theirs["km"])
    held(ipcw, theirs["ipcw"])


def test_masses_of_tied_values_and_of_a_resample_without_an_event(case):
    """Redistribution stops within a tie whose row may not be drawn, or where nobody has an event."""
    cdf = np.round(case.rows.cdf, 1)
    first = int(np.argmin(cdf))
    without = case.block.counts[np.argmax(case.block.counts[1:, first]) + 1] == 0
    event = without & (cdf > 0.3)
    assert event.any()
    assert not without[first]
    found = CountedRedistribution(bin_shares(cdf, event), event, cdf).masses(case.block)
    theirs = [d_calibration(cdf[rows], event[rows], method="km", p_value=None).histogram for rows in case.repeated()]
    held(found, theirs)


@pytest.mark.parametrize("interpolation", ["linear", "previous"])
def test_average_curve_beside_kaplan_meier(interpolation):
    case = Case(grid=0.125, training=False, interpolation=interpolation)
    core = CountedCurve(case.line, case.rows.survival, TIMES, interpolation)
    whole = km_calibration(case.rows.survival, TIMES, **case.outcome(np.arange(N)), interpolation=interpolation)
    deviations = core.deviations(case.block)
    assert np.square(deviations[0]).sum() == pytest.approx(whole.value, rel=1e-9)
    gaps = np.diff(whole.times)
    share = (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2 / whole.times[-1]
    for k, rows in enumerate(case.repeated()):
        average = np.append(1.0, case.rows.survival[rows].mean(axis=0))
        grid = np.append(0.0, TIMES)
        if interpolation == "linear":
            predicted = np.interp(whole.times, grid, average)
        else:
            predicted = average[np.searchsorted(grid, whole.times, side="right") - 1]
        observed = kaplan_meier(**case.outcome(rows)).at(whole.times)
        np.testing.assert_allclose(deviations[k], np.sqrt(share) * (predicted - observed), **CLOSE)


def test_coverage(case):
    """The shares between quantiles, by lifelines' Kaplan-Meier curve of F; unknown where nobody was followed."""
    rows, ours = case.rows, counted_coverage(case.rows, None)(case.block)
    for name, low, high in (("bound_coverage", 0.1, 1.0), ("interval_coverage", 0.05, 0.95)):
        theirs = []
        for picked in case.repeated():
            curve = KaplanMeierFitter().fit(rows.cdf[picked], rows.cdf_event[picked])
            known = high == 1 or high <= rows.cdf[picked].max() or curve.predict(2.0) == 0
            theirs.append(curve.predict(low) - (curve.predict(high) if high < 1 else 0) if known else np.nan)
        held(ours[name], theirs)
        assert coverage(rows, None, Asked())[name] == pytest.approx(theirs[0], rel=1e-9)
    short = rows.take(rows.cdf < 0.5)
    found = coverage(replace(short, cdf_event=short.cdf_event & (short.cdf < 0.4)), None, Asked())
    assert np.isnan(found["interval_coverage"])
    assert found["bound_coverage"] > 0
    assert no_quantiles(replace(rows, outcome=replace(rows.outcome, competing=~rows.event))) != ""
