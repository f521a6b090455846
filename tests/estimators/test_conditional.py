"""The estimators with the conditional penalty, and conditional calibration in the tables of a path."""

import numpy as np
import pandas as pd
import pytest

import xcal
from tests.estimators.simulate import survival_rows
from xcal import Surv, conditional_calibration
from xcal.calibration.bins import bin_edges
from xcal.calibration.histogram import residuals
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.estimators.selection import conditional_values, judge_conditional, when_needed
from xcal.estimators.settings import FEATURES


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
    monkeypatch.setattr(
        "xcal.estimators.selection._conditional_parts", lambda n: [slice(0, 123), slice(123, 124), slice(124, n)]
    )
    np.testing.assert_allclose(conditional_values(u[None], x, event, None, 20), whole, rtol=1e-9)


def test_judgement_is_the_value_with_its_test():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(600, 3))
    right, event = rng.uniform(size=600), np.ones(600, dtype=bool)
    off = right ** np.exp(0.5 * np.sign(x[:, 0]))
    judged = judge_conditional(np.stack([off, right, off]), x, event, None, 20)
    np.testing.assert_array_equal(judged.values, conditional_values(np.stack([off, right, off]), x, event, None, 20))
    np.testing.assert_array_equal(judged.gap_errors[[0, 2]], 0.0)
    assert judged.p_values[0] == 0.001
    assert judged.p_values[1] > 0.05


def test_rows_of_no_weight_take_no_part_in_the_test():
    """Neither in the question about the average over all rows, nor in the other one."""
    rng = np.random.default_rng(8)
    x, u = rng.normal(size=(600, 3)), rng.uniform(size=600)
    counts = np.arange(600) % 2 == 0
    off = np.where(counts, u, u**3)
    event = np.ones(600, dtype=bool)
    assert judge_conditional(off[None], x, event, None, 20).p_values[0] == 0.001
    assert judge_conditional(off[None], x, event, np.where(counts, 1.0, 1e-6), 20).p_values[0] > 0.05


@pytest.mark.ci
@pytest.mark.parametrize("weighted", [False, True])
def test_the_error_of_a_distance_is_its_spread_over_samples(weighted):
    rng = np.random.default_rng(8)
    gaps, errors = [], []
    for _ in range(30):
        x = rng.normal(size=(250, 2))
        u, event = rng.uniform(size=250), np.ones(250, dtype=bool)
        models = np.stack([u ** np.exp(by * np.sign(x[:, 0])) for by in (0.6, 0.3)])
        w = rng.uniform(0.5, 1.5, size=250) if weighted else None
        judged = judge_conditional(models, x, event, w, 20)
        gaps.append(judged.values[1] - judged.values[0])
        errors.append(judged.gap_errors[1])
    # 30 samples know a standard deviation to about 13 %.
    assert np.mean(errors) == pytest.approx(np.std(gaps), rel=0.4)


def candidate(lam, *, dcal_p, conditional, conditional_p, nll=1.0):
    return {
        "lambda": lam,
        "recalibrated": False,
        "nll": nll,
        "nll_gap_se": 0.01,
        "dcal": 0.002,
        "dcal_gap_se": 0.0001,
        "dcal_floor": 0.001,
        "dcal_p": dcal_p,
        "conditional": conditional,
        "conditional_gap_se": 0.0001,
        "conditional_p": conditional_p,
        "concordance": 0.7,
    }


def test_a_path_that_was_trained_for_it_is_judged_by_it():
    table = pd.DataFrame(
        [
            candidate(0.0, dcal_p=0.8, conditional=0.004, conditional_p=0.001),
            candidate(10.0, dcal_p=0.9, conditional=0.002, conditional_p=0.01),
            candidate(100.0, dcal_p=0.01, conditional=0.0001, conditional_p=0.4),
            candidate(1000.0, dcal_p=0.9, conditional=0.0, conditional_p=0.5, nll=1.2),
        ]
    )
    chosen = when_needed(table)
    assert chosen.lam == 100.0
    assert "conditional calibration 0.004, a perfect model scores 0, p = 0.001" in chosen.reason
    # Without its columns the same lines are judged by D-calibration, of which lambda 0 has enough.
    assert when_needed(table.drop(columns=["conditional_p", "conditional_gap_se"])).at_floor
    table["conditional_p"] = 0.3
    assert when_needed(table).at_floor


def test_only_a_conditional_path_pays_for_its_test(paths):
    found, _ = paths
    assert "conditional_p" not in found["marginal"].candidates_
    table = found["conditional"].candidates_
    assert table["conditional_p"].between(0.001, 1).all()
    assert table["conditional_gap_se"].iloc[0] == 0
    assert "conditional calibration" in found["conditional"].selection_.reason


@pytest.fixture(scope="module")
def paths():
    X, y = survival(400)
    options = {
        "lambdas": (0.0, 200.0),
        "seeds": 1,
        "epochs": 8,
        "hidden": (8,),
        "random_state": 0,
        "cross_fit": 0,
        "path": "always",
    }
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
    """A seventh of the rows lives far longer or shorter, by the side of x: a log-normal model is off for each side."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4000, 2))
    outlying = np.where(rng.random(4000) < 0.15, 3 * np.sign(X[:, 0]), 0.0)
    y = Surv(time=np.exp(X[:, 1] + outlying + 0.4 * rng.normal(size=4000)), event=np.ones(4000))
    options = {"distribution": "lognormal", "hidden": (), "dropout": 0.0, "epochs": 40, "learning_rate": 0.02}
    values = []
    for lam in (0.0, 100.0):
        model = SurvivalModel(xcal_lambda=lam, calibration="conditional", **options).fit(X[:2000], y[:2000])
        cdf = model.fitted_.cdf_at_own(X[2000:], y["time"][2000:].copy())
        values.append(conditional_calibration(cdf, y["event"][2000:], X[2000:], n_draws=0, where=False).value)
    assert values[1] < values[0] * 0.7
