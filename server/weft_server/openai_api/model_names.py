"""The names of models as OpenAI's clients send them: `name`, `name@2`, `name@canary`, `name:adapter`."""

from __future__ import annotations

from weft_proto.v1 import common_pb2
from weft_server.errors import InvalidRequest

# Of a version: what a uint32 holds.
_MAX_DIGITS = 9


def selector_of(model: str) -> common_pb2.ModelSelector:
    """Return the selector that a name means. Behind `@` stands a version or a label, behind `:` an adapter."""
    if not model:
        raise InvalidRequest("model", "is required", "MODEL_REQUIRED")
    whole, colon, adapter = model.partition(":")
    name, at, choice = whole.partition("@")
    if (colon and not adapter) or (at and not choice) or not name:
        why = "must be a name, name@version, name@label, name:adapter or name@version:adapter"
        raise InvalidRequest("model", why)
    selector = common_pb2.ModelSelector(name=name, adapter=adapter)
    if choice.isascii() and choice.isdigit():
        if len(choice) > _MAX_DIGITS:
            raise InvalidRequest("model", f"has a version of more than {_MAX_DIGITS} digits")
        selector.version = int(choice)
    elif at:
        selector.version_label = choice
    return selector


def name_of(model: common_pb2.ResolvedModel) -> str:
    """Return the name that means the version and the adapter that answered."""
    return f"{model.name}@{model.version}" + (f":{model.adapter}" if model.adapter else "")
