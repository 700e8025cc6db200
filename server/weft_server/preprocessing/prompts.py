"""The prompts of a model: texts that stand before those of requests, such as `query: `."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.prompts import default_prompt
from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_proto.v1 import bundle_pb2, classification_pb2, embedding_pb2

# A refusal names no more prompts than this.
_MAX_NAMES = 20


class Prompts:
    """Those of one model, which may have none."""

    def __init__(self, text: bundle_pb2.TextSpec) -> None:
        self.default = default_prompt(text)
        self._texts = {each.name: each.text for each in text.prompts}

    def of(
        self, request: embedding_pb2.EmbedRequest | classification_pb2.ClassifyRequest, kinds: Iterable[str | None]
    ) -> str:
        """Return what stands before the texts of a request, whose inputs are of these kinds.

        Raises InvalidRequest when it names a prompt that there is not, or one for what is no text.
        """
        if not request.HasField("prompt_name"):
            return self.default
        if any(kind != "text" for kind in kinds):
            raise InvalidRequest("prompt_name", "is for texts: token ids and pictures are read as they are")
        if not request.prompt_name:
            return ""
        if not self._texts:
            raise InvalidRequest("prompt_name", "is for models that have prompts, and this one has none")
        found = self._texts.get(request.prompt_name)
        if found is None:
            names = [*map(repr, self._texts)]
            more = f" or {len(names) - _MAX_NAMES} others" if len(names) > _MAX_NAMES else ""
            known = ", ".join(names[:_MAX_NAMES])
            raise InvalidRequest("prompt_name", f"must be one of {known}{more}, not {request.prompt_name!r:.80}")
        return found
