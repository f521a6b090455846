"""``xcal audit``: files that are good, and one clear error for each way in which they are not."""

import gzip
import json
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from xcal.cli.app import app, main

TIMES = (0.5, 1.0, 2.0)


@pytest.fixture(scope="module")
def table():
    """Sixty rows with their true curves, risks and F: exponential times, exponential censoring."""
    rng = np.random.default_rng(1)
    rate = rng.uniform(0.3, 2.0, 60)
    happens, leaves = rng.exponential(1 / rate), rng.exponential(3.0, 60)
    frame = pd.DataFrame({"t": np.minimum(happens, leaves), "e": (happens <= leaves).astype(int)})
    for time in TIMES:
        frame[f"s_{time:g}"] = np.exp(-rate * time)
    frame["r"] = -np.expm1(-rate)
    frame["F"] = -np.expm1(-rate * frame["t"])
    frame["sex"] = np.where(rng.uniform(size=60) < 0.5, "f", "m")
    frame["status"] = np.where(frame["e"] == 1, "dead", "alive")
    return frame


def run(path, *words):
    given = ["audit", str(path), "--time", "t", "--event", "e", "--resamples", "0", *words]
    return CliRunner().invoke(app, given)


def written(folder, frame, name="predictions.csv", **options):
    path = folder / name
    frame.to_csv(path, index=False, **options)
    return path


def error(done):
    assert done.exit_code != 0
    assert isinstance(done.exception, ValueError | OSError | ImportError), done.exception
    return str(done.exception)


@pytest.mark.parametrize("words", [["--curves", "s_*"], ["--risk", "r", "--horizon", "1"], ["--cdf", "F"]])
def test_every_kind_of_prediction(table, tmp_path, words):
    done = run(written(tmp_path, table), *words, "--json", str(tmp_path / "out.json"))
    assert done.exit_code == 0, done.exception
    assert "60 rows" in done.stdout
    assert ".to_frame()" not in done.stdout  # a call in Python is of no use here
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["data"]["n"] == 60
    assert found["data"]["n_events"] == table["e"].sum()


def test_the_file_gives_what_the_function_gives(table, tmp_path):
    import xcal

    done = run(
        written(tmp_path, table),
        "--curves",
        "s_*",
        "--by",
        "sex",
        "--horizons",
        "1,2",
        "--json",
        f"{tmp_path}/o.json",
    )
    assert done.exit_code == 0, done.exception
    curves = table[[f"s_{time:g}" for time in TIMES]].to_numpy()
    y = xcal.Surv(time=table["t"], event=table["e"])
    direct = xcal.audit(survival=curves, times=TIMES, y=y, horizons=[1, 2], groups={"sex": table["sex"]}, n_bootstrap=0)
    read = {
        (v["metric"], v["horizon"], v["group"]): v["value"]
        for v in json.loads((tmp_path / "o.json").read_text())["measured"]["values"]
    }
    assert len(read) == len(direct.values)
    for value in direct:
        # A CSV holds every digit of a number.
        assert read[value.metric, value.horizon, value.group] == pytest.approx(value.value, rel=1e-12, abs=1e-300)


@pytest.fixture(scope="module")
def by_cause(table):
    """The same rows with two causes, one of them twice as frequent as the other, and their true incidences."""
    rng = np.random.default_rng(2)
    frame = table[["t", "sex"]].copy()
    frame["c"] = np.where(table["e"] == 1, np.where(rng.random(len(table)) < 2 / 3, "relapse", "death"), "censored")
    for time in TIMES:
        frame[f"r_{time:g}"], frame[f"d_{time:g}"] = ((1 - table[f"s_{time:g}"]) * share for share in (2 / 3, 1 / 3))
    return frame


