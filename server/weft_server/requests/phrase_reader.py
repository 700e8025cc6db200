"""The phrases of a Decoding, as the tokens of the model's language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_proto.decoding import MAX_PHRASE_TOKENS
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.tokenizer import known

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_proto.v1 import common_pb2
    from weft_server.preprocessing.tokenizer import Tokenizer

    Tokens = tuple[int, ...]

MAX_TEXT_BYTES = 256


class PhraseReader:
    """Reads phrases of one model. Without a tokenizer it takes only token ids."""

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    def banned(self, phrases: Iterable[common_pb2.Phrase]) -> list[Tokens]:
        """Return what must not come. A text is tokenized as it stands, and with a space before it.

        Raises InvalidRequest if one is no phrase of the model.
        """
        found: dict[Tokens, None] = {}
        for index, phrase in enumerate(phrases):
            field = f"decoding.banned[{index}]"
            if phrase.WhichOneof("phrase") == "text":
                for text in (phrase.text, f" {phrase.text}"):
                    found[self._tokenized(text, phrase.text, f"{field}.text")] = None
            else:
                found[self.tokens(phrase.token_ids.ids, f"{field}.token_ids")] = None
        return list(found)

    def prefix(self, phrase: common_pb2.Phrase) -> Tokens:
        """Return what an answer begins with.

        Raises InvalidRequest if it is no phrase of the model, or if the text of its tokens is another.
        """
        if phrase.WhichOneof("phrase") != "text":
            return self.tokens(phrase.token_ids.ids, "decoding.prefix.token_ids")
        tokens = self._tokenized(phrase.text, phrase.text, "decoding.prefix.text")
        assert self._tokenizer is not None
        if (said := self._tokenizer.decode(tokens)) != phrase.text:
            raise InvalidRequest("decoding.prefix.text", f"is nothing that the model can say: its tokens say {said!r}")
        return tokens

    def tokens(self, ids: Many[int], field: str) -> Tokens:
        """Return the ids of a phrase. Raises InvalidRequest if they are too many, or none, or no tokens."""
        if not 1 <= len(ids) <= MAX_PHRASE_TOKENS:
            raise InvalidRequest(field, f"must be 1..{MAX_PHRASE_TOKENS} tokens, not {len(ids)}")
        return self.known(ids, f"{field}.ids")

    def single(self, ids: Iterable[int], field: str) -> None:
        """Raise InvalidRequest if a field that holds one id, or none, holds no token."""
        for token in ids:
            if token >= self._vocab_size:
                raise InvalidRequest(field, self._beyond(token), "TOKEN_OUT_OF_RANGE")

    def known(self, ids: Iterable[int], field: str) -> Tokens:
        """Return ids. Raises InvalidRequest if one is no token."""
        tokens = tuple(ids)
        # A request may have 64,000 of them in phrases, and the lanes wait while this runs.
        if tokens and max(tokens) >= self._vocab_size:
            index, token = next((at, each) for at, each in enumerate(tokens) if each >= self._vocab_size)
            raise InvalidRequest(f"{field}[{index}]", self._beyond(token), "TOKEN_OUT_OF_RANGE")
        return tokens

    def _beyond(self, token: int) -> str:
        return f"must be below the vocabulary size, {self._vocab_size}, not {token}"

    def _tokenized(self, text: str, given: str, field: str) -> Tokens:
        if not 1 <= len(given.encode()) <= MAX_TEXT_BYTES:
            raise InvalidRequest(field, f"must be 1..{MAX_TEXT_BYTES} bytes of UTF-8, not {len(given.encode())}")
        if self._tokenizer is None:
            raise InvalidRequest(field, "must be token_ids here")
        tokens = tuple(known(self._tokenizer.encode_framed, text, field))
        if not tokens:
            raise InvalidRequest(field, "holds nothing that the model's tokenizer keeps")
        return self.known(tokens, field)


def takes_long(asked: common_pb2.Decoding) -> bool:
    """Whether there are phrases to read: too much work for the event loop."""
    return bool(asked.banned or asked.bias or asked.HasField("prefix"))
