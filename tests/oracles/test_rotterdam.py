"""A published external validation, figure by figure: Cox models of the Rotterdam data on the GBSG data.

McLernon, Giardiello, Van Calster and others (2023), Annals of Internal Medicine 176(1):105-114, and their R code.
"""

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter

from xcal import audit
from xcal.data.surv import Outcome
from xcal.metrics import (
    brier_score,
    concordance_index,
    cox_calibration,
    cox_ici,
    cumulative_dynamic_auc,
    observed_expected,
    scaled_brier_score,
)
from xcal.metrics.cox import RiskSets

YEARS = 5.0
BEFORE = 4.99  # at five years everybody is censored, and nobody is left to compare with
MODELS = ("without PGR", "with PGR")


def spline(x, knots):
    """Restricted cubic spline of three knots, as R's rms writes it."""
    a, b, c = knots

    def cube(knot):
        return np.maximum(x - knot, 0.0) ** 3

    return (cube(a) - cube(b) * (c - a) / (c - b) + cube(c) * (b - a) / (c - b)) / (c - a) ** 2


def rows(time, event, middle, large, nodes, grade3, pgr):
    nodes, pgr = np.minimum(nodes, 19.0), np.minimum(pgr, 1360.0)
    late = time > YEARS
    return pd.DataFrame(
        {
            "time": np.where(late, YEARS, time),
            "event": (event & ~late).astype(int),
            "middle": middle.astype(float),
            "large": large.astype(float),
            "nodes": nodes,
            "nodes2": spline(nodes, (0, 1, 9)),
            "grade3": grade3.astype(float),
            "pgr": pgr,
            "pgr2": spline(pgr, (0, 41, 486)),
        }
    )


def rotterdam(folder):
    d = pd.read_csv(folder / "rotterdam.csv")
    died_first = (d["death"] == 1) & (d["recur"] == 0) & (d["rtime"] < d["dtime"])
    time = np.where(died_first, d["dtime"], d["rtime"]) / 365.25
    event = ((d["recur"] == 1) | (d["death"] == 1)).to_numpy()
    size = d["size"].to_numpy()
    return rows(
        time, event, size == "20-50", size == ">50", d["nodes"].to_numpy(), d["grade"].to_numpy() == 3, d["pgr"]
    )


def gbsg(folder):
    d = pd.read_csv(folder / "gbsg.csv")
    size = d["size"].to_numpy()
    return rows(
        d["rfstime"].to_numpy() / 365.25,
        d["status"].to_numpy() == 1,
        (size > 20) & (size <= 50),
        size > 50,
        d["nodes"].to_numpy(),
        d["grade"].to_numpy() == 3,
        d["pgr"],
    )


class Validation:
    """A Cox model fitted to Rotterdam by lifelines, and what it says about GBSG.

    `risk` has Efron's baseline hazard, as R gives it; `lifelines_risk` lifelines' own, which is Breslow's and moves
    O/E in its fourth digit.
    """

    def __init__(self, folder, with_pgr):
        columns = ["middle", "large", "nodes", "nodes2", "grade3", *(["pgr", "pgr2"] if with_pgr else [])]
        train, test = rotterdam(folder), gbsg(folder)
        fitted = CoxPHFitter().fit(train[["time", "event", *columns]], "time", "event")
        self.time, self.event = test["time"].to_numpy(), test["event"].to_numpy().astype(bool)
        self.n_training_events = int(train["event"].sum())
        beta = fitted.params_[columns].to_numpy()
        own = train[columns].to_numpy() @ beta
        self.predictor = test[columns].to_numpy() @ beta
        self.lifelines_risk = lambda at: 1 - fitted.predict_survival_function(test[columns], times=[at]).to_numpy()[0]
        self._train = (own, train["time"].to_numpy(), train["event"].to_numpy().astype(bool))

    def risk(self, at):
        own, time, event = self._train
        order = Outcome(time, event).order()
        hazard, _ = RiskSets(Outcome(time, event).take(order)).offset_hazard(own[order], at)
        return -np.expm1(-hazard * np.exp(self.predictor))

    @property
    def outcome(self):
        return {"time": self.time, "event": self.event}


@pytest.fixture(scope="module")
def models(real_data):
    folder = real_data("rotterdam_gbsg") / "rotterdam_gbsg"
    return {name: Validation(folder, name == "with PGR") for name in MODELS}


def test_the_rows_are_theirs(models):
    model = models["without PGR"]
    assert (model.time.size, int(model.event.sum()), model.n_training_events) == (686, 285, 1275)


# Published figures, without PGR, to the digits given.
def test_published_concordance(models):
    model = models["without PGR"]
    assert round(concordance_index(**model.outcome, risk=model.predictor).value, 2) == 0.65
    assert round(concordance_index(**model.outcome, risk=model.predictor, method="uno").value, 2) == 0.64


