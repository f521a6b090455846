"""D-calibration by cause: numerical integration, SurvivalEVAL, one cause, true and wrong models."""

import numpy as np
import pytest
from SurvivalEVAL.evaluations.calibration.distributional.distribution_calibration import cr_d_calibration_per_event

from xcal import d_calibration
from xcal.calibration.causes import as_incidence, cause_calibration

GRID = np.linspace(0.0, 12.0, 400)


def crossing(x, grid=GRID, factor=1.0):
    """Incidences of two Weibull causes whose hazards cross from row to row, by integration on a grid.

    `factor` multiplies the hazard of the first.
    """
    fine = np.union1d(grid, np.linspace(0.0, grid[-1], 4001))
    first = factor * (0.6 * fine) ** np.exp(0.4 * x)[:, None]
    second = 0.35 * np.exp(0.5 * x)[:, None] * fine**0.8
    lost = -np.diff(np.exp(-first - second), axis=1)
    hazards = np.diff(first, axis=1), np.diff(second, axis=1)
    total = hazards[0] + hazards[1]
    share = np.divide(hazards[0], total, out=np.zeros_like(total), where=total > 0)
    parts = [np.cumsum(lost * one, axis=1) for one in (share, 1 - share)]
    curves = [np.concatenate([np.zeros((x.size, 1)), part], axis=1)[:, np.searchsorted(fine, grid)] for part in parts]
    return np.stack(curves, axis=1)


def drawn(n, rng, latest=3.0):
    x = rng.normal(size=n)
    first = rng.exponential(size=n) ** np.exp(-0.4 * x) / 0.6
    second = (rng.exponential(size=n) / (0.35 * np.exp(0.5 * x))) ** (1 / 0.8)
    censored = rng.uniform(0, latest, n) * np.exp(0.3 * x)  # depends on the covariate
    time = np.minimum(np.minimum(first, second), censored)
    return x, time, np.where(censored < np.minimum(first, second), 0, np.where(first < second, 1, 2))


class TestOutside:
    def test_expected_events_are_the_integral_of_the_hazard(self):
        rng = np.random.default_rng(0)
        x, time, cause = drawn(30, rng)
        found = cause_calibration(crossing(x), GRID, time=time, cause=cause, n_bins=5)
        fine = np.linspace(0, 12, 60_001)
        expected = np.zeros((2, 5))
        for row in range(30):
            curves = np.array([np.interp(fine, GRID, one) for one in crossing(x)[row]])
            middle = (curves[:, 1:] + curves[:, :-1]).sum(axis=0) / 2
            hazard = np.diff(curves, axis=1) / (1 - middle)
            seen = fine[1:] <= time[row]
            place = np.minimum((middle * 5).astype(int), 4)
            for k in range(2):
                expected[k] += np.bincount(place[seen], hazard[k][seen], 5)
        np.testing.assert_allclose(found.expected_events, expected, atol=6e-3)

    @pytest.mark.parametrize("of", [1, 2])
    def test_where_causes_keep_their_shares_the_histogram_is_that_of_survivaleval(self, of):
        """There each cause is F times its share, and its F_k / F_k(infinity) is F itself."""
        rng = np.random.default_rng(1)
        n, share, rate = 400, rng.uniform(0.2, 0.7, 400), rng.uniform(0.5, 2, 400)
        time, late = rng.exponential(1 / rate), rng.exponential(1.0, n)
        cause = np.where(time <= late, np.where(rng.random(n) < share, 1, 2), 0)
        time = np.minimum(time, late)
        grid = np.unique(np.concatenate([[0.0], time, [80.0]]))  # exact at the observed times
        total = 1 - np.exp(-rate[:, None] * grid)
        shares = np.stack([share, 1 - share], axis=1)
        found = cause_calibration(shares[:, :, None] * total[:, None], grid, time=time, cause=cause)
        own = 1 - np.exp(-rate * time)
        _, details = cr_d_calibration_per_event(
            shares[:, of - 1] * own, cause, shares[:, of - 1], 1 - own, of, num_bins=10, return_details=True
        )
        curve = details["calibration_curve"] * shares[:, of - 1].sum()
        np.testing.assert_allclose(np.cumsum(found.mass[of - 1]) * n, curve[1:], atol=1e-9)

    def test_one_cause_is_d_calibration(self):
        rng = np.random.default_rng(2)
        rate = rng.uniform(0.5, 2, 300)
        time, late = rng.exponential(1 / rate), rng.uniform(0, 3, 300)
        event, seen = time <= late, np.minimum(time, late)
        grid = np.unique(np.concatenate([[0.0], seen, [1000.0]]))
        curves = 1 - np.exp(-1.3 * rate[:, None] * grid)
        found = cause_calibration(curves[:, None], grid, time=seen, cause=event.astype(int))
        reference = d_calibration(1 - np.exp(-1.3 * rate * seen), event, n_bins=10)
        assert found.value == pytest.approx(reference.value, rel=1e-9)
        np.testing.assert_allclose(found.mass[0], reference.histogram, atol=1e-12)


