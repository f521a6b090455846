"""A search over settings: the same whatever happens on the way, and scored by what others compute too."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sksurv.metrics import integrated_brier_score as outside_ibs

from tests.faults.sweep_kills import descendants
from xcal import Surv, SurvivalData, SurvivalModel, tune
from xcal._files import BusyError, sole_user
from xcal.tuning import Table, scored

from .simulate import PATH, SPACE, rows, search


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def essence(path):
    """What must not depend on interruptions: everything but times of day."""
    kept = [{k: v for k, v in line.items() if k not in ("seconds", "written", "check")} for line in lines(path)]
    return sorted(kept, key=lambda line: line["number"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "trials.jsonl"
    return search(records=path), path


def test_the_result_says_what_was_found(whole):
    found, path = whole
    assert found.trials["number"].tolist() == [0, 1, 2, 3]
    assert found.best_score == found.trials["score"].min()
    best = found.trials.loc[found.trials["score"].idxmin()]
    assert found.best_params == {name: best[name] for name in SPACE}
    assert found.best_estimator.get_params()["hidden"] == best["hidden"]
    assert (found.trials["failure"] == "").all()
    assert repr(found).startswith(f"TuningResult(best ibs {found.best_score:.4g} with learning_rate=")
    assert found.records == path
    with pytest.raises(AttributeError):
        found.best_score = 0


def test_the_best_estimator_is_the_one_a_user_would_fit(whole):
    found, _ = whole
    X, y = rows()
    own = clone(PATH).set_params(**found.best_params).fit(X, y)
    # The same operations on the same arrays.
    assert np.array_equal(own.predict(X), found.best_estimator.predict(X))


def test_a_finished_search_is_read_and_not_made_again(whole, monkeypatch):
    found, path = whole
    before = path.read_bytes()
    monkeypatch.setattr("xcal.tuning.scored", lambda *_: pytest.fail("a trial was made again"))
    again = search(records=path)
    pd.testing.assert_frame_equal(again.trials.drop(columns="seconds"), found.trials.drop(columns="seconds"))
    assert path.read_bytes() == before


def test_more_trials_go_on_with_the_same_search(whole, tmp_path):
    _, path = whole
    other = tmp_path / "trials.jsonl"
    search(records=other, n_trials=3)
    assert essence(other) == essence(path)[:3]
    search(records=other)
    assert essence(other) == essence(path)


def test_a_damaged_line_is_made_again(whole, tmp_path):
    _, path = whole
    damaged = tmp_path / "trials.jsonl"
    content = path.read_bytes().splitlines()
    content[1] = content[1][:-30]
    damaged.write_bytes(b"\n".join(content) + b"\n")
    found = search(records=damaged)
    assert len(found.corrupt) == 1
    assert "line 2: not a whole line of JSON" in found.corrupt[0]
    assert essence(damaged) == essence(path)


def test_another_search_keeps_its_trials_apart(whole, tmp_path):
    _, path = whole
    both = tmp_path / "trials.jsonl"
    both.write_bytes(path.read_bytes())
    search(records=both, seed=1, n_trials=1)
    assert len(lines(both)) == 5
    assert len({line["search"] for line in lines(both)}) == 2


def of_scikit_survival(y):
    return np.array(list(zip(y["event"], y["time"], strict=True)), dtype=[("e", bool), ("t", float)])


def test_the_score_is_the_integrated_brier_score_of_scikit_survival():
    X, y = rows(400)
    table = Table.of(X, y, 2, "ibs", 0, PATH)
    got = scored(table, {})
    fold = table.folds[0]
    model = clone(PATH).fit(X[fold.train], y[fold.train]).select()
    from xcal.validation.arguments import supported_until

    last = supported_until(table.time, table.event)
    test = y[fold.test]
    times = np.linspace(0, last, 101)[1:]
    times = times[(times >= table.time[fold.test].min()) & (times < table.time[fold.test].max())]
    curves = model.predict_survival_function(X[fold.test], times)
    pairs = [
        np.array(list(zip(y["event"], y["time"], strict=True)), dtype=[("e", bool), ("t", float)]) for y in (y, test)
    ]
    outside = outside_ibs(*pairs, curves, times)
    # Ours begins at the first of the 100 times, theirs at the first observation; neither matters at this size.
    assert got["scores"][0] == pytest.approx(outside, rel=0.02)


def test_the_likelihood_can_be_the_score():
    from scipy.stats import weibull_min

    X, y = rows(200)
    model = SurvivalModel(distribution="weibull", epochs=2)
    table = Table.of(X, y, 2, "nll", 0, model)
    fold = table.folds[1]
    fitted = clone(model).fit(X[fold.train], y[fold.train])
    law = fitted.predict_distribution(X[fold.test])
    outside = weibull_min(c=law.concentration.numpy(), scale=law.scale.numpy())
    time, event = table.time[fold.test], table.event[fold.test]
    expected = -np.where(event, outside.logpdf(time), outside.logsf(time)).mean()
    assert scored(table, {})["scores"][1] == pytest.approx(expected, rel=1e-5)  # weights in single precision


def test_a_setting_that_cannot_be_trained_is_a_failed_trial(tmp_path):
    space = {"n_time_bins": [5], "hidden": [(4,), (-1,)]}
    found = tune(PATH, space, *rows(120), n_trials=6, folds=2, records=tmp_path / "t.jsonl")
    failed = found.trials[found.trials["failure"] != ""]
    assert len(failed) > 0
    assert (failed["hidden"] == (-1,)).all()
    assert failed["failure"].str.contains("hidden").all()
    assert found.best_params["hidden"] == (4,)
    with pytest.raises(ValueError, match="space: expected at least one setting that can be trained"):
        tune(PATH, {"hidden": [(-1,)]}, *rows(120), n_trials=1, folds=2)


def test_tables_of_all_kinds():
    X, y = rows(120)
    frame = pd.DataFrame(X, columns=list("abc")).assign(d=np.where(X[:, 0] > 0, "high", "low"))
    path = clone(PATH).set_params(encode="auto")
    assert tune(path, {"dropout": [0.1]}, frame, y, n_trials=1, folds=2).best_params == {"dropout": 0.1}
    pair = y["time"], y["event"]
    assert tune(PATH, {"dropout": [0.1]}, X, pair, n_trials=1, folds=2).best_params == {"dropout": 0.1}
    groups = np.repeat(np.arange(40), 3)
    data = SurvivalData(X, y["time"], y["event"], groups=groups)
    table = Table.of(data, None, 2, "ibs", 0, PATH)
    for fold in table.folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])
    assert tune(PATH, {"dropout": [0.1]}, data, n_trials=1, folds=2).best_score > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"space": {}}, "space: expected a mapping"),
        ({"space": {"lambdas": [1]}}, r"space: expected other settings than lambdas: it is what select\(\) chooses"),
        ({"space": {"depth": [1]}}, "space: expected settings of SurvivalPath .*, got 'depth'"),
        ({"space": {"dropout": 0.3}}, r"space\['dropout'\]: expected a Range, or a list"),
        ({"space": {"dropout": [object()]}}, r"space\['dropout'\]: expected finite numbers, text"),
        ({"estimator": 3}, "estimator: expected SurvivalPath or SurvivalModel"),
        ({"n_trials": 0}, "n_trials: expected an integer of 1 or more"),
        ({"folds": 1}, "folds: expected an integer of 2 or more"),
        ({"folds": 10_000}, "folds: expected at most"),
        ({"batch": True}, "batch: expected an integer"),
        ({"score": "auc"}, "score: expected one of 'ibs', 'nll'"),
        ({"engine": "dask"}, "engine: expected one of 'local', 'ray'"),
        ({"y": None}, "y: expected Surv"),
        ({"y": Surv(time=np.arange(1.0, 61), event=np.zeros(60, dtype=bool))}, "y: expected at least two events"),
    ],
)
def test_bad_arguments(options, message):
    X, y = rows(60)
    given = {"estimator": PATH, "space": SPACE, "X": X, "y": y} | options
    with pytest.raises(ValueError, match=message):
        tune(**given)


def test_a_missing_value_is_named_by_its_row_of_the_table():
    X, y = rows(120)
    X[97, 1] = np.nan
    with pytest.raises(ValueError, match=r"X: expected no missing values .* got NaN in column 1 at row 97"):
        tune(PATH, SPACE, X, y, n_trials=2)


def test_records_belong_to_one_search_at_a_time(tmp_path):
    path = tmp_path / "trials.jsonl"
    with sole_user("records", path), pytest.raises(BusyError, match=f"process {os.getpid()} on .* is using"):
        search(records=path, n_trials=1)
    with pytest.raises(ValueError, match="records: expected the name of a file, got the folder"):
        search(records=tmp_path)


DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.tuning.simulate import search
search(records=sys.argv[2], engine=sys.argv[3])
"""


