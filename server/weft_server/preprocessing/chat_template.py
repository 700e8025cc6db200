"""The messages of a chat to the text of one prompt, by the template of a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.chat.faults import BeyondLimit, NoTemplate, TemplateFailed
from weft_proto.chat.meter import Meter
from weft_proto.chat.names import ChatRefused
from weft_proto.chat.prompt import PromptTemplate
from weft_proto.first_line import first_line
from weft_server.errors import BundleError, InvalidRequest
from weft_server.preprocessing.chat_functions import calls_of, checked_id, tools_of

if TYPE_CHECKING:
    from pathlib import Path

    from weft_proto.v1 import bundle_pb2, generation_pb2
    from weft_server.preprocessing.wanted import Wanted

MAX_MESSAGES = 1024
MAX_PARTS = 128
# What joins the texts of a message, for a model that takes one text.
_BETWEEN_PARTS = "\n"
MAX_ROLE_CHARS = 64


class Chat:
    """How a model takes messages. Thread-safe."""

    def __init__(self, spec: bundle_pb2.ChatSpec, path: Path, image_token: str = "") -> None:
        """Read the template at `path`, and try it. `image_token` stands for a picture, where the model sees any.

        If the template writes none for a picture, messages hold none.

        Raises:
            BundleError: it is no template, or it does not take one plain message of a user within the limits.
        """
        try:
            self._template = PromptTemplate(spec, path.read_bytes())
        except NoTemplate as error:
            raise BundleError(str(error)) from error
        self.takes_pictures = bool(image_token) and self._template.shows_pictures(image_token)

    def prompt(self, messages: generation_pb2.Messages, field: str, max_chars: int, wanted: Wanted) -> str:
        """Return the text of the prompt that messages make.

        Raises:
            InvalidRequest: they are not messages that the template takes.
            DeadlineExpired: the prompt is not wanted any more.
        """
        _check_turns(messages, field, max_chars)
        tools = self._tools_of(messages, field)
        given = [self._turn_of(turn, f"{field}.turns[{index}]") for index, turn in enumerate(messages.turns)]
        meter = Meter(_num_chars(messages), wanted.check)
        try:
            return self._template.render(given, meter, tools)
        except ChatRefused as error:
            why = f"are refused by the model's chat template: {first_line(error)}"
            raise InvalidRequest(field, why, "CHAT_REFUSED") from error
        except BeyondLimit as error:
            why = f"take the model's chat template beyond its limits: {first_line(error)}"
            raise InvalidRequest(field, why, "TEMPLATE_FAILED") from error
        except TemplateFailed as error:
            why = f"make the model's chat template fail: {first_line(error)}"
            raise InvalidRequest(field, why, "TEMPLATE_FAILED") from error

    @property
    def call_format(self) -> str:
        """See Model.call_format."""
        return self._template.call_format

    def _tools_of(self, messages: generation_pb2.Messages, field: str) -> list[dict[str, Any]] | None:
        if not messages.functions:
            return None
        tools = tools_of(messages.functions, f"{field}.functions")
        if not self._template.takes_functions:
            why = "are not taken by the model: its chat template tells of none"
            raise InvalidRequest(f"{field}.functions", why, "NOT_SUPPORTED")
        return tools

    def _turn_of(self, turn: generation_pb2.Message, place: str) -> dict[str, Any]:
        given: dict[str, Any] = {"role": turn.role, "content": self._content_of(turn, place)}
        if turn.calls:
            given["tool_calls"] = calls_of(turn.calls, f"{place}.calls")
            if not self._template.takes_calls:
                why = "are not taken by the model: its chat template tells of none"
                raise InvalidRequest(f"{place}.calls", why, "NOT_SUPPORTED")
        if turn.call_id:
            given["tool_call_id"] = checked_id(turn.call_id, f"{place}.call_id")
        return given

    def _content_of(self, turn: generation_pb2.Message, place: str) -> str | list[dict[str, str]]:
        """Return what a message says: parts for a model that takes pictures, else a text."""
        if turn.parts and turn.content:
            raise InvalidRequest(f"{place}.parts", "must be empty where content is given")
        if len(turn.parts) > MAX_PARTS:
            raise InvalidRequest(f"{place}.parts", f"must be at most {MAX_PARTS}, not {len(turn.parts):,}")
        content: list[dict[str, str]] = []
        for index, part in enumerate(turn.parts):
            kind = part.WhichOneof("kind")
            if kind is None:
                raise InvalidRequest(f"{place}.parts[{index}].kind", "is required: text or image", "EMPTY_INPUT")
            if kind == "image" and not self.takes_pictures:
                why = "is a picture, and the model takes none"
                raise InvalidRequest(f"{place}.parts[{index}].image", why, "WRONG_INPUT_KIND")
            content.append({"type": "text", "text": part.text} if kind == "text" else {"type": "image"})
        if not self.takes_pictures:
            return turn.content or _BETWEEN_PARTS.join(part["text"] for part in content)
        return content or [{"type": "text", "text": turn.content}]


def _num_chars(messages: generation_pb2.Messages) -> int:
    turns, functions = messages.turns, messages.functions
    calls = sum(len(call.name) + len(call.arguments) for turn in turns for call in turn.calls)
    told = sum(len(each.name) + len(each.description) + len(each.parameters) for each in functions)
    said = sum(len(turn.content) + sum(len(part.text) for part in turn.parts) for turn in turns)
    return said + calls + told


def _check_turns(messages: generation_pb2.Messages, field: str, max_chars: int) -> None:
    turns = messages.turns
    if not turns:
        raise InvalidRequest(f"{field}.turns", "must not be empty", "EMPTY_INPUT")
    if len(turns) > MAX_MESSAGES:
        raise InvalidRequest(f"{field}.turns", f"must be at most {MAX_MESSAGES:,} messages, not {len(turns):,}")
    for index, turn in enumerate(turns):
        if not 1 <= len(turn.role) <= MAX_ROLE_CHARS:
            raise InvalidRequest(f"{field}.turns[{index}].role", f"must be 1..{MAX_ROLE_CHARS} characters")
    num_chars = _num_chars(messages)
    if num_chars > max_chars:
        most = f"of this model's tokens no more than {max_chars:,} can come"
        raise InvalidRequest(f"{field}.turns", f"are {num_chars:,} characters long; {most}", "INPUT_TOO_LONG")
