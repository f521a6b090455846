"""``xcal fit`` and what follows it on rows that entered late, with events between two times or of several causes."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.training.simulate import rows_in_part
from xcal import Surv, load
from xcal.cli.app import app
from xcal.cli.table_file import read_table_file

QUICK = ["--seeds", "1", "--epochs", "3", "--lambdas", "0,10", "--resamples", "0"]
COLUMNS = {
    "entry": ["--time", "time", "--event", "event", "--entry", "entry"],
    "intervals": ["--lower", "lower", "--upper", "upper"],
    "causes": ["--time", "time", "--cause", "cause", "--causes", "recurrence,death"],
}


def table(kind, n=240, seed=1):
    rows = rows_in_part(kind, n, seed=seed)
    y = rows.outcome.target()
    frame = pd.DataFrame(rows.x.numpy(), columns=["a", "b"]).assign(**{name: y[name] for name in y.dtype.names})
    if kind == "intervals":
        return frame.assign(upper=np.where(frame["event"], frame["time"], np.nan)).drop(columns=["time", "event"])
    if kind == "causes":
        names = {0: "censored", 1: "recurrence", 2: "death"}
        return frame.assign(cause=frame["cause"].map(names)).drop(columns="event")
    return frame


def done(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def refused(*words):
    found = done(*words)
    assert isinstance(found.exception, ValueError), found.exception
    return str(found.exception)


@pytest.mark.ci  # a whole run each
@pytest.mark.parametrize("kind", list(COLUMNS))
def test_a_run_knows_what_its_rows_are(kind, tmp_path):
    frame, path, run = table(kind), tmp_path / "rows.csv", tmp_path / "run"
    frame.to_csv(path, index=False)
    fitted = done("fit", path, *COLUMNS[kind], "--out", run, *QUICK)
    assert fitted.exit_code == 0, fitted.exception
    left = {column["name"]: column["left_out"] for column in json.loads((run / "summary.json").read_text())["columns"]}
    assert [name for name, why in left.items() if not why] == ["a", "b"]
    model = load(run)
    assert model.causes_ == (("recurrence", "death") if kind == "causes" else ())
    # Names of columns are kept for new rows of the same form.
    assert done("evaluate", run, path, "--resamples", 0).exit_code == 0
    out = tmp_path / "p.csv"
    assert done("predict", run, path, "--out", out, "--times", "0.5,1").exit_code == 0
    told = pd.read_csv(out)
    assert {*COLUMNS[kind][1::2]} & {*frame.columns} <= {*told.columns}  # what xcal audit asks for
    if kind == "causes":
        curves = model.predict_cumulative_incidence(frame[["a", "b"]], [0.5, 1.0], cause="death")
        np.testing.assert_allclose(told[["f_death_0.5", "f_death_1"]], curves, atol=1e-12)
        np.testing.assert_allclose(told["s_1"] + told["f_death_1"] + told["f_recurrence_1"], 1.0, atol=1e-9)
    of_causes = json.loads((run / "summary.json").read_text())["by_cause"]
    assert set(of_causes) == set(model.causes_)
    assert all("ibs" in values for values in of_causes.values())


def test_causes_are_read_by_number_and_by_name(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame({"t": [1.0, 2, 3, 4], "c": ["0", "death", "1", "censored"]}).to_csv(path, index=False)
    found = read_table_file(path).outcome("t", None, cause="c", causes=("recurrence", "death"))
    by_hand = Surv(time=[1, 2, 3, 4], cause=[0, "death", 1, "censored"], causes=("recurrence", "death"))
    np.testing.assert_array_equal(found.cause, by_hand["cause"])
    assert found.causes == ("recurrence", "death")
    pd.DataFrame({"t": [1.0, 2, 3], "c": [0, 1, 1]}).to_csv(path, index=False)
    assert read_table_file(path).outcome("t", None, cause="c").cause is None  # one cause is an event


def test_causes_that_are_none_are_named_by_line(tmp_path):
    path = tmp_path / "rows.csv"
    for cells, words in (
        ([1, 2, 3], "line 4: expected 0 or censored, or a cause: a, b, or its number, got another value"),
        ([1, 2, 0.5], "line 4: expected .* got another value"),
        ([1, None, 2], "line 3: expected .* got an empty cell"),
        ([0, 1, 1], "expected at least one event of cause 'b', got 3 rows without one"),
    ):
        pd.DataFrame({"t": [1.0, 2, 3], "c": cells}).to_csv(path, index=False)
        with pytest.raises(ValueError, match=words):
            read_table_file(path).outcome("t", None, cause="c", causes=("a", "b"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--time", "t", "--event", "e", "--cause", "c"], "--time: expected a column of times, with one of --event"),
        (["--lower", "l"], "--lower, --upper: expected both ends of every interval"),
        (["--lower", "l", "--upper", "u", "--time", "t"], "--lower, --upper: expected intervals alone"),
        (["--time", "t", "--event", "e", "--causes", "a,b"], "--causes: expected it with --cause"),
        (["--time", "t", "--cause", "c", "--event-value", "x"], "--event-value: expected it with --event"),
    ],
)
def test_options_that_do_not_fit_together_are_refused_before_anything_is_read(words, told, tmp_path):
    assert refused("fit", tmp_path / "none.csv", *words, "--out", tmp_path / "run").startswith(told)
    assert not (tmp_path / "run").exists()


def test_entries_and_intervals_are_named_by_line(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame({"t": [1.0, 2], "e": [1, 0], "s": [0.0, 2.0], "l": [1.0, 2], "u": [3.0, 1.0]}).to_csv(
        path, index=False
    )
    late = refused("fit", path, "--time", "t", "--event", "e", "--entry", "s", "--out", tmp_path / "run")
    assert "column 's', line 3: expected a time before that of column 't'" in late
    turned = refused("fit", path, "--lower", "l", "--upper", "u", "--out", tmp_path / "run")
    assert "column 'u', line 3: expected a time that is not before that of column 'l'" in turned