def test_published_auc(models):
    model = models["without PGR"]
    assert round(cumulative_dynamic_auc(model.predictor, BEFORE, **model.outcome).values[0], 2) == 0.68


def test_published_observed_over_expected(models):
    model = models["without PGR"]
    result = observed_expected(model.risk(YEARS), at=YEARS, **model.outcome, interval="poisson")
    assert result.value == pytest.approx(1.0173902, abs=5e-8)
    # Their interval takes 1.96 for the normal quantile 1.959964: 2e-6 of the ratio.
    assert (result.lower, result.upper) == pytest.approx((0.9058717, 1.1426372), abs=4e-6)


@pytest.mark.parametrize(
    ("name", "published", "digits"),
    [("without PGR", (1.0562040, 0.8158872, 1.2965207), 5e-7), ("with PGR", (1.1437, 0.9164, 1.3711), 5e-5)],
)
def test_published_slope(models, name, published, digits):
    result = cox_calibration(models[name].risk(YEARS), at=YEARS, **models[name].outcome)
    assert (result.slope, result.slope_lower, result.slope_upper) == pytest.approx(published, abs=digits)


def test_published_calibration_index(models):
    model = models["without PGR"]
    result = cox_ici(model.risk(YEARS), at=YEARS, **model.outcome)
    published = (0.03017958, 0.02627822, 0.07466548, 0.07543556)
    # Their knots are R's; the spline is the same family.
    assert (result.value, result.e50, result.e90, result.emax) == pytest.approx(published, abs=0.003)


def test_published_brier_and_its_scaled_form(models):
    model = models["without PGR"]
    survival = 1 - model.risk(BEFORE)
    assert round(brier_score(survival, BEFORE, **model.outcome).values[0], 2) == 0.22
    assert round(scaled_brier_score(survival, BEFORE, **model.outcome).values[0], 2) == 0.10


# By lifelines and scikit-survival on the same rows, with lifelines' own baseline hazard: Breslow's.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("without PGR", (0.6524, 0.6774, 1.0176, 1.0562, 0.2249, 0.1006)),
        ("with PGR", (0.6746, 0.7011, 0.9939, 1.1437, 0.2176, 0.1297)),
    ],
)
def test_figures_of_lifelines_and_scikit_survival(models, name, expected):
    model = models[name]
    survival = 1 - model.lifelines_risk(BEFORE)
    ours = (
        concordance_index(**model.outcome, risk=model.predictor).value,
        cumulative_dynamic_auc(model.predictor, BEFORE, **model.outcome, left_limit=False).values[0],
        observed_expected(model.lifelines_risk(YEARS), at=YEARS, **model.outcome).value,
        cox_calibration(model.lifelines_risk(YEARS), at=YEARS, **model.outcome).slope,
        # As scikit-survival weighs: an event and a censoring of the same day move the fourth digit.
        brier_score(survival, BEFORE, **model.outcome, left_limit=False).values[0],
        scaled_brier_score(survival, BEFORE, **model.outcome, left_limit=False).values[0],
    )
    assert ours == pytest.approx(expected, abs=5.1e-5)


def test_an_audit_that_knows_the_training_rows_gives_the_published_values(models):
    """Patients of GBSG were followed for less long: weights by Rotterdam's censoring give a Brier score of 0.137."""
    model = models["without PGR"]
    _, time, event = model._train
    result = audit(
        risk=model.risk(BEFORE), horizons=BEFORE, y=(model.time, model.event), training=(time, event), n_bootstrap=0
    )
    assert any(concern.what.startswith("Censoring differs") for concern in result.data.concerns)
    for metric, published in (("auc", 0.68), ("brier", 0.22), ("ipa", 0.10)):
        assert result.value(metric, horizon=BEFORE).value == pytest.approx(published, abs=0.005)


def test_an_audit_has_the_published_values_under_their_names(models):
    """O/E is the published one; slope and ICI by a Cox model stand beside those that assume nothing about hazards."""
    model = models["without PGR"]
    result = audit(risk=model.risk(YEARS), horizons=YEARS, y=(model.time, model.event), n_bootstrap=0)
    assert not result.measured.censoring.corrected
    assert result.value("oe", horizon=YEARS).value == pytest.approx(1.0173902, abs=5e-8)
    assert result.value("cox_slope").value == pytest.approx(1.0562040, abs=5e-7)
    for metric, published in (("ici_cox", 0.03017958), ("e50_cox", 0.02627822), ("e90_cox", 0.07466548)):
        assert result.value(metric, horizon=YEARS).value == pytest.approx(published, abs=0.003)
    # Without a model of hazards: no error that chance does not explain.
    assert result.value("ici", horizon=YEARS).lower == 0
    assert result.value("slope", horizon=YEARS).lower < 1 < result.value("slope", horizon=YEARS).upper
