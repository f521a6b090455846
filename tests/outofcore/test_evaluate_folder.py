"""A folder of parquet files: the metrics of its rows, from any shards, processes or engine; and what is refused."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.outofcore.rows import HORIZONS, predictions, written
from xcal import d_calibration
from xcal.metrics import (
    brier_score,
    concordance_index,
    cox_ici,
    integrated_brier_score,
    mean_nll,
    observed_expected,
    one_calibration,
)
from xcal.metrics.streaming import StreamingOneCalibration
from xcal.outofcore import EvaluationSettings, evaluate_folder


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    """Many pieces of few rows, read in many batches."""
    monkeypatch.setattr("xcal.outofcore.evaluation.PIECE_ROWS", 500)
    monkeypatch.setattr("xcal.outofcore.passes.batches.__defaults__", (170,))


def run(folder, out, say=lambda _: None, **settings):
    return evaluate_folder(folder, out, EvaluationSettings(**settings), say=say)


def in_memory(columns):
    """The same values by the functions that take arrays."""
    time, event = columns["time"], columns["event"]
    outcome = {"time": time, "event": event}
    survival = np.column_stack([columns[f"S_{t:g}"] for t in HORIZONS])
    found = {
        ("harrell", None): concordance_index(**outcome, risk=columns["risk"]).value,
        ("d_calibration", None): d_calibration(columns["cdf"], event).value,
        ("nll", None): mean_nll(columns["nll"]).value,
        ("ibs", None): integrated_brier_score(survival, HORIZONS, **outcome).value,
    }
    brier = brier_score(survival, HORIZONS, **outcome).values
    for k, at in enumerate(HORIZONS):
        p = 1 - survival[:, k]
        one = one_calibration(p, at=at, **outcome, cdf=columns["cdf"])
        ici = cox_ici(p, at=at, **outcome)
        found |= {
            ("brier", at): brier[k],
            ("oe", at): observed_expected(p, at=at, **outcome).value,
            ("one_calibration", at): one.statistic,
            ("ici_cox", at): ici.value,
            ("e90_cox", at): ici.e90,
        }
    return found


def compare(found, expected):
    for (name, at), value in expected.items():
        # The fit behind ICI stops at a small decrement, not at the last digit.
        tolerance = 1e-9 if name in {"ici_cox", "e90_cox"} else 1e-12
        assert found[name if at is None else (name, at)]["value"] == pytest.approx(value, rel=tolerance), (name, at)


def same(one, other):
    """Equal to 1e-12; all but D-calibration are sums of whole numbers, and equal to the last bit."""
    for a, b in zip(one.metrics, other.metrics, strict=True):
        if a["name"] == "d_calibration":
            assert a["value"] == pytest.approx(b["value"], rel=1e-12)
            assert a["floor"] == pytest.approx(b["floor"], rel=1e-12)
        else:
            assert a == b


@pytest.mark.parametrize("grid", [None, 1 / 8], ids=["continuous", "tied"])
def test_the_values_are_those_of_the_rows(tmp_path, grid):
    columns = predictions(grid=grid)
    found = run(written(tmp_path / "in", columns, 3), tmp_path / "m.json")
    assert (found.rows, found.files, found.exact_rows) == (3000, 3, True)
    assert found.events == columns["event"].sum()
    compare(found, in_memory(columns))
    assert {m.get("error_bound") for m in found.metrics} == {0.0}
    assert json.loads((tmp_path / "m.json").read_text()) == json.loads(found.to_json())
    assert "exact" in repr(found)
    assert not list(tmp_path.glob("*.resume"))


@pytest.mark.parametrize("exact_rows", [10**6, 0], ids=["exact", "grids"])
def test_any_shards_in_any_order_give_the_same(tmp_path, exact_rows, monkeypatch):
    monkeypatch.setattr("xcal.outofcore.passes._DISTINCT", 500)
    columns = predictions()
    one = run(written(tmp_path / "1", columns, 1), tmp_path / "1.json", exact_rows=exact_rows)
    order = np.random.default_rng(1).permutation(3000)
    many = run(written(tmp_path / "64", columns, 64, order), tmp_path / "64.json", exact_rows=exact_rows)
    same(one, many)
    if exact_rows:
        return
    assert not one.exact_rows
    for (name, at), value in in_memory(columns).items():
        metric = one[name if at is None else (name, at)]
        if metric.get("error_bound") is not None:
            # A sum in another order where the bound is zero.
            assert abs(metric["value"] - value) <= metric["error_bound"] + 1e-12 * abs(value)
    fixed = one["one_calibration", 0.5]
    assert "error_bound" not in fixed  # the cuts are not the quantiles of the rows; with them it is exact
    meter = StreamingOneCalibration(at=0.5, cuts=fixed["cuts"], uses_cdf=True)
    meter.update(1 - columns["S_0.5"], time=columns["time"], event=columns["event"], cdf=columns["cdf"])
    assert fixed["value"] == pytest.approx(meter.compute().result.statistic, rel=1e-12)
    assert fixed["value"] == pytest.approx(in_memory(columns)["one_calibration", 0.5], rel=0.2)
    assert 0 < one["harrell"]["error_bound"] < 0.01
    assert 0 < one["brier", 0.5]["error_bound"] < 0.01


def test_a_third_pass_bounds_the_ici_of_the_rows(tmp_path):
    columns = predictions(3000)
    order = np.random.default_rng(5).permutation(3000)
    asked = {"exact_rows": 0, "ici_bound": True}
    found = run(written(tmp_path / "1", columns, 1), tmp_path / "1.json", **asked)
    same(found, run(written(tmp_path / "5", columns, 5, order), tmp_path / "5.json", **asked))
    outcome = {"time": columns["time"], "event": columns["event"]}
    for at in HORIZONS:
        exact = cox_ici(1 - columns[f"S_{at:g}"], at=at, **outcome)
        for name, value in (
            ("ici_cox", exact.value),
            ("e50_cox", exact.e50),
            ("e90_cox", exact.e90),
            ("emax_cox", exact.emax),
        ):
            metric = found[name, at]
            assert metric["lower"] <= value <= metric["upper"]
            assert abs(metric["value"] - value) <= metric["error_bound"]
        assert found["ici_cox", at]["error_bound"] < 0.02
    without = run(tmp_path / "1", tmp_path / "2.json", exact_rows=0)
    assert without["ici_cox", HORIZONS[0]]["value"] == found["ici_cox", HORIZONS[0]]["value"]
    assert "error_bound" not in without["ici_cox", HORIZONS[0]]


@pytest.mark.ci
def test_two_processes_give_the_same(tmp_path):
    columns = predictions(1200)
    folder = written(tmp_path / "in", columns, 5)
    same(run(folder, tmp_path / "1.json"), run(folder, tmp_path / "2.json", processes=2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*")  # of Ray's own settings
@pytest.mark.ci
def test_ray_gives_the_same(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    columns = predictions(1200)
    folder = written(tmp_path / "in", columns, 3)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    all_passes = {"exact_rows": 0, "ici_bound": True}
    # A small store, as CI has little shared memory.
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=100 * 2**20,
    )
    try:
        found = run(folder, tmp_path / "ray.json", engine="ray", **all_passes)
        broken = predictions(100)
        broken["cdf"][7] = 2.0
        with pytest.raises(ValueError, match=r"part-000.parquet, column 'cdf', row group 0, row 8"):
            run(written(tmp_path / "bad", broken), tmp_path / "bad.json", engine="ray")
    finally:
        ray.shutdown()
    same(run(folder, tmp_path / "1.json", **all_passes), found)
    assert not (tmp_path / "bad.json").exists()


def test_weights_count_rows_several_times(tmp_path):
    columns = predictions(600)
    weight = np.random.default_rng(2).integers(0, 4, 600)
    repeated = {name: np.repeat(values, weight) for name, values in columns.items()}
    found = run(written(tmp_path / "in", columns | {"weight": weight}, 2), tmp_path / "m.json")
    assert found.rows == weight.sum()
    compare(found, in_memory(repeated))


def test_float32_columns(tmp_path):
    columns = {k: v.astype(np.float32) if v.dtype == float else v for k, v in predictions(800).items()}
    found = run(written(tmp_path / "in", columns, 2), tmp_path / "m.json")
    wide = {k: v.astype(float) if k.startswith("S_") else v for k, v in columns.items()}
    compare(found, in_memory(wide))


@pytest.mark.parametrize(
    ("kept", "names"),
    [
        (["risk"], {"harrell"}),
        (["cdf"], {"d_calibration"}),
        (["nll"], {"nll"}),
        (["S_0.5"], {"brier", "oe", "one_calibration", "ici_cox", "e50_cox", "e90_cox", "emax_cox"}),
    ],
)
def test_what_is_there_is_measured(tmp_path, kept, names):
    columns = {name: values for name, values in predictions(600).items() if name in {"time", "event", *kept}}
    found = run(written(tmp_path / "in", columns), tmp_path / "m.json")
    assert {metric["name"] for metric in found.metrics} == names


def test_one_calibration_without_cdf_uses_curves(tmp_path):
    columns = {k: v for k, v in predictions(900).items() if k in {"time", "event", "S_0.5"}}
    found = run(written(tmp_path / "in", columns, 2), tmp_path / "m.json")["one_calibration", 0.5]
    expected = one_calibration(1 - columns["S_0.5"], at=0.5, time=columns["time"], event=columns["event"])
    assert found["method"] == "effective-size"
    assert found["value"] == pytest.approx(expected.statistic, rel=1e-11)
    assert found["p_value"] == pytest.approx(expected.p_value, rel=1e-10)


def test_horizons_and_other_names(tmp_path):
    columns = predictions(300)
    columns = {{"time": "months", "event": "died"}.get(name, name): values for name, values in columns.items()}
    columns["s_99"] = np.full(300, 0.5)  # past the follow-up
    folder = written(tmp_path / "in", columns | {"note": np.array(["x"] * 300)})
    found = run(folder, tmp_path / "m.json", time="months", event="died", horizons=(0.5, 99.0))
    assert {m["at"] for m in found.metrics} == {None, 0.5, 99.0}
    assert math.isnan(found["brier", 99.0]["value"])
    assert json.loads((tmp_path / "m.json").read_text())["metrics"][-1]["value"] is None
    with pytest.raises(ValueError, match=r"horizons, .*: expected a column S_7, got the times 0.25"):
        run(folder, tmp_path / "m.json", time="months", event="died", horizons=(7.0,))


BAD = {
    "cdf": (1.5, "a probability"),
    "time": (-1.0, "a finite time"),
    "risk": (math.nan, "put in order"),
    "nll": (-math.inf, "a number, or infinity"),
    "S_0.5": (math.nan, "a probability"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("processes", [1])
def test_a_bad_value_is_named(tmp_path, name, processes):
    columns = predictions(900)
    folder = written(tmp_path / "in", columns, 2, row_group_size=200)
    columns[name][450 + 333] = BAD[name][0]
    written(folder, columns, 2, row_group_size=200)
    where = rf"part-001.parquet, column '{name}', row group 1, row 334: expected .*{BAD[name][1]}"
    with pytest.raises(ValueError, match=where) as refused:
        run(folder, tmp_path / "m.json", processes=processes)
    assert not (tmp_path / "m.json").exists()
    assert not math.isfinite(BAD[name][0]) or str(BAD[name][0]) not in str(refused.value)  # it may be a patient's


def test_other_bad_files_are_named(tmp_path):
    columns = predictions(300)
    folder = written(tmp_path / "in", columns, 2)
    table = pq.read_table(folder / "part-001.parquet")
    holes = table.set_column(0, "time", pa.array([None, *table["time"].to_pylist()[1:]]))
    words = table.set_column(0, "time", pa.array(["x"] * table.num_rows))
    cases = [
        (holes, r"part-001.parquet, column 'time', row group 0, row 1: expected a value in every row, got an empty"),
        (words, r"part-001.parquet, column 'time': expected numbers, got type string"),
        (table.drop_columns(["risk"]), r"part-001.parquet: expected a column 'risk', as in part-000.parquet"),
        (table.drop_columns(["event"]), r"event, .*part-001.parquet: expected one of the columns"),
    ]
    for bad, match in cases:
        pq.write_table(bad, folder / "part-001.parquet")
        with pytest.raises(ValueError, match=match):
            run(folder, tmp_path / "m.json")
    (folder / "part-001.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=r"part-001.parquet: expected a parquet file"):
        run(folder, tmp_path / "m.json")
    whole = (folder / "part-000.parquet").read_bytes()
    (folder / "part-001.parquet").write_bytes(whole[:4] + b"\xff" * 400 + whole[404:])
    with pytest.raises(ValueError, match=r"part-001.parquet"):
        run(folder, tmp_path / "m.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="expected parquet files"):
        run(tmp_path / "empty", tmp_path / "m.json")
    with pytest.raises(FileNotFoundError, match="expected a folder"):
        run(tmp_path / "none", tmp_path / "m.json")
    written(tmp_path / "no rows", {k: v[:0] for k, v in columns.items()})
    with pytest.raises(ValueError, match="at least one row"):
        run(tmp_path / "no rows", tmp_path / "m.json")
    only = {name: columns[name] for name in ("time", "event")}
    with pytest.raises(ValueError, match="expected predictions: columns cdf, risk, nll or S_12"):
        run(written(tmp_path / "only", only), tmp_path / "m.json")
    with pytest.raises(ValueError, match=r"column 'weight'.*a whole number"):
        run(written(tmp_path / "w", columns | {"weight": np.full(300, 0.5)}), tmp_path / "m.json")
    with pytest.raises(ValueError, match="column 'weight': expected a row with a weight above 0"):
        run(written(tmp_path / "w0", columns | {"weight": np.zeros(300)}), tmp_path / "m.json")
    with pytest.raises(NotADirectoryError, match="got a file: give the folder"):
        run(folder / "part-000.parquet", tmp_path / "m.json")
    assert not (tmp_path / "m.json").exists()


def test_fewer_rows_than_the_end_of_the_file_says(tmp_path, monkeypatch):
    folder = written(tmp_path / "in", predictions(), 1)
    whole = pq.ParquetFile.iter_batches

    def some(file, **options):
        for batch in whole(file, **options):
            yield batch.slice(0, batch.num_rows - 1)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", some)
    with pytest.raises(
        ValueError, match=r"part-000\.parquet, row group 0: expected \d+ rows, as the end of the file says"
    ):
        run(folder, tmp_path / "m.json")


def test_what_the_rows_cannot_tell_has_a_reason(tmp_path):
    columns = predictions(200)
    columns |= {"S_1e6": np.full(200, 0.1), "event": np.zeros(200, dtype=bool)}
    found = run(written(tmp_path / "in", columns), tmp_path / "m.json")
    unknown = [metric for metric in found.metrics if np.isnan(metric["value"])]
    assert {("harrell", None), ("brier", 1e6), ("ici_cox", 1e6)} <= {(m["name"], m["at"]) for m in unknown}
    for metric in unknown:
        assert metric["note"].startswith("not known: ")
        assert metric.get("error_bound", 0.0) != 0.0 or "error_bound" not in metric
    lines = [line for line in repr(found).splitlines() if " nan" in line]
    assert len(lines) == len(unknown)
    assert all("not known: " in line and "exact" not in line for line in lines)


def test_one_row_is_one_row(tmp_path):
    found = run(written(tmp_path / "in", {k: v[:1] for k, v in predictions(50).items()}), tmp_path / "m.json")
    assert repr(found).startswith("1 row in 1 file, ")
