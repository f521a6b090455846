"""Files that mean no good: one sentence, and nothing left behind."""

import gzip
import io
import json
import pickle
import random
import struct
import zipfile

import pytest

from tests.serve.running import TOKEN, running, wait
from xcal.serve.work import Limits

HTML = "<img src=x onerror=alert(1)>"
HEAD = "time,event,s_1,s_2\n"
ROWS = "".join(f"{1 + k % 7},{k % 2},0.9,0.{50 + k % 40}\n" for k in range(60))
GOOD = (HEAD + ROWS).encode()
NOISE = random.Random(0).randbytes(20_000)


def zipped(content, name="a.csv"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def with_header(length, header=b"{}"):
    return struct.pack("<Q", length) + header


KINDS = {
    "HTML in the names of columns": ("a.csv", (HEAD.replace("time", f'"{HTML}"') + ROWS).encode()),
    "HTML in labels": ("a.csv", "\n".join(["time,event,x", *(f"{k + 1},{k % 2},{HTML}" for k in range(40))]).encode()),
    "HTML in the name of the file": (f"{HTML}.csv", GOOD),
    "a path in its name": ("../../../etc/cron.d/x.csv", GOOD),
    "a formula": ("a.csv", (HEAD + '"=cmd|calc!A0",1,0.5,0.4\n' + ROWS).encode()),
    "nothing": ("a.csv", b""),
    "a header alone": ("a.csv", HEAD.encode()),
    "empty lines": ("a.csv", b"\n" * 1000),
    "noise": ("a.csv", NOISE),
    "a picture": ("a.csv", b"\x89PNG\r\n\x1a\n" + NOISE),
    "Latin-1": ("a.csv", (HEAD + ROWS).replace("time", "Zeit für").encode("latin-1")),
    "UTF-16": ("a.csv", (HEAD + ROWS).encode("utf-16")),
    "zero bytes": ("a.csv", GOOD.replace(b"0.9", b"0\x009")),
    "ten thousand columns": (
        "a.csv",
        (",".join(f"c{k}" for k in range(10_000)) + "\n" + ",".join("1" * 10_000)).encode(),
    ),
    "a line without end": ("a.csv", b"x" * 3_000_000),
    "names that repeat": ("a.csv", GOOD.replace(b"s_2", b"s_1", 1)),
    "lines of many lengths": ("a.csv", (HEAD + "1\n1,2,3,4,5,6,7\n" + ROWS).encode()),
    "exponents without end": ("a.csv", GOOD + b"1e99999999999,1,0.5,0.4\n"),
    "a quote that does not end": ("a.csv", GOOD + b'"1,1,0.5,0.4\n'),
    "JSON": ("a.csv", json.dumps({"a": [1, {"b": 2}]}).encode()),
    "damaged gzip": ("a.csv.gz", gzip.compress(GOOD)[:-20] + NOISE),
    "a gzip bomb": ("a.csv.gz", gzip.compress(b"1,1\n" * 30_000_000)),
    "gzip in gzip": ("a.csv.gz", gzip.compress(gzip.compress(GOOD))),
    "a zip called gzip": ("a.csv.gz", zipped(GOOD)),
    "a zip called CSV": ("a.csv", zipped(GOOD)),
    "a spreadsheet": ("a.xlsx", zipped(b"<x/>", "xl/workbook.xml")),
    "noise called parquet": ("a.parquet", b"PAR1" + NOISE + b"PAR1"),
    "a parquet file that ends early": ("a.parquet", b"PAR1" + struct.pack("<I", 2**31 - 1) + b"PAR1"),
    "noise called a model": ("a.xcal", NOISE),
    "a model with a header without end": ("a.safetensors", with_header(2**60)),
    "a model of tensors that are not there": (
        "a.xcal",
        with_header(60, json.dumps({"w": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}}).encode()),
    ),
    "a pickle called a model": ("a.xcal", pickle.dumps({"x": print})),
    "nobody has an event": ("a.csv", GOOD.replace(b",1,", b",0,")),
    "negative times": ("a.csv", (HEAD + "-1,1,0.5,0.4\n" + ROWS).encode()),
    "probabilities above 1": ("a.csv", (HEAD + "1,1,7,9\n" + ROWS).encode()),
}
RUN = ("HTML in the names of columns", "zero bytes", "nobody has an event", "negative times", "probabilities above 1")
pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def server():
    with running(Limits(most_bytes=4 << 20)) as found:
        yield found


def is_a_sentence(error, server):
    plain = error and "\n" not in error and len(error) <= 1000
    return plain and "Traceback" not in error and str(server.desk.root) not in error


@pytest.mark.parametrize("kind", KINDS)
def test_one_sentence_and_nothing_left(kind, server):
    name, content = KINDS[kind]
    found = server.drop(name, content)
    if "id" in found and name.endswith((".xcal", ".safetensors")):
        found = server.said(f"files/{found['id']}/fields", {})
    if "id" not in found:
        assert is_a_sentence(found["error"], server), found
    else:
        # What can be read may be asked for: the command says what is wrong with it, or does it.
        key, asked = found["id"], found["understood"]["asked"]
        if kind in RUN:
            server.said(f"files/{key}/start", {**asked, "kind": "predictions", "time": asked["time"] or "time"})
            ended = server.ended(key)
            assert (ended["state"] == "done") != bool(ended["error"])
            assert ended["state"] == "done" or is_a_sentence(ended["error"], server), ended
        server.ask(f"files/{key}/forget", {})
    assert (server.left(), server.desk.files) == ([], {})


def test_a_gigabyte_is_refused_before_it_came(server):
    import http.client

    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    line.putrequest("POST", f"/{TOKEN}/files?name=a.csv")
    line.putheader("Content-Length", str(1 << 30))
    line.endheaders()
    assert "at most 4 MB" in json.loads(line.getresponse().read())["error"]
    line.close()
    assert server.left() == []


def test_a_gigabyte_that_was_not_announced_is_cut_off(server):
    import socket

    with socket.create_connection(("127.0.0.1", server.port)) as line:
        head = [
            f"POST /{TOKEN}/files?name=a.csv HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            "Transfer-Encoding: chunked",
        ]
        line.sendall("\r\n".join([*head, "", ""]).encode())
        piece, sent = b"10000\r\n" + b"x" * 65536 + b"\r\n", 0
        try:
            for _ in range(16_384):
                line.sendall(piece)
                sent += 65536
        except OSError:
            pass
        assert sent < 1 << 28
    wait(lambda: server.left() == [] and not server.desk.files)


def test_two_at_once_do_not_know_each_other(server):
    first, second = server.drop("a.csv", GOOD), server.drop("a.csv", GOOD)
    assert first["id"] != second["id"]
    for one in (first, second):
        server.said(f"files/{one['id']}/start", one["understood"]["asked"])
    server.ask(f"files/{first['id']}/forget", {})
    assert server.ended(second["id"])["state"] == "done"
    server.ask(f"files/{second['id']}/forget", {})
    assert (server.left(), server.desk.files) == ([], {})


def test_a_browser_that_is_closed_while_a_command_runs(server):
    one = server.drop("a.csv", GOOD)
    server.said(f"files/{one['id']}/start", one["understood"]["asked"])
    wait(lambda: any(found.process for found in server.desk.files.values()))
    (dropped,) = server.desk.files.values()
    process = dropped.process
    server.ask(f"files/{one['id']}/forget", {})
    wait(lambda: process.returncode is not None)
    assert (server.left(), server.desk.files) == ([], {})
