"""Extractive question answering: what the graph reads of a question and a context, and the spans that answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_proto.v1 import classification_pb2
from weft_server.errors import InvalidRequest
from weft_server.source import Ids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_server.preprocessing.inputs import InputReader
    from weft_server.preprocessing.tokenizer import Joined, Tokenizer

# As in transformers' pipeline, where half a window is not less.
DEFAULT_DOC_STRIDE = 128
# That a context is cut into.
MAX_WINDOWS = 256


class Windowing(NamedTuple):
    """How a request wants its context cut: the most tokens of a window, and how many of the context two share."""

    max_seq_len: int | None = None
    doc_stride: int | None = None


class ExtractInput:
    """One request's input. It is read once, before anything else is asked of it."""

    def __init__(self, reader: InputReader, tokenizer: Tokenizer, question: str, context: str) -> None:
        self._reader = reader
        self._tokenizer = tokenizer
        self._pair = question, context
        self._joined: Joined | None = None
        # Which tokens of the context each has.
        self._windows: list[range] = []

    def read(self, windowing: Windowing, *, allow_no_answer: bool) -> list[Ids]:
        """Return the token ids of both texts, once for each window of the context. Raises InvalidRequest."""
        self._joined = joined = self._reader.read_question(*self._pair)
        if allow_no_answer and not joined.begins_added:
            why = "needs a token before the question that stands for no answer, and this model's tokenizer puts none"
            raise InvalidRequest("allow_no_answer", why)
        num_around = len(joined.before) + len(joined.behind)
        self._windows = windows_of(len(joined.ids), num_around, self._reader.max_tokens, windowing)
        return [Ids(np.array(self._ids(window), np.int64)) for window in self._windows]

    def pieces(self) -> list[str]:
        """One string to show for each token of the only window, special ones included."""
        (window,) = self._windows
        return self._tokenizer.pieces(self._ids(window))

    def answers(
        self, logits: Iterable[np.ndarray], *, top_k: int, max_answer_tokens: int, allow_no_answer: bool
    ) -> list[classification_pb2.ExtractedAnswer]:
        """Return the most probable answers by the float32 logits [tokens, 2] of each window.

        They are of starting and of ending at a token. A span that is in several windows has its best score. That there
        is no answer is as probable as in the window where it is least so.
        """
        joined = self._read
        places, first_token = np.array(joined.places), len(joined.before)
        none = [0] if joined.begins_added else []
        found: dict[tuple[int, int], float] = {}
        least = 1.0
        for window, each in zip(self._windows, logits, strict=True):
            tokens = list(range(first_token, first_token + len(window)))
            starts, ends = (_softmax(each[:, column], [*none, *tokens]) for column in (0, 1))
            least = min(least, float(starts[0] * ends[0]))
            within = places[window.start : window.stop]
            for first, last, score in best_spans(starts[tokens], ends[tokens], within, max_answer_tokens, top_k):
                place = int(within[first, 0]), int(within[last, 1])
                found[place] = max(score, found.get(place, 0.0))
        if allow_no_answer:
            found[0, 0] = least
        # At equal scores none is first, then the earlier span, then the shorter one.
        best = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:top_k]
        _, context = self._pair
        return [
            classification_pb2.ExtractedAnswer(text=context[start:end], start=start, end=end, score=score)
            for (start, end), score in best
        ]

    @property
    def _read(self) -> Joined:
        assert self._joined is not None, "an input was not read. This is a bug."
        return self._joined

    def _ids(self, window: range) -> list[int]:
        joined = self._read
        return [*joined.before, *joined.ids[window.start : window.stop], *joined.behind]


def windows_of(num_tokens: int, num_around: int, max_tokens: int, windowing: Windowing) -> list[range]:
    """Return which tokens of a context each window has: as many as fit, with `num_around` other tokens around them.

    Two that follow each other share `doc_stride` tokens, and the last one ends at the context's end. They are those
    that the tokenizers library makes of `stride` and `truncation="only_second"`.

    Raises:
        InvalidRequest: a window has no room, or there are too many windows.
    """
    max_seq_len = max_tokens if windowing.max_seq_len is None else windowing.max_seq_len
    if not 1 <= max_seq_len <= max_tokens:
        raise InvalidRequest("max_seq_len", f"must be 1..{max_tokens}, not {max_seq_len}")
    room = max_seq_len - num_around
    if num_tokens <= room:
        return [range(num_tokens)]
    if room < 1:
        why = f"takes {num_around} of the {max_seq_len} tokens of a window, with those that divide: none is left"
        raise InvalidRequest("question", why, "INPUT_TOO_LONG")
    shared = windowing.doc_stride
    if shared is None:
        shared = min(max_seq_len // 2, DEFAULT_DOC_STRIDE, room - 1)
    elif shared >= room:
        why = f"must be below {room}, the tokens of the context that fit beside the question, not {shared}"
        raise InvalidRequest("doc_stride", why)
    step = room - shared
    count = 1 + -(-(num_tokens - room) // step)
    if count > MAX_WINDOWS:
        why = f"makes {count} windows of {max_seq_len} tokens; at most {MAX_WINDOWS} are taken: ask about parts of it"
        raise InvalidRequest("context", why, "INPUT_TOO_LONG")
    return [range(start, min(start + room, num_tokens)) for start in range(0, count * step, step)]


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
