"""What the predictions of an estimator must obey, whatever it learnt; and that it learns what there is."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import integrate
from scipy.stats import chi2, norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from tests.estimators.simulate import survival_rows
from xcal import Surv, SurvivalData, concordance_index, d_calibration
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.estimators import decision as crossfit
from xcal.estimators.fitted import in_own_memory, time_edges
from xcal.estimators.fitting import _floor
from xcal.metrics import kaplan_meier

DATA = survival_rows(300)
DISTRIBUTIONS = [
    ("mtlr", "linear"), ("mtlr", "step"), ("categorical", "linear"), ("lognormal", "linear"),
    ("weibull", "linear"), ("loglogistic", "linear"),
]  # fmt: skip
TIMES = np.array([0.0, 0.1, 0.5, 1.0, 3.0, 10.0, 1e6])


@pytest.fixture(scope="module", params=DISTRIBUTIONS, ids="-".join)
def model(request):
    distribution, interpolation = request.param
    return SurvivalModel(distribution, (8,), interpolation=interpolation, epochs=5).fit(DATA.x, DATA.y)


def test_curves_are_probabilities_that_fall(model):
    survival = model.predict_survival_function(DATA.x, TIMES, extrapolate=True)
    assert survival.shape == (300, 7)
    np.testing.assert_allclose(survival[:, 0], 1, rtol=1e-12)  # sums of bins round
    assert (np.diff(survival) <= 1e-12).all()
    assert ((survival >= 0) & (survival <= 1)).all()
    np.testing.assert_allclose(model.predict_cdf(DATA.x, TIMES, extrapolate=True), 1 - survival, atol=1e-12)


def test_times_may_come_in_any_order(model):
    backwards = model.predict_cdf(DATA.x, TIMES[::-1], extrapolate=True)[:, ::-1]
    # Not to the bit: a vector's last elements are computed by other instructions than the rest.
    np.testing.assert_allclose(backwards, model.predict_cdf(DATA.x, TIMES, extrapolate=True), rtol=1e-12, atol=1e-15)


def test_quantiles_invert_the_cdf(model):
    levels = [0.05, 0.2, 0.5]
    quantiles = model.predict_quantile(DATA.x, levels)
    assert quantiles.shape == (300, 3)
    np.testing.assert_allclose(quantiles[:, 2], model.predict_median(DATA.x), rtol=1e-12)
    reached = np.stack([model.predict_cdf(DATA.x[[row]], quantiles[row])[0] for row in range(20)])
    if model.interpolation == "step":  # the first edge at which F is no less than p
        assert (reached >= np.array(levels) - 1e-12).all()
    else:
        np.testing.assert_allclose(reached, np.broadcast_to(levels, reached.shape), rtol=1e-6)


def test_the_distribution_is_in_the_unit_of_the_data(model):
    distribution = model.predict_distribution(DATA.x)
    np.testing.assert_allclose(distribution.median, model.predict_median(DATA.x), rtol=1e-12)
    time = torch.from_numpy(DATA.y["time"].copy())
    own = [model.predict_cdf(DATA.x[[row]], time[row])[0, 0] for row in range(20)]
    np.testing.assert_allclose(distribution.cdf(time)[:20], own, rtol=1e-12)


def test_the_risk_is_the_mean_of_f_until_the_last_time(model):
    curve = model.predict_survival_function(DATA.x[:1])[0]
    last = curve.domain[1]
    grid = np.linspace(0, last, 200_001)
    area = integrate.trapezoid(1 - curve(grid), grid)
    # A continuous distribution is integrated over some 400 points.
    np.testing.assert_allclose(
        model.predict(DATA.x[:1])[0], area / last, rtol=1e-4 if model.edges_ is not None else 1e-3
    )


@pytest.mark.parametrize("distribution", ["lognormal", "weibull", "loglogistic"])
def test_the_risk_where_the_last_row_is_censored_long_after_the_last_event(distribution):
    happened = DATA.y["event"]
    y = Surv(time=np.where(happened, DATA.y["time"], 30.0), event=happened)
    model = SurvivalModel(distribution, (8,), epochs=5).fit(DATA.x, y)
    for row in range(0, 300, 60):
        curve = model.predict_survival_function(DATA.x[[row]])[0]
        area = integrate.quad(lambda t, curve=curve: 1 - curve(t), 0, 30, epsabs=1e-6, limit=200)[0]
        assert model.predict(DATA.x[[row]])[0] == pytest.approx(area / 30, abs=2e-4)


def test_the_score_is_the_concordance_of_the_risk(model):
    expected = concordance_index(time=DATA.y["time"], event=DATA.y["event"], risk=model.predict(DATA.x)).value
    assert model.score(DATA.x, DATA.y) == expected


def test_d_calibration_is_that_of_f_at_the_own_times(model):
    cdf = model.predict_distribution(DATA.x).cdf(torch.from_numpy(DATA.y["time"].copy()))
    expected = d_calibration(cdf, DATA.y["event"], n_bins=20)
    assert model.d_calibration(DATA.x, DATA.y).value == pytest.approx(expected.value, rel=1e-10)
    for method in ("km", "ipcw"):
        expected = d_calibration(cdf, DATA.y["event"], n_bins=5, method=method, time=DATA.y["time"])
        measured = model.d_calibration(DATA.x, DATA.y, n_bins=5, method=method)
        assert measured.value == pytest.approx(expected.value, rel=1e-10)


def test_d_calibration_of_one_row(model):
    # A slice of one row keeps the gaps of the structured array.
    one = model.d_calibration(DATA.x[:1], DATA.y[:1])
    cdf = model.predict_cdf(DATA.x[:1], DATA.y["time"][:1])[0]
    assert one.value == pytest.approx(d_calibration(cdf, DATA.y["event"][:1], n_bins=20).value)


def test_curves_run_the_network_once_for_each_row(model):
    many = np.tile(DATA.x, (4, 1))  # more than one piece
    seen = []
    hook = model.fitted_.network.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    try:
        curves = model.predict_survival_function(many)
    finally:
        hook.remove()
    assert sum(seen) == len(many)
    # The points to draw are those that a call gives, also in a later piece.
    for row in (0, 1, len(many) - 1):
        np.testing.assert_allclose(curves[row].y, curves[row](curves[row].x), rtol=1e-12, atol=1e-15)
    expected = model.predict_survival_function(many, curves[0].x)
    np.testing.assert_allclose(np.stack([curve.y for curve in curves]), expected, rtol=1e-9, atol=1e-12)


def test_curves_say_what_the_table_says(model):
    curves = model.predict_survival_function(DATA.x[:3])
    table = model.predict_survival_function(DATA.x[:3], TIMES, extrapolate=True)
    for curve, row in zip(curves, table, strict=True):
        np.testing.assert_allclose(curve(TIMES, extrapolate=True), row, rtol=1e-12)
        np.testing.assert_allclose(curve(TIMES[2]), curve(TIMES[:-1], extrapolate=True)[2], rtol=1e-12)
        np.testing.assert_allclose(curve(curve.x), curve.y, rtol=1e-12)
        assert curve.domain == (0.0, curve.x[-1])
    assert repr(curves[0]).startswith("SurvivalCurve(")


@pytest.mark.parametrize(("distribution", "interpolation"), DISTRIBUTIONS)
@pytest.mark.parametrize("objective", ["nll", "scrps", "censored-crps"])
def test_units_of_time_do_not_matter(distribution, interpolation, objective):
    def fitted(unit):
        data = survival_rows(200, unit=unit)
        estimator = SurvivalModel(
            distribution, (8,), interpolation=interpolation, objective=objective, xcal_lambda=10.0, epochs=5
        )
        return estimator.fit(data.x, data.y)

    one = fitted(1.0)
    for unit in (1e-6, 1e9):
        other = fitted(unit)
        # The network sees times over their median in float32: other units round away.
        np.testing.assert_allclose(other.predict(DATA.x), one.predict(DATA.x), rtol=1e-5)
        np.testing.assert_allclose(other.predict_median(DATA.x), unit * one.predict_median(DATA.x), rtol=1e-5)
        np.testing.assert_allclose(
            other.predict_cdf(DATA.x, TIMES[:-2] * unit), one.predict_cdf(DATA.x, TIMES[:-2]), rtol=1e-5, atol=1e-12
        )
    same = fitted(2.0**20)  # a power of two changes no digit that the network sees
    np.testing.assert_allclose(same.predict(DATA.x), one.predict(DATA.x), rtol=1e-12)


def test_units_of_features_do_not_matter():
    settings = {"hidden": (8,), "epochs": 5}
    one = SurvivalModel(**settings).fit(DATA.x, DATA.y)
    other = SurvivalModel(**settings).fit(DATA.x * [1e-6, 1.0, 1e9] + [0.0, 1e3, 0.0], DATA.y)
    np.testing.assert_allclose(
        other.predict(DATA.x * [1e-6, 1.0, 1e9] + [0.0, 1e3, 0.0]), one.predict(DATA.x), rtol=1e-4
    )


def test_a_constant_feature_says_nothing():
    constant = np.column_stack([DATA.x, np.full(300, 0.1)])
    model = SurvivalModel(hidden=(8,), epochs=3).fit(constant, DATA.y)
    np.testing.assert_array_equal(model.predict(constant), model.predict(np.column_stack([DATA.x, np.full(300, 5.0)])))
    nothing = SurvivalModel(hidden=(8,), epochs=3).fit(np.ones((300, 2)), DATA.y)
    # Equal rows at different places of a matrix product may differ in their last digits.
    np.testing.assert_allclose(np.ptp(nothing.predict(np.ones((300, 2)))), 0, atol=1e-13)


@pytest.mark.parametrize("offset", [8, 16, 32, 40])
def test_rows_start_at_a_cache_line_wherever_numpy_had_them(offset):
    memory = np.zeros(1024, dtype=np.uint8)
    start = -memory.ctypes.data % 64 + offset
    values = memory[start : start + 480].view(np.float64).reshape(20, 3)
    values[:] = DATA.x[:20]
    copied = in_own_memory(values)
    assert copied.data_ptr() % 64 == 0
    np.testing.assert_array_equal(copied, values)


def target_forms():
    time, event = DATA.y["time"].copy(), DATA.y["event"].copy()
    swapped = np.empty(300, dtype=[("months", float), ("died", bool)])
    swapped["months"], swapped["died"] = time, event
    return {
        "other field order": swapped,
        "pandas": pd.DataFrame({"event": event.astype(int), "time": time}),
        "polars": pl.DataFrame({"time": time, "event": event}),
        "dict": {"time": time, "event": event},
    }


@pytest.mark.parametrize("y", target_forms().values(), ids=target_forms().keys())
def test_all_forms_of_y_give_the_same_model(y):
    settings = {"hidden": (4,), "epochs": 2}
    expected = SurvivalModel(**settings).fit(DATA.x, DATA.y)
    model = SurvivalModel(**settings).fit(DATA.x, y)
    np.testing.assert_array_equal(model.predict(DATA.x), expected.predict(DATA.x))
    assert model.score(DATA.x, y) == expected.score(DATA.x, DATA.y)


def test_random_state():
    settings = {"hidden": (4,), "epochs": 2}

    def risk(state):
        return SurvivalModel(random_state=state, **settings).fit(DATA.x, DATA.y).predict(DATA.x)

    before = torch.get_rng_state()
    np.testing.assert_array_equal(risk(1), risk(np.int64(1)))
    assert not np.array_equal(risk(1), risk(2))
    np.testing.assert_array_equal(risk(np.random.RandomState(3)), risk(np.random.RandomState(3)))
    assert not np.array_equal(risk(None), risk(None))
    assert torch.equal(before, torch.get_rng_state())


def test_weights():
    settings = {"distribution": "weibull", "hidden": (4,), "epochs": 3, "batch_size": 1000}
    held_out = survival_rows(100, seed=1)
    validation = (held_out.x, held_out.y)
    kept = np.arange(300) % 3 > 0
    without = SurvivalModel(**settings).fit(DATA.x[kept], DATA.y[kept], validation_data=validation)
    zero = SurvivalModel(**settings).fit(DATA.x, DATA.y, sample_weight=kept, validation_data=validation)
    np.testing.assert_array_equal(without.predict(DATA.x), zero.predict(DATA.x))
    # Only ratios of weights matter, up to rounding.
    tenfold = SurvivalModel(**settings).fit(DATA.x, DATA.y, sample_weight=10.0 * kept, validation_data=validation)
    np.testing.assert_allclose(tenfold.predict(DATA.x), zero.predict(DATA.x), rtol=1e-5)
    # Rows of late times that count for more move the predictions to later times.
    late = np.where(DATA.y["time"] > 1, 20.0, 1.0)
    settings |= {"epochs": 50, "learning_rate": 0.03}
    heavy = SurvivalModel(**settings).fit(DATA.x, DATA.y, sample_weight=late)
    even = SurvivalModel(**settings).fit(DATA.x, DATA.y)
    medians = [np.median(one.predict_median(DATA.x, extrapolate=True)) for one in (heavy, even)]
    assert medians[0] > 1.1 * medians[1]


def test_the_split_keeps_the_share_of_events_and_every_row_once():
    time, event = DATA.y["time"], DATA.y["event"]
    table = SurvivalData(np.arange(300.0)[:, None], time, event)
    train, validation = table.split((0.8, 0.2), seed=0)
    assert sorted([*train.x[:, 0], *validation.x[:, 0]]) == list(range(300))
    assert validation.event.sum() == round(0.2 * event.sum())
    assert (~validation.event).sum() == round(0.2 * (~event).sum())


def test_the_epoch_with_the_lowest_validation_total_is_kept():
    # Rows that live three times as long as the model believes: D-calibration is well above the noise.
    late = Surv(time=3 * DATA.y["time"], event=np.ones(300))
    model = SurvivalModel(hidden=(8,), xcal_lambda=100.0, epochs=30, patience=5)
    model.fit(DATA.x, DATA.y, validation_data=(DATA.x, late))
    total, objective, dcal = (getattr(model.history_, name)[:, 0] for name in ("total", "objective", "dcal"))
    assert model.best_epoch_ == np.argmin(total)
    assert len(total) == min(30, model.best_epoch_ + 6)
    # What a perfect model scores on 300 uncensored rows in 20 bins: its mean and two standard deviations.
    noise = (1 - 1 / 20) / 300 * (1 + 2 * chi2(19).std() / 19)
    assert (dcal > noise).all()
    np.testing.assert_allclose(total, objective + 100 * (dcal - noise), rtol=1e-9)


class TestNoise:
    """What is subtracted from D-calibration when epochs are compared, and when it means nothing."""

    def rows(self, time, weights=None):
        return SurvivalData(
            np.zeros((len(time), 1)), np.asarray(time, dtype=float), np.ones(len(time), dtype=bool), weights
        )

    @pytest.mark.parametrize("weighted", [False, True])
    def test_a_perfect_model_is_rarely_above_it(self, weighted):
        rng = np.random.default_rng(0)
        weights = rng.exponential(size=500) if weighted else np.ones(500)
        level = _floor(self.rows(np.arange(1, 501), weights), 20, penalised=True).upper
        bins = rng.integers(20, size=(2000, 500))
        masses = np.stack([(weights * (bins == b)).sum(1) for b in range(20)], axis=1) / weights.sum()
        above = (np.square(masses - 1 / 20).sum(1) > level).mean()
        # The standard error of the share is 0.004.
        assert above == pytest.approx(chi2(19).sf(19 + 2 * chi2(19).std()), abs=0.015)

    @pytest.mark.parametrize("lam", [0.0, 10.0])
    def test_few_distinct_times(self, lam):
        data = survival_rows(2000)
        months = Surv(time=np.ceil(np.minimum(data.y["time"] * 2, 12)), event=data.y["event"])
        model = SurvivalModel(hidden=(4,), epochs=1, xcal_lambda=lam)
        if lam == 0:  # nothing depends on it; a warning would be an error
            model.fit(data.x, months)
            return
        with pytest.warns(
            UserWarning, match=r"few distinct values \(12 among 400 validation rows\).*xcal_lambda=0"
        ) as told:
            model.fit(data.x, months)
        assert len(told) == 1
        assert told[0].filename == __file__

    @pytest.mark.parametrize("n", [5, 20, 100])
    def test_few_rows_are_no_few_values(self, n):
        assert _floor(self.rows(np.arange(1, n + 1)), 20, penalised=True).upper > 0


def interrupt_after(epoch):
    def stop(report):
        if report.epoch == epoch:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize(
    "estimator", [SurvivalModel(hidden=(4,)), SurvivalPath((0, 10), seeds=1, hidden=(4,))], ids=["model", "path"]
)
class TestInterrupt:
    def test_it_is_passed_on_and_the_best_until_then_is_kept(self, estimator):
        model, short = clone(estimator).set_params(progress=interrupt_after(3)), clone(estimator).set_params(epochs=3)
        with pytest.raises(KeyboardInterrupt, match="fitted with the best weights until then"):
            model.fit(DATA.x, DATA.y)
        np.testing.assert_array_equal(model.predict(DATA.x), short.fit(DATA.x, DATA.y).predict(DATA.x))

    def test_in_the_first_epoch_it_leaves_nothing(self, estimator, monkeypatch):
        def interrupt(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr("xcal.training.loop.Steps.step", interrupt)
        model = clone(estimator)
        with pytest.raises(KeyboardInterrupt, match="first epoch: the estimator is not fitted"):
            model.fit(DATA.x, DATA.y)
        with pytest.raises(NotFittedError):
            model.predict(DATA.x)

    def test_cross_validation_stops(self, estimator):
        calls = []

        def stop(report):
            calls.append(report)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            cross_val_score(clone(estimator).set_params(progress=stop), DATA.x, DATA.y, cv=3, error_score=np.nan)
        assert len(calls) == 1


@pytest.mark.parametrize("part", ["frontier", "decide"])
def test_an_interrupt_after_training_keeps_what_was_trained(part, monkeypatch):
    path, calls, own = SurvivalPath((0, 10), seeds=1, hidden=(4,), epochs=3), [], getattr(crossfit, part)

    def interrupted_once(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return own(*arguments, **options)

    monkeypatch.setattr(crossfit, part, interrupted_once)
    with pytest.raises(KeyboardInterrupt, match="fitted with the best weights until then"):
        path.fit(DATA.x, DATA.y)
    monkeypatch.undo()
    whole = clone(path).set_params(cross_fit=0).fit(DATA.x, DATA.y)
    assert path.selection_ == whole.selection_
    np.testing.assert_array_equal(path.predict(DATA.x), whole.predict(DATA.x))


def test_an_interrupt_while_folds_are_trained_is_passed_on(monkeypatch):
    path, own = SurvivalPath((0, 10), seeds=1, hidden=(4,), epochs=2), crossfit.train_on

    def interrupted(*arguments, **options):
        result, models = own(*arguments, **options)
        return replace(result, interrupted=True), models

    monkeypatch.setattr(crossfit, "train_on", interrupted)
    with pytest.raises(KeyboardInterrupt, match="fitted with the best weights until then"):
        path.fit(DATA.x, DATA.y)
    assert path.cross_fitted_ is None
    assert np.isfinite(path.predict(DATA.x)).all()


@pytest.fixture
def double_by_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize(("distribution", "interpolation"), DISTRIBUTIONS)
def test_torchs_default_type_changes_nothing(distribution, interpolation, request):
    model = SurvivalModel(distribution, (8,), interpolation=interpolation, epochs=2, xcal_lambda=10, dropout=0.1)
    before = model.fit(DATA.x, DATA.y).predict_survival_function(DATA.x, TIMES, extrapolate=True)
    request.getfixturevalue("double_by_default")
    np.testing.assert_array_equal(
        before, model.fit(DATA.x, DATA.y).predict_survival_function(DATA.x, TIMES, extrapolate=True)
    )


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
def test_a_fit_needs_no_gradients_of_its_caller(switch):
    model = SurvivalModel(hidden=(4,), epochs=2)
    expected = model.fit(DATA.x, DATA.y).predict(DATA.x)
    with switch():
        np.testing.assert_array_equal(model.fit(DATA.x, DATA.y).predict(DATA.x), expected)


class TestTimeEdges:
    def rows(self, time, event):
        return SurvivalData(np.zeros((len(time), 1)), np.asarray(time, dtype=float), np.asarray(event, dtype=bool))

    def test_they_go_from_zero_to_beyond_the_last_time(self):
        rows = self.rows(DATA.y["time"], DATA.y["event"])
        edges = time_edges(rows, 10)
        last_event = rows.time[rows.event].max()
        inside = edges[edges <= last_event]
        assert edges[0] == 0
        assert inside.size == 11
        counts = np.histogram(rows.time[rows.event], inside)[0]
        assert counts.max() - counts.min() <= 1
        assert edges[-2] == rows.time.max() < edges[-1]

    def test_the_last_bin_is_as_long_as_life_at_the_mean_hazard(self):
        late = survival_rows(300, censoring="late").y
        rows = self.rows(late["time"], late["event"])
        edges = time_edges(rows, 10)
        left = kaplan_meier(time=rows.time, event=rows.event).at(rows.time.max())
        hazard = -np.log(left) / rows.time[rows.event].max()
        np.testing.assert_allclose(edges[-1] - edges[-2], 1 / hazard, rtol=1e-12)

    def test_if_the_last_row_is_an_event_half_a_row_is_left(self):
        edges = time_edges(self.rows([1, 2, 3, 4], [1, 1, 1, 1]), 2)
        np.testing.assert_allclose(edges, [0, 2.5, 4, 4 + 4 / np.log(8)])

    def test_ties_share_an_edge(self):
        # The percentiles 0, 25, ..., 100 of the event times are 1, 1, 1, 1 and 2.
        edges = time_edges(self.rows([1, 1, 1, 1, 2, 3], [1, 1, 1, 1, 1, 0]), 4)
        np.testing.assert_array_equal(edges[:-1], [0, 1, 2, 3])

    def test_an_event_at_time_zero(self):
        assert time_edges(self.rows([0, 0, 1, 2], [1, 1, 1, 1]), 4)[0] == 0


class TestQuality:
    """On 2,000 rows with a log-normal truth; the bounds hold for a good fit and not for a poor one."""

    @pytest.mark.parametrize("distribution", ["mtlr", "lognormal", "weibull"])
    def test_the_order_is_nearly_as_good_as_the_true_one(self, distribution):
        train, test = survival_rows(2000), survival_rows(4000, seed=1)
        model = SurvivalModel(distribution).fit(train.x, train.y)
        truth = concordance_index(time=test.y["time"], event=test.y["event"], predicted_time=test.location).value
        assert model.score(test.x, test.y) > truth - 0.01

    # CI has all pairs.
    @pytest.mark.parametrize(
        ("interpolation", "censoring"),
        [
            ("linear", "late"),
            ("step", "random"),
            pytest.param("linear", "random", marks=pytest.mark.ci),
            pytest.param("step", "late", marks=pytest.mark.ci),
        ],
    )
    def test_it_is_calibrated(self, censoring, interpolation):
        train, test = (survival_rows(n, seed=n, censoring=censoring) for n in (2000, 4000))
        model = SurvivalModel(xcal_lambda=10.0, interpolation=interpolation).fit(train.x, train.y)
        measured = model.d_calibration(test.x, test.y, n_bins=10)
        # Estimated from 2,000 rows, so it cannot be at the floor of 4,000; without the bin after the last time, rows
        # that outlive the study would all have F = 1 and D-calibration would be 0.17.
        assert measured.value < 0.003

    def test_predicted_probabilities_are_the_true_ones(self):
        train, test = survival_rows(3000, seed=3), survival_rows(2000, seed=4)
        model = SurvivalModel("lognormal").fit(train.x, train.y)
        truth = norm.cdf((np.log(1.5) - test.location) / 0.6)
        assert np.abs(model.predict_cdf(test.x, 1.5)[:, 0] - truth).mean() < 0.03


def test_a_prediction_does_not_depend_on_the_rows_beside_it(model):
    alone = np.concatenate([model.predict(DATA.x[[row]]) for row in range(10)])
    np.testing.assert_allclose(alone, model.predict(DATA.x)[:10], rtol=1e-12)
    many = np.tile(DATA.x, (4, 1))
    model_many = model.predict_survival_function(many, np.linspace(0, 3, 3000))  # more than one piece
    np.testing.assert_allclose(model_many[:300], model_many[900:], rtol=1e-12)
