"""The template of a chat, tried on a plain message, and the prompts that it makes of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.bundle_rules import LIMITS
from weft_proto.chat.faults import BeyondLimit, NoTemplate, TemplateFailed
from weft_proto.chat.meter import Meter
from weft_proto.chat.names import ChatRefused
from weft_proto.chat.template import Template
from weft_proto.first_line import first_line

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2

# What a template is tried with.
_PLAIN = [{"role": "user", "content": "Hello"}]
_IN_PARTS = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
_PICTURED = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Hello"}]}]
_TOKENS = tuple(name for name in LIMITS["ChatSpec"] if name != "template")


# What answers go through channels by, and what that form is called.
_CHANNEL, _HARMONY = "<|channel|>", "harmony"
# Where a template tells how to write a call: what it says, and what that form is called.
_CALL_FORMATS = (("<tool_call>", "hermes"), ('"parameters": dictionary of argument name', "llama3"))
# Inside <tool_call>, as others than Hermes write it.
_OTHER_FORMATS = ("<function=", "<arg_key>")


class PromptTemplate:
    """How a model takes messages. Thread-safe.

    Attributes:
        takes_functions: whether it tells the model of functions.
        takes_calls: whether it tells of calls that earlier messages made.
        takes_parts: whether a content may be a list of parts, each with a type.
        call_format: that of Model. Empty where it is not known.
    """

    def __init__(self, spec: bundle_pb2.ChatSpec, content: bytes) -> None:
        """Read a template, and try it.

        Raises:
            NoTemplate: it is no template, or it does not take one plain message of a user within the limits.
        """
        # transformers names a token only if the model has it: a template may ask whether it is defined.
        self._tokens = {name: getattr(spec, name) for name in _TOKENS if getattr(spec, name)}
        try:
            source = content.decode()
            self._template = Template(source)
            self.takes_functions = "tools" in self._template.reads
            self.takes_calls = "tool_calls" in self._template.reads
            known = (name for said, name in _CALL_FORMATS if said in source)
            is_known = self.takes_functions and not any(said in source for said in _OTHER_FORMATS)
            self.call_format = _HARMONY if _CHANNEL in source else next(known, "") if is_known else ""
            self.render(_PLAIN, Meter())
            self.takes_parts = self._reads_parts()
        except UnicodeDecodeError as error:
            raise NoTemplate(f"{spec.template} is not UTF-8") from error
        except (NoTemplate, BeyondLimit, TemplateFailed, ChatRefused) as error:
            raise NoTemplate(f"{spec.template} is no template that a chat can use: {first_line(error)}") from error

    def _reads_parts(self) -> bool:
        try:
            text = self.render(_IN_PARTS, Meter())
        except (BeyondLimit, TemplateFailed, ChatRefused):
            return False
        # One that knows no parts prints the list, as Python spells it.
        return "Hello" in text and "'type'" not in text

    def shows_pictures(self, token: str) -> bool:
        """Whether a prompt has its place for a picture: for one in a message, the token stands there once."""
        if not self.takes_parts:
            return False
        try:
            return self.render(_PICTURED, Meter()).count(token) == 1
        except (BeyondLimit, TemplateFailed, ChatRefused):
            return False

    def render(self, messages: list[dict[str, Any]], meter: Meter, tools: list[dict[str, Any]] | None = None) -> str:
        """Return the text of the prompt that messages make: a role and a content each, perhaps calls; and of tools.

        Raises:
            ChatRefused, BeyondLimit, TemplateFailed: as Template.render.
        """
        # What transformers gives a template. Documents are none, but defined, and so are tools without any.
        given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": True, **self._tokens}
        return self._template.render(given, meter)
