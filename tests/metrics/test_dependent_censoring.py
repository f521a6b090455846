"""Weights by a model of the censoring: lifelines' Cox model of it, and the truth that uncensored rows tell."""

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter

from xcal.metrics import (
    brier_score,
    cumulative_dynamic_auc,
    decision_curve,
    integrated_brier_score,
    kaplan_meier,
    net_benefit,
    scaled_brier_score,
)

TIMES = np.array([0.2, 0.5, 1.0])


def rows(n, seed, *, strength=1.2):
    """Covariates, when the event comes, observed times and events; rows at high risk leave early."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    rate = np.exp(0.8 * x[:, 0] + 0.4 * x[:, 1])
    happens = rng.exponential(1 / rate)
    leaves = rng.exponential(1.5 * np.exp(-strength * x[:, 0]))
    return x, rate, happens, np.minimum(happens, leaves), happens <= leaves


def test_they_are_the_formulas_with_the_censoring_model_of_lifelines():
    x, rate, _, time, event = rows(400, 0)
    survival = np.exp(-TIMES * rate[:, None])
    table = pd.DataFrame(x, columns=["a", "b"]).assign(time=time, left=~event)
    model = CoxPHFitter().fit(table, "time", "left", fit_options={"precision": 1e-10})
    # Its predictions are read along straight lines, so the steps are taken from the baseline. Times are continuous:
    # just before an event G is that at the event.
    baseline, factor = (
        model.baseline_cumulative_hazard_["baseline cumulative hazard"],
        model.predict_partial_hazard(table),
    )
    steps = np.append(0.0, baseline.to_numpy())

    def g(t):
        return np.exp(-factor.to_numpy()[:, None] * steps[np.searchsorted(baseline.index, t, side="right")])

    g_own, g_at = np.diag(g(time)), g(TIMES)
    # No row stands for more than 20.
    passed, lasts = event / np.maximum(g_own, 0.05), 1 / np.maximum(g_at, 0.05)
    given = {"time": time, "event": event, "censoring": x}
    brier = [
        np.mean(np.where(time <= t, passed * s**2, w * (1 - s) ** 2))
        for t, s, w in zip(TIMES, survival.T, lasts.T, strict=True)
    ]
    assert brier_score(survival, TIMES, **given).values == pytest.approx(brier, rel=1e-5)
    for k, t in enumerate(TIMES):
        case, control = np.where(time <= t, passed, 0.0), np.where(time > t, lasts[:, k], 0.0)
        pairs = case[:, None] * control
        right = (rate[:, None] > rate) + 0.5 * (rate[:, None] == rate)
        auc = cumulative_dynamic_auc(rate, [t], **given).values[0]
        assert auc == pytest.approx((pairs * right).sum() / pairs.sum(), rel=1e-5)
        risk, acted = 1 - survival[:, k], 1 - survival[:, k] >= 0.3
        seen = case[acted].sum() / (case + control)[acted].sum()
        expected = acted.mean() * (seen - (1 - seen) * 0.3 / 0.7)
        assert net_benefit(risk, 0.3, at=t, **given).value == pytest.approx(expected, rel=1e-4, abs=1e-8)
        curve = decision_curve(0.99 * risk, [0.297, 0.995], at=t, **given)  # nobody is at the second threshold
        seen = seen - (1 - seen) * 0.297 / 0.703
        assert curve.model == pytest.approx([acted.mean() * seen, 0.0], rel=1e-4, abs=1e-8)


def test_what_is_lost_by_censoring_that_depends_on_covariates_comes_back():
    off = {}
    for seed in range(6):
        x, rate, happens, time, event = rows(2000, seed + 1, strength=0.8)
        survival = np.exp(-TIMES * rate[:, None])
        for way, seen, came, how in (
            ("truth", happens, np.ones(2000, dtype=bool), None),
            ("marginal", time, event, None),
            ("by covariates", time, event, x),
        ):
            given = {"time": seen, "event": came, "censoring": how}
            found = [
                brier_score(survival, TIMES, **given).values[1],
                scaled_brier_score(survival, TIMES, **given).values[1],
                cumulative_dynamic_auc(rate, TIMES, **given).values[1],
                net_benefit(1 - survival[:, 1], 0.3, at=TIMES[1], **given).value,
            ]
            off.setdefault(way, []).append(found)
    truth, marginal, corrected = (np.array(off[way]) for way in ("truth", "marginal", "by covariates"))
    before, after = (np.abs((one - truth).mean(axis=0)) for one in (marginal, corrected))
    assert (after < before / 3).all()


def test_covariates_that_say_nothing_change_little_and_none_is_the_curve():
    x, rate, _, time, event = rows(1500, 9, strength=0.0)
    survival = np.exp(-TIMES * rate[:, None])
    given = {"time": time, "event": event}
    marginal, own = (brier_score(survival, TIMES, **given, censoring=one).values for one in (None, x))
    assert own == pytest.approx(marginal, abs=0.01)
    # Without any censoring every row stands for itself.
    alone = {"time": time, "event": np.ones(1500, dtype=bool)}
    assert integrated_brier_score(survival, TIMES, **alone, censoring=x).value == pytest.approx(
        integrated_brier_score(survival, TIMES, **alone).value, rel=1e-12
    )


def test_competing_rows_stay_controls():
    x, rate, _, time, event = rows(300, 3)
    other = event & (x[:, 1] > 0.5)
    given = {"time": time, "event": event & ~other, "competing": other}
    # The curve of all rows, and a model of covariates that nearly do not differ.
    flat = np.random.default_rng(0).normal(size=(300, 1)) * 1e-9
    plain, by_model = (cumulative_dynamic_auc(rate, TIMES, **given, censoring=one).values for one in (None, flat))
    assert by_model == pytest.approx(plain, abs=0.01)


@pytest.mark.parametrize(
    ("censoring", "message"),
    [
        (np.zeros((5, 2)), "censoring"),
        (np.full((300, 1), np.nan), "censoring.*row 0"),
        (np.zeros((300, 0)), "covariates of shape"),
        ("age", "censoring"),
    ],
)
def test_what_is_no_table_of_covariates_is_refused(censoring, message):
    _, rate, _, time, event = rows(300, 3)
    with pytest.raises(ValueError, match=message):
        brier_score(np.exp(-TIMES * rate[:, None]), TIMES, time=time, event=event, censoring=censoring)


def test_what_does_not_go_together_is_refused():
    x, rate, _, time, event = rows(300, 3)
    given = {"time": time, "event": event}
    with pytest.raises(ValueError, match="sampling weights"):
        brier_score(np.exp(-TIMES * rate[:, None]), TIMES, **given, censoring=x, weights=np.ones(300) + x[:, 0] ** 2)
    with pytest.raises(ValueError, match="n_bootstrap"):
        decision_curve(
            1 - np.exp(-rate), [0.5], at=1.0, **given, censoring=x, n_bootstrap=5, generator=np.random.default_rng(0)
        )
    with pytest.raises(ValueError, match="a curve"):
        net_benefit(1 - np.exp(-rate), 0.5, at=1.0, **given, censoring=kaplan_meier(**given, of="censoring"))
