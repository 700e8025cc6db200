"""The log-probabilities of an answer's tokens, in the shapes that OpenAI has for them."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft_server.openai_api.api_request import Spelling

# Of one answer: some 30 MB of JSON.
MAX_SCORES = 1 << 20
# JSON has no infinity. OpenAI says this of a token that is very improbable.
_LEAST = -9999.0
# Before all places.
_NOWHERE = -1
# In UTF-8, bytes from the first of these numbers and below the second go on with a character.
_CONTINUES, _BEGINS = 0x80, 0xC0


class _Token(NamedTuple):
    """One token. `text` is what it adds to the answer, with its space; of a special token it is the name."""

    text: str
    data: bytes | None
    log_prob: float

    @property
    def entry(self) -> dict[str, Any]:
        """What a chat says of it."""
        data = None if self.data is None else list(self.data)
        return {"token": self.text, "logprob": self.log_prob, "bytes": data}


def chat_log_probs(output: Any, spelling: Spelling | None) -> dict[str, Any]:
    """Return `logprobs` of a chat's choice: an entry for each token of a Completion or an Output."""
    tops = _tops(output, spelling) or [[] for _ in output.tokens]
    content = [
        token.entry | {"top_logprobs": [each.entry for each in top]}
        for token, top in zip(_tokens(output, spelling), tops, strict=True)
    ]
    return {"content": content, "refusal": None}


def check_num_scores(count: int) -> None:
    """Raise InvalidRequest for an answer with so many log-probabilities, of all prompts together."""
    if count > MAX_SCORES:
        why = f"must be less: {count:,} log-probabilities of all prompts together, more than {MAX_SCORES:,}"
        raise InvalidRequest("logprobs", why)


def completion_log_probs(output: Any, spelling: Spelling | None, behind: str | None = None) -> dict[str, Any]:
    """Return `logprobs` of a completion's choice: parallel lists. Offsets count characters of the answer.

    `behind` is its text as it stands behind a prompt: that has the space before its first word.
    """
    begins, text = behind is None, output.text if behind is None else behind
    tokens = list(_tokens(output, spelling, begins=begins))
    tops = _tops(output, spelling, begins=begins)
    return {
        "tokens": [each.text for each in tokens],
        "token_logprobs": [each.log_prob for each in tokens],
        "top_logprobs": [{each.text: each.log_prob for each in top} for top in tops] or None,
        "text_offset": None if spelling is None else offsets_of([each.data or b"" for each in tokens], text),
    }


def offsets_of(pieces: Sequence[bytes], text: str) -> list[int]:
    """Return where each piece begins in a text of them, which has U+FFFD for a character of which only a part comes.

    Some decoders take spaces out between two tokens: such a space stands for nothing of the text.
    """
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    is_joined = b"".join(pieces).decode(errors="replace").startswith(text)
    offsets, length = [], 0
    for data in pieces:
        if data and not _CONTINUES <= data[0] < _BEGINS:
            # What came before stays a part.
            length += len(utf8.decode(b"", final=True))
        offsets.append(length)
        shown = utf8.decode(data)
        length = length + len(shown) if is_joined else _behind(shown, text, length)
    return offsets


def _behind(shown: str, text: str, at: int) -> int:
    """Return the place in a text behind a piece that begins at a place. A stop string may have cut the text."""
    for character in shown:
        at += character != " " or text[at : at + 1] in {" ", ""}
    return at


def token_log_probs(output: Any, spelling: Spelling | None) -> list[dict[str, Any]]:
    """Return `logprobs` of a transcription: each token's own."""
    return [each.entry for each in _tokens(output, spelling)]


def _tokens(output: Any, spelling: Spelling | None, *, begins: bool = True) -> Iterator[_Token]:
    first = first_text(output.token_ids, spelling) if begins else _NOWHERE
    for index, each in enumerate(zip(output.token_ids, output.tokens, output.token_log_probs, strict=True)):
        yield _token(*each, spelling, begins=index <= first)


def first_text(ids: Iterable[int], spelling: Spelling | None) -> int:
    """Return the place of the first token that is text: before it stand special ones, such as a prompt's start."""
    if spelling is None:
        return 0
    return next((place for place, id_ in enumerate(ids) if spelling(id_, True) is not None), 0)


def _tops(output: Any, spelling: Spelling | None, *, begins: bool = True) -> list[list[_Token]]:
    first = first_text(output.token_ids, spelling) if begins else _NOWHERE
    return [
        [
            _token(*each, spelling, begins=index <= first)
            for each in zip(top.token_ids, top.tokens, top.log_probs, strict=True)
        ]
        for index, top in enumerate(output.top_tokens)
    ]


def _token(id_: int, piece: str, log_prob: float, spelling: Spelling | None, *, begins: bool) -> _Token:
    log_prob = max(log_prob, _LEAST)
    data = spelling(id_, begins) if spelling else None
    if data is None:
        return _Token(piece, None, log_prob)
    try:
        return _Token(data.decode(), data, log_prob)
    except UnicodeDecodeError:
        # A part of a character. OpenAI writes it so, too.
        return _Token("bytes:" + "".join(f"\\x{byte:02x}" for byte in data), data, log_prob)
