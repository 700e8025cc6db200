"""How large a message each method takes: a name, a text or a file; and how many of each field it may have."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from weft_proto.bundle_rules import LIMITS, MAX_MATCHED_LABELS
from weft_proto.decoding import MAX_PHRASES, MAX_STOP_STRINGS, MAX_TOKENS
from weft_proto.inference.methods import METHOD_AT
from weft_proto.token_vectors import MAX_KINDS
from weft_server.admission.message_fields import FieldLimit, check_fields, fields_of
from weft_server.preprocessing.chat_functions import MAX_FUNCTIONS
from weft_server.preprocessing.chat_template import MAX_MESSAGES, MAX_PARTS
from weft_server.preprocessing.masked_text import MAX_TARGETS
from weft_server.preprocessing.tokenizer_side import MAX_TOKENS as MAX_DETOKENIZED
from weft_server.requests.embed import MAX_INPUTS
from weft_server.structured_output.grammars import MAX_TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_NAME_BYTES = 4096
MAX_TEXT_BYTES = 4 * 1024 * 1024
# No bundle may say that it takes more. Each takes as many as it says.
_MAX_IDS = int(LIMITS["TextSpec"]["max_total_tokens"].maximum or 0)
# Of the Open Inference Protocol. No request has a use for so many tensors, dimensions or parameters.
_TENSORS = FieldLimit(16)
_ELEMENTS = FieldLimit(MAX_INPUTS, "INPUT_TOO_LONG")
# Every repeated field that a request may have. What reads a field says the same, with the same reason.
FIELD_LIMITS = {
    "weft.v1.ClassifyRequest.labels": FieldLimit(MAX_MATCHED_LABELS, "INPUT_TOO_LONG"),
    "weft.v1.FillMaskRequest.targets": FieldLimit(MAX_TARGETS, "INPUT_TOO_LONG"),
    "weft.v1.EmbedRequest.inputs": FieldLimit(MAX_INPUTS, "INPUT_TOO_LONG"),
    "weft.v1.EmbedRequest.kinds": FieldLimit(MAX_KINDS),
    "weft.v1.DetokenizeRequest.token_ids": FieldLimit(MAX_DETOKENIZED, "INPUT_TOO_LONG"),
    "weft.v1.TokenIds.ids": FieldLimit(_MAX_IDS, "INPUT_TOO_LONG"),
    "weft.v1.Messages.turns": FieldLimit(MAX_MESSAGES),
    "weft.v1.Messages.functions": FieldLimit(MAX_FUNCTIONS),
    "weft.v1.Message.calls": FieldLimit(MAX_FUNCTIONS),
    "weft.v1.Message.parts": FieldLimit(MAX_PARTS),
    "weft.v1.Decoding.stop": FieldLimit(MAX_STOP_STRINGS),
    "weft.v1.Decoding.bias": FieldLimit(MAX_PHRASES),
    "weft.v1.Decoding.banned": FieldLimit(MAX_PHRASES),
    "weft.v1.TokenSet.ids": FieldLimit(MAX_TOKENS),
    "weft.v1.Choice.texts": FieldLimit(MAX_TEXTS),
    "inference.ModelInferRequest.parameters": _TENSORS,
    "inference.ModelInferRequest.inputs": _TENSORS,
    "inference.ModelInferRequest.outputs": _TENSORS,
    "inference.ModelInferRequest.raw_input_contents": _TENSORS,
    "inference.ModelInferRequest.InferInputTensor.shape": _TENSORS,
    "inference.ModelInferRequest.InferInputTensor.parameters": _TENSORS,
    "inference.ModelInferRequest.InferRequestedOutputTensor.parameters": _TENSORS,
    "inference.InferTensorContents.bool_contents": _ELEMENTS,
    "inference.InferTensorContents.int_contents": _ELEMENTS,
    "inference.InferTensorContents.int64_contents": _ELEMENTS,
    "inference.InferTensorContents.uint_contents": _ELEMENTS,
    "inference.InferTensorContents.uint64_contents": _ELEMENTS,
    "inference.InferTensorContents.fp32_contents": _ELEMENTS,
    "inference.InferTensorContents.fp64_contents": _ELEMENTS,
    "inference.InferTensorContents.bytes_contents": _ELEMENTS,
}


def max_bytes(method: str, most: int) -> int:
    """Return the largest number of bytes of a message to a method, by its full name. `most` is what any may have."""
    row = METHOD_AT.get(method)
    if row and row.takes_file:
        return most
    # Requests of health and reflection, which are no rows, are names too.
    takes_names = row.takes_names if row else method.startswith("/grpc.")
    return min(most, MAX_NAME_BYTES if takes_names else MAX_TEXT_BYTES)


def check_of(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], int] | None:
    """Return what counts the fields of messages and refuses those of too many, see `check_fields`.

    `deserialize` is FromString of a message's class. None for what makes other things of bytes: they have no fields.
    """
    kind = getattr(deserialize, "__self__", None)
    if not isinstance(kind, type) or not issubclass(kind, Message):
        return None
    return partial(check_fields, fields=fields_of(kind.DESCRIPTOR, FIELD_LIMITS))
