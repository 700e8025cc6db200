"""GET /v1/models: the names that a request may give."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from weft_proto.tasks import TASKS
from weft_proto.v1 import model_pb2
from weft_proto.v1.methods import METHODS
from weft_server.api.http_messages import HttpResponse
from weft_server.errors import AdapterNotFound
from weft_server.models.registry import not_ready
from weft_server.openai_api.model_names import selector_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_server.openai_api.api_request import ApiRequest

PATH = "/v1/models"
_ANSWERING = {model_pb2.MODEL_STATE_READY, model_pb2.MODEL_STATE_SLEEPING}


async def models(http: ApiRequest) -> HttpResponse:
    """Answer with each name: of models, of their versions where there are several, and of their adapters."""
    listed = (await http.caller.unary(METHODS["ListModels"], model_pb2.ListModelsRequest())).models
    answering = [each for each in listed if each.state in _ANSWERING]
    versions = Counter(each.name for each in answering)
    cards: dict[str, Any] = {}
    for each in answering:
        for name in _names(each, several=versions[each.name] > 1):
            if http.caller.allowed_models.allows(*_plain(name)):
                cards[name] = _card(name, each)
    return HttpResponse(200, msgspec.json.encode({"object": "list", "data": list(cards.values())}))


async def model(http: ApiRequest) -> HttpResponse:
    """Answer with the model of that name, or as a call would: there is none, or it is loading, or was refused."""
    selector = selector_of(http.parameter)
    found = (await http.caller.unary(METHODS["GetModel"], model_pb2.GetModelRequest(model=selector))).model
    if found.state not in _ANSWERING:
        raise not_ready(found)
    if selector.adapter and selector.adapter not in found.adapters:
        raise AdapterNotFound(
            f"version {found.version} of model {found.name!r} has no adapter {selector.adapter[:128]!r}"
        )
    return HttpResponse(200, msgspec.json.encode(_card(http.parameter, found)))


def _names(each: model_pb2.Model, *, several: bool) -> Iterator[str]:
    for name in (each.name, *([f"{each.name}@{each.version}"] if several else [])):
        yield name
        for adapter in each.adapters:
            yield f"{name}:{adapter}"


def _plain(name: str) -> tuple[str, str]:
    """Return model and adapter of a name, without the version."""
    whole, _, adapter = name.partition(":")
    return whole.partition("@")[0], adapter


def _card(name: str, each: model_pb2.Model) -> dict[str, Any]:
    # When a model was made is not known.
    return {"id": name, "object": "model", "created": 0, "owned_by": "weft", "task": TASKS[each.task].name}
