"""Tagging: what the graph reads of a text or of its ids, each token with its label and its place, and the spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.v1 import classification_pb2, common_pb2
from weft_server.preprocessing.tokenizer import TokenSpan
from weft_server.source import Ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft_server.preprocessing.inputs import InputReader
    from weft_server.preprocessing.tokenizer import Tokenizer

# IOB2 labels: B-X begins a span X, I-X goes on with it.
_BEGIN = "B"
_INSIDE = "I"


class TagInput:
    """One request's input. It is read once, before anything else is asked of it."""

    def __init__(self, reader: InputReader, tokenizer: Tokenizer, labels: Sequence[str]) -> None:
        self._reader = reader
        self._tokenizer = tokenizer
        self._labels = labels
        self._tokens: list[TokenSpan] = []

    def read_text(self, text: str) -> Ids:
        """Return the token ids of a text. Raises InvalidRequest."""
        self._tokens = self._reader.split_text(text, "text")
        return Ids(np.array([token.id for token in self._tokens], np.int64))

    def read_ids(self, token_ids: common_pb2.TokenIds) -> Ids:
        """Return token ids as the caller gave them, without places in a text. Raises InvalidRequest."""
        source = self._reader.read_ids(token_ids, "token_ids")
        ids = source.array.tolist()
        added = self._tokenizer.added(ids)
        self._tokens = [TokenSpan(id_, 0, 0, is_added) for id_, is_added in zip(ids, added, strict=True)]
        return source

    def pieces(self) -> list[str]:
        """One string to show for each token, special ones included."""
        return self._tokenizer.pieces(token.id for token in self._tokens)

    def tokens(self, probabilities: np.ndarray) -> list[classification_pb2.TokenLabel]:
        """Return each token but the special ones, with its label. Probabilities are float32 [tokens, labels]."""
        # The lower index wins a tie.
        best = probabilities.argmax(axis=1).tolist()
        scores = probabilities.max(axis=1).tolist()
        rows = zip(self._tokens, self.pieces(), best, scores, strict=True)
        return [
            classification_pb2.TokenLabel(
                token=piece, start=token.start, end=token.end, label=self._labels[index], index=index, score=score
            )
            for token, piece, index, score in rows
            if not token.added
        ]


def spans_of(tokens: Iterable[classification_pb2.TokenLabel], text: str) -> list[classification_pb2.Span]:
    """Return the spans that a text's tokens form by IOB2, in order. A span's score is the least of its tokens'.

    IOB2 is from "Text Chunking using Transformation-Based Learning" (1995). There are four cases:
    1. A token that stands for no text is passed over.
    2. I-X right behind a token of a span X continues that span.
    3. B-X, and any other I-X, begins a span X.
    4. Any other label is outside of spans.
    """
    spans: list[classification_pb2.Span] = []
    kind_before = ""
    for token in tokens:
        if token.start == token.end:
            continue
        prefix, _, kind = token.label.partition("-")
        if prefix == _INSIDE and kind and kind == kind_before:
            span = spans[-1]
            span.end, span.score = token.end, min(span.score, token.score)
        elif prefix in {_BEGIN, _INSIDE} and kind:
            spans.append(classification_pb2.Span(label=kind, start=token.start, end=token.end, score=token.score))
        else:
            kind = ""
        kind_before = kind
    for span in spans:
        span.text = text[span.start : span.end]
    return spans
