"""One side of a model, what it reads or what it writes: the tokens of any text there, and the text of any tokens.

Runs in worker threads, and asks nothing of the model itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft_proto.bundle_rules import MAX_CHARS_PER_TOKEN
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.inputs import MAX_SPLIT_CHARS
from weft_server.preprocessing.tokenizer import TokenSpan, known

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft_server.preprocessing.tokenizer import Tokenizer

# Of a text that is listed, and of one that is made of tokens. An answer so long has 3 MB.
MAX_TOKENS = 131_072


class Around(NamedTuple):
    """What a model is given around the tokens of a text itself: ids before and behind all others.

    Within these stand the special tokens of the tokenizer's post-processor, if it is `framed`.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    framed: bool = True


class TokenizerSide:
    """A tokenizer, and the bounds of what it is asked. A text may be longer than the model takes."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, max_tokens: int) -> None:
        """The model knows ids below `vocab_size`, and takes or gives at most `max_tokens` of them at once."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._max_chars = max(MAX_SPLIT_CHARS, max_tokens * MAX_CHARS_PER_TOKEN)

    def check(self, text: str, field: str) -> None:
        """Raise InvalidRequest for an empty text, and for one that is too long to be read at all."""
        if not text:
            raise InvalidRequest(field, "must not be empty", "EMPTY_INPUT")
        if len(text) > self._max_chars:
            raise InvalidRequest(
                field, f"is {len(text):,} characters long; at most {self._max_chars:,} are taken", "INPUT_TOO_LONG"
            )

    def count(self, text: str, field: str, around: Around) -> int:
        """Return how many tokens a text has. Raises InvalidRequest where the tokenizer cannot read it."""
        encode = self._tokenizer.encode if around.framed else self._tokenizer.encode_framed
        return len(around.before) + len(known(encode, text, field)) + len(around.after)

    def split(self, text: str, field: str, around: Around) -> list[TokenSpan]:
        """Return the tokens of a text, each with its place. Raises InvalidRequest as `count` does, and for too many."""
        pieces = known(self._tokenizer.split, text, field)
        if not around.framed:
            pieces = [piece for piece in pieces if not piece.added]
        pieces = [*_put(around.before), *pieces, *_put(around.after)]
        if len(pieces) > MAX_TOKENS:
            why = f"is {len(pieces):,} tokens long; at most {MAX_TOKENS:,} are listed: ask for count_only"
            raise InvalidRequest(field, why, "INPUT_TOO_LONG")
        return pieces

    def read_ids(self, token_ids: Sequence[int], field: str) -> list[int]:
        """Return token ids as a list. Raises InvalidRequest when there are none or too many, or one is out of range."""
        count = len(token_ids)
        if not count:
            raise InvalidRequest(field, "must not be empty", "EMPTY_INPUT")
        if count > MAX_TOKENS:
            raise InvalidRequest(field, f"is {count:,} tokens long; at most {MAX_TOKENS:,} are taken", "INPUT_TOO_LONG")
        ids = list(token_ids)
        if max(ids) >= self._vocab_size:
            first = next(index for index, id_ in enumerate(ids) if id_ >= self._vocab_size)
            why = f"must be below the vocabulary size, {self._vocab_size}, not {ids[first]}"
            raise InvalidRequest(f"{field}[{first}]", why, "TOKEN_OUT_OF_RANGE")
        return ids

    def text(self, ids: list[int]) -> str:
        """Return the text of token ids, without special tokens, as an answer has it."""
        return self._tokenizer.decode(ids)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return one string to show for each token."""
        return self._tokenizer.pieces(ids)


def _put(ids: tuple[int, ...]) -> list[TokenSpan]:
    """Return tokens that stand for no part of a text."""
    return [TokenSpan(id_, 0, 0, added=True) for id_ in ids]
