"""A text, or its ids, to tag: what the graph reads of it, and each token with its label and its place in the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.v1 import classification_pb2, common_pb2
from weft_server.tokenizer import Piece

if TYPE_CHECKING:
    from weft_server.model import Model


class TagInput:
    """One request's input. It is read once, before anything else is asked of it."""

    def __init__(self, model: Model) -> None:
        assert model.source_tokenizer is not None, "a tagger without its tokenizer was accepted. This is a bug."
        self._model, self._tokenizer = model, model.source_tokenizer
        self._tokens: list[Piece] = []

    def read_text(self, text: str) -> np.ndarray:
        """Token ids int64 [length] of a text; raises InvalidRequest."""
        self._tokens = self._model.reader.split_text(text, "text")
        return np.array([token.id for token in self._tokens], np.int64)

    def read_ids(self, token_ids: common_pb2.TokenIds) -> np.ndarray:
        """Token ids int64 [length] as the caller gave them, without places in a text; raises InvalidRequest."""
        ids = self._model.reader.read_ids(token_ids, "token_ids")
        added = self._tokenizer.added(ids.tolist())
        self._tokens = [Piece(id_, 0, 0, is_added) for id_, is_added in zip(ids.tolist(), added, strict=True)]
        return ids

    def pieces(self) -> list[str]:
        """One string to show for each token, special ones included."""
        return self._tokenizer.pieces(token.id for token in self._tokens)

    def tokens(self, probabilities: np.ndarray) -> list[classification_pb2.TokenLabel]:
        """Each token but the special ones with its label; probabilities are float32 [tokens, labels]."""
        labels, best = self._model.manifest.labels, probabilities.argmax(axis=1)  # the lower index wins a tie
        rows = zip(self._tokens, self.pieces(), best.tolist(), probabilities.max(axis=1).tolist(), strict=True)
        return [
            classification_pb2.TokenLabel(
                token=piece, start=token.start, end=token.end, label=labels[index], index=index, score=score
            )
            for token, piece, index, score in rows
            if not token.added
        ]
