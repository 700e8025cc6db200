"""`tools` and `tool_choice`: which functions a model is told of, and a call that the request forces.

Its arguments are a constraint of the answer, so they always fit. What a model calls by itself is read by `auto_tools`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec

from weft_server.errors import InvalidRequest
from weft_server.openai_api.fields import Field
from weft_server.openai_api.text_answers import ChatAnswers
from weft_server.preprocessing.written_calls import call_id
from weft_server.structured_output.grammars import MAX_BYTES

if TYPE_CHECKING:
    from weft_proto.v1 import common_pb2, generation_pb2
    from weft_server.openai_api.api_request import ApiRequest

MAX_TOOLS = 128
_ANY_OBJECT = '{"type": "object"}'
_Name = Annotated[str, msgspec.Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]
# What a refusal of the arguments' schema is about.
PARAMS = {"decoding.constraint": "tools", "decoding.constraint.json_schema": "tools"}
# What a refusal of what the model is told is about.
TOLD_PARAMS = {"messages.functions": "tools"}


class Function(msgspec.Struct, forbid_unknown_fields=True):
    """A function of the caller's. Its arguments always fit the schema, strict or not."""

    name: _Name
    description: str | None = None
    parameters: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    strict: bool | None = None


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    """What an answer may call."""

    type: Literal["function"]
    function: Function


class FunctionName(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which function."""

    name: str


class ToolName(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The function that is called."""

    type: Literal["function"]
    function: FunctionName


TOOL_FIELDS = (
    Field("tools", list[Tool] | None, f"Up to {MAX_TOOLS} functions that an answer may call."),
    Field(
        "tool_choice",
        Literal["none", "auto", "required"] | ToolName | None,
        "The function that is called, `required` if there is one, `auto`, or `none`.",
    ),
)


class Call(NamedTuple):
    """The call that an answer shall be."""

    name: str
    schema: str
    # What OpenAI says of an answer that had to be a call: of a named function it says `stop`.
    finish_reason: str

    def constrain(self, decoding: common_pb2.Decoding) -> None:
        """Let an answer be the call's arguments. Raises InvalidRequest beside another constraint, and beside `stop`."""
        if decoding.HasField("constraint"):
            raise InvalidRequest("tool_choice", "does not go with a constraint: the arguments are one")
        if decoding.stop:
            # OpenAI says `stop` of a whole call of a named function, too: nobody could tell that it was cut.
            raise InvalidRequest("stop", "does not go with a forced call: it would cut the arguments", "NOT_SUPPORTED")
        decoding.constraint.json_schema = self.schema


def offered_of(asked: Any) -> list[Function]:
    """Return the functions that an answer may call. Raises InvalidRequest for too many, or a choice among none."""
    tools, choice = asked.tools or [], asked.tool_choice
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest("tools", f"must be at most {MAX_TOOLS}, not {len(tools):,}")
    if not tools and choice not in {None, "none", "auto"}:
        raise InvalidRequest("tool_choice", "needs tools")
    return [] if choice == "none" else [each.function for each in tools]


def tell(messages: generation_pb2.Messages, functions: list[Function]) -> None:
    """Let a model be told of functions."""
    for each in functions:
        parameters = bytes(each.parameters).decode()
        messages.functions.add(
            name=each.name,
            description=each.description or "",
            parameters="" if parameters == "null" else parameters,
        )


def call_of(asked: Any) -> Call | None:
    """Return the call that a request forces, or None if it forces none. Raises InvalidRequest for what it cannot."""
    tools, choice = asked.tools or [], asked.tool_choice
    if not tools or choice in {None, "auto", "none"}:
        return None
    if choice == "required":
        if len(tools) > 1:
            raise InvalidRequest("tool_choice", f"must name the function, of {len(tools)}", "NOT_SUPPORTED")
        return _call(tools[0], 0, "tool_calls")
    named = [index for index, each in enumerate(tools) if each.function.name == choice.function.name]
    if len(named) != 1:
        why = f"names {len(named)} functions of tools, and must name one: {choice.function.name[:64]!r}"
        raise InvalidRequest("tool_choice", why)
    return _call(tools[named[0]], named[0], "stop")


def _call(tool: Tool, index: int, finish_reason: str) -> Call:
    param, raw = f"tools[{index}].function.parameters", bytes(tool.function.parameters) or b"null"
    if len(raw) > MAX_BYTES:
        raise InvalidRequest(param, f"must be at most {MAX_BYTES:,} bytes of UTF-8", "CONSTRAINT_REFUSED")
    try:
        schema = _ANY_OBJECT if msgspec.json.decode(raw) in ({}, None) else raw.decode()
        msgspec.json.decode(schema, type=_ObjectSchema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = 'must be a JSON Schema with "type": "object": arguments have names'
        raise InvalidRequest(param, why, "CONSTRAINT_REFUSED") from error
    return Call(tool.function.name, schema, finish_reason)


class _ObjectSchema(msgspec.Struct):
    type: Literal["object"]


class ToolCallAnswers(ChatAnswers):
    """Those that are a call: their text is the arguments."""

    def __init__(self, http: ApiRequest, asked: Any, call: Call, *, scored: bool) -> None:
        super().__init__(http, asked, scored=scored)
        self._call = call

    def _whole_choice(self, index: int, output: Any) -> dict[str, Any]:
        calls = [self._named(index, output.text)]
        message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
        return {"index": index, "message": message} | self._end(output)

    def _opening(self, index: int) -> list[dict[str, Any]]:
        calls = [{"index": 0, **self._named(index, "")}]
        return [
            {
                "index": index,
                "finish_reason": None,
                "delta": {"role": "assistant", "content": None, "tool_calls": calls},
            }
        ]

    def _delta(self, index: int, text: str) -> dict[str, Any]:
        calls = [{"index": 0, "function": {"arguments": text}}]
        return {"index": index, "finish_reason": None, "delta": {"tool_calls": calls}}

    def _end(self, output: Any) -> dict[str, Any]:
        end = super()._end(output)
        return end | ({"finish_reason": self._call.finish_reason} if end["finish_reason"] == "stop" else {})

    def _named(self, index: int, arguments: str) -> dict[str, Any]:
        return shown_call(call_id(self._http.request_id, index, 0), self._call.name, arguments)


def shown_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return an entry of `tool_calls`."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
