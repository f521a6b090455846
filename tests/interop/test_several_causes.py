"""Incidences by cause: as each library predicts them, put together from models of one cause, or given as numbers."""

import sys
import warnings
from functools import cache
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from xcal.interop import read_model
from xcal.interop.predictions import Rows, named_as
from xcal.interop.reading import read_incidence
from xcal.metrics.observed import aalen_johansen

COVARIATES = ["age", "size", "nodes_positive", "hr_negative"]
NAMES = ("recurrence", "death")


def drawn(n=300, seed=0):
    """Rows with two causes: features, times, causes."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    first, second, end = rng.exponential(np.exp(-x["a"])), rng.exponential(2.0, n), rng.uniform(0.2, 4.0, n)
    time = np.minimum(np.minimum(first, second), end)
    return x, time, np.where(time == end, 0, np.where(first < second, 1, 2))


@cache
def by_cause(name, **options):
    """Models of lifelines, one for each cause, fitted with the other cause as censored."""
    import lifelines

    x, time, cause = drawn()
    fitted = {}
    for k, label in enumerate(NAMES, 1):
        model = getattr(lifelines, name)(**options)
        fitted[label] = model.fit(x.assign(time=time, event=(cause == k).astype(int)), "time", "event")
    return fitted


def read(model, n=40, **options):
    x, time, cause = drawn(n, seed=1)
    return read_model(model, x, time=time, event=cause > 0, **options), x, time


def test_cox_models_by_cause_give_the_incidences_of_r(real_data):
    import lifelines

    folder = real_data("competing_risks") / "competing_risks"
    trained, rows = (pd.read_csv(folder / f"{name}.csv") for name in ("development", "validation"))
    expected = rows.merge(pd.read_csv(folder / "predicted_validation.csv"), on="id")
    models = {}
    for k, name in enumerate(NAMES, 1):
        data = trained[[*COVARIATES, "time"]].assign(event=(trained["cause"] == k).astype(int))
        models[name] = lifelines.CoxPHFitter().fit(data, "time", "event")
    found = read_model(models, rows[COVARIATES], time=rows["time"], event=rows["cause"] > 0, causes=NAMES)
    assert found.causes == NAMES
    for t in (1, 2, 3, 4, 5):
        at = np.searchsorted(found.times, t, side="right") - 1
        for k in (1, 2):
            # The coefficients of the second cause differ by 1.5e-5 between the two packages.
            assert np.allclose(found.incidence[:, k - 1, at], expected[f"cif{k}_t{t}"], rtol=0, atol=5e-5)
    assert np.allclose(found.survival, 1 - found.incidence.sum(axis=1), rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["WeibullAFTFitter", "LogNormalAFTFitter"])
def test_smooth_models_by_cause_are_the_integral_of_their_hazards(name):
    models = by_cause(name)
    found, x, _ = read(models)
    assert found.interpolation == "linear"
    fine = np.linspace(0, found.times[-1], 20_001)[1:]
    hazards = [model.predict_cumulative_hazard(x, times=fine).to_numpy().T for model in models.values()]
    alive = np.exp(-sum(hazards))
    for k in range(2):
        steps = np.diff(hazards[k], axis=1, prepend=0.0)
        before = np.concatenate([np.ones((len(x), 1)), alive[:, :-1]], axis=1)
        exact = np.cumsum((before + alive) / 2 * steps, axis=1)
        there = np.array([np.interp(found.times, fine, row) for row in exact])
        assert np.allclose(found.incidence[:, k], there, rtol=0, atol=2e-5)


def test_of_many_rows_the_times_are_the_same_as_of_few(monkeypatch):
    import xcal.interop.predictions

    models = by_cause("CoxPHFitter")
    whole, x, time = read(models)
    monkeypatch.setattr(xcal.interop.predictions, "_FEW_ROWS", 7)
    pieces, _, _ = read(list(models.values()))
    assert pieces.causes == ("1", "2")
    assert np.array_equal(pieces.incidence, whole.incidence)
    asked, _, _ = read(models, times=[0.5, 1.0])
    place = np.searchsorted(whole.times, [0.5, 1.0], side="right") - 1
    assert np.allclose(asked.incidence, whole.incidence[:, :, place], rtol=0, atol=1e-15)
    own = np.searchsorted(whole.times, time, side="right") - 1
    exact = np.where(own < 0, 0.0, 1 - whole.survival[np.arange(len(x)), own.clip(0)])
    assert np.allclose(asked.cdf, exact, rtol=0, atol=1e-12)


def test_aalen_johansen_fitters_are_the_estimate():
    import lifelines

    _, time, cause = drawn()
    fitted = {k: lifelines.AalenJohansenFitter(calculate_variance=False).fit(time, cause, k) for k in (1, 2)}
    found = read_model(fitted, time=time[:50], event=cause[:50] > 0)
    own = aalen_johansen(time=time, cause=cause)
    for k in (1, 2):
        assert np.allclose(found.incidence[:, k - 1], own.at(found.times, of=k), rtol=0, atol=1e-12)
    alone = read_model(fitted[2], time=time[:50], event=cause[:50] > 0, causes=NAMES)
    assert (alone.causes, alone.survival, alone.cdf) == (("2",), None, None)
    assert "incidence of 2 alone" in " ".join(alone.reading)
    assert named_as(alone, NAMES).causes == ("death",)
    with pytest.raises(ValueError, match="not fitted"):
        read_model(lifelines.AalenJohansenFitter(), time=time, event=cause > 0)


def test_pycox_deep_hit():
    import torch
    from pycox.models import DeepHit

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2 * 5)

        def forward(self, x):
            return self.linear(x).view(-1, 2, 5)

    torch.manual_seed(0)
    model = DeepHit(Net(), duration_index=np.array([0.0, 0.5, 1.0, 2.0, 4.0]))
    found, x, _ = read(model)
    expected = model.predict_cif(x.to_numpy(dtype=np.float32)).transpose(2, 0, 1)
    assert (found.library, found.causes, found.interpolation) == ("pycox", ("1", "2"), "linear")
    assert np.allclose(found.incidence, expected, rtol=0, atol=1e-6)
    assert np.allclose(found.survival, model.predict_surv(x.to_numpy(dtype=np.float32)).T, rtol=0, atol=1e-6)


def test_hazardous_with_several_causes():
    from hazardous import SurvivalBoost

    x, time, cause = drawn()
    model = SurvivalBoost(n_iter=5, show_progressbar=False, random_state=0, n_time_grid_steps=20)
    model.fit(x, pd.DataFrame({"event": cause, "duration": time}))
    found, new, _ = read(model)
    expected = model.predict_cumulative_incidence(new, times=found.times)[:, 1:]
    assert found.causes == ("1", "2")
    right = (np.diff(expected, axis=2) >= 0).all(axis=(1, 2))  # others are made to rise
    assert np.allclose(found.incidence[right], expected[right], rtol=0, atol=1e-12)
    assert (np.diff(found.incidence, axis=2) >= 0).all()
    if right.all():
        assert found.reading[-1] == "No incidence falls."
    else:
        assert "the largest value so far is taken" in found.reading[-1]


def comprisk_models():
    """Models of comprisk where it is installed; else objects that predict in the shapes that its reference states."""
    x, time, cause = drawn()
    try:
        from comprisk import CompetingRiskForest, FineGrayRegression
    except ImportError:
        module = ModuleType("comprisk.forest")

        class CompetingRiskForest:
            n_features_in_, n_causes_, unique_times_ = 2, 2, np.array([0.5, 1.0, 2.0])

            def predict_cif(self, X, times=None):
                rise = np.searchsorted([0.5, 1.0, 2.0], times, side="right") / 10
                return np.stack([np.tile(rise, (len(X), 1)), np.tile(rise / 2, (len(X), 1))], axis=1)

        class FineGrayRegression:
            n_features_in_, cause = 2, 2

            def predict_cumulative_incidence(self, X, times=None):
                return np.tile(1 - np.exp(-0.1 * np.asarray(times)), (len(X), 1))

        for known in (CompetingRiskForest, FineGrayRegression):
            known.__module__ = module.__name__
        return CompetingRiskForest(), FineGrayRegression()
    data = x.to_numpy()
    forest = CompetingRiskForest(n_estimators=10, random_state=0, n_jobs=1).fit(data, time, cause)
    return forest, FineGrayRegression(cause=2).fit(data, time=time, event=cause)


def test_comprisk():
    forest, regression = comprisk_models()
    x, time, cause = drawn(40, seed=1)
    given = {"time": time, "event": cause > 0, "causes": NAMES}
    found = read_model(forest, x.to_numpy(), **given)
    assert (found.library, found.causes, found.interpolation) == ("comprisk", ("1", "2"), "previous")
    assert np.allclose(found.incidence, forest.predict_cif(x.to_numpy(), times=found.times), rtol=0, atol=1e-12)
    alone = read_model(regression, x.to_numpy(), horizons=[1.0], **given)
    expected = regression.predict_cumulative_incidence(x.to_numpy(), times=alone.times)
    assert (alone.causes, alone.survival) == (("2",), None)
    assert np.allclose(alone.incidence[:, 0], expected, rtol=0, atol=1e-12)
    assert 1.0 in alone.times
    if "comprisk" not in sys.modules:
        pytest.skip("comprisk is not installed: its documented shapes were read, not its own predictions")


def test_scikit_survival_estimate_of_all_causes():
    from sksurv.nonparametric import cumulative_incidence_competing_risks

    _, time, cause = drawn()
    estimate = cumulative_incidence_competing_risks(cause, time)
    found = read_incidence(estimate, Rows(time[:10], cause[:10] > 0))
    own = aalen_johansen(time=time, cause=cause)
    assert found.interpolation == "previous"
    assert np.allclose(found.incidence[3, 0], own.at(found.times, of=1), rtol=0, atol=1e-12)
    assert np.allclose(found.incidence[3, 1], own.at(found.times, of=2), rtol=0, atol=1e-12)


TIMES = [1.0, 2.0, 3.0]
CIF = np.array([[[0.1, 0.2, 0.3], [0.0, 0.1, 0.2]], [[0.2, 0.2, 0.5], [0.1, 0.2, 0.5]]])
TWO = Rows(np.array([1.5, 2.5]), np.array([True, False]), causes=NAMES)


class TestNumbers:
    def test_arrays_frames_and_mappings_are_the_same(self):
        found = read_incidence(CIF, TWO, times=TIMES)
        named = {
            "death": CIF[:, 1],
            "recurrence": CIF[:, 0],
        }
        frames = {name: pd.DataFrame(curves, columns=TIMES) for name, curves in named.items()}
        for given, times in ((named, TIMES), (frames, None)):
            other = named_as(read_incidence(given, TWO, times=times), NAMES)
            assert (other.causes, other.times.tolist()) == (NAMES, TIMES)
            assert np.array_equal(other.incidence, found.incidence)
        assert np.allclose(found.survival, 1 - CIF.sum(axis=1))
        assert read_incidence({"death": CIF[:, 1]}, TWO, times=TIMES).survival is None

    def test_what_single_precision_does_is_corrected(self):
        rough = CIF.astype(np.float32)
        rough[1, 0, 2] += 1e-7
        assert read_incidence(rough, TWO, times=TIMES).incidence[1].sum(axis=0)[-1] <= 1

    @pytest.mark.parametrize(
        ("cif", "times", "words"),
        [
            (
                CIF[:, :, ::-1],
                TIMES,
                r"cif: expected incidences that never fall in time, got 0.2 for cause 1 at time 2",
            ),
            (
                CIF * 1.2,
                TIMES,
                r"cif: expected incidences that add up to at most 1.*got 1.2 for all causes at time 3",
            ),
            (-CIF, TIMES, r"cif: expected probabilities in \[0, 1\]"),
            (CIF * np.nan, TIMES, r"cif: expected probabilities in \[0, 1\], got nan"),
            (CIF, None, "times: expected the times of the last dimension of cif"),
            (CIF, [1.0, 2.0], r"cif: expected shape \(rows, causes, 2\)"),
            (CIF[0], TIMES, r"cif: expected shape \(2, causes, times\) \(of one cause: a mapping"),
            ({"death": CIF[:, 1, :2], "recurrence": CIF[:, 0]}, TIMES, "cif"),
            ({}, TIMES, "cif: expected the incidence of at least one cause"),
            ((np.array(TIMES), CIF[0]), None, "of which the first line is the sum"),
        ],
    )
    def test_what_cannot_be_incidences_is_refused(self, cif, times, words):
        with pytest.raises(ValueError, match=words):
            read_incidence(cif, TWO, times=times)


def test_causes_that_the_rows_do_not_have_are_refused():
    found = read_incidence({"relapse": CIF[:, 0], "death": CIF[:, 1]}, TWO, times=TIMES)
    expected = "model: expected causes among those of y: recurrence, death, or their numbers 1 to 2, got relapse, death"
    with pytest.raises(ValueError, match=expected):
        named_as(found, NAMES)


def test_models_of_different_kinds_are_not_put_together():
    import lifelines

    x, time, cause = drawn()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        incidence = lifelines.AalenJohansenFitter(calculate_variance=False).fit(time, cause, 2)
    with pytest.raises(ValueError, match="models that all give incidences, or all survival"):
        read_model({1: by_cause("CoxPHFitter")["recurrence"], 2: incidence}, x, time=time, event=cause > 0)


def test_any_object_that_predicts_incidences_is_read():
    class Own:
        unique_times_ = np.array(TIMES)

        def predict_cumulative_incidence(self, X, times):
            assert np.array_equal(times, TIMES)
            return CIF[: len(X)]

    found = read_model(Own(), np.zeros((2, 1)), time=[1.5, 2.5], event=[True, False], causes=NAMES)
    assert np.array_equal(found.incidence, CIF)
    assert found.causes == ("1", "2")
