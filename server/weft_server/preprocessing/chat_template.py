"""The messages of a chat to the text of one prompt, by the template of a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.chat.faults import BeyondLimit, NoTemplate, TemplateFailed
from weft_proto.chat.meter import Meter
from weft_proto.chat.names import ChatRefused
from weft_proto.chat.prompt import PromptTemplate
from weft_proto.first_line import first_line
from weft_server.errors import BundleError, InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path

    from weft_proto.v1 import bundle_pb2, generation_pb2
    from weft_server.preprocessing.wanted import Wanted

MAX_MESSAGES = 1024
MAX_ROLE_CHARS = 64


class Chat:
    """How a model takes messages. Thread-safe."""

    def __init__(self, spec: bundle_pb2.ChatSpec, path: Path) -> None:
        """Read the template at `path`, and try it.

        Raises:
            BundleError: it is no template, or it does not take one plain message of a user within the limits.
        """
        try:
            self._template = PromptTemplate(spec, path.read_bytes())
        except NoTemplate as error:
            raise BundleError(str(error)) from error

    def prompt(self, messages: generation_pb2.Messages, field: str, max_chars: int, wanted: Wanted) -> str:
        """Return the text of the prompt that messages make.

        Raises:
            InvalidRequest: they are not messages that the template takes.
            DeadlineExpired: the prompt is not wanted any more.
        """
        given = _checked(messages, field, max_chars)
        meter = Meter(sum(len(each["content"]) for each in given), wanted.check)
        try:
            return self._template.render(given, meter)
        except ChatRefused as error:
            why = f"are refused by the model's chat template: {first_line(error)}"
            raise InvalidRequest(field, why, "CHAT_REFUSED") from error
        except BeyondLimit as error:
            why = f"take the model's chat template beyond its limits: {first_line(error)}"
            raise InvalidRequest(field, why, "TEMPLATE_FAILED") from error
        except TemplateFailed as error:
            why = f"make the model's chat template fail: {first_line(error)}"
            raise InvalidRequest(field, why, "TEMPLATE_FAILED") from error


def _checked(messages: generation_pb2.Messages, field: str, max_chars: int) -> list[dict[str, str]]:
    turns = messages.turns
    if not turns:
        raise InvalidRequest(f"{field}.turns", "must not be empty", "EMPTY_INPUT")
    if len(turns) > MAX_MESSAGES:
        raise InvalidRequest(f"{field}.turns", f"must be at most {MAX_MESSAGES:,} messages, not {len(turns):,}")
    for index, turn in enumerate(turns):
        if not 1 <= len(turn.role) <= MAX_ROLE_CHARS:
            raise InvalidRequest(f"{field}.turns[{index}].role", f"must be 1..{MAX_ROLE_CHARS} characters")
    num_chars = sum(len(turn.content) for turn in turns)
    if num_chars > max_chars:
        most = f"of this model's tokens no more than {max_chars:,} can come"
        raise InvalidRequest(f"{field}.turns", f"are {num_chars:,} characters long; {most}", "INPUT_TOO_LONG")
    return [{"role": turn.role, "content": turn.content} for turn in turns]