def start(path, engine):
    command = [sys.executable, "-c", DRIVER, str(Path(__file__).parents[2]), str(path), engine]
    return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True)


def wait_for_lines(path, n, process):
    for _ in range(1200):
        if path.exists() and len(path.read_bytes().splitlines()) >= n:
            return
        if process.poll() is not None:
            return
        time.sleep(0.05)


@pytest.mark.ci
def test_a_killed_search_resumes_to_the_same_trials(whole, tmp_path):
    _, path = whole
    cut = tmp_path / "trials.jsonl"
    process = start(cut, "local")
    wait_for_lines(cut, 1, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    search(records=cut)
    assert [line["number"] for line in lines(cut)] == [0, 1, 2, 3]
    same_but_for_rounding(essence(cut), essence(path))


def strike(driver):
    """Kill a worker of Ray while it has a trial in hand; whether there was one."""
    while driver.poll() is None:
        for number, name in descendants(driver.pid).items():
            if name.startswith("ray::scored"):
                os.kill(number, signal.SIGKILL)
                return True
        time.sleep(0.02)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.ci
def test_a_search_on_ray_has_the_trials_of_a_local_one_each_once_though_a_worker_dies(whole, tmp_path):
    pytest.importorskip("ray", reason="needs ray, of the extra ray")
    _, path = whole
    struck = tmp_path / "trials.jsonl"
    driver = start(struck, "ray")
    try:
        assert strike(driver)
        assert driver.wait(timeout=240) == 0
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert sorted(line["number"] for line in lines(struck)) == [0, 1, 2, 3]
    same_but_for_rounding(essence(struck), essence(path))


def same_but_for_rounding(found, expected):
    """Scores come from processes with other numbers of threads, whose sums have another order."""
    for one, other in zip(found, expected, strict=True):
        for name in ("scores", "score"):
            np.testing.assert_allclose(one.pop(name), other.pop(name), rtol=1e-4)
        for name, value in other.pop("params").items():
            assert one["params"][name] == (pytest.approx(value) if isinstance(value, float) else value)
        del one["params"]
        assert one == other
