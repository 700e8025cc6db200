"""The page at /, the files that it is made of, and what it has to know of this server. It asks nobody else."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_proto.decoding import LENGTH_PENALTY, PENALTIES, SAMPLING, DecodingField
from weft_proto.v1.methods import METHODS
from weft_server.api.http_messages import HttpResponse, Route
from weft_server.auth.authorization import METRICS_PATH, REFUSALS_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from weft_server.api.caller import Caller
    from weft_server.api.http_messages import Handler, HttpRequest, Response
    from weft_server.api.refusal import Refusal
    from weft_server.calls.recent_refusals import Kind, Refusals

PAGE_PATH, FOLDER = "/", "/console/"
CALLER_PATH, FACTS_PATH = f"{FOLDER}caller.json", f"{FOLDER}facts.json"
PAGE = Path(__file__).with_name("page")
_PAGE_FILE = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Its own files run, and no others. Pictures and sounds that somebody chose are `blob:`. https://www.w3.org/TR/CSP3/
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = (
    # The browser asks each time whether a file has changed. So a new server has its own page at once.
    ("cache-control", "no-cache"),
    ("vary", "accept-encoding"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("content-security-policy", _POLICY),
)
# No model is asked.
_NO_CALL = replace(METHODS["ListModels"], name="Console")


class _File(NamedTuple):
    media_type: str
    body: bytes
    zipped: bytes
    digest: str

    def response(self, request: HttpRequest) -> HttpResponse:
        """The file, or that the caller has it already."""
        is_zipped = "gzip" in request.header("accept-encoding")
        # A tag is of the bytes: those that are zipped are others.
        tag = f'"{self.digest}-gzip"' if is_zipped else f'"{self.digest}"'
        headers = (*_HEADERS, ("etag", tag))
        if tag in {each.strip().removeprefix("W/") for each in request.header("if-none-match").split(",")}:
            return HttpResponse(304, content_type="", headers=headers)
        if is_zipped:
            return HttpResponse(200, self.zipped, self.media_type, (*headers, ("content-encoding", "gzip")))
        return HttpResponse(200, self.body, self.media_type, headers)


def console_routes(
    refuse: Callable[[HttpRequest, Refusal], Response],
    grpc_port: Callable[[], int],
    metrics: Callable[[], tuple[str, bytes]],
    asks_token: Callable[[Mapping[str, Any] | None], bool],
    refusals: Callable[[], list[tuple[Kind, Refusals]]] | None = None,
) -> Iterator[Route]:
    """Yield the routes. `refuse` refuses them.

    `grpc_port` gives the port that the page's examples in Python call. `metrics` gives the media type and the body of
    their page. `asks_token` says whether who shows a certificate, or none, is known by a token alone. `refusals` gives
    the last ones of all callers, for who changes models. It is given where this port answers those calls.
    """

    def route(path: str, answer: Handler, *, is_open: bool) -> Route:
        return Route("GET", path, _NO_CALL, 0, lambda *_: 0, answer, refuse, None, is_open)

    # A browser sends no token when it opens a page. The page is the same for all servers, and says nothing of this one.
    for path in sorted(PAGE.iterdir()):
        name = "" if path.name == _PAGE_FILE else FOLDER.strip("/") + "/" + path.name
        yield route(f"/{name}", _answer_with(_read(path)), is_open=True)

    # So that a page which has no token need not be refused to learn that. What a proxy sends for it is not judged here:
    # whoever tries tokens is counted.
    async def show_caller(request: HttpRequest, _caller: Caller) -> Response:
        asks = not request.header("authorization") and asks_token(request.certificate)
        return HttpResponse(200, json.dumps({"asksToken": asks}).encode(), headers=_HEADERS)

    yield route(CALLER_PATH, show_caller, is_open=True)

    async def show_facts(_request: HttpRequest, _caller: Caller) -> Response:
        return HttpResponse(200, _facts(grpc_port(), changes=refusals is not None), headers=_HEADERS)

    yield route(FACTS_PATH, show_facts, is_open=False)

    async def show_metrics(_request: HttpRequest, _caller: Caller) -> Response:
        kind, body = await asyncio.to_thread(metrics)
        return HttpResponse(200, body, kind, _HEADERS)

    yield route(METRICS_PATH, show_metrics, is_open=False)
    if refusals is None:
        return

    async def show_refusals(_request: HttpRequest, _caller: Caller) -> Response:
        told = [{**kind._asdict(), "number": met.number, "lastS": met.last_s} for kind, met in refusals()]
        return HttpResponse(200, json.dumps(told).encode(), headers=_HEADERS)

    yield route(REFUSALS_PATH, show_refusals, is_open=False)


def _answer_with(file: _File) -> Handler:
    async def answer(request: HttpRequest, _caller: Caller) -> Response:
        return file.response(request)

    return answer


def _read(path: Path) -> _File:
    body = path.read_bytes()
    return _File(_TYPES[path.suffix], body, gzip.compress(body, mtime=0), sha256(body).hexdigest()[:16])


def _facts(grpc_port: int, *, changes: bool) -> bytes:
    """Where gRPC is, whether models can be changed, and the rows of settings, of the table that judges them."""
    rows = [_row(field) for field in (*SAMPLING, *PENALTIES, LENGTH_PENALTY) if field.help]
    facts = {"version": version("weft-serving"), "grpcPort": grpc_port, "changes": changes, "rows": rows}
    return json.dumps(facts).encode()


def _row(field: DecodingField) -> dict[str, Any]:
    return {
        "path": field.path,
        "name": field.name,
        "kind": field.kind.__name__,
        "least": field.minimum,
        "most": field.maximum,
        "default": field.default,
        "help": field.help,
        "range": "" if field.maximum is None else field.range,
    }
