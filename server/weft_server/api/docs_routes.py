"""/openapi.json, and /docs, which shows it. The page asks nobody but this server, and holds nothing of it."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft_proto.v1.methods import METHODS
from weft_server.api.http_messages import JSON, LAST_PART, HttpResponse, Operation, Route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weft_server.api.caller import Caller
    from weft_server.api.http_messages import Handler, HttpRequest, Response
    from weft_server.api.refusal import Refusal

DOCUMENT_PATH, PAGE_PATH = "/openapi.json", "/docs"
_HTML = "text/html"
_GROUP, _GROUP_SAYS = "Documentation", "What there is to call."
# No model is asked.
_NO_CALL = replace(METHODS["ListModels"], name="Documentation")
_HEADERS = (("x-content-type-options", "nosniff"), ("cache-control", "no-cache"))
_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)
_SAYS = (
    "Weft serves sequence and attention models. The examples are for the demo models, which `make serve` serves. "
    "Fields of weft.v1 are taken as `maxNewTokens` and as `max_new_tokens`."
)
_TOKEN = {"type": "http", "scheme": "bearer", "description": "The caller's, if the server has tokens."}


def with_docs(routes: Iterable[Route], refuse: Callable[[HttpRequest, Refusal], Response]) -> tuple[Route, ...]:
    """Return routes, and those of the document and the page that show them all. `refuse` refuses these two."""

    @cache
    def document() -> bytes:
        return document_of(every)

    async def show_document(_request: HttpRequest, _caller: Caller) -> Response:
        # It is made when it is asked for, which takes a tenth of a second.
        return HttpResponse(200, await asyncio.to_thread(document), headers=_HEADERS)

    async def show_page(_request: HttpRequest, _caller: Caller) -> Response:
        html, headers = _page()
        return HttpResponse(200, html, f"{_HTML}; charset=utf-8", headers)

    def route(path: str, answer: Handler, summary: str, media_type: str, *, is_open: bool = False) -> Route:
        described = _described(path, summary, media_type)
        return Route("GET", path, _NO_CALL, 0, lambda *_: 0, answer, refuse, lambda: described, is_open)

    every = (
        *routes,
        route(DOCUMENT_PATH, show_document, "This document", JSON),
        # A browser sends no token when it opens a page. The page asks for one, and sends it for the document.
        route(PAGE_PATH, show_page, "A page that shows it", _HTML, is_open=True),
    )
    return every


@cache
def _page() -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """The page, and its headers."""
    html = Path(__file__).with_name("docs.html").read_text("utf-8")
    hashes: dict[str, str] = {}
    for kind, text in _INLINE.findall(html):
        hashes[kind] = f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    # Its own style and script run, and no other. https://www.w3.org/TR/CSP3/
    policy = (
        f"default-src 'none'; style-src {hashes['style']}; script-src {hashes['script']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html.encode(), (*_HEADERS, ("content-security-policy", policy), ("referrer-policy", "no-referrer"))


def _described(path: str, summary: str, media_type: str) -> Operation:
    shown = {"description": f"{summary}.", "content": {media_type: {}}}
    about = {"operationId": path.strip("/"), "summary": summary, "responses": {"200": shown}}
    return Operation(_GROUP, about, {}, _GROUP_SAYS)


def document_of(routes: Iterable[Route]) -> bytes:
    """Return the document of some routes, as JSON."""
    paths: dict[str, dict[str, Any]] = {}
    groups: dict[str, str] = {}
    schemas: dict[str, Any] = {}
    for route in routes:
        if route.describe is None:
            continue
        operation = route.describe()
        path = route.path.replace("*", f"{{{LAST_PART}}}")
        paths.setdefault(path, {})[route.method.lower()] = {"tags": [operation.group], **operation.about}
        groups[operation.group] = operation.group_says
        for name, schema in operation.schemas.items():
            assert schemas.setdefault(name, schema) == schema, f"two schemas are called {name}. This is a bug."
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Weft", "version": version("weft-serving"), "description": _SAYS},
        "tags": [{"name": name, "description": says} for name, says in groups.items()],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": _TOKEN}},
        "security": [{}, {"token": []}],
    }
    return json.dumps(document, separators=(",", ":")).encode()
