"""The server keeps others out, bounds what comes in, and leaves nothing behind."""

import io
import json
import socket
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import xcal
from tests.serve.running import TOKEN, running, wait
from xcal.serve.work import Limits, plain_name


@pytest.fixture(scope="module")
def server():
    with running(Limits(most_bytes=1 << 20)) as found:
        yield found


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({}, "another"),
        ({}, ""),
        ({"Host": "evil.example"}, TOKEN),  # a name that was made to lead here
        ({"Origin": "http://evil.example"}, TOKEN),
        ({"Sec-Fetch-Site": "cross-site"}, TOKEN),
    ],
)
def test_others_are_kept_out(server, headers, token):
    for path in ("", "page.js", "files/x"):
        status, answer, body = server.ask(path, headers=headers, token=token)
        assert status == 403
        assert list(json.loads(body)) == ["error"]
        assert not any(name.lower().startswith("access-control") for name in answer)
    assert server.ask("files?name=a.csv", b"t,e\n1,1\n", headers=headers, token=token)[0] == 403
    assert server.left() == []


def test_pages_load_nothing_from_elsewhere_and_nothing_is_offered_to_other_origins(server):
    status, headers, body = server.ask("")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"  # the token is in the address
    assert b"http" not in body.replace(b"http-equiv", b"")
    for path in ("page.js", "page.css"):
        status, headers, body = server.ask(path)
        assert status == 200
        assert b"://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
        assert not any(name.lower().startswith("access-control") for name in headers)
    status, headers, _ = server.ask("files", method="OPTIONS", headers={"Origin": "http://evil.example"})
    assert status == 403
    assert server.ask("files/none", b"", method="DELETE")[0] == 405
    assert server.ask("../etc/passwd")[0] in (403, 404)


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("../../my table.CSV", "my_table.csv"),
        ("C:\\data\\p.parquet", "p.parquet"),
        ("--out=x.csv", "out_x.csv"),
        ("<img src=x onerror=alert(1)>.csv", "img_src_x_onerror_alert_1_.csv"),
        ("a" * 300 + ".tsv", "a" * 80 + ".tsv"),
        (".hidden.csv", "hidden.csv"),
    ],
)
def test_names_of_files_are_plain(given, plain):
    assert plain_name(given) == plain


def test_what_is_no_table_and_no_model_is_refused_in_one_sentence(server):
    for name in ("a.exe", "a", "", "a.csv/", "a.csv.html"):
        found = server.drop(name, b"x")
        assert list(found) == ["error"]
        assert found["error"].startswith("file: expected a table")
    assert server.drop("a.csv", b"")["error"].endswith("got an empty file")
    assert (
        server.drop("a.csv", b"x" * (2 << 20))["error"]
        == "file: expected at most 1 MB (xcal serve --most), got a larger one"
    )
    assert server.said("files/gone")["error"].startswith("file: expected one that was dropped here")
    assert (server.left(), server.desk.files) == ([], {})