class TestTrueModels:
    def test_the_value_of_a_true_model_is_its_floor_on_average(self):
        rng = np.random.default_rng(3)
        found = []
        for _ in range(40):
            x, time, cause = drawn(200, rng)
            found.append(cause_calibration(crossing(x), GRID, time=time, cause=cause, draws=99))
        ratio = np.mean([one.value for one in found]) / np.mean([one.floor for one in found])
        assert ratio == pytest.approx(1.0, abs=0.15)
        # N - A has mean zero, cell by cell, and variance A.
        score = [(one.events - one.expected_events) / np.sqrt(one.expected_events) for one in found]
        np.testing.assert_allclose(np.mean(score, axis=0), 0.0, atol=0.6)
        assert np.mean(np.square(score)) == pytest.approx(1.0, abs=0.12)

    @pytest.mark.ci
    @pytest.mark.parametrize(("n", "latest"), [(300, 30.0), (300, 1.0), (1000, 3.0)])
    def test_size(self, n, latest):
        rng = np.random.default_rng(4)
        p = []
        for _ in range(300):
            x, time, cause = drawn(n, rng, latest)
            p.append(cause_calibration(crossing(x), GRID, time=time, cause=cause, draws=999).p_value)
        assert 0.02 <= np.mean(np.array(p) < 0.05) <= 0.085  # 5 %, within three standard errors

    @pytest.mark.parametrize("wrong", ["both causes as often", "one cause a quarter too large"])
    def test_wrong_models_are_found(self, wrong):
        rng = np.random.default_rng(5)
        x, time, cause = drawn(1500, rng)
        curves = crossing(x, factor=1.0 if wrong.startswith("both") else 1.25)
        if wrong.startswith("both"):
            curves = np.repeat(curves.sum(axis=1, keepdims=True) / 2, 2, axis=1)
        found = cause_calibration(curves, GRID, time=time, cause=cause)
        assert found.p_value < 0.01
        assert found.value > found.floor


class TestEnds:
    def test_curves_that_end_early_censor_there(self):
        rng = np.random.default_rng(6)
        x, time, cause = drawn(500, rng, latest=30.0)
        short = GRID[:40]
        found = cause_calibration(crossing(x)[:, :, :40], short, time=time, cause=cause)
        late = time > short[-1]
        same = cause_calibration(
            crossing(x)[:, :, :40], short, time=np.minimum(time, short[-1]), cause=np.where(late, 0, cause)
        )
        assert found.value == same.value
        assert found.p_value > 0.01
        assert found.mass.sum() < 1

    def test_rows_without_any_event(self):
        found = cause_calibration(crossing(np.zeros(20)), GRID, time=np.full(20, 0.1), cause=np.zeros(20, dtype=int))
        assert found.events.sum() == 0
        assert found.p_value > 0.05


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda c: np.where(c > 0.3, 1.2, c),
                r"incidence: expected probabilities in \[0, 1\], got 1\.2 for cause ",
            ),
            (lambda c: c[:, :, ::-1], r"incidence: expected incidences that never fall in time"),
            (lambda c: np.concatenate([c, c], axis=1), r"incidences that add up to at most 1 over the causes"),
            (lambda c: c[:, 0], r"incidence: expected shape \(rows, causes, 400\)"),
        ],
    )
    def test_incidences(self, change, message):
        with pytest.raises(ValueError, match=message):
            as_incidence(change(crossing(np.zeros(3))), GRID)

    @pytest.mark.parametrize(("cause", "row"), [([0, 3, 1], 1), ([0, 1, 0.5], 2), ([-1, 0, 0], 0)])
    def test_causes(self, cause, row):
        with pytest.raises(ValueError, match=rf"cause: .* a cause: 1 to 2, got .* at row {row}"):
            cause_calibration(crossing(np.zeros(3)), GRID, time=[1, 2, 3], cause=cause)

    def test_rounding_of_single_precision_is_no_error(self):
        curves = crossing(np.zeros(3)).astype(np.float32)
        curves[:, :, 5] -= np.float32(1e-7)
        values, _ = as_incidence(curves, GRID)
        assert (np.diff(values, axis=2) >= 0).all()
        assert (values.sum(axis=1) <= 1).all()


