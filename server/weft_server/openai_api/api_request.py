"""One request of OpenAI's API as its endpoint sees it, and who makes its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from weft_server.api.codecs import json_cost

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from weft_proto.v1 import common_pb2
    from weft_proto.v1.methods import Method
    from weft_server.models.allowed_models import AllowedModels
    from weft_server.sequence import Priority

# Takes a token's id, and whether the token begins its text. See structured_output/token_bytes.py.
Spelling = Callable[[int, bool], bytes | None]


class ApiCaller(Protocol):
    """Makes the calls of one request. Each raises Refused, which is counted and logged already."""

    @property
    def allowed_models(self) -> AllowedModels:
        """Those that the request may name."""

    def claim(self, priority: Priority) -> None:
        """Take the class that the body asks for, before the first call. Raises PermissionDenied."""

    def name(self) -> str:
        """Return what the request is called: what `x-request-id` says, or what was made here. The answer has it."""

    async def unary(self, method: Method, request: Any) -> Any:
        """Return the response of a unary method of weft.v1."""

    def stream(self, method: Method, request: Any) -> AsyncGenerator[Any]:
        """Yield the responses of a streaming method."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request.

    Attributes:
        caller: makes its calls.
        task_of: what the model that a selector means does; TASK_UNSPECIFIED where there is none.
        spelling_of: what gives the bytes of a model's tokens, see there. None where the model is there no more.
        call_format_of: how the model that a selector means writes calls of functions, see Model.call_format. None if
            it is not there.
        has_seams: whether a token of a model adds other text behind a text than where it begins one.
        request_id: what the request is called.
        body: what was sent, whole.
        content_type: what the header says.
        parameter: what stands in the place of `*` in the route's path.
        most_together: how many calls of a batch may be open at a time.
        priority: what the header `weft-priority` says, which holds already. Empty: nothing.
    """

    caller: ApiCaller
    task_of: Callable[[common_pb2.ModelSelector], common_pb2.Task.ValueType]
    spelling_of: Callable[[common_pb2.ResolvedModel], Spelling | None]
    call_format_of: Callable[[common_pb2.ModelSelector], str | None]
    has_seams: Callable[[common_pb2.ResolvedModel], bool]
    request_id: str
    body: bytes = b""
    content_type: str = ""
    parameter: str = ""
    most_together: int = 32
    priority: str = ""

    @property
    def cost(self) -> int:
        """As how many bytes its JSON is read, see there."""
        return json_cost(self.body)
