"""Audits of events that lie between two times: against R's likelihoods, Turnbull, and laws that are known."""

import numpy as np
import pandas as pd
import pytest
from lifelines import LogNormalAFTFitter, WeibullAFTFitter
from scipy import integrate, optimize
from typer.testing import CliRunner

from xcal import Surv, audit, conditional_calibration, d_calibration
from xcal.cli.app import app
from xcal.metrics import turnbull
from xcal.metrics.observed_expected import event_ratio
from xcal.metrics.pseudo_values import HazardsSeen, coarsened
from xcal.metrics.spec import Key

TIMES = np.concatenate([np.geomspace(1e-6, 0.1, 60), np.linspace(0.12, 5.0, 160)])
OPTIONS = {"n_bootstrap": 0, "progress": False}


def hazard(x, t):
    """Weibull rows whose shape depends on x: hazards cross."""
    return np.asarray(t) ** np.exp(0.6 * x)


def drawn(n, seed, *, width=0.6, late=0.0, censored=True):
    """Covariate, ends of the intervals and entry: visits `width` apart, the first at random, until the row leaves."""
    rng, m = np.random.default_rng([n, seed]), 8 * n
    x = rng.normal(size=m)
    happens = rng.exponential(size=m) ** np.exp(-0.6 * x)
    leaves = rng.weibull(1.5, m) * 1.3 if censored else np.full(m, 1e9)
    entry = np.where(rng.random(m) < late, rng.uniform(0, 0.8, m), 0.0)
    first = rng.uniform(0, width, m)
    lower, upper = (first + (np.floor((happens - first) / width) + k) * width for k in (0, 1))
    lower, seen = np.maximum(lower, entry), upper <= leaves
    last = np.maximum(first + np.floor((leaves - first) / width) * width, entry)
    lower, upper = np.where(seen, lower, last), np.where(seen, upper, np.inf)
    there = np.flatnonzero((np.minimum(happens, leaves) > entry) & ((lower > entry) | seen))[:n]
    return x[there], lower[there], upper[there], entry[there]


def given(x, lower, upper, entry, power=1.0):
    curves = np.exp(-power * np.array([hazard(x, t) for t in TIMES]).T)
    y = Surv(lower=lower, upper=upper, entry=entry if entry.any() else None)
    return {"survival": curves, "times": TIMES, "y": y, "horizons": [0.3, 0.8], "covariates": {"x": x}}


@pytest.fixture(scope="module")
def rows():
    x, *ends, entry = drawn(900, 0)
    whole = given(x, *ends, entry)
    return x, *ends, audit(**whole, groups={"x": np.where(x > 0, "b", "a")}, n_bootstrap=40, progress=False)


class TestOfR:
    """Diabetic nephropathy, known exactly, between two visits, or censored."""

    @pytest.fixture
    def table(self, real_data):
        rows = pd.read_csv(real_data("coarsened") / "coarsened" / "diabetes.csv")
        upper = rows["right"].fillna(np.inf).to_numpy()
        return rows["left"].to_numpy(np.float64), upper, pd.DataFrame({"male": (rows["gender"] == "male") * 1.0})

    @pytest.mark.parametrize(
        ("model", "likelihood", "intercept", "male"),
        [(WeibullAFTFitter, -2027.1963, 2.907977, 0.045758), (LogNormalAFTFitter, -2026.1182, 2.699820, 0.086428)],
    )
    def test_likelihoods(self, table, model, likelihood, intercept, male):
        lower, upper, X = table
        fitted = model().fit_interval_censoring(X.assign(l=np.maximum(lower, 1e-6), u=upper), "l", "u")
        location = fitted.params_.iloc[:2]
        np.testing.assert_allclose(
            [location.xs("Intercept", level=1).item(), location.xs("male", level=1).item()],
            [intercept, male],
            atol=5e-5,
        )
        found = audit(fitted, X, Surv(lower=lower, upper=upper), **OPTIONS)
        assert found.value("nll").value * lower.size == pytest.approx(-likelihood, abs=5e-5)
        if model is WeibullAFTFitter:  # the most likely factor on its hazards is 1
            assert found.value("event_ratio").value == pytest.approx(1.0, abs=1e-4)

    def test_observed_risks_are_turnbulls(self, table):
        """Most of these times are known, or lie in short intervals: what is left open hardly matters."""
        lower, upper, _ = table
        curves = np.tile(np.exp(-((np.arange(1, 41) / 18.3) ** 2.8)), (lower.size, 1))
        y = Surv(lower=lower, upper=upper)
        found = audit(survival=curves, times=np.arange(1, 41), y=y, horizons=[10, 15, 20], **OPTIONS)
        curve = turnbull(lower=lower, upper=upper)
        for h in (10.0, 15.0, 20.0):
            value = found.value("observed_risk", horizon=h)
            error = (value.upper - value.lower) / 3.92
            assert 0.01 < error < 0.02
            assert value.value == pytest.approx(1 - float(curve.at(h)), abs=1.5 * error)