def late_rows(n, seed, *, factor=1.0):
    """Incidences of two causes, times, causes and entries of rows that entered at random and were still event-free."""
    rng = np.random.default_rng(seed)
    rate = np.exp(0.4 * rng.normal(size=4 * n))
    one, other = rng.exponential(1 / rate), 1.5 * rng.weibull(0.7, 4 * n)
    left, entry = rng.exponential(1.5, 4 * n), np.where(rng.random(4 * n) < 0.4, 0.0, rng.uniform(0, 1, 4 * n))
    time = np.minimum(np.minimum(one, other), left)
    there = np.flatnonzero(time > entry)[:n]
    cause = np.where(time == one, 1, np.where(time == other, 2, 0))
    grid = np.append(np.geomspace(1e-5, 0.05, 40), np.linspace(0.06, 12, 400))
    hazards = np.stack([np.outer(rate[there], grid), np.tile(factor * (grid / 1.5) ** 0.7, (n, 1))], axis=1)
    steps = np.diff(np.concatenate([np.zeros((n, 2, 1)), hazards], axis=2))
    total = np.concatenate([np.zeros((n, 1)), hazards.sum(axis=1)], axis=1)
    rise = np.diff(-np.exp(-total))[:, None] * steps / np.diff(total)[:, None]
    return np.cumsum(rise, axis=2), grid, {"time": time[there], "cause": cause[there], "entry": entry[there]}


class TestEntry:
    """Rows that entered late count from there on."""

    def test_a_true_model_is_not_accused(self):
        found = [cause_calibration(*rows[:2], **rows[2], draws=999) for rows in (late_rows(400, s) for s in range(30))]
        p_values = np.array([one.p_value for one in found])
        assert (p_values < 0.05).sum() <= 5  # 1.5 expected
        assert 0.5 < np.mean([one.value / one.floor for one in found]) < 1.5

    def test_without_its_entry_it_is(self):
        curves, grid, rows = late_rows(2000, 1)
        ignored = cause_calibration(curves, grid, time=rows["time"], cause=rows["cause"], draws=999)
        assert ignored.p_value < 0.01
        assert ignored.value > 5 * ignored.floor
        wrong = late_rows(2000, 1, factor=1.3)
        assert cause_calibration(*wrong[:2], **wrong[2], draws=999).p_value < 0.01

    def test_one_cause_is_d_calibration_from_entry_on(self):
        rng = np.random.default_rng(3)
        rate = np.exp(0.5 * rng.normal(size=2000))
        happens, entry = rng.exponential(1 / rate), rng.uniform(0, 0.5, 2000)
        time, event = np.minimum(happens, 1.2), happens < 1.2
        rate, time, event, entry = (one[time > entry] for one in (rate, time, event, entry))
        grid = np.linspace(0.0, 40.0, 40_001)[1:]
        grid = grid[np.unique(np.geomspace(1, 40_000, 3000).astype(int)) - 1]
        curves = 1 - np.exp(-rate[:, None] * grid)
        found = cause_calibration(curves[:, None], grid, time=time, cause=event.astype(int), entry=entry, draws=999)
        u, v = (1 - np.exp(-rate * at) for at in (time, entry))
        wanted = d_calibration(u, event, cdf_entry=v)
        assert found.value == pytest.approx(wanted.value, rel=0.01)
        ends = np.linspace(0, 1, 11)
        hazard = -np.log1p(-np.minimum(np.clip(u[:, None], ends[:-1], ends[1:]), 1 - 1e-12))
        before = -np.log1p(-np.minimum(np.clip(v[:, None], ends[:-1], ends[1:]), 1 - 1e-12))
        np.testing.assert_allclose(found.expected_events[0], (hazard - before).sum(axis=0), rtol=0.01)
        assert found.events.sum() == event.sum()

    def test_bad_entries(self):
        curves, grid, rows = late_rows(50, 1)
        with pytest.raises(ValueError, match=r"entry: expected an entry before the time of the row, .* at row 3"):
            cause_calibration(curves, grid, **{**rows, "entry": np.where(np.arange(50) == 3, 99.0, 0.0)})
        with pytest.raises(ValueError, match=r"entry: expected times before the last of times, 1e-05, got"):
            cause_calibration(curves[..., :1], grid[:1], **rows)