CAUSES = ["--time", "t", "--cause", "c", "--causes", "relapse,death", "--resamples", "0"]
OF_CAUSES = ["--incidences", "relapse=r_*", "--incidences", "death=d_*"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_events_of_several_causes(by_cause, tmp_path, kind):
    path = tmp_path / f"rows.{kind}"
    by_cause.to_csv(path, index=False) if kind == "csv" else by_cause.to_parquet(path)
    done = CliRunner().invoke(app, ["audit", str(path), *CAUSES, *OF_CAUSES, "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.exception
    found = json.loads((tmp_path / "out.json").read_text())
    assert list(found["by_cause"]) == ["relapse", "death"]
    assert found["by_cause"]["death"]["data"]["n_events"] == (by_cause["c"] == "death").sum()
    one = CliRunner().invoke(
        app, ["audit", str(path), *CAUSES, "--risk", "d_1", "--horizon", "1", "--event-value", "death"]
    )
    assert one.exit_code == 0, one.exception
    assert "death by" in one.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--incidences", "relapse=r_*", "--incidences", "relapse=d_*"],
            "--incidences: expected a cause with its columns",
        ),
        (["--incidences", "r_*"], "--incidences: expected a cause with its columns, once for each cause"),
        (["--incidences", "gone=r_*"], "expected causes among those of y: relapse, death"),
        ([*OF_CAUSES, "--event-value", "gone"], "cause: expected one of the causes of y: relapse, death, got 'gone'"),
        ([*OF_CAUSES, "--curves", "s_*"], "--curves, --incidences, --risk, --cdf: expected one of them"),
        ([*OF_CAUSES, "--event", "c"], "--time, --event: expected both, or --cause in place of --event"),
    ],
)
def test_options_of_causes_that_do_not_fit(by_cause, tmp_path, words, told):
    done = CliRunner().invoke(app, ["audit", str(written(tmp_path, by_cause)), *CAUSES, *words])
    assert told in error(done)


def test_a_time_at_which_nothing_is_computed_is_noted(table, tmp_path):
    done = run(written(tmp_path, table), "--curves", "s_*", "--by", "sex")
    assert done.exit_code == 0, done.exception
    assert "nothing is computed at time 2: few rows are still under observation" in done.stderr


def test_curves_that_end_early_are_read_up_to_their_end(table, tmp_path):
    frame = table.assign(s_30=np.nan, s_40=np.nan)
    done, known = run(written(tmp_path, frame), "--curves", "s_*"), run(written(tmp_path, table), "--curves", "s_*")
    assert done.exit_code == 0, done.exception
    assert "note: column 's_40' is empty: the curves are read up to 30" in done.stderr
    assert "note: column 's_30' is empty: the curves are read up to 2" in done.stderr
    assert done.stdout == known.stdout
    gap = table.assign(s_1=np.nan)
    assert "column 's_1', line 2: expected a probability" in error(run(written(tmp_path, gap), "--curves", "s_*"))


