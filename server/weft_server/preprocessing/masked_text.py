"""Masked language modelling: what the graph reads of a text with masks, and the tokens that fit in their places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.bundle_rules import MAX_MASKS
from weft_proto.v1 import classification_pb2
from weft_server.errors import InvalidRequest
from weft_server.source import Masked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft_server.preprocessing.inputs import InputReader
    from weft_server.preprocessing.tokenizer import Tokenizer, TokenSpan

MAX_TARGETS = 1024
MAX_TARGET_CHARS = 256


class FillMaskInput:
    """One request's input. It is read once, before anything else is asked of it."""

    def __init__(
        self,
        reader: InputReader,
        tokenizer: Tokenizer,
        mask_id: int,
        text: str,
        field: str = "text",
        targets: Sequence[str] = (),
    ) -> None:
        """The text stands in `field`."""
        self._reader, self.tokenizer, self._mask_id = reader, tokenizer, mask_id
        self._text, self._field, self._targets = text, field, targets
        self.masks: list[TokenSpan] = []
        # Those to choose from, in ascending order. None: all.
        self._target_ids: np.ndarray | None = None

    def read(self) -> Masked:
        """Return the token ids of the text, and where its masks are. Raises InvalidRequest."""
        tokens = self._reader.split_text(self._text, self._field)
        positions = [index for index, token in enumerate(tokens) if token.id == self._mask_id]
        if not positions:
            raise InvalidRequest(self._field, f"has no mask; the model's mask token is {self.mask_token()}")
        if len(positions) > MAX_MASKS:
            raise InvalidRequest(self._field, f"has {len(positions)} masks; at most {MAX_MASKS} are taken")
        self.masks = [tokens[index] for index in positions]
        if self._targets:
            self._target_ids = np.unique([self._target_id(index) for index in range(len(self._targets))])
        return Masked(np.array([token.id for token in tokens], np.int64), np.array(positions, np.int64))

    def mask_token(self) -> str:
        """Return the mask token as a text spells it."""
        return self.tokenizer.vocabulary.tokens[self._mask_id]

    def pieces(self) -> list[str]:
        """One string to show for each mask."""
        return [self.mask_token()] * len(self.masks)

    def filled(self, logits: np.ndarray, top_k: int) -> list[classification_pb2.FilledMask]:
        """Return the best fillings of each mask by its float32 logits [masks, vocab]."""
        return [
            classification_pb2.FilledMask(start=mask.start, end=mask.end, fillings=self._fillings(row, top_k))
            for mask, row in zip(self.masks, logits, strict=True)
        ]

    def _fillings(self, logits: np.ndarray, top_k: int) -> list[classification_pb2.Filling]:
        # By the logits themselves: so only what is picked needs its probability.
        if self._target_ids is None:
            best = best_of(logits, top_k)
        else:
            best = self._target_ids[best_of(logits[self._target_ids], top_k)]
        scores = np.exp(log_probs_of(logits, best))
        return [
            classification_pb2.Filling(text=self.tokenizer.vocabulary.text(id_), token_id=id_, score=score)
            for id_, score in zip(best.tolist(), scores.tolist(), strict=True)
        ]

    def _target_id(self, index: int) -> int:
        target, field = self._targets[index], f"targets[{index}]"
        if not target:
            raise InvalidRequest(field, "must not be empty", "EMPTY_INPUT")
        if len(target) > MAX_TARGET_CHARS:
            why = f"is {len(target)} characters long; at most {MAX_TARGET_CHARS} are taken"
            raise InvalidRequest(field, why, "INPUT_TOO_LONG")
        token = self.tokenizer.token_of(target)
        if token is None:
            raise InvalidRequest(field, f"{target[:40]!r} is not one token of the model's vocabulary")
        return token


def log_probs_of(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the log-probabilities float64 [ids] of some tokens by the float32 logits [vocab] of one mask."""
    # One mask at a time: so none has other bits beside others, and no table of all is made.
    shifted = logits.astype(np.float64)
    shifted -= shifted.max()
    some = shifted[ids]
    log_probs: np.ndarray = some - np.log(np.exp(shifted, out=shifted).sum())
    return log_probs


def best_of(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` highest of scores [n], highest first. The lower index wins a tie."""
    if count < len(scores):
        # Sorting a vocabulary takes ten times as long as finding what is to be sorted.
        candidates = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    else:
        candidates = np.arange(len(scores))
    best: np.ndarray = candidates[np.argsort(-scores[candidates], kind="stable")][:count]
    return best