class TestFormulas:
    def test_what_is_known_of_an_exponential_time(self):
        """Chances, mean hazards and scores by numerical integration over the interval."""
        lower, upper, at = np.array([0.2, 0.5, 0.0, 1.0]), np.array([0.9, 0.5, 2.0, np.inf]), np.full(4, 0.6)
        seen = HazardsSeen(lower, upper)
        by, lived = (
            seen.by(at, np.array([False, True, False, False]), np.array([False, False, False, True])),
            seen.lived(),
        )
        for k in (0, 2):
            whole = integrate.quad(lambda h: np.exp(-h), lower[k], upper[k])[0]
            assert by[k] == pytest.approx(integrate.quad(lambda h: np.exp(-h), lower[k], 0.6)[0] / whole)
            assert lived[k] == pytest.approx(integrate.quad(lambda h: h * np.exp(-h), lower[k], upper[k])[0] / whole)
        assert (by[1], by[3], lived[1], lived[3]) == (1, 0, 0.5, 1)

        def log_likelihood(change):
            factor = np.exp(change)
            between = np.log(np.exp(-factor * lower[[0, 2]]) - np.exp(-factor * upper[[0, 2]]))
            return np.array([between[0], change - factor * 0.5, between[1], -factor])

        for change in (0.0, 0.4):
            slope = (log_likelihood(change + 1e-5) - log_likelihood(change - 1e-5)) / 2e-5
            found, information = seen.score(change)
            np.testing.assert_allclose(found, slope, rtol=1e-6)
            curve = (log_likelihood(change + 1e-4) - 2 * log_likelihood(change) + log_likelihood(change - 1e-4)) / 1e-8
            assert information == pytest.approx(-curve.sum(), rel=1e-5)

    def test_the_ratio_is_the_most_likely_factor(self):
        x, lower, upper, _ = drawn(400, 1)
        low, high = hazard(x, lower), np.where(np.isinf(upper), np.inf, hazard(x, np.where(np.isinf(upper), 1, upper)))
        known = np.isfinite(upper)

        def loss(change):
            factor = np.exp(change)
            return -np.where(known, np.log(np.exp(-factor * low) - np.exp(-factor * high)), -factor * low).sum()

        best = optimize.minimize_scalar(loss, bounds=(-2, 2), method="bounded", options={"xatol": 1e-9})
        late = np.where(known, high, low)
        found = event_ratio(-np.expm1(-late), known, cdf_lower=-np.expm1(-low))
        assert found.value == pytest.approx(np.exp(best.x), rel=1e-6)
        assert found.observed / found.expected == pytest.approx(found.value)
        information = (loss(best.x + 1e-3) - 2 * best.fun + loss(best.x - 1e-3)) / 1e-6
        assert np.log(found.upper / found.value) == pytest.approx(1.959964 / information**0.5, rel=1e-4)

    def test_without_intervals_it_is_events_over_hazards(self):
        rng = np.random.default_rng(2)
        cdf, event, entry = rng.uniform(0.3, 1, 100), rng.random(100) < 0.6, rng.uniform(0, 0.3, 100)
        one, other = (event_ratio(cdf, event, cdf_entry=entry, **more) for more in ({}, {"cdf_lower": cdf}))
        np.testing.assert_allclose(list(vars(one).values()), list(vars(other).values()), rtol=1e-9)

    def test_all_that_is_known_is_the_outcome(self):
        rng = np.random.default_rng(3)
        risk, happened = rng.uniform(0.1, 0.9, 200), rng.random(200) < 0.5
        ends = np.where(happened, -np.log1p(-risk) * 0.5, -np.log1p(-risk) * 1.5)
        found = coarsened(HazardsSeen(ends, np.where(happened, ends, np.inf)), risk, happened, ~happened)
        np.testing.assert_allclose(found, happened, atol=1e-12)

    @pytest.mark.parametrize("power", [1.0, 1.5])
    def test_means_are_risks_where_the_model_is_wrong_by_a_factor_too(self, power):
        x, lower, upper, _ = drawn(6000, 4, width=0.3)
        ends = hazard(x, lower), np.where(np.isinf(upper), np.inf, hazard(x, np.where(np.isinf(upper), 1, upper)))
        risk, truth = (1 - np.exp(-factor * hazard(x, 0.6)) for factor in (power, 1.0))
        happened = upper <= 0.6
        found = coarsened(HazardsSeen(*(power * end for end in ends)), risk, happened, (lower >= 0.6) & ~happened)
        for own in (np.full(x.size, True), x > 0.5, x < -0.5):
            left = (found - truth)[own]
            assert abs(left.mean()) < 3.5 * left.std() / left.size**0.5 + 0.012 * (power - 1)

    def test_means_are_risks_where_no_recalibration_corrects_the_model(self):
        """Hazards 1.6 times too low in the middle of the risks alone: what the intervals leave tells a part of it."""
        x, lower, upper, _ = drawn(6000, 40, width=0.5)
        ends = hazard(x, lower), np.where(np.isinf(upper), np.inf, hazard(x, np.where(np.isinf(upper), 1, upper)))
        middle = np.abs(x) < 0.5
        factor = np.where(middle, 1 / 1.6, 1.0)
        risk, truth = (1 - np.exp(-own * hazard(x, 0.6)) for own in (factor, 1.0))
        happened = upper <= 0.6
        found = coarsened(HazardsSeen(*(factor * end for end in ends)), risk, happened, (lower >= 0.6) & ~happened)
        assert (risk - truth)[middle].mean() < -0.13
        for own in (middle, ~middle):
            left = (found - truth)[own]
            assert abs(left.mean()) < 3.5 * left.std() / left.size**0.5

    def test_means_are_risks_of_rows_that_tell_little(self):
        """Of 300 rows few at low risk have their event near an early horizon: what is hidden is not read off these."""
        off = []
        for seed in range(150):
            x, lower, upper, _ = drawn(300, 100 + seed)
            ends = hazard(x, lower), np.where(np.isinf(upper), np.inf, hazard(x, np.where(np.isinf(upper), 1, upper)))
            risk, happened = 1 - np.exp(-hazard(x, 0.2)), upper <= 0.2
            low = risk < np.quantile(risk, 0.3)
            found = coarsened(HazardsSeen(*ends), risk, happened, (lower >= 0.2) & ~happened)
            off.append((found - risk)[low].mean() / risk[low].mean())
        assert abs(np.mean(off)) < 3.5 * np.std(off) / len(off) ** 0.5

    def test_residuals_given_covariates(self):
        """A row with an interval has its part of every bin: the mean over all places where its event may be."""
        rng = np.random.default_rng(5)
        x, low = rng.normal(size=(300, 2)), rng.uniform(0, 0.8, 300)
        high = low + 0.2
        found = conditional_calibration(high, np.ones(300), x, cdf_lower=low, n_bins=10, n_draws=0)
        own = d_calibration(high, np.ones(300), cdf_lower=low, p_value=None)
        assert found.where is None
        features = np.ones((300, 1))
        one = conditional_calibration(high, np.ones(300), x, cdf_lower=low, n_bins=10, n_draws=0, features=features)
        assert one.value + one.floor == pytest.approx(own.value, rel=1e-2)


