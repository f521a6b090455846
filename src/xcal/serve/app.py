"""The server of the page: its addresses, what keeps others out, and a model as a calculator.

It listens on this machine alone unless told otherwise. Every address begins with a token that only who started it
knows; other names of the machine, pages of other origins and requests without the token are refused, and nothing is
offered to other origins (no CORS). Files are bounded while they come, and deleted.
"""

import asyncio
import hmac
import json
import secrets
import warnings
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from xcal._checks import as_number, fail
from xcal.serve.work import MODELS, Desk, Dropped, Limits, read_asked
from xcal.show.page import style

_LARGEST_QUESTION = 1 << 18  # bytes of what the page asks, files aside
_HEARD_OUT = 1 << 25  # bytes of a refused file that are read and thrown away
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
# A report is a page of its own: its scripts run, and reach nothing here.
_OF_REPORTS = "sandbox allow-scripts allow-downloads allow-modals"
_KINDS = {"html": "text/html", "json": "application/json", "zip": "application/zip"}
Handler = Callable[[Request], Awaitable[Response]]


class Guard:
    """Lets only those in who know the token, by the name and from the page of this server."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get("host", ""), headers.get("origin")
        first = scope["path"].split("/")[1]
        refused = ""
        if host not in self.hosts:
            refused = "This server answers by its own name only."
        elif (origin is not None and origin != f"http://{host}") or headers.get("sec-fetch-site", "none") not in (
            "none",
            "same-origin",
        ):
            refused = "Another page may not ask this server."
        elif not hmac.compare_digest(first.encode(), self.token.encode()):
            refused = "The address lacks the token that xcal serve has printed."

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                extra = {**_HEADERS, "content-security-policy": _POLICY}
                message["headers"] += [
                    (name.encode(), value.encode()) for name, value in extra.items() if name.encode() not in known
                ]
            await send(message)

        if refused:
            await JSONResponse({"error": refused}, 403)(scope, receive, guarded)
            return
        await self.app(scope, receive, guarded)


def make_app(token: str, hosts: frozenset[str], limits: Limits, *, notice: bool = True) -> ASGIApp:
    """Return the application."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.desk = Desk(limits)
        app.state.models = asyncio.Semaphore(1)  # warnings are caught for the whole process
        sweeping = asyncio.create_task(app.state.desk.sweep())
        yield
        sweeping.cancel()
        await app.state.desk.close()

    async def page(_: Request) -> Response:
        text = _asset("page.html").replace('data-most="0"', f'data-most="{limits.most_bytes}"')
        return HTMLResponse(text if notice else text.replace(' data-notice="yes"', ""))

    routes = [
        Route("/", page),
        Route("/page.js", _static("page.js", "text/javascript")),
        Route("/page.css", _static("page.css", "text/css")),
        Route("/files", _answering(receive), methods=["POST"]),
        Route("/files/{id}", _answering(status)),
        Route("/files/{id}/understand", _answering(understand), methods=["POST"]),
        Route("/files/{id}/command", _answering(command), methods=["POST"]),
        Route("/files/{id}/start", _answering(start), methods=["POST"]),
        Route("/files/{id}/cancel", _answering(cancel), methods=["POST"]),
        Route("/files/{id}/forget", _answering(forget), methods=["POST"]),
        Route("/files/{id}/fields", _answering(fields), methods=["POST"]),
        Route("/files/{id}/curve", _answering(curve), methods=["POST"]),
        Route("/files/{id}/{name}", _answering(result)),
    ]
    return Guard(Starlette(routes=[Mount(f"/{token}", routes=routes)], lifespan=lifespan), token, hosts)


def _asset(name: str) -> str:
    return files("xcal.serve").joinpath(name).read_text(encoding="utf-8")


def _static(name: str, kind: str) -> Handler:
    async def answer(_: Request) -> Response:
        text = _asset(name)
        if name == "page.css":
            text = f"{style()}\n{text}"
        return Response(text, media_type=kind)

    return answer


