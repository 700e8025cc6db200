"""A row of the table of endpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from weft_proto.v1.methods import METHODS
from weft_server.api.http_messages import JSON

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from weft_proto.v1 import common_pb2
    from weft_proto.v1.methods import Method
    from weft_server.api.http_messages import Response
    from weft_server.openai_api.api_request import ApiRequest
    from weft_server.openai_api.fields import RequestFields


class Endpoint(NamedTuple):
    """One row.

    Attributes:
        verb: such as POST.
        path: its last part may be `*`.
        method: the call by which a request is judged before its body has come. None: it may be one of several, see
            `tasks`.
        handler: answers. Raises RequestError, or Refused of a call that it made.
        fields: those of the body; None: it has none.
        params: what it calls fields of weft.v1, where that is its own.
        takes_file: whether a body may be larger than texts are.
        media_type: of the body.
        tasks: of the models that may answer it, where `method` does not say so.
        aliases: other paths that are the same. /openapi.json does not list them.
    """

    verb: str
    path: str
    method: str | None
    handler: Callable[[ApiRequest], Awaitable[Response]]
    fields: RequestFields | None = None
    params: Mapping[str, str] = {}
    takes_file: bool = False
    media_type: str = JSON
    tasks: tuple[common_pb2.Task.ValueType, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def takes_priority(self) -> bool:
        """Whether a body may ask for a class among those who wait."""
        return self.fields is not None and any(each.name == "priority" for each in self.fields.taken)

    @property
    def rpc(self) -> Method:
        """The method of its route. What may be one of several has no path of gRPC."""
        if self.method:
            return METHODS[self.method]
        return replace(METHODS["Generate"], name="OpenAI", tasks=self.tasks)
