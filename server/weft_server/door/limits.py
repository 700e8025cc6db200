"""How large a message each method takes: a name, a text or a file; and how many of each field it may have."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from weft_proto.bundle_rules import LIMITS, MAX_MATCHED_LABELS
from weft_server.content.chat import MAX_MESSAGES
from weft_server.content.grammars import MAX_TEXTS
from weft_server.content.masks import MAX_TARGETS
from weft_server.content.side import MAX_TOKENS as MAX_DETOKENIZED
from weft_server.door.fields import Bound, check_fields, fields_of
from weft_server.serving.decoding import MAX_STOP_STRINGS
from weft_server.serving.embedding import MAX_INPUTS
from weft_server.serving.phrases import MAX_PHRASES
from weft_server.serving.rules import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_NAME_BYTES = 4096
MAX_TEXT_BYTES = 4 * 1024 * 1024
_NAMES = ("weft.v1.ModelService", "weft.v1.ModelAdminService", "grpc.health.", "grpc.reflection.")
_FILES = {
    *("Caption", "StreamCaption", "Answer", "StreamAnswer", "Transcribe", "StreamTranscribe"),
    *("Classify", "Embed", "Score"),
}
# No bundle may say that it takes more. Each takes as many as it says.
_MAX_IDS = int(LIMITS["TextSpec"]["max_total_tokens"].most or 0)
# Every repeated field that a request may have. What reads a field says the same, with the same reason.
BOUNDS = {
    "weft.v1.ClassifyRequest.labels": Bound(MAX_MATCHED_LABELS, "INPUT_TOO_LONG"),
    "weft.v1.FillMaskRequest.targets": Bound(MAX_TARGETS, "INPUT_TOO_LONG"),
    "weft.v1.EmbedRequest.inputs": Bound(MAX_INPUTS, "INPUT_TOO_LONG"),
    "weft.v1.DetokenizeRequest.token_ids": Bound(MAX_DETOKENIZED, "INPUT_TOO_LONG"),
    "weft.v1.TokenIds.ids": Bound(_MAX_IDS, "INPUT_TOO_LONG"),
    "weft.v1.Messages.turns": Bound(MAX_MESSAGES),
    "weft.v1.Decoding.stop": Bound(MAX_STOP_STRINGS),
    "weft.v1.Decoding.bias": Bound(MAX_PHRASES),
    "weft.v1.Decoding.banned": Bound(MAX_PHRASES),
    "weft.v1.TokenSet.ids": Bound(MAX_TOKENS),
    "weft.v1.Choice.texts": Bound(MAX_TEXTS),
}


def max_bytes(method: str, most: int) -> int:
    """Return the largest number of bytes of a message to a method, by its full name. `most` is what any may have."""
    service, _, name = method.removeprefix("/").partition("/")
    if name in _FILES:
        return most
    return min(most, MAX_NAME_BYTES if service.startswith(_NAMES) else MAX_TEXT_BYTES)


def check_of(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], int] | None:
    """Return what counts the fields of messages and refuses those of too many, see `check_fields`.

    `deserialize` is FromString of a message's class. None for what makes other things of bytes: they have no fields.
    """
    kind = getattr(deserialize, "__self__", None)
    if not isinstance(kind, type) or not issubclass(kind, Message):
        return None
    return partial(check_fields, fields=fields_of(kind.DESCRIPTOR, BOUNDS))
