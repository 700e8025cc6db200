"""A row of the table of endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft_server.api.http_messages import JSON

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from weft_server.api.http_messages import Response
    from weft_server.openai_api.api_request import ApiRequest
    from weft_server.openai_api.fields import RequestFields


class Endpoint(NamedTuple):
    """One row.

    Attributes:
        verb: such as POST.
        path: its last part may be `*`.
        method: the call by which a request is judged before its body has come. None: any task may answer it, so it
            waits for the body.
        handler: answers. Raises RequestError, or Refused of a call that it made.
        fields: those of the body; None: it has none.
        params: what it calls fields of weft.v1, where that is its own.
        takes_file: whether a body may be larger than texts are.
        media_type: of the body.
    """

    verb: str
    path: str
    method: str | None
    handler: Callable[[ApiRequest], Awaitable[Response]]
    fields: RequestFields | None = None
    params: Mapping[str, str] = {}
    takes_file: bool = False
    media_type: str = JSON