def test_a_browser_that_is_closed_midway_leaves_nothing(server):
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        head = [f"POST /{TOKEN}/files?name=a.csv HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "Content-Length: 100000"]
        line.sendall("\r\n".join([*head, "", "t,e", "1,1", ""]).encode())
        wait(lambda: server.desk.files)
    wait(lambda: not server.desk.files)
    wait(lambda: server.left() == [])


def test_questions_are_bounded_and_typed(server, model):
    key = server.drop("model.xcal", model.read_bytes())["id"]
    for body in (b"{", b"[]", b"x" * (1 << 19), json.dumps({"time": 3}).encode(), b'{"unknown": "x"}', b"[" * 100_000):
        status, _, said = server.ask(f"files/{key}/start", body)
        assert status == 400
        assert len(json.loads(said)["error"]) < 1100
    assert server.ask(f"files/{key}/forget", {})[0] == 200
    assert server.left() == []


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the file of a path of three seeds, over a number and a label."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(60, 10, 90), "sex": rng.choice(["f", "m"], 90)})
    y = xcal.Surv(time=rng.exponential(np.exp((60 - X["age"]) / 20)), event=np.ones(90))
    path = tmp_path_factory.mktemp("model") / "model.xcal"
    xcal.SurvivalPath((0, 10), 3, epochs=3, encode="auto", cross_fit=0, progress=False).fit(X, y).save(path)
    return path


def test_a_model_becomes_a_calculator_and_the_call_gives_the_same(server, model, monkeypatch):
    dropped = server.drop("model.xcal", model.read_bytes())
    key = dropped["id"]
    fields = server.said(f"files/{key}/fields", {})["fields"]
    assert [(one["name"], one["kind"], one["labels"]) for one in fields] == [
        ("age", "number", []),
        ("sex", "category", ["f", "m"]),
    ]
    found = server.said(f"files/{key}/curve", {"age": "71", "sex": "m"})
    row, path = pd.DataFrame([{"age": 71.0, "sex": "m"}]), xcal.load(model)
    np.testing.assert_allclose(found["survival"], path.predict_survival_function(row, found["times"])[0])
    band = path.predict_survival_function(row, found["times"], interval=True)
    np.testing.assert_allclose([found["lower"], found["upper"]], [band.lower[0], band.upper[0]])
    assert (np.array(found["lower"][1:]) < found["survival"][1:]).all()
    monkeypatch.chdir(model.parent)
    *statements, last = found["call"].split("\n")
    names = {}
    exec("\n".join(statements), names)
    np.testing.assert_allclose(eval(last, names).survival[0], found["survival"])
    for values in ({"age": "old", "sex": "m"}, {"age": "1e999"}):
        assert server.said(f"files/{key}/curve", values)["error"].startswith("age: expected")
    assert server.said(f"files/{key}/curve", {"age": "60", "sex": "x"})["notes"]
    server.ask(f"files/{key}/forget", {})


def test_a_hundred_requests_at_once(server, model):
    key = server.drop("model.xcal", model.read_bytes())["id"]
    asks = [("", None), ("page.js", None), (f"files/{key}", None), (f"files/{key}/curve", {"age": "66", "sex": "f"})]
    with ThreadPoolExecutor(100) as pool:
        found = list(pool.map(lambda k: server.ask(*asks[k % len(asks)])[0], range(100)))
    assert found == [200] * 100
    server.ask(f"files/{key}/forget", {})


def test_what_nobody_asks_for_is_deleted(model):
    with running(Limits(keep=0.4)) as server:
        server.drop("model.xcal", model.read_bytes())
        assert len(server.left()) == 1
        wait(lambda: server.left() == [] and not server.desk.files)


def test_so_many_files_and_no_more(model):
    with running(Limits(most_files=1)) as server:
        server.drop("model.xcal", model.read_bytes())
        assert "at most 1 files at a time" in server.drop("model.xcal", model.read_bytes())["error"]


TABLE = "\n".join(
    ["months,died,sex,s_6,s_12", *(f"{3 + k % 20},{k % 2},{'fm'[k % 3 == 0]},0.8,0.{50 + k % 30}" for k in range(120))]
)


@pytest.mark.ci
def test_a_table_becomes_a_report(server):
    found = server.drop("<b>table</b>.csv", TABLE.encode())
    key, asked = found["id"], found["understood"]["asked"]
    assert (asked["time"], asked["event"], asked["curves"]) == ("months", "died", "s_*")
    shown = server.said(f"files/{key}/command", {**asked, "horizons": "6"})["command"]
    assert "--horizons=6" in shown
    asked = {**asked, "export": "tables"}
    shown = server.said(f"files/{key}/command", {**asked, "horizons": "6"})["command"]
    assert server.said(f"files/{key}/start", {**asked, "horizons": "6"})["state"] in ("waiting", "running")
    assert "error" in server.said(f"files/{key}/start", asked)
    done = server.ended(key)
    assert (done["state"], done["error"], done["command"]) == ("done", "", shown)
    assert set(done["results"]) == {"audit.json", "report.html", "tables.zip"}
    with zipfile.ZipFile(io.BytesIO(server.ask(f"files/{key}/tables.zip")[2])) as archive:
        assert {"tables.docx", "calibration-6.svg", "calibration-6.png"} <= set(archive.namelist())
    status, headers, page = server.ask(f"files/{key}/report.html")
    assert status == 200
    assert "sandbox" in headers["content-security-policy"]
    assert b"Validation of" in page
    assert json.loads(server.ask(f"files/{key}/audit.json")[2])["horizons"] == [6.0]
    assert "error" in server.said(f"files/{key}/table.csv")  # what was dropped is no result
    server.said(f"files/{key}/start", {**asked, "time": "no such column"})
    failed = server.ended(key)
    assert failed["state"] == "failed"
    assert failed["error"].startswith("--time, ")
    assert str(server.desk.root) not in failed["error"]
    server.said(f"files/{key}/start", asked)
    assert server.said(f"files/{key}/cancel", {})["error"] == "The command was ended."
    server.ask(f"files/{key}/forget", {})
    assert server.left() == []
