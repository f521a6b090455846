"""Two models on the same rows, with paired differences."""

import json

import numpy as np
import pytest

import xcal
from tests.metrics.simulate import survival_data

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
        assert not value.metric.endswith(("_p", "_floor"))


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
