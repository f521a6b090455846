"""Turnbull's estimate against R's survfit, Kaplan-Meier, and a maximum found by another way."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from xcal.metrics import kaplan_meier, turnbull

DATA = Path(os.environ.get("XCAL_DATA", "no data")) / "coarsened"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the data sets (XCAL_DATA)")


@needs_data
class TestOfR:
    def test_diabetes(self):
        rows, curve = pd.read_csv(DATA / "diabetes.csv"), pd.read_csv(DATA / "diabetes_turnbull.csv")
        found = turnbull(lower=rows["left"], upper=rows["right"])
        exact = curve["time"] == curve["time"].round()  # R puts the mass of an interval at its middle
        np.testing.assert_allclose(found.at(curve["time"][exact]), curve["surv"][exact], atol=1e-5)

    def test_kaplan_meier_with_entry(self):
        rows = pd.read_csv(DATA / "myeloma.csv")
        curve = kaplan_meier(time=rows["futime"], event=rows["death"], entry=rows["entry"])
        at = [365, 1000, 2000, 4000]
        np.testing.assert_allclose(curve.at(at), [0.701960, 0.410468, 0.192025, 0.042798], atol=5e-7)
        np.testing.assert_allclose(np.sqrt(curve.variance(at)), [0.008825, 0.009180, 0.007340, 0.003978], atol=5e-7)


def test_known_times_give_kaplan_meier():
    rng = np.random.default_rng(0)
    time, event = rng.integers(1, 30, 200).astype(float), rng.random(200) < 0.6
    time[-1], event[-1] = 31.0, False
    found = turnbull(lower=time, upper=np.where(event, time, np.nan))
    at = np.arange(0, 31)
    np.testing.assert_allclose(found.at(at), kaplan_meier(time=time, event=event).at(at), atol=1e-6)
    low, high = found.bounds(at)
    assert (low <= high).all()


def test_the_likelihood_is_the_largest():
    rng = np.random.default_rng(1)
    lower = rng.integers(0, 8, 40).astype(float)
    upper = lower + rng.integers(1, 5, 40)
    upper[rng.random(40) < 0.3] = np.inf
    found = turnbull(lower=lower, upper=upper)
    inside = (found.lower >= lower[:, None]) & (found.upper <= upper[:, None])

    def loss(z):
        p = np.exp(z - z.max())
        return -np.log(inside @ (p / p.sum())).mean()

    best = min(minimize(loss, rng.normal(size=found.mass.size), method="BFGS").fun for _ in range(3))
    assert -np.log(inside @ found.mass).mean() <= best + 1e-7
    assert found.mass.sum() == pytest.approx(1)
    assert found.gap <= 1e-7


def test_weights_are_repetitions():
    lower, upper, times = [0, 1, 1, 2, 3], [1, 2, 3, np.inf, 4], [1, 3, 2, 2, 1]
    weighted = turnbull(lower=lower, upper=upper, weights=times)
    repeated = turnbull(lower=np.repeat(lower, times), upper=np.repeat(upper, times))
    np.testing.assert_allclose(weighted.at([1, 2, 3, 4]), repeated.at([1, 2, 3, 4]), atol=1e-6)


def test_simulated_visits():
    rng = np.random.default_rng(2)
    visits = np.sort(rng.uniform(0, 4, (4000, 5)), axis=1)
    padded = np.column_stack([np.zeros(4000), visits, np.full(4000, np.inf)])
    seen = (padded < rng.exponential(1.0, 4000)[:, None]).sum(axis=1)
    rows = np.arange(4000)
    found = turnbull(lower=padded[rows, seen - 1], upper=padded[rows, seen])
    at = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(found.at(at), np.exp(-at), atol=0.04)


def test_entry_of_a_truncated_sample():
    rng = np.random.default_rng(3)
    time, entry = rng.exponential(1.0, 20_000), rng.uniform(0, 1.5, 20_000)
    there = time > entry
    time, entry = time[there], entry[there]
    at = np.array([0.5, 1.0, 2.0])
    right = kaplan_meier(time=time, event=np.ones(time.size), entry=entry).at(at)
    wrong = kaplan_meier(time=time, event=np.ones(time.size)).at(at)
    np.testing.assert_allclose(right, np.exp(-at), atol=0.02)
    assert (wrong - np.exp(-at) > 0.1).all()


def test_nobody_left_before_others_enter():
    with pytest.warns(UserWarning, match=r"all 1 rows that had entered by time 1 had the event then.* 2 rows"):
        curve = kaplan_meier(time=[1, 5, 6], event=[1, 1, 1], entry=[0, 2, 2])
    assert curve.at(5) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"lower": [1, 3], "upper": [2, 2]},
            r"upper: expected the end .* that starts at 3.*got 2\.0 at row 1",
        ),
        ({"lower": [-1, 3], "upper": [2, 4]}, r"lower: expected finite times, zero or larger, got -1.* at row 0"),
        ({"lower": [1, np.nan], "upper": [2, 4]}, r"lower: expected finite times"),
        ({"lower": [1, 2], "upper": [2]}, r"upper: expected 2 rows"),
    ],
)
def test_intervals_are_checked(given, message):
    with pytest.raises(ValueError, match=message):
        turnbull(**given)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([0, 2], r"entry: expected an entry before the time of the row, 2, got 2\.0 at row 1"),
        ([0, np.nan], r"entry: expected finite times"),
        ([0], r"entry: expected 2 rows"),
    ],
)
def test_entries_are_checked(entry, message):
    with pytest.raises(ValueError, match=message):
        kaplan_meier(time=[1.0, 2.0], event=[1, 1], entry=entry)
