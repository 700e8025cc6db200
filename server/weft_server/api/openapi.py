"""/openapi.json: what the routes say of themselves, in one document. https://spec.openapis.org/oas/v3.1.1."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from weft_server.api.http_messages import LAST_PART

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_server.api.http_messages import Route

_SAYS = (
    "Weft serves sequence and attention models. The examples are for the demo models, which `make serve` serves. "
    "Fields of weft.v1 are taken as `maxNewTokens` and as `max_new_tokens`."
)
_TOKEN = {"type": "http", "scheme": "bearer", "description": "The caller's, if the server has tokens."}


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