def test_rows_of_one_patient_are_a_cluster(table, tmp_path):
    path = written(tmp_path, table.assign(patient=np.arange(60) // 3))
    out = tmp_path / "out.json"
    done = run(path, "--curves", "s_*", "--clusters", "patient", "--json", str(out))
    assert done.exit_code == 0, done.exception
    assert json.loads(out.read_text())["data"]["n_clusters"] == 20


def test_rows_have_sampling_weights(table, tmp_path):
    weights = np.linspace(1, 5, 60)
    out = tmp_path / "out.json"
    done = run(written(tmp_path, table.assign(w=weights)), "--curves", "s_*", "--weights", "w", "--json", str(out))
    assert done.exit_code == 0, done.exception
    found = json.loads(out.read_text())["data"]["n_effective"]
    assert found == pytest.approx(weights.sum() ** 2 / np.square(weights).sum())
    weights[3] = 0
    told = error(run(written(tmp_path, table.assign(w=weights)), "--curves", "s_*", "--weights", "w"))
    assert "column 'w', line 5: expected a weight, a number above zero, got zero" in told


@pytest.mark.parametrize("kind", ["gz", "parquet", "bom", "tsv", "semicolon", "quoted"])
def test_forms_of_a_file(table, tmp_path, kind):
    words = []
    if kind == "gz":
        path = tmp_path / "p.csv.gz"
        path.write_bytes(gzip.compress(table.to_csv(index=False).encode()))
    elif kind == "parquet":
        path = tmp_path / "p.parquet"
        table.to_parquet(path)
    elif kind == "bom":
        path = written(tmp_path, table, encoding="utf-8-sig")
    elif kind == "tsv":
        path = written(tmp_path, table, name="p.tsv", sep="\t")
    elif kind == "semicolon":
        path, words = written(tmp_path, table, sep=";"), ["--separator", ";"]
    else:
        path = written(tmp_path, table, quoting=1)
        path.write_text(path.read_text() + "\n\n")  # blank lines at the end
    done = run(path, "--curves", "s_*", *words)
    assert done.exit_code == 0, done.exception
    assert f"60 rows, {table['e'].sum()} events" in done.stdout


def test_events_written_as_words(table, tmp_path):
    path = written(tmp_path, table)
    base = ["audit", str(path), "--time", "t", "--event", "status", "--cdf", "F", "--resamples", "0"]
    done = CliRunner().invoke(app, [*base, "--event-value", "dead"])
    assert f"{table['e'].sum()} events" in done.stdout
    assert "or --event-value with the value of an event, got the values" in error(CliRunner().invoke(app, base))
    wrong = error(CliRunner().invoke(app, [*base, "--event-value", "gone"]))
    assert "--event-value" in wrong
    assert "'alive'" in wrong
    numbers = written(tmp_path, table.assign(status=table["e"] + 1))
    done = CliRunner().invoke(app, [*base[:1], str(numbers), *base[2:], "--event-value", "2"])
    assert f"{table['e'].sum()} events" in done.stdout
    done = run(written(tmp_path, table.assign(e=table["e"].map({0: "FALSE", 1: "TRUE"}))), "--cdf", "F")
    assert f"{table['e'].sum()} events" in done.stdout


def changed(table, column, row, value):
    frame = table.astype({column: object})
    frame.loc[row, column] = value
    return frame


# What is done to the table, and what the error must say of it.
BAD = {
    "text": (
        lambda t: changed(t, "t", 3, "abc"),
        "column 't', line 5: expected a time, a number of zero or more, got text",
    ),
    "date": (lambda t: changed(t, "t", 0, "2021-03-04"), "line 2: expected a time, a number of zero or more (a date?"),
    "decimal comma": (
        lambda t: changed(t, "t", 0, "12,5"),
        "(a decimal comma? --decimal , reads it), got text",
    ),
    "empty cell": (lambda t: changed(t, "s_1", 7, None), "column 's_1', line 9: expected a probability"),
    "negative": (
        lambda t: changed(t, "t", 2, -1.0),
        "column 't', line 4: expected a time, a number of zero or more, got a negative number",
    ),
    "all censored": (lambda t: t.assign(e=0), "column 'e': expected at least one event, got 60 rows without one"),
    "one row": (lambda t: t.iloc[:1].assign(e=1), "expected at least 2 rows, got 1"),
    "rising": (
        lambda t: changed(t, "s_2", 4, 0.99),
        "column 's_2', line 6: expected a survival curve, which never rises",
    ),
    "above one": (
        lambda t: changed(t, "s_0.5", 4, 1.2),
        "column 's_0.5', line 6: expected a probability, a number from 0 to 1, got a number above 1",
    ),
    "percent": (lambda t: t.assign(s_1=100 * t["s_1"]), "per cent? divide by 100"),
    "no column": (lambda t: t.drop(columns="t"), "--time, "),
    "no curves": (lambda t: t[["t", "e"]], "expected columns s_*, got the columns 't', 'e'"),
    "odd curve": (lambda t: t.assign(s_x=1.0), "expected columns s_* with a time in place of the star, got 's_x'"),
    "same time": (lambda t: t.assign(**{"s_1.0": t["s_1"]}), "one column for each time, got 's_1' and 's_1.0'"),
    "event code": (
        lambda t: t.assign(e=t["e"] + 1),
        "(of several causes: --cause), or --event-value with the value of an event",
    ),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_tables(table, tmp_path, name):
    spoil, words = BAD[name]
    path = written(tmp_path, spoil(table))
    told = error(run(path, "--curves", "s_*", "--out", str(tmp_path / "report.html")))
    assert words in told
    assert str(path) in told
    assert "\n" not in told
    assert not (tmp_path / "report.html").exists()


BAD_FILES = {
    "empty": (b"", "an empty file"),
    "header alone": (b"t,e,s_1\n", "got"),
    "long line": (b"t,e,s_1\n1,1,0.5\n2,0,0.4,9\n", "line"),
    "latin-1": ("t,e,s_1,naïve\n1,1,0.5,é\n".encode("latin-1"), "text in UTF-8"),
    "twice the same name": (b"t,e,s_1,s_1\n1,1,0.5,0.5\n2,1,0.5,0.5\n", "'s_1' twice"),
}


@pytest.mark.parametrize("name", list(BAD_FILES))
def test_bad_files(tmp_path, name):
    content, words = BAD_FILES[name]
    path = tmp_path / "predictions.csv"
    path.write_bytes(content)
    told = error(run(path, "--curves", "s_*"))
    assert words in told
    assert str(path) in told
    assert "\n" not in told


def test_a_spreadsheet_is_told_how_to_become_a_table(tmp_path):
    path = tmp_path / "predictions.xlsx"
    path.write_bytes(b"PK\x03\x04")
    assert "save as CSV UTF-8), got .xlsx" in error(run(path, "--curves", "s_*"))


def test_files_that_are_not_what_they_say(table, tmp_path):
    assert "expected a file, got none by that name" in error(run(tmp_path / "none.csv", "--cdf", "F"))
    for name in ("p.parquet", "p.csv.gz"):
        path = tmp_path / name
        path.write_bytes(b"no such thing")
        assert str(path) in error(run(path, "--cdf", "F"))


def test_a_parquet_file_whose_notes_for_pandas_are_damaged(table, tmp_path):
    path = tmp_path / "p.parquet"
    packed = pa.Table.from_pandas(table)
    notes = json.loads(packed.schema.metadata[b"pandas"])
    notes["columns"] = [{"name": "F"}]
    pq.write_table(packed.replace_schema_metadata({b"pandas": json.dumps(notes).encode()}), path)
    assert f"{path}: expected a parquet file" in error(run(path, "--cdf", "F"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--curves, --incidences, --risk, --cdf: expected one of them, or --curves with --cdf, got none"),
        (["--curves", "s_*", "--risk", "r", "--horizon", "1"], "got --curves and --risk"),
        (["--curves", "s_*", "--last-seen", "never"], "last_seen: expected one of 'auto', 'exact'"),
        (["--risk", "r"], "--horizon: expected the time of --risk"),
        (["--cdf", "F", "--horizons", "1"], "--horizons: expected times of --curves"),
        (["--curves", "s_"], "a pattern with one star"),
        (["--curves", "s_*", "--horizons", "1,99"], "within the follow-up, which ends at about"),
        (["--curves", "s_*", "--horizons", "1,x"], "--horizons: expected times with commas"),
        (["--risk", "F", "--horizon", "99"], "within the follow-up"),
        (["--curves", "s_*", "--by", "race"], "--by, "),
        (["--curves", "s_*", "--clusters", "patient"], "--clusters, "),
        (["--curves", "s_*", "--by", "r"], "at most 10 values (cut it first"),
    ],
)
def test_options_that_do_not_fit(table, tmp_path, words, told):
    assert told in error(run(written(tmp_path, table), *words))


@pytest.mark.parametrize("cell", ["Quux-4711", -4711.5, 4711.5, "4711,5"])
def test_no_error_quotes_a_cell(table, tmp_path, cell):
    """Any column, whatever it is for: the column and the line are enough, and the cell may be a patient's."""
    frame = table.assign(
        t0=0.1 * table["t"],
        w=1.0,
        **{f"s_{k}": np.exp(-k * table["r"]) for k in range(3, 12)},
    )
    curves = ["--curves", "s_*"]
    for column, words in {
        "t": curves,
        "e": curves,
        "s_1": curves,
        "r": ["--risk", "r", "--horizon", "1"],
        "F": ["--cdf", "F"],
        "t0": [*curves, "--entry", "t0"],
        "w": [*curves, "--weights", "w"],
    }.items():
        done = run(written(tmp_path, changed(frame, column, 7, cell)), *words)
        if column == "w" and cell == 4711.5:  # a weight like any other
            continue
        told = error(done)
        assert f"column '{column}'" in told or "column 's_2'" in told
        assert "4711" not in told
    # Nor the exact last time of a patient.
    for words in (["--horizons", "9999"], ["--landmarks", "9999"]):
        told = error(run(written(tmp_path, table), *curves, *words))
        assert "at about" in told
        assert not {f"{time:g}" for time in table["t"]} & set(told.replace(",", "").split())


def test_an_error_is_one_line_and_ends_with_2(table, tmp_path, monkeypatch, capsys):
    path = written(tmp_path, changed(table, "t", 0, "soon"))
    monkeypatch.setattr(sys, "argv", ["xcal", "audit", str(path), "--time", "t", "--event", "e", "--cdf", "F"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.strip().splitlines() == [
        f"error: {path}, column 't', line 2: expected a time, a number of zero or more, got text"
    ]


def test_the_report_is_written_beside_the_numbers(table, tmp_path):
    out, numbers = tmp_path / "report.html", tmp_path / "numbers.json"
    done = run(written(tmp_path, table), "--curves", "s_*", "--out", str(out), "--json", str(numbers), "--name", "Mine")
    assert done.exit_code == 0, done.exception
    page = out.read_text()
    assert "Validation of Mine" in page
    headline = json.loads(numbers.read_text())["verdict"]["headline"]
    assert headline in page
    assert "http://" not in done.stdout


def test_a_folder_that_cannot_be_written_is_told_before_the_work(table, tmp_path):
    (tmp_path / "file").write_text("no folder")
    told = error(run(written(tmp_path, table), "--curves", "s_*", "--out", str(tmp_path / "file" / "report.html")))
    assert "file" in told


@pytest.fixture(scope="module")
def cohort():
    """Twelve hundred rows whose curves miss the effect of age, with columns that no one could know at the start."""
    rng = np.random.default_rng(3)
    n = 1200
    age, sex = rng.uniform(40, 90, n), rng.choice(["f", "m"], n)
    happens, leaves = rng.exponential(np.exp(-0.05 * (age - 65))), rng.exponential(2.0, n)
    time, event = np.minimum(happens, leaves), happens <= leaves
    frame = pd.DataFrame({"t": time, "e": event.astype(int), "age": age, "sex": sex, "patient": np.arange(n)})
    frame["months"] = np.round(12 * time)
    frame["cause"] = np.where(event, rng.choice(["heart", "other"], n), "alive")
    for at in TIMES:
        frame[f"s_{at:g}"] = np.exp(-at)
    frame["F"] = -np.expm1(-time)
    return frame


def test_for_whom_is_asked_of_the_columns_without_another_use(cohort, tmp_path):
    words = ["--curves", "s_*", "--cdf", "F", "--json", str(tmp_path / "out.json")]
    done = run(written(tmp_path, cohort), *words)
    assert done.exit_code == 0, done.exception
    found = json.loads((tmp_path / "out.json").read_text())["measured"]["for_whom"]
    assert found["columns"] == ["age", "sex"]
    assert [name for name, _ in found["left_out"]] == ["patient", "months", "cause"]
    assert found["p_value"] < 0.01
    assert found["subgroup"]["rule"].startswith("age")


def test_for_whom_is_asked_of_the_columns_that_are_named(cohort, tmp_path):
    path = written(tmp_path, cohort)
    done = run(path, "--curves", "s_*", "--cdf", "F", "--covariates", "sex", "--json", str(tmp_path / "out.json"))
    assert done.exit_code == 0, done.exception
    assert json.loads((tmp_path / "out.json").read_text())["measured"]["for_whom"]["columns"] == ["sex"]
    assert "--covariates" in error(run(path, "--curves", "s_*", "--covariates", "weight"))


def test_a_table_of_xcal_predict_is_judged_at_its_times_and_by_its_exact_f(tmp_path):
    """Three points of the curves say nothing about F between them; the table has it."""
    rng = np.random.default_rng(5)
    rate = rng.uniform(0.3, 2.0, 800)
    happens, leaves = rng.exponential(1 / rate), rng.exponential(3.0, 800)
    time = np.minimum(happens, leaves)
    frame = pd.DataFrame({"t": time, "e": (happens <= leaves).astype(int), "risk": rate, "median": 1 / rate})
    frame["cdf"] = -np.expm1(-rate * time)
    for at in (0.4, 0.8, 1.6):
        frame[f"s_{at:g}"] = np.exp(-rate * at)
    done = run(written(tmp_path, frame), "--curves", "s_*", "--json", str(tmp_path / "out.json"))
    assert done.exit_code == 0, done.exception
    assert "F at the observed times is read from the column 'cdf'" in done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["horizons"] == [0.4, 0.8, 1.6]
    values = {(v["metric"], v["horizon"]): v["value"] for v in found["measured"]["values"]}
    assert values["d_calibration_p", None] > 0.01
    without = run(written(tmp_path, frame.drop(columns="cdf")), "--curves", "s_*", "--json", str(tmp_path / "out.json"))
    assert without.exit_code == 0, without.exception
    names = {v["metric"] for v in json.loads((tmp_path / "out.json").read_text())["measured"]["values"]}
    assert "oe" in names
    assert "d_calibration" not in names