def _answering(handler: Handler) -> Handler:
    """Turn an error that says what was expected into an answer of one sentence."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientDisconnect:
            return Response(status_code=499)
        except (ValueError, OSError, ImportError, TypeError) as error:
            # What still comes of a file that was refused is not waited for.
            return JSONResponse({"error": " ".join(str(error).split())[:1000]}, 400, {"connection": "close"})

    return answer


def _of(request: Request) -> tuple[Desk, Dropped]:
    desk: Desk = request.app.state.desk
    return desk, desk.find(request.path_params["id"])


async def _question(request: Request) -> Any:
    """Read what the page asks, JSON of a bounded size."""
    from xcal._files import parse_json

    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_QUESTION:
            fail("question", f"at most {_LARGEST_QUESTION:,} bytes", "more")
    return parse_json("question", body)


# --- What the page asks for.


async def receive(request: Request) -> Response:
    """Take a file."""
    desk: Desk = request.app.state.desk
    announced = request.headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() else 0
    body = request.stream()
    try:
        new = await desk.receive(request.query_params.get("name", ""), body, size)
    except ValueError:
        # Who is still sending hears the answer only at the end; what is far too large is not heard out.
        left = 0 if size > _HEARD_OUT else _HEARD_OUT
        while left > 0 and (piece := await anext(body, b"")):
            left -= len(piece)
        raise
    if not new.name.endswith(MODELS):
        await desk.understand(new)
    return JSONResponse(new.status())


async def understand(request: Request) -> Response:
    """Read a table again, with another mark in its numbers."""
    desk, one = _of(request)
    await desk.understand(one, read_asked(await _question(request)).decimal)
    return JSONResponse(one.status())


async def status(request: Request) -> Response:
    """Say how far it is."""
    return JSONResponse(_of(request)[1].status())


async def command(request: Request) -> Response:
    """Show the command for what is asked."""
    _, one = _of(request)
    asked = read_asked(await _question(request))
    if one.state not in ("waiting", "running"):
        one.asked = asked
    return JSONResponse(one.status())


async def start(request: Request) -> Response:
    """Run the command."""
    desk, one = _of(request)
    desk.start(one, read_asked(await _question(request)))
    return JSONResponse(one.status())


async def cancel(request: Request) -> Response:
    """End the command."""
    desk, one = _of(request)
    await desk.cancel(one)
    return JSONResponse(one.status())


async def forget(request: Request) -> Response:
    """Delete a file and all that was made from it."""
    await request.app.state.desk.forget(request.path_params["id"])
    return JSONResponse({})


async def result(request: Request) -> Response:
    """Return a file that was made."""
    _, one = _of(request)
    found, name = one.results(), request.path_params["name"]
    if name not in found:
        fail("file", "one of the results", "one that there is not")
    ending = name.rpartition(".")[2]
    headers = {"content-security-policy": _OF_REPORTS} if ending == "html" else {}
    kind = _KINDS.get(ending, "application/octet-stream")
    saved = request.query_params.get("save") is not None or ending != "html"
    return FileResponse(found[name], media_type=kind, headers=headers, filename=name if saved else None)


async def fields(request: Request) -> Response:
    """Read the model, the file itself or what was trained on it, and return its fields."""
    model = await _model(request)
    return JSONResponse({"fields": [asdict(one) for one in fields_of(model)]})


async def curve(request: Request) -> Response:
    """Return the curve of a patient."""
    model, values = await _model(request), await _question(request)
    if not isinstance(values, dict):
        fail("question", "a table of values", type(values).__name__)
    _, one = _of(request)
    async with request.app.state.models:
        found = await asyncio.to_thread(calculate, model, values, _place(one).name)
    return Response(json.dumps(asdict(found)), media_type="application/json")


def _place(one: Dropped) -> Any:
    """Return where the model of a file is."""
    from xcal.estimators.persistence import MODEL_IN_FOLDER

    if one.name.endswith(MODELS):
        return one.path
    found = one.results().get(MODEL_IN_FOLDER)
    if found is None:
        fail("file", "a model, or a table that one was trained on", "neither")
    return found


async def _model(request: Request) -> Any:
    desk, one = _of(request)
    if one.model is None:
        try:
            async with request.app.state.models:
                one.model = await asyncio.to_thread(read_model, _place(one))
        except ValueError:
            if one.name.endswith(MODELS):  # it is no model: nothing of it is kept
                await desk.forget(one.id)
            raise
    return one.model


# --- A saved model as a form: one field per column, and the curve of the patient whose values are filled in.

_POINTS = 61


@dataclass(frozen=True)
class Field:
    """One field: a column, its kind, what it holds at first, and the labels it may have; empty for unknown."""

    name: str
    kind: str  # "number", "category" or "date"
    value: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Calculated:
    """A survival curve with its band, and the call that gives it.

    Attributes
    ----------
    times, survival : list of float
        The curve.
    lower, upper : list of float or None
        The band, 95 % at each time; None for one network as it was trained.
    median : float or None
        Time by which half of such patients have had the event; None where the curve does not come down so far.
    notes : list of str
        What the model says of the values.
    call : str
        The same in Python.
    """

    times: list[float]
    survival: list[float]
    lower: list[float] | None
    upper: list[float] | None
    median: float | None
    notes: list[str]
    call: str


def read_model(path: Path) -> Any:
    """Read a model that predicts by columns with names."""
    from xcal import load

    try:
        model = load(path)
    except ValueError as error:
        fail("file", "a model that xcal saved", str(error).partition("got ")[2].replace(str(path), path.name))
    fields_of(model)
    return model


def fields_of(model: Any) -> list[Field]:
    """Return the fields of a model, with the value that stands for a missing number."""
    encoding = getattr(model, "encoding_", None)
    if encoding is not None:
        return [Field(one.name, one.kind, _at_first(one), tuple(one.categories)) for one in encoding.columns]
    inner = getattr(model, "model_", model)
    if inner is not model:
        return fields_of(inner)
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    if not names:
        names = [f"x{k}" for k in range(int(getattr(model, "n_features_in_", 0)))]
    if not names:
        fail("file", "a model whose columns are known", "one that does not say what it was trained on")
    return [Field(name, "number", "0") for name in names]


def _at_first(code: Any) -> str:
    """Return what stands for a missing value, to a day of the month that tells no row."""
    import pandas as pd

    if code.kind == "number":
        return f"{code.fill:.3g}"
    return "" if code.kind == "category" else f"{pd.Timestamp(code.origin) + pd.Timedelta(days=code.fill):%Y-%m}-01"


def calculate(model: Any, values: Mapping[str, Any], name: str) -> Calculated:
    """Return the curve of a patient."""
    import pandas as pd

    row = {one.name: _read(one, values.get(one.name)) for one in fields_of(model)}
    inside = getattr(model, "model_", model)
    named = any(hasattr(one, name) for one in (model, inside) for name in ("encoding_", "feature_names_in_"))
    X: Any = pd.DataFrame([row]) if named else np.array([list(row.values())], dtype=np.float64)
    times = np.linspace(0.0, float(model.last_time_), _POINTS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        survival = np.asarray(model.predict_survival_function(X, times))[0]
        try:
            band = model.predict_survival_function(X, times, interval=True)
        except ValueError:  # one network that was not recalibrated has none
            band = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a median after the end of the curve is told as such
        median = float(np.asarray(model.predict_median(X))[0])
    several = ["The curve is that of no event, of whatever cause."] if getattr(model, "causes_", ()) else []
    given = ", ".join(f"{key!r}: {_written(value)}" for key, value in row.items())
    call = [
        "import numpy as np, pandas as pd, xcal\n",
        f"model = xcal.load({name!r})",
        f"row = pd.DataFrame([{{{given}}}]){'' if named else '.to_numpy()'}",
        f"times = np.linspace(0, model.last_time_, {_POINTS})",
        f"model.predict_survival_function(row, times{'' if band is None else ', interval=True'})",
    ]
    return Calculated(
        times=times.tolist(),
        survival=survival.tolist(),
        lower=None if band is None else band.lower[0].tolist(),
        upper=None if band is None else band.upper[0].tolist(),
        median=median if np.isfinite(median) else None,
        notes=several + list(dict.fromkeys(str(one.message).splitlines()[0] for one in caught)),
        call="\n".join(call),
    )


def _read(one: Field, value: Any) -> Any:
    """Read what was filled in; nothing is a missing value."""
    import pandas as pd

    text = "" if value is None else str(value).strip()
    if one.kind == "category":
        return text or None
    if one.kind == "date":
        found = pd.to_datetime(text or None, errors="coerce")
        if text and found is pd.NaT:
            fail(one.name, "a date such as 2024-12-31", repr(text[:40]))
        return found
    if not text:
        return np.nan
    try:
        number = float(text.replace(",", "."))
    except ValueError:
        fail(one.name, "a number", repr(text[:40]))
    return as_number(one.name, number)


def _written(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "None"
    return repr(value) if isinstance(value, str | float) else f"pd.Timestamp({str(value)[:10]!r})"


# --- The server.


def serve(host: str, port: int, limits: Limits, *, notice: bool, browser: bool, say: Callable[[str], None]) -> None:
    """Serve the page until it is interrupted."""
    import socket

    import uvicorn

    token = secrets.token_urlsafe(24)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        port = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        names = {shown, "127.0.0.1", "localhost"} if host in ("127.0.0.1", "localhost") else {shown}
        hosts = frozenset(f"{name}:{port}" for name in names)
        address = f"http://{shown}:{port}/{token}/"
        say(f"The page is at {address}")
        say("Ctrl+C ends it, and deletes what was dropped on it.")
        if browser:
            webbrowser.open(address)
        app = make_app(token, hosts, limits, notice=notice)
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="on")
        uvicorn.Server(config).run(sockets=[listening])
