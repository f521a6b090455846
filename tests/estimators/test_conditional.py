"""The estimators with the conditional penalty, and conditional calibration in the tables of a path."""

import numpy as np
import pytest

import xcal
from tests.estimators.simulate import survival_rows
from xcal import Surv, conditional_calibration
from xcal.calibration.bins import bin_edges
from xcal.calibration.residuals import residuals
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.estimators.conditional import FEATURES, conditional_values


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    u, c = rng.uniform(size=(2, n))
    return np.minimum(u, c), u <= c, rng.normal(size=(n, 3))


def survival(n, seed=0):
    data = survival_rows(n, seed=seed)
    return data.x, data.y


def test_values_are_those_of_conditional_calibration():
    u, event, x = rows()
    other = u**2
    found = conditional_values(np.stack([u, other]), x, event, None, 20)
    h = FEATURES.of(x)
    expected = [conditional_calibration(f, event, x, features=h, n_draws=0, where=False).value for f in (u, other)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert found[1] > 20 * abs(found[0])


def test_weights_count_as_products_over_pairs():
    u, event, x = rows(60)
    w = np.random.default_rng(1).uniform(0.5, 2.0, 60)
    h, r = FEATURES.of(x), residuals(u, event, bin_edges(10))
    pairs = [(i, k) for i in range(60) for k in range(60) if i != k]
    expected = sum(w[i] * w[k] * (h[i] @ h[k]) * (r[i] @ r[k]) for i, k in pairs) / sum(w[i] * w[k] for i, k in pairs)
    assert conditional_values(u[None], x, event, w, 10)[0] == pytest.approx(expected, rel=1e-9)


def test_pieces_of_rows_are_added_up(monkeypatch):
    u, event, x = rows(500)
    whole = conditional_values(u[None], x, event, None, 20)
    monkeypatch.setattr("xcal.estimators.conditional._parts", lambda n: [slice(0, 123), slice(123, 124), slice(124, n)])
    np.testing.assert_allclose(conditional_values(u[None], x, event, None, 20), whole, rtol=1e-9)


@pytest.fixture(scope="module")
def paths():
    X, y = survival(400)
    options = {"lambdas": (0.0, 200.0), "seeds": 1, "epochs": 8, "hidden": (8,), "random_state": 0, "cross_fit": 0}
    return {kind: SurvivalPath(calibration=kind, **options).fit(X, y) for kind in ("marginal", "conditional")}, X


def test_the_penalty_is_another_one_and_without_weight_the_same(paths):
    found, X = paths
    plain = [path.model(0.0).predict(X) for path in found.values()]
    penalised = [path.model(200.0).predict(X) for path in found.values()]
    np.testing.assert_allclose(*plain, rtol=1e-6)  # sums of a step with and without a penalty may differ in order
    assert np.abs(penalised[0] - penalised[1]).max() > 1e-3


def test_both_tables_have_both_measures(paths):
    for path in paths[0].values():
        for table in (path.frontier_, path.candidates_):
            assert np.isfinite(table[["dcal", "conditional"]].to_numpy()).all()
        assert "conditional" in path.summary()


def test_the_setting_is_kept_by_choice_and_file(paths, tmp_path):
    path = paths[0]["conditional"]
    path.save(tmp_path / "path.xcal")
    again = xcal.load(tmp_path / "path.xcal")
    assert (again.calibration, again.model(200.0).calibration) == ("conditional", "conditional")
    np.testing.assert_array_equal(again.frontier_["conditional"], path.frontier_["conditional"])


def test_the_page_shows_both(paths, tmp_path):
    X, y = survival(400, seed=5)
    text = paths[0]["conditional"].report(tmp_path / "frontier.html", X, y).read_text()
    assert "Conditional calibration" in text


def test_another_word_is_refused():
    X, y = survival(60)
    with pytest.raises(ValueError, match="calibration: expected one of 'marginal', 'conditional'"):
        SurvivalModel(calibration="both", epochs=1).fit(X, y)


def test_one_model_learns_with_it():
    """The scale depends on x: a model that the penalty asks to be right for every x has the lower K on new rows."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 2))
    y = Surv(time=np.exp(X[:, 1] + np.exp(0.6 * X[:, 0]) * rng.normal(size=3000)), event=np.ones(3000))
    options = {"distribution": "lognormal", "hidden": (), "dropout": 0.0, "epochs": 12, "learning_rate": 0.02}
    values = []
    for lam in (0.0, 100.0):
        model = SurvivalModel(xcal_lambda=lam, calibration="conditional", **options).fit(X[:2000], y[:2000])
        cdf = model.fitted_.cdf_at_own(X[2000:], y["time"][2000:].copy())
        values.append(conditional_calibration(cdf, y["event"][2000:], X[2000:], n_draws=0, where=False).value)
    assert values[1] < values[0] / 2
