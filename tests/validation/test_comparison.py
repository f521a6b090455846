"""Two models on the same rows, with paired differences."""

import json
from html import escape
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from studies import audit_coverage

import xcal
from tests.metrics.simulate import survival_data
from xcal.interop import read_model
from xcal.metrics.spec import VALUES, Key
from xcal.validation import comparison
from xcal.validation.result import AuditValue

TIMES = np.linspace(0.1, 3.0, 15)


@pytest.fixture(scope="module")
def compared():
    rows = survival_data(300, rng=np.random.default_rng(0))
    y = xcal.Surv(time=rows.time, event=rows.event)
    models = {"true": rows.survival(TIMES), "fast": rows.survival(TIMES, 1.5)}
    return rows, y, xcal.compare_models(models, y=y, times=TIMES, n_bootstrap=60, progress=False)


def test_values_are_those_of_single_audits(compared):
    rows, y, found = compared
    alone = xcal.audit(
        survival=rows.survival(TIMES, 1.5), times=TIMES, y=y, horizons=found["true"].horizons, n_bootstrap=60,
        progress=False,
    )  # fmt: skip
    assert [v.value for v in found["fast"]] == [v.value for v in alone]
    assert found["fast"].horizons == found["true"].horizons
    for value in found.differences["fast"]:
        key = {"horizon": value.horizon, "group": value.group}
        second, first = (found[name].value(value.metric, **key).value for name in ("fast", "true"))
        assert value.value == second - first
        assert not value.metric.endswith(("_p", "_floor", "_excess", "_cox"))


def test_predictions_that_were_read_before_are_compared_as_their_curves(compared):
    rows, y, found = compared
    curves = {"true": rows.survival(TIMES), "fast": rows.survival(TIMES, 1.5)}
    read = {
        name: read_model(one, time=rows.time, event=rows.event, times=TIMES, horizons=found["true"].horizons)
        for name, one in curves.items()
    }
    again = xcal.compare_models(read, y=y, horizons=found["true"].horizons, n_bootstrap=60, progress=False)
    ends = [[(one.value, one.lower, one.upper) for one in each.differences["fast"]] for each in (again, found)]
    np.testing.assert_array_equal(*ends)
    with pytest.raises(ValueError, match="one for each of the 299 rows of y, got 300 rows"):
        xcal.compare_models(read, y=y[:-1], horizons=1.0, n_bootstrap=0)


def test_the_same_resamples_are_used_for_both(compared):
    """The order of the rows is the same in both models, so that concordance cannot differ in any resample."""
    _, _, found = compared
    harrell = next(v for v in found.differences["fast"] if v.metric == "harrell")
    assert (harrell.value, harrell.lower, harrell.upper) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)


def test_a_paired_interval_is_narrower_than_two_single_ones(compared):
    _, _, found = compared
    paired = next(v for v in found.differences["fast"] if v.metric == "ibs")
    single = [found[name].value("ibs") for name in ("true", "fast")]
    apart = np.hypot(*[v.upper - v.lower for v in single])
    assert 0 < paired.upper - paired.lower < apart
    assert paired.lower <= paired.value <= paired.upper


def test_exports(compared, tmp_path):
    _, _, found = compared
    frame = found.to_frame()
    assert set(frame["model"]) == {"true", "fast"}
    differences = frame[frame["minus"] == "true"]
    assert len(differences) == len(found.differences["fast"])
    read = json.loads(found.to_json(tmp_path / "two.json"))
    assert list(read["results"]) == ["true", "fast"]
    text = repr(found)
    assert "fast minus true" in text
    assert "no clear difference" in text


def test_features_by_name(compared):
    rows, y, _ = compared

    class Model:
        unique_times_ = TIMES

        def predict_survival_function(self, X):
            return np.exp(-np.asarray(X)[:, :1] * TIMES)

    X = {"a": rows.rate[:, None], "b": 1.5 * rows.rate[:, None]}
    found = xcal.compare_models({"a": Model(), "b": Model()}, X, y, horizons=TIMES[5], n_bootstrap=0, progress=False)
    (at,) = found["a"].horizons
    assert found["a"].value("mean_risk", horizon=at).value == pytest.approx(rows.probability(at).mean(), rel=1e-12)
    assert found["b"].value("mean_risk", horizon=at).value > found["a"].value("mean_risk", horizon=at).value


def test_bad_arguments(compared):
    rows, y, _ = compared
    curves = rows.survival(TIMES)
    with pytest.raises(ValueError, match="at least two models, got 1"):
        xcal.compare_models({"a": curves}, y=y, times=TIMES)
    with pytest.raises(ValueError, match="mapping of names to at least two models, got list"):
        xcal.compare_models([curves, curves], y=y, times=TIMES)
    with pytest.raises(ValueError, match="inside the mapping"):
        xcal.compare_models({"a": curves, "b": curves}, y=y, risk=[1])