class TestAudit:
    def test_values_are_those_of_their_functions(self, rows):
        x, lower, upper, found = rows
        event, last = np.isfinite(upper), np.where(np.isfinite(upper), upper, lower)
        cdf, low = (-np.expm1(-hazard(x, t)) for t in (last, lower))
        own = d_calibration(cdf, event, cdf_lower=low)
        assert own.test == "residuals"
        for name, value in (("d_calibration", own.value), ("d_calibration_floor", own.floor)):
            assert found.value(name).value == pytest.approx(value, rel=0.02)  # F is read along lines
        assert found.value("d_calibration_p").value == pytest.approx(own.p_value, abs=0.01)
        ratio, value = event_ratio(cdf, event, cdf_lower=low), found.value("event_ratio")
        assert (value.value, value.lower, value.upper) == pytest.approx(
            (ratio.value, ratio.lower, ratio.upper), rel=2e-3
        )
        loss = -np.where(event, np.log(np.maximum(cdf - low, 1e-300)), np.log1p(-cdf)).mean()
        assert found.value("nll").value == pytest.approx(loss, rel=2e-3)

    def test_what_has_no_meaning_is_left_out_with_the_reason(self, rows):
        found = rows[-1]
        skipped = {one.what: one.why for one in found.measured.skipped}
        missing = ("harrell", "uno", "antolini", "ibs", "one_calibration_p", "ici_cox", "d_calibration_km")
        for name in (*missing, "km_calibration", "P-P curve", "subgroup_p"):
            assert "intervals" in skipped[name], name
        names = {value.metric for value in found.values}
        assert {"oe", "slope", "ici", "auc", "brier", "ipa", "event_ratio", "d_calibration_p", "oe_p", "nll"} <= names
        assert "Events between two times" in found.data.concerns[0].what
        assert "Turnbull" in found.methods
        assert "random signs" in found.methods
        assert "Jackknife" not in found.methods

    def test_turnbull_stands_beside_the_mean_prediction(self, rows, tmp_path):
        x, lower, upper, found = rows
        over = found.measured.over_time
        low, high = turnbull(lower=lower, upper=upper).bounds(over.times)
        np.testing.assert_allclose(over.observed_upper, 1 - low)
        np.testing.assert_allclose(over.observed_lower, 1 - high)
        np.testing.assert_allclose(over.predicted[50], 1 - np.exp(-hazard(x, over.times[50])).mean(), atol=1e-3)
        assert "observed (Turnbull)" in found.report(tmp_path / "page.html").read_text()

    def test_resamples_agree_with_the_formulas(self, rows):
        found = rows[-1]
        value, draws = found.value("oe", horizon=0.8), found.measured.draws[Key("oe", 0.8)]
        assert (value.upper - value.lower) / 3.92 == pytest.approx(draws.std(), rel=0.4)
        score = found.value("auc", horizon=0.8)
        assert score.lower < score.value < score.upper

    @pytest.mark.parametrize(("width", "late"), [(0.6, 0.0), (0.6, 0.5), (1.5, 0.0)])
    def test_a_true_model_is_not_accused_and_a_wrong_one_is(self, width, late):
        whole = drawn(1200, 6, width=width, late=late)
        assert audit(**given(*whole), **OPTIONS).verdict.level in ("trust", "unknown")
        wrong = audit(**given(*whole, power=1.8), **OPTIONS)
        assert wrong.verdict.level == "distrust"
        assert wrong.value("event_ratio").upper < 0.8
        assert wrong.value("oe", horizon=0.8).upper < 0.95

    def test_known_times_are_points(self):
        """Where nothing lies between, tests of D-calibration aside, it is what it is for known times."""
        rng = np.random.default_rng(7)
        x = rng.normal(size=500)
        time, leaves = rng.exponential(size=500) ** np.exp(-0.6 * x), rng.uniform(0.5, 3, 500)
        event, last = time <= leaves, np.minimum(time, leaves)
        whole = given(x, last, np.where(event, last, np.inf), np.zeros(500))
        one, other = (audit(**{**whole, "y": y}, **OPTIONS) for y in (whole["y"], (last, event)))
        for name, rel in (("d_calibration", 1e-9), ("d_calibration_floor", 1e-2)):
            assert one.value(name).value == pytest.approx(other.value(name).value, rel=rel)
        for name in ("oe", "slope", "brier", "auc"):
            assert one.value(name, horizon=0.3).value == pytest.approx(other.value(name, horizon=0.3).value, rel=0.01)

    @pytest.mark.ci
    def test_true_models_hold_their_levels(self):
        """60 data sets of 300 rows: 5 % of each test, three standard errors being 8 data sets."""
        few = {}
        for seed in range(60):
            found = audit(**given(*drawn(300, seed, late=0.5)), **OPTIONS)
            for value in found.values:
                if value.metric.endswith("_p"):
                    few[value.metric, value.horizon] = few.get((value.metric, value.horizon), 0) + (value.value < 0.05)
        assert max(few.values()) <= 9, few


