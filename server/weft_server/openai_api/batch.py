"""Several requests of one method: what they share is made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1.methods import METHODS
from weft_server.calls.batch import asked_together
from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from weft_server.openai_api.api_request import ApiRequest

# Of all requests of a batch together: what they share stands in each of them.
MAX_SHARED_BYTES = 16 * 1024 * 1024


def check_shared(shared: Message, count: int, param: str) -> None:
    """Raise InvalidRequest if `count` requests would be too much with what they share. `param` has the inputs."""
    size = shared.ByteSize()
    if count > 1 and count * size > MAX_SHARED_BYTES:
        why = f"must be fewer: {count} inputs share {size:,} bytes, together more than {MAX_SHARED_BYTES:,}"
        raise InvalidRequest(param, why, "MESSAGE_TOO_LARGE")


def joined(shared: Message, own: Message) -> Any:
    """Return a request, of what it shares with others and what is its own."""
    request = type(shared)()
    request.CopyFrom(shared)
    request.MergeFrom(own)
    return request


async def all_of(http: ApiRequest, method: str, shared: Message, own: Sequence[Message]) -> list[Any]:
    """Return the responses to requests, in their order. With the first that is refused, all are."""

    async def ask(each: Message) -> Any:
        return await http.caller.unary(METHODS[method], joined(shared, each))

    if len(own) == 1:
        return [await ask(own[0])]
    return await asked_together(ask, own, http.most_together)