class Audited:
    """What a comparison reads of an audit: draws of its metrics, the level and the horizons."""

    level, horizons = 0.95, (1.0,)

    def __init__(self, draws):
        self.measured = SimpleNamespace(draws=draws)


def test_words_allow_for_the_number_of_lines():
    """Nine main metrics of two equally good models: each differs by chance in 5 %, one or another in 37 %."""
    rng = np.random.default_rng(0)
    single, any_clear, real = [], [], []
    for shift in np.repeat([0.0, 6.0], 300):
        main = [value for value in VALUES.values() if value.main]
        keys = [Key(value.metric, 1.0 if value.at_horizon else None) for value in main]
        found, draws = [], {}
        for k, key in enumerate(keys):
            noise = rng.normal() + (shift if k == 0 else 0.0)
            draws[key] = noise + rng.normal(size=200)
            found.append(AuditValue(key.metric, key.horizon, None, noise, *np.quantile(draws[key], [0.025, 0.975])))
        clear = comparison._clear(Audited({key: np.zeros(200) for key in keys}), Audited(draws), tuple(found))
        if shift:
            real.append(keys[0] in clear)
        else:
            single.append(any(v.lower > 0 or v.upper < 0 for v in found))
            any_clear.append(bool(clear))
    assert np.mean(single) > 0.25
    assert np.mean(any_clear) < 0.1
    assert np.mean(real) > 0.95


def test_the_study_of_two_equally_good_models_runs():
    """`python -m studies.audit_coverage --comparisons`: its lines are those that a person compares first."""
    lines, said = audit_coverage.compared(("proportional", 200, 0.6, 1, False, 20, 0))
    assert len(lines) >= 5
    assert isinstance(said, bool)


def test_several_rows_per_patient_are_looked_for():
    rng = np.random.default_rng(1)
    rows = survival_data(240, rng=rng)
    y, curves = (rows.time, rows.event), rows.survival(TIMES)
    patients = pd.DataFrame({"patient_id": np.arange(240) // 3, "x": rng.normal(size=240)})
    models = {"a": curves, "b": curves**1.01}
    given = {"y": y, "times": TIMES, "n_bootstrap": 10, "progress": False}
    found = xcal.compare_models(models, patients, **given)
    assert "column 'patient_id' has 80 different values in 240 rows" in repr(found)
    together = xcal.compare_models(models, patients, **given, clusters="patient_id")
    assert "Perhaps several rows" not in repr(together)
    # Without an id: all covariates equal, of which two have many values.
    twice = pd.DataFrame({name: np.repeat(rng.normal(size=120), 2) for name in ("x", "z")})
    (concern,) = [c for c in xcal.audit(curves, twice, **given).data.concerns if c.what.startswith("Perhaps several")]
    assert "240 rows share all covariates with another row" in concern.what
    assert "--clusters" in concern.effect  # the page of a command has no clusters=
    assert concern.serious
    usual = pd.DataFrame(
        {"x": rng.normal(size=240), "age": rng.integers(40, 90, 240), "sex": rng.choice(["f", "m"], 240)}
    )
    assert not [c for c in xcal.audit(curves, usual, **given).data.concerns if c.what.startswith("Perhaps several")]
    width = usual.assign(width=1.0, valid=rng.integers(0, 3, 240), idea=rng.integers(0, 60, 240))
    assert not [c for c in xcal.audit(curves, width, **given).data.concerns if c.what.startswith("Perhaps several")]


def test_a_notebook_shows_answers_and_differences(compared):
    _, _, found = compared
    shown = found._repr_html_()
    for name in found.results:
        assert f"<b>{name}</b>: {found[name].verdict.headline}" in shown
    assert shown.count("<tr>") == 1 + len(found._lines("fast"))
    # What the text says, line by line, the table says too.
    for line in repr(found).splitlines():
        if line.startswith("  ") and "[" in line:
            name, difference, interval, said = [part for part in line.split("  ") if part]
            row = "".join(f"<td>{escape(cell.strip())}</td>" for cell in (name, difference, interval, said))
            assert f"<tr>{row}</tr>" in shown


def test_a_notebook_shows_an_audit(compared):
    rows, y, _ = compared
    given = {"survival": rows.survival(TIMES), "times": TIMES, "y": y, "n_bootstrap": 20, "progress": False}
    result = xcal.audit(**given, name="<script>")
    shown = result._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    for metric, horizon in (("harrell", None), ("oe", result.horizons[0]), ("ici", result.horizons[-1])):
        value = result.value(metric, horizon=horizon)
        assert f"{value.value:.3f}"[:5] in shown or f"{value.value:.2f}" in shown, metric
    assert shown.count("<li>") == len(result.verdict.sentences)
    of_f = xcal.audit(cdf=1 - rows.survival(TIMES)[:, 0], y=y, n_bootstrap=0)._repr_html_()
    assert of_f.count("<table>") == 1  # nothing at horizons