class TestModels:
    def test_xgboost_trained_on_bounds(self):
        xgboost = pytest.importorskip("xgboost")
        x, lower, upper, _ = drawn(600, 8)
        table = xgboost.DMatrix(x[:, None])
        table.set_float_info("label_lower_bound", lower)
        table.set_float_info("label_upper_bound", upper)
        settings = {"objective": "survival:aft", "aft_loss_distribution": "extreme", "aft_loss_distribution_scale": 0.9}
        model = xgboost.train({**settings, "max_depth": 2, "seed": 0}, table, 10)
        found = audit(model, table, Surv(lower=lower, upper=upper), **OPTIONS)
        location = np.log(model.predict(table))
        ends = [np.exp(-np.exp((np.log(np.maximum(t, 1e-9)) - location) / 0.9)) for t in (lower, upper)]
        loss = -np.log(np.where(lower > 0, ends[0], 1.0) - np.where(np.isinf(upper), 0.0, ends[1])).mean()
        assert found.value("nll").value == pytest.approx(loss, rel=1e-4)
        assert found.library == "XGBoost"

    def test_steps_need_no_density(self):
        """A step function says the probability of an interval; of a time it has no density."""
        x, lower, upper, entry = drawn(300, 9)
        whole = {**given(x, lower, upper, entry), "interpolation": "previous"}
        assert "nll" in {value.metric for value in audit(**whole, **OPTIONS)}
        known = Surv(lower=np.append(lower, 0.4), upper=np.append(upper, 0.4))
        more = {**whole, "y": known, "survival": np.append(whole["survival"], whole["survival"][:1], axis=0)}
        more["covariates"] = None
        assert "nll" not in {value.metric for value in audit(**more, **OPTIONS)}


