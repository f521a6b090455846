"""Censoring that depends on covariates, and times in whole units: found, corrected, and said."""

import numpy as np
import pandas as pd
import pytest
from studies._laws import draw, grid, survival

import xcal
from tests.validation.simulate import Given
from xcal.calibration.subgroups import Column
from xcal.interop.predictions import ModelPredictions
from xcal.validation.for_whom import dependent_censoring


def audited(law="proportional", n=1500, *, censored=0.6, depends=True, seed=0, power=1.0, **options):
    x, time, event = draw(law, n, censored, depends, [seed, 7])
    times = grid(law, time)
    given = {"survival": survival(law, x, times) ** power, "times": times, "y": (time, event), "n_bootstrap": 0}
    covariates = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2]})
    return xcal.audit(**{"covariates": covariates, "progress": False} | given | options)


def test_censoring_that_depends_on_risk_is_found_corrected_and_said():
    result = audited()
    found = result.measured.censoring
    assert found.corrected
    assert found.p_value < 1e-4
    assert found.on[0] in ("a", "the predicted risk")
    horizon = result.horizons[-1]
    (plain,) = [v.value for v in found.uncorrected if (v.metric, v.horizon) == ("oe", horizon)]
    value = result.value("oe", horizon=horizon)
    assert plain < 0.95  # rows at high risk leave early, and Kaplan-Meier is too low
    assert abs(np.log(value.value)) < abs(np.log(plain)) / 1.5
    (concern,) = [one for one in result.data.concerns if one.what.startswith("Censoring depends on")]
    assert f"O/E at {horizon:g} would be {plain:.3g}" in concern.effect
    assert "doubly robust" in result.methods


@pytest.mark.ci
def test_accuracy_is_corrected_too():
    """AUC and Brier score of the true risks against those of the whole population, which are known."""
    off = {"auc": [], "brier": []}
    plain = {"auc": [], "brier": []}
    for seed in range(5):
        result = audited(n=2500, seed=seed, covariates=None)
        horizon = result.horizons[-1]
        x, *_ = draw("proportional", 2500, 0.6, True, [seed, 7])
        risk = 1 - survival("proportional", x, np.array([horizon]))[:, 0]
        order = np.argsort(risk)
        case, control = risk[order], 1 - risk[order]
        expected = {
            "auc": float(case @ (np.cumsum(control) - control / 2) / (case.sum() * control.sum())),
            "brier": float((risk * (1 - risk)).mean()),
        }
        uncorrected = {v.metric: v.value for v in result.measured.censoring.uncorrected if v.horizon == horizon}
        for name, value in expected.items():
            off[name].append(result.value(name, horizon=horizon).value - value)
            plain[name].append(uncorrected[name] - value)
    for name, errors in off.items():
        assert abs(np.mean(errors)) < 3 * np.std(errors) / 5**0.5 + 2e-3, name
        assert abs(np.mean(errors)) < abs(np.mean(plain[name])), name


def test_independent_censoring_is_left_as_published():
    result = audited(depends=False)
    assert not result.measured.censoring.corrected
    assert not [one for one in result.data.concerns if "Censoring depends" in one.what]
    assert "doubly robust" not in result.methods


def test_the_test_of_censoring_holds_its_level():
    rejected = 0
    for seed in range(100):
        x, time, event = draw("proportional", 200, 0.6, False, [seed, 7])
        predictions = ModelPredictions("m", "none", 200, risk=x[:, 0].argsort() / 200, risk_horizon=0.5)
        rows = Given(time, event, predictions, np.array([0.5])).rows
        columns = tuple(Column(str(k), x[rows.order, k]) for k in range(3))
        rejected += dependent_censoring(rows, columns, "auto")[0].corrected
    assert rejected <= 5  # 1 % of 100 is one


@pytest.mark.parametrize("treatment", ["independent", "covariates"])
def test_the_treatment_can_be_chosen(treatment):
    result = audited(censoring=treatment)
    assert result.measured.censoring.corrected == (treatment == "covariates")
    (concern,) = [one for one in result.data.concerns if one.what.startswith("Censoring depends on")]
    assert concern.serious == (treatment == "independent")
    with pytest.raises(ValueError, match="censoring: expected one of 'auto', 'independent', 'covariates', got 'km'"):
        audited(censoring="km")


def test_a_model_of_one_risk_is_corrected_by_curves_of_risk_groups():
    x, time, event = draw("proportional", 1500, 0.6, True, [0, 7])
    horizon = float(np.quantile(time[event], 0.7))
    risk = 1 - survival("proportional", x, np.array([horizon]))[:, 0]
    result = xcal.audit(risk=risk, horizons=horizon, y=(time, event), n_bootstrap=0, progress=False)
    assert result.measured.censoring.corrected
    (plain,) = [v.value for v in result.measured.censoring.uncorrected if v.metric == "oe"]
    assert abs(result.value("oe", horizon=horizon).value - 1) < abs(plain - 1) / 2


# Times in whole months: rounded up, or everything at visits.
@pytest.mark.parametrize("law", ["months", "visits"])
@pytest.mark.ci
def test_true_models_of_coarse_times_are_not_accused(law):
    """12 data sets of 400 rows, 85 % censored: D-calibration, covariates and horizons, corrected for their number.

    `studies/audit_verdict.py` has many more.
    """
    off = [audited(law, 400, censored=0.85, depends=bool(seed % 2), seed=seed).verdict.level for seed in range(12)]
    assert sum(level in ("caution", "distrust") for level in off) <= 2
    assert "distrust" not in off


def test_what_is_not_known_of_coarse_times_is_in_the_interval_and_said():
    result = audited("months", censored=0.85, depends=False)
    whole = audited("months", censored=0.85, depends=False, last_seen="end")
    half = audited("months", censored=0.85, depends=False, last_seen="middle")
    horizon = result.horizons[-1]
    both, end, middle = (one.value("oe", horizon=horizon) for one in (result, whole, half))
    assert both.value == end.value < middle.value
    assert (both.lower, both.upper) == pytest.approx((end.lower, middle.upper))
    assert abs(middle.value - 1) < abs(end.value - 1)  # times were rounded up: rows were seen for half of a month
    assert result.measured.seen[horizon] == pytest.approx((end.value, middle.value))
    (concern,) = [one for one in result.data.concerns if one.what.startswith("Times in whole units")]
    assert "last_seen= (--last-seen) settles it" in concern.effect
    assert result.value("d_calibration_p").value == max(one.value("d_calibration_p").value for one in (whole, half))


def test_horizons_of_coarse_times_are_among_the_times():
    result = audited("months", 600, censored=0.2, depends=False)
    assert all(horizon == round(horizon) for horizon in result.horizons)


def test_exact_times_can_be_said_to_be_exact():
    result = audited("months", 400, last_seen="exact")
    assert not result.measured.seen
    with pytest.raises(ValueError, match="last_seen: expected one of"):
        audited(last_seen="start")


def test_without_curves_coarse_times_are_a_serious_concern():
    x, time, event = draw("months", 400, 0.2, False, [0, 7])
    own = 1 - survival("months", x, time[:, None])[:, 0]
    result = xcal.audit(cdf=own, y=(time, event), n_bootstrap=0, progress=False)
    (concern,) = [one for one in result.data.concerns if one.what.startswith("Times in whole units")]
    assert concern.serious
