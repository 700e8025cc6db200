"""The prompts of a model: texts that stand before those of requests, such as `query: `."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft_proto.prompts import default_prompt
from weft_proto.token_vectors import side_of
from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_proto.v1 import bundle_pb2, classification_pb2, embedding_pb2

# A refusal names no more prompts than this.
_MAX_NAMES = 20


class Prompt(NamedTuple):
    """What stands before a text, and how such a text is read besides; None where all are read alike."""

    text: str
    side: bundle_pb2.TextSide | None = None


class Prompts:
    """Those of one model, which may have none."""

    def __init__(self, text: bundle_pb2.TextSpec) -> None:
        self.default = Prompt(default_prompt(text), side_of(text, text.default_prompt_name))
        self._known = {each.name: Prompt(each.text, side_of(text, each.name)) for each in text.prompts}
        self._needs_one = bool(text.sides)

    def of(
        self, request: embedding_pb2.EmbedRequest | classification_pb2.ClassifyRequest, kinds: Iterable[str | None]
    ) -> Prompt:
        """Return what stands before the texts of a request, whose inputs are of these kinds.

        Raises InvalidRequest when it names a prompt that there is not, or one for what is no text.
        """
        if not request.HasField("prompt_name"):
            return self.default
        if any(kind != "text" for kind in kinds):
            raise InvalidRequest("prompt_name", "is for texts: token ids and pictures are read as they are")
        if not request.prompt_name and not self._needs_one:
            return Prompt("")
        if not self._known:
            raise InvalidRequest("prompt_name", "is for models that have prompts, and this one has none")
        return self.named(request.prompt_name)

    def knows(self, name: str) -> bool:
        """Whether there is a prompt of a name."""
        return name in self._known

    def named(self, name: str) -> Prompt:
        """Return the prompt of a name. Raises InvalidRequest when there is none."""
        found = self._known.get(name)
        if found is None:
            names = [*map(repr, self._known)]
            more = f" or {len(names) - _MAX_NAMES} others" if len(names) > _MAX_NAMES else ""
            known = ", ".join(names[:_MAX_NAMES])
            raise InvalidRequest("prompt_name", f"must be one of {known}{more}, not {name!r:.80}")
        return found
