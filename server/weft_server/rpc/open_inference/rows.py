"""What answers of weft.v1 become: for each element, a row of each output tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from weft_proto.v1 import classification_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    # By the output's name: bytes, a list of them, or float32 [width].
    Row = dict[str, Any]

_TOKEN_FIELDS = [field.name for field in classification_pb2.TokenLabel.DESCRIPTOR.fields]
_SPAN_FIELDS = [field.name for field in classification_pb2.Span.DESCRIPTOR.fields]


def rows_of(answer: Any) -> list[Row]:
    """Return the rows of an answer, one for each element that it is of."""
    return [*_ROWS[type(answer).__name__](answer)]


def _labels(answer: Any) -> Iterator[Row]:
    yield {
        "label": [each.label.encode() for each in answer.labels],
        "score": np.array([each.score for each in answer.labels], np.float32),
    }


def _tags(answer: Any) -> Iterator[Row]:
    yield {"tokens": _json(answer.tokens, _TOKEN_FIELDS), "spans": _json(answer.spans, _SPAN_FIELDS)}


def _json(messages: Iterable[Any], fields: list[str]) -> bytes:
    """An array of objects with the contract's names. A float has so many digits that it is read as the same one."""
    return msgspec.json.encode([{name: getattr(each, name) for name in fields} for each in messages])


def _vectors(answer: Any) -> Iterator[Row]:
    for each in answer.embeddings:
        yield {"embedding": np.array(each.values, np.float32)}


_ROWS = {"ClassifyResponse": _labels, "TagResponse": _tags, "EmbedResponse": _vectors}