class TestBadInput:
    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (
                {"survival": None, "times": None, "horizons": None, "cdf": [0.2] * 4},
                "cdf: expected a model or survival",
            ),
            (
                {"survival": [[0.9, 0.2]] * 4, "times": [1, 5], "horizons": 2},
                "survival: expected curves at 10 times or",
            ),
            ({"weights": [1, 2, 3, 4]}, "weights: expected None beside intervals, got weights"),
            ({"landmarks": 2}, "landmarks: expected None beside intervals: who had come so far .* got 2"),
        ],
    )
    def test_words(self, more, message):
        curves = {"survival": np.tile(np.linspace(0.9, 0.1, 12), (4, 1)), "times": np.arange(12) + 1, "horizons": 4}
        y = Surv(lower=[3, 4, 5, 6], upper=[4, np.inf, 5, 8])
        with pytest.raises(ValueError, match=message):
            audit(**{**curves, **more}, y=y)


class TestCommandLine:
    def table(self, folder, **change):
        x, lower, upper, _ = drawn(300, 10)
        times = TIMES[::8]
        curves = {f"s_{t:.8f}": np.exp(-hazard(x, t)) for t in times}
        frame = pd.DataFrame({"last": lower, "first": upper, "x": x, **curves}).replace(np.inf, np.nan)
        for name, (row, value) in change.items():
            frame.loc[row, name] = value
        frame.to_csv(folder / "p.csv", index=False)
        words = ["audit", str(folder / "p.csv"), "--curves", "s_*", "--horizons", "0.5", "--resamples", "0"]
        return words, audit(
            survival=np.column_stack(list(curves.values())),
            times=[float(name[2:]) for name in curves],
            y=Surv(lower=lower, upper=upper),
            X=pd.DataFrame({"x": x}),
            horizons=0.5,
            name="p.csv",
            **OPTIONS,
        )

    def test_audit(self, tmp_path):
        words, expected = self.table(tmp_path)
        told = CliRunner().invoke(
            app, [*words, "--lower", "last", "--upper", "first", "--json", str(tmp_path / "a.json")]
        )
        assert told.exit_code == 0, told.output
        found = pd.read_json(tmp_path / "a.json", typ="series")["measured"]["values"]
        values = {(v["metric"], v["horizon"]): v["value"] for v in found if v["group"] is None}
        for one in expected:
            assert values[one.metric, one.horizon] == pytest.approx(one.value, rel=1e-6), one.metric

    @pytest.mark.parametrize(
        ("options", "change", "message"),
        [
            (
                ["--lower", "last"],
                {},
                "expected both, or --cause in place of --event, or --lower and --upper in their place, got --lower",
            ),
            (["--time", "last", "--lower", "last", "--upper", "first"], {}, "--time, --event: expected both, or"),
            (
                [],
                {},
                "expected both, or --cause in place of --event, or --lower and --upper in their place, got none",
            ),
            (
                ["--lower", "last", "--upper", "first"],
                {"first": (2, 0.0), "last": (2, 0.5)},
                "column 'first', line 4: expected a time that is not before that of column 'last'",
            ),
            (["--lower", "last", "--upper", "first"], {"last": (1, -1.0)}, "column 'last', line 3: expected a time"),
            (
                ["--lower", "last", "--upper", "first", "--entry", "x"],
                {"x": (0, 99.0)},
                "column 'x'",
            ),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path, options, change, message):
        words, _ = self.table(tmp_path, **change)
        told = CliRunner().invoke(app, [*words, *options])
        assert told.exit_code != 0
        assert message in str(told.exception) + told.output
