"""A server of the page for tests: in a thread of this process, on any free port."""

import http.client
import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import quote

import uvicorn

from xcal.serve.app import make_app
from xcal.serve.work import Desk, Limits

TOKEN = "token-of-the-tests"


@dataclass
class Running:
    """Asks a server; `desk` holds what was dropped on it."""

    port: int
    desk: Desk

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}/{TOKEN}/"

    def ask(self, path, body=None, *, method=None, headers=None, token=TOKEN):
        """Return status, headers and content of an answer."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            content = json.dumps(body) if isinstance(body, dict) else body
            line.request(method or ("GET" if body is None else "POST"), f"/{token}/{path}", content, headers or {})
            answer = line.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            line.close()

    def said(self, path, body=None):
        """Return the JSON of an answer, whether it is an error or not."""
        return json.loads(self.ask(path, body)[2])

    def drop(self, name, content):
        return self.said(f"files?name={quote(name)}", content)

    def left(self):
        """Return what is on the disk."""
        return [path for path in self.desk.root.rglob("*") if path.is_file()]

    def ended(self, key, seconds=120):
        """Wait until a command has ended."""
        until = monotonic() + seconds
        while (found := self.said(f"files/{key}"))["state"] in ("waiting", "running"):
            assert monotonic() < until
            sleep(0.2)
        return found


def wait(true, seconds=30):
    until = monotonic() + seconds
    while not true():
        assert monotonic() < until
        sleep(0.05)


@contextmanager
def running(limits=None, **options):
    """Serve until the end of the block; nothing is left on the disk after it."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        guard = make_app(TOKEN, frozenset({f"127.0.0.1:{port}", f"localhost:{port}"}), limits or Limits(), **options)
        server = uvicorn.Server(uvicorn.Config(guard, log_level="error", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        wait(lambda: server.started)
        desk = guard.app.state.desk
        try:
            yield Running(port, desk)
        finally:
            server.should_exit = True
            thread.join(30)
    assert not Path(desk.root).exists()
