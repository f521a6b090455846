"""Hazard functions, and Cox models of covariates that change: against known laws, and numbers of lifelines."""

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxTimeVaryingFitter
from scipy import integrate

from xcal.interop import HazardFunction, read_model


def gompertz(X, t):
    return 0.2 * np.exp(0.5 * X[:, 0] + 0.8 * t)


def lived(X, start, end):
    return 0.25 * np.exp(0.5 * X[:, 0]) * (np.exp(0.8 * end) - np.exp(0.8 * start))


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X, entry = rng.normal(size=(40, 2)), rng.uniform(0, 1, 40)
    return X, {"time": entry + rng.uniform(0.1, 3, 40), "event": rng.random(40) < 0.5}, entry


class TestHazardFunction:
    def test_a_known_law(self, rows):
        X, outcome, entry = rows
        found = read_model(HazardFunction(gompertz), X, **outcome)
        whole = lived(X, 0, outcome["time"])
        np.testing.assert_allclose(found.cdf, 1 - np.exp(-whole), rtol=1e-9)
        np.testing.assert_allclose(found.survival, np.exp(-lived(X, 0, found.times[:, None])).T, rtol=1e-9)
        loss = whole - np.where(outcome["event"], np.log(gompertz(X, outcome["time"])), 0)
        np.testing.assert_allclose(found.nll, loss, rtol=1e-9)
        later = read_model(HazardFunction(gompertz), X, **outcome, entry=entry)
        np.testing.assert_allclose(later.hazard, lived(X, entry, outcome["time"]), rtol=1e-9)
        assert later.survival is later.cdf is None

    def test_its_integral(self, rows):
        X, outcome, entry = rows
        model = HazardFunction(lambda X, t: lived(X, 0, t), cumulative=True)
        found, later = read_model(model, X, **outcome), read_model(model, X, **outcome, entry=entry)
        np.testing.assert_allclose(found.cdf, 1 - np.exp(-lived(X, 0, outcome["time"])), rtol=1e-12)
        np.testing.assert_allclose(later.hazard, lived(X, entry, outcome["time"]), rtol=1e-12)
        assert found.nll is None

    def test_steps_are_integrated_in_ever_more_pieces(self, rows):
        X, outcome, entry = rows
        found = read_model(HazardFunction(lambda X, t: 0.3 + 0.5 * (t > 1.7)), X, **outcome, entry=entry)
        after = np.clip(outcome["time"] - 1.7, 0, None) - np.clip(entry - 1.7, 0, None)
        np.testing.assert_allclose(found.hazard, 0.3 * (outcome["time"] - entry) + 0.5 * after, atol=1e-3)

    def test_against_numerical_integration(self, rows):
        X, outcome, entry = rows

        def wild(X, t):
            return np.exp(np.sin(6 * t) + X[:, 1] * np.sqrt(t))

        found = read_model(HazardFunction(wild), X, **outcome, entry=entry).hazard
        for k in (0, 7, 39):
            one = integrate.quad(lambda t, k=k: float(wild(X[k : k + 1], t)[0]), entry[k], outcome["time"][k])[0]
            assert found[k] == pytest.approx(one, rel=1e-6)

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda X, t: -t, r"model: expected hazards of zero or more, got -.* at row 0"),
            (lambda X, t: t[:3], "model: expected a function that gives 40 hazards, one for each row"),
            (lambda X, t: np.full(40, np.nan), "model: expected hazards of zero or more, got nan"),
            (lambda X, t: 1 / (t - 1.5) ** 2, "model: expected a hazard that can be integrated over each row"),
        ],
    )
    def test_bad_functions(self, rows, function, message):
        X, outcome, entry = rows
        with pytest.raises(ValueError, match=message):
            read_model(HazardFunction(function), X, **outcome, entry=entry)

    def test_a_cumulative_hazard_that_falls(self, rows):
        X, outcome, entry = rows
        with pytest.raises(ValueError, match="model: expected a cumulative hazard that never falls, got a fall by"):
            read_model(HazardFunction(lambda X, t: 5 - t, cumulative=True), X, **outcome, entry=entry)
        with pytest.raises(ValueError, match="function: expected a function of X"):
            HazardFunction(3)


class TestCoxTimeVarying:
    @pytest.fixture
    def table(self):
        rng = np.random.default_rng(1)
        lines = []
        for person in range(150):
            start = 0.0
            for _ in range(4):
                z, stop = rng.normal(), start + 1.0
                wait = rng.exponential() / (0.3 * np.exp(0.7 * z))
                lines.append((person, start, min(stop, start + wait), int(wait < 1), z))
                if wait < 1:
                    break
                start = stop
        return pd.DataFrame(lines, columns=["id", "start", "stop", "event", "z"])

    def test_hazards_of_the_training_rows(self, table):
        """Breslow's baseline gives as many events as there were, in sum and by time."""
        model = CoxTimeVaryingFitter().fit(table, id_col="id", event_col="event", start_col="start", stop_col="stop")
        outcome = {"time": table["stop"], "event": table["event"]}
        found = read_model(model, table, **outcome, entry=table["start"])
        assert found.hazard.sum() == pytest.approx(table["event"].sum(), rel=1e-9)
        level = model.baseline_cumulative_hazard_.iloc[:, 0]
        by_hand = np.array([level[level.index <= stop].max() for stop in table["stop"]])
        first = (table["start"] == 0).to_numpy()
        factor = model.predict_partial_hazard(table).to_numpy()
        np.testing.assert_allclose(found.hazard[first], (factor * by_hand)[first], rtol=1e-9)
        np.testing.assert_allclose(found.risk_score, np.log(factor), atol=1e-12)
        np.testing.assert_allclose(
            found.survival[:, -1], np.exp(-factor * model.baseline_cumulative_hazard_.iloc[-1, 0])
        )

    def test_bad_input(self, table):
        outcome = {"time": table["stop"], "event": table["event"]}
        with pytest.raises(ValueError, match=r"model: expected a fitted CoxTimeVaryingFitter \(call model.fit"):
            read_model(CoxTimeVaryingFitter(), table, **outcome)
        strata = table.assign(s=table["id"] % 2)
        model = CoxTimeVaryingFitter(strata=["s"]).fit(
            strata, id_col="id", event_col="event", start_col="start", stop_col="stop"
        )
        with pytest.raises(ValueError, match="model: expected a CoxTimeVaryingFitter without strata"):
            read_model(model, strata, **outcome)
