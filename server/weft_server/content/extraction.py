"""Extractive question answering: what the graph reads of a question and a context, and the spans that answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.v1 import classification_pb2
from weft_server.content.inputs import known

if TYPE_CHECKING:
    from weft_server.content.inputs import InputReader
    from weft_server.content.tokenizer import Tokenizer
    from weft_server.source import Ids


class ExtractInput:
    """One request's input. It is read once, before anything else is asked of it."""

    def __init__(self, reader: InputReader, tokenizer: Tokenizer, question: str, context: str) -> None:
        self._reader = reader
        self._tokenizer = tokenizer
        self._pair = question, context
        self._ids: list[int] = []
        # By the index of each of the context's tokens, where it begins and ends in the context.
        self._places: dict[int, tuple[int, int]] = {}

    def read(self) -> Ids:
        """Return the token ids of both texts. Raises InvalidRequest."""
        source = self._reader.read_pair(*self._pair, ("question", "context"))
        self._ids = source.array.tolist()
        places = known(lambda pair: list(self._tokenizer.places_of_second(pair).items()), self._pair, "context")
        self._places = dict(places)
        return source

    def pieces(self) -> list[str]:
        """One string to show for each token of both texts, special ones included."""
        return self._tokenizer.pieces(self._ids)

    def answers(
        self, logits: np.ndarray, *, top_k: int, max_answer_tokens: int, allow_no_answer: bool
    ) -> list[classification_pb2.ExtractedAnswer]:
        """Return the most probable answers by the float32 logits [tokens, 2] of starting and of ending at a token."""
        none = [0] if self._tokenizer.begins_added else []
        candidates = [*none, *self._places]
        starts, ends = (_softmax(logits[:, column], candidates) for column in (0, 1))
        found = []
        if none and allow_no_answer:
            found = [classification_pb2.ExtractedAnswer(score=starts[0] * ends[0])]
        tokens = list(self._places)
        places = np.array(list(self._places.values()))
        _, context = self._pair
        for first, last, score in best_spans(starts[tokens], ends[tokens], places, max_answer_tokens, top_k):
            start, end = int(places[first, 0]), int(places[last, 1])
            found.append(classification_pb2.ExtractedAnswer(text=context[start:end], start=start, end=end, score=score))
        # Python sorts stably: a span that is as probable as none stands behind it.
        return sorted(found, key=lambda answer: -answer.score)[:top_k]


def best_spans(
    starts: np.ndarray, ends: np.ndarray, places: np.ndarray, max_tokens: int, count: int
) -> list[tuple[int, int, float]]:
    """Return first token, last token and score of the best spans of up to `max_tokens`, each at another place.

    The score is starts [tokens] of the first times ends [tokens] of the last. places is int [tokens, 2]: where a span
    begins that begins with a token, and where it ends that ends there. Of spans at one place the best counts. At equal
    scores the earlier one is first, then the shorter one.
    """
    num_tokens = len(starts)
    scores = np.zeros((num_tokens, min(max_tokens, num_tokens)))
    for more in range(scores.shape[1]):
        scores[: num_tokens - more, more] = starts[: num_tokens - more] * ends[more:]
    found: list[tuple[int, int, float]] = []
    while len(found) < count:
        first, more = divmod(int(scores.argmax()), scores.shape[1])
        if not scores[first, more] > 0:  # all are found
            break
        last = first + more
        found.append((first, last, float(scores[first, more])))
        # All tokens of a long word are at one place. So each start is seen with the ends in its reach, and no others.
        same_start = np.flatnonzero(places[:, 0] == places[first, 0])
        reach = np.minimum(same_start[:, None] + np.arange(scores.shape[1]), num_tokens - 1)
        rows, mores = np.nonzero(places[reach, 1] == places[last, 1])
        scores[same_start[rows], mores] = 0
    return found


def _softmax(logits: np.ndarray, candidates: list[int]) -> np.ndarray:
    """Return probabilities float64 [tokens] over the candidates alone; all others are 0."""
    probabilities = np.zeros(len(logits))
    powers = np.exp(logits[candidates].astype(np.float64) - logits[candidates].max())
    probabilities[candidates] = powers / powers.sum()
    return probabilities
