"""Maps that differ between rows: by level of risk, isotonic in risk and time, by temperature."""

import numpy as np
import pytest
from scipy import optimize, stats

from xcal.recalibration import BetaRecalibration, IsotonicSurface, RiskRecalibration, TemperatureRecalibration
from xcal.recalibration.by_row import CensoredLikelihood, LineMaps, _rising_in_both

TIMES = np.array([0.25, 0.5, 1.0, 2.0, 4.0])


def simulate(n, seed, *, spread=0.5, censored=True, one_risk=False):
    """F of a model whose log hazards are spread too widely (the truth has `spread` of them), and its curves."""
    rng = np.random.default_rng(seed)
    x = np.zeros(n) if one_risk else rng.normal(size=n)
    happens = rng.exponential(size=n) / np.exp(spread * x)
    leaves = rng.exponential(2.0, n) if censored else np.full(n, np.inf)
    time, event = np.minimum(happens, leaves), happens <= leaves
    return time, event, -np.expm1(-np.exp(x) * time), -np.expm1(-np.exp(x)[:, None] * TIMES), x


def fit(kind, rows):
    time, event, own, curves, _ = rows
    return kind.fit(own, event, curves, TIMES, **({"time": time} if kind is IsotonicSurface else {}))


KINDS = [RiskRecalibration, IsotonicSurface, TemperatureRecalibration]
ROWS = {
    "400 rows": simulate(400, 0),
    "20 rows": simulate(20, 1),
    "one risk": simulate(100, 2, one_risk=True),
    "no censoring": simulate(200, 3, censored=False),
    "one event": (*simulate(30, 4)[:1], np.arange(30) == 3, *simulate(30, 4)[2:]),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_has_a_map_that_rises_from_0_to_1_with_an_inverse_and_a_density(kind, rows):
    own = fit(kind, rows)
    new = simulate(50, 9)
    maps = own.of_rows(new[3])
    u = np.tile(np.linspace(0, 1, 501), (50, 1))
    g = maps.cdf(u)
    assert (g[:, 0] == 0).all()
    assert (g[:, -1] == 1).all()
    assert (np.diff(g, axis=1) >= 0).all()
    inside = (g > 1e-4) & (g < 1 - 1e-4)
    np.testing.assert_allclose(maps.cdf(maps.quantile(np.where(inside, g, 0.5)))[inside], g[inside], atol=1e-9)
    np.testing.assert_allclose(np.exp(maps.log_survival(u)), 1 - g, atol=1e-12)
    step = 1e-7
    middle = u[:, 1:-1] + 1e-4
    slope = (maps.cdf(middle + step) - maps.cdf(middle - step)) / (2 * step)
    assert np.isclose(np.exp(maps.log_density(middle)), slope, rtol=1e-4, atol=1e-5).mean() > 0.97  # but at corners
    # With the model's own log-survival the far tail is finite; there 1 - G is like a power of 1 - F.
    tail = np.array([-50.0, -100.0, -800.0])
    far = maps.log_survival(np.tile(-np.expm1(tail), (50, 1)), np.tile(tail, (50, 1)))
    assert np.isfinite(far).all()
    np.testing.assert_allclose(np.diff(far[:, 1:]) / 700, np.diff(far[:, :2]) / 50, rtol=1e-6)
    again = kind.of_content(own.content())
    np.testing.assert_array_equal(again.of_rows(new[3]).cdf(u), g)
    assert repr(again) == repr(own)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_cannot_be_used(kind):
    time, event, own, curves, _ = simulate(10, 5)
    with pytest.raises(ValueError, match="event: expected at least one event, got none"):
        fit(kind, (time, np.zeros(10), own, curves, None))
    with pytest.raises(ValueError, match=r"curves: expected shape \(10, 5\), one column per time, got shape \(10, 4\)"):
        fit(kind, (time, event, own, curves[:, 1:], None))


# by level of risk


@pytest.mark.parametrize("kind", [RiskRecalibration, IsotonicSurface])
def test_rows_are_moved_by_their_risk_as_no_common_map_can(kind):
    rows, new = simulate(3000, 6), simulate(3000, 7)
    maps = fit(kind, rows).of_rows(new[3])
    true = -np.expm1(-np.exp(0.5 * new[4])[:, None] * TIMES)
    common = BetaRecalibration.fit(rows[2], rows[1])

    def error(found):
        return np.abs(found - true).mean()

    assert error(maps.cdf(new[3])) < 0.4 * error(common.cdf(new[3]))
    # Within a fifth of the rows with the highest and with the lowest risk: F of the truth is uniform there too.
    after = maps.cdf(new[2])
    for part in (new[4] < np.quantile(new[4], 0.2), new[4] > np.quantile(new[4], 0.8)):
        latent = -np.expm1(-np.exp(0.5 * new[4]) * new[0])
        assert np.abs(after[part] - latent[part]).mean() < 0.04


def test_without_a_difference_between_risks_the_map_is_near_that_of_beta():
    alike = [fit(RiskRecalibration, simulate(300, 100 + seed, spread=1.0)).spread for seed in range(8)]
    assert np.median(alike) <= 0.1
    assert fit(RiskRecalibration, simulate(3000, 8)).spread >= 0.3
    rows = ROWS["one risk"]
    own, beta = fit(RiskRecalibration, rows), BetaRecalibration.fit(rows[2], rows[1])
    u = np.linspace(0, 1, 11)
    np.testing.assert_allclose(own.of_rows(rows[3][:11]).cdf(u), beta.cdf(u), atol=1e-9)


def test_the_parameters_by_risk_maximise_a_likelihood_written_another_way():
    _, event, u, _, x = simulate(150, 10)
    z = np.tanh(x)
    basis, precision = np.stack([np.ones(150), z], axis=1), np.array([1.0, 4.0])

    def loss(parameters):
        log_a, log_b, c = parameters.reshape(3, 2) @ basis.T
        found = BetaRecalibration
        total = (precision * parameters.reshape(3, 2) ** 2).sum() / 2
        for v, happened, a, b, shift in zip(u, event, np.exp(log_a), np.exp(log_b), c, strict=True):
            odds = shift + a * np.log(v) - b * np.log(1 - v)
            told = stats.logistic.logpdf(odds) + np.log(a / v + b / (1 - v)) if happened else stats.logistic.logsf(odds)
            total -= told
        assert found is BetaRecalibration
        return total

    rows = CensoredLikelihood.of(u, event, basis, precision)
    at = np.random.default_rng(11).normal(0, 0.3, 6)
    assert rows.loss_and_gradient(at)[0] == pytest.approx(loss(at))
    np.testing.assert_allclose(rows.loss_and_gradient(at)[1], optimize.approx_fprime(at, loss, 1e-6), atol=1e-3)
    best = rows.maximum()
    assert all(loss(best) <= loss(best + step) for step in 0.01 * np.vstack([np.eye(6), -np.eye(6)]))


# isotonic in risk and time


def test_the_surface_is_the_nearest_one_that_rises_both_ways():
    rng = np.random.default_rng(13)
    values, weights = rng.uniform(-0.2, 1.2, (6, 5)), rng.integers(1, 5, 6).astype(float)

    def loss(flat):
        return (weights[:, None] * (flat.reshape(6, 5) - values) ** 2).sum()

    rules = [
        {"type": "ineq", "fun": lambda flat: np.diff(flat.reshape(6, 5), axis=0).ravel()},
        {"type": "ineq", "fun": lambda flat: np.diff(flat.reshape(6, 5), axis=1).ravel()},
    ]
    best = optimize.minimize(loss, np.full(30, 0.5), bounds=[(0, 1)] * 30, constraints=rules, method="SLSQP")
    found = _rising_in_both(values, weights)
    np.testing.assert_allclose(found, best.x.reshape(6, 5), atol=2e-3)
    assert (np.diff(found, axis=1) >= 0).all()
    assert (np.diff(found, axis=0) >= -1e-6).all()


def test_lines_through_points_of_each_row():
    maps = LineMaps(np.array([[0.2, 0.2, 0.5], [0.0, 0.4, 1.0]]), np.array([[0.1, 0.3, 0.3], [0.2, 0.8, 1.0]]))
    # Of two points at one F the last; one that does not rise is left out, and so is one on an end.
    np.testing.assert_allclose(maps.cdf(np.array([[0.1, 0.6], [0.2, 0.7]])), [[0.15, 0.65], [0.4, 0.9]])


# temperature


def test_the_temperature_that_made_the_data_is_found():
    rng = np.random.default_rng(14)
    n, bins = 20_000, 6
    logits = rng.normal(0, 1.0, (n, bins))
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    sharp = np.exp(2.0 * logits) / np.exp(2.0 * logits).sum(axis=1, keepdims=True)
    happens = np.array([rng.choice(bins, p=p) for p in true])
    leaves = rng.integers(0, 2 * bins, n)
    event, place = happens <= leaves, np.minimum(happens, leaves)
    curves = np.cumsum(sharp, axis=1)[:, :-1]
    ends = np.hstack([curves, np.ones((n, 1))])
    # Events lie within their bins, censored rows at its end.
    start = ends[np.arange(n), place] - sharp[np.arange(n), place]
    own = np.where(event, start + 0.5 * sharp[np.arange(n), place], ends[np.arange(n), place])
    found = TemperatureRecalibration.fit(np.clip(own, 0, 1), event, np.clip(curves, 0, 1), np.arange(1.0, bins))
    assert found.temperature == pytest.approx(2.0, abs=0.06)
    after = found.of_rows(curves[:5]).cdf(curves[:5])
    np.testing.assert_allclose(after, np.cumsum(true[:5], axis=1)[:, :-1], atol=0.01)


def test_the_temperature_maximises_a_likelihood_written_another_way():
    _, event, own, curves, _ = simulate(60, 15)
    edges = np.hstack([np.zeros((60, 1)), curves, np.ones((60, 1))])

    def loss(log_temperature):
        total = log_temperature**2 / 2
        for u, happened, line in zip(own, event, edges, strict=True):
            masses = np.diff(line) ** np.exp(-log_temperature)
            masses /= masses.sum()
            k = int(np.searchsorted(line[1:], u))
            inside = np.interp(u, line, np.append(0.0, np.cumsum(masses)))
            total -= np.log(masses[k]) if happened else np.log(1 - inside)
        return total

    best = optimize.minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-6})
    found = TemperatureRecalibration.fit(own, event, curves, TIMES)
    assert np.log(found.temperature) == pytest.approx(best.x, abs=1e-4)
