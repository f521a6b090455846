"""CSD and CiPOT against a frozen output of their authors' code, on WHAS500.

``conformal_whas500.json`` was made with github.com/shi-ang/MakeSurvivalCalibratedAgain, commit 08af6b5, with
SurvivalEVAL 0.5.1, lifelines 0.30.3, scikit-survival 0.28.0, numpy 2.4.6 and scipy 1.17.1, as follows:

- Data: scikit-survival's `load_whas500`, columns age, bmi, hr and sysbp standardised over all rows; rows 0-199 train,
  200-399 calibrate ("cal"), 400-404 are predicted ("new").
- Model: lifelines' `WeibullAFTFitter(penalizer=0.01)`, its curves at lifelines' default times, read by "Pchip".
- CiPOT: `CSDiPOT(SurvivalPredictionNC(model, args), "sampling", 9, n_sample)` with 1,000 and 20,000 repetitions;
  "cipot_levels" are its adjusted levels of F, "cipot_quantiles" what `predict` gives (time 0 first).
- CSD: `ConformalSurvDist(QuantileRegressionNC(model, args), decensor_method="sampling", n_quantiles=9)`, the
  Kaplan-Meier curve being that of the calibration rows, `mono_method="floor"`; "sampling" with 5,000 random draws for
  each censored row (seed 0), "events" on the calibration rows with an event alone. "csd_shifts" is what is added to
  the model's quantiles.
- "cal_survival_at_time" and "cal_quantiles" are what its scorers read off the model's curves.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from xcal.recalibration import CiPOTRecalibration, ConformalQuantiles


@pytest.fixture(scope="module")
def frozen():
    content = json.loads((Path(__file__).parent / "conformal_whas500.json").read_text())
    return {name: np.array(values) for name, values in content.items()}


def test_the_levels_of_cipot_are_the_limit_of_many_repetitions(frozen):
    cipot = CiPOTRecalibration.fit(1 - frozen["cal_survival_at_time"], frozen["cal_event"])
    levels = cipot.quantile(frozen["levels"])
    # A censored row's scores are a grid of so many points over less than 1; one of them is found, the next one may be
    # meant.
    np.testing.assert_allclose(levels, frozen["cipot_levels_1000"], rtol=0, atol=1 / 1000)
    np.testing.assert_allclose(levels, frozen["cipot_levels_20000"], rtol=0, atol=1 / 20_000)
    assert (np.abs(levels - frozen["levels"]) > 1e-3).all()  # the model needed correction at every level


def test_the_shifts_of_csd_without_censoring_are_the_same(frozen):
    event = frozen["cal_event"] == 1
    csd = ConformalQuantiles.fit(frozen["cal_quantiles"][event], frozen["cal_time"][event], event[event])
    np.testing.assert_allclose(csd.shifts, frozen["csd_shifts_events"], rtol=1e-9)
    # Rows whose moved quantiles cross are put in order in another way ("floor" lowers the earlier ones; we sort). Their
    # quantiles begin with time 0, and have k * 1e-10 added.
    ordered = (np.diff(frozen["new_quantiles"] + csd.shifts, axis=1) > 0).all(axis=1)
    assert ordered.sum() > 1
    found, theirs = csd.quantiles(frozen["new_quantiles"]), frozen["csd_quantiles_events"][:, 1:]
    np.testing.assert_allclose(found[ordered], theirs[ordered], rtol=1e-8, atol=1e-6)


def test_the_shifts_of_csd_with_censoring_agree_to_a_step_of_the_curve(frozen):
    csd = ConformalQuantiles.fit(frozen["cal_quantiles"], frozen["cal_time"], frozen["cal_event"], n_samples=2000)
    # Their draws put each fall of the Kaplan-Meier curve at the observed time before it. So an event time is off by
    # one gap between neighbouring times of the curve: 12 days on average here, of a range of more than 2,000.
    gap = np.diff(np.unique(frozen["cal_time"])).mean()
    np.testing.assert_allclose(csd.shifts, frozen["csd_shifts_sampling"], rtol=0, atol=gap)
    # Far closer than any other treatment of the censored rows comes: without them the shifts are others.
    others = np.abs(frozen["csd_shifts_events"] - frozen["csd_shifts_sampling"])
    assert np.median(others) > 10 * np.median(np.abs(csd.shifts - frozen["csd_shifts_sampling"]))
