"""A chat as the wire has it: messages of texts and pictures, and the functions that its model is told of."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from os import PathLike
from typing import Any

from weft._fields import fill, refusal
from weft._requests import bytes_of, several_of
from weft._types import Function, FunctionCall, Messages, Picture
from weft_proto.v1 import generation_pb2

# What a message may have.
_TURN = {"role", "content", "calls", "call_id"}
_PART = ("text", "image")


def messages_of(messages: Messages) -> generation_pb2.Messages:
    """Return a chat as the wire has it."""
    if isinstance(messages, str | Mapping):  # one message, or its text
        raise refusal("messages", f"must be a list of messages, not {type(messages).__name__}")
    chat = generation_pb2.Messages()
    try:
        turns = list(messages)
    except TypeError:
        raise refusal("messages", f"must be a list of messages, not {type(messages).__name__}") from None
    for index, turn in enumerate(turns):
        place = f"messages[{index}]"
        if not isinstance(turn, Mapping) or not {"role", "content"} <= turn.keys() <= _TURN:
            raise refusal(place, 'must be {"role": ..., "content": ...}, perhaps with "calls" or "call_id"')
        message = chat.turns.add()
        fill(message, f"{place}.", role=turn["role"], call_id=turn.get("call_id"))
        _fill_content(message, turn["content"], f"{place}.content")
        for number, call in enumerate(several_of(f"{place}.calls", turn.get("calls", ()), FunctionCall)):
            fill(message.calls.add(), f"{place}.calls[{number}].", **asdict(call))
    return chat


def _fill_content(message: generation_pb2.Message, content: Any, field: str) -> None:
    """Put what a message says into it: a text, or texts and pictures."""
    if isinstance(content, str):
        fill(message, field.removesuffix("content"), content=content)
        return
    if not isinstance(content, list | tuple):
        raise refusal(field, f"must be a text, or a list of texts and pictures, not {type(content).__name__}")
    for index, each in enumerate(content):
        kind, value = _part_of(each, f"{field}[{index}]")
        part = message.parts.add()
        if kind == "text":
            fill(part, f"{field}[{index}].", text=value)
        else:
            part.image.data = bytes_of(f"{field}[{index}]", value, "image")


def _part_of(part: Any, field: str) -> tuple[str, Any]:
    """Return whether a part is a text or an image, and its value."""
    if isinstance(part, str):
        return "text", part
    if isinstance(part, Picture):
        return "image", part.file
    if isinstance(part, bytes | bytearray | memoryview | PathLike):
        return "image", part
    if isinstance(part, Mapping) and len(part) == 1 and (kind := next(iter(part))) in _PART:
        return kind, part[kind]
    raise refusal(field, 'must be a text, a weft.Picture, its bytes or Path, {"text": ...} or {"image": ...}')


def tell_functions(chat: generation_pb2.Messages, functions: Iterable[Function]) -> None:
    """Put the functions that a chat's model is told of into its messages."""
    for index, each in enumerate(several_of("functions", functions, Function)):
        place = f"functions[{index}]"
        try:
            parameters = "" if each.parameters is None else json.dumps(each.parameters, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise refusal(f"{place}.parameters", f"must be a JSON Schema: {error}") from None
        fill(chat.functions.add(), f"{place}.", name=each.name, description=each.description, parameters=parameters)
