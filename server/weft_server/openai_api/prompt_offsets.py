"""Where the tokens of a prompt stand in its text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.openai_api.log_probs import first_text, offsets_of

if TYPE_CHECKING:
    from weft_proto.v1 import tokenization_pb2
    from weft_server.openai_api.api_request import Spelling


def prompt_offsets(text: str, cut: tokenization_pb2.TokenizeResponse, spelling: Spelling) -> list[int]:
    """Return where each token of a text begins in it, in characters.

    A special token that the text spells begins where its name does. What is put around the text stands for none of it.
    """
    first = first_text(cut.token_ids, spelling)
    own = [spelling(id_, index <= first) for index, id_ in enumerate(cut.token_ids)]
    shown = [
        b"" if added else piece.encode() if data is None else data
        for data, piece, added in zip(own, cut.tokens, cut.added, strict=True)
    ]
    if b"".join(shown) == text.encode():
        return offsets_of(shown)
    # A normaliser has changed the text. The tokenizer knows the places of whole words, and of bytes it does not.
    return _placed(text, cut, own)


def _placed(text: str, cut: tokenization_pb2.TokenizeResponse, own: list[bytes | None]) -> list[int]:
    """Return the tokenizer's own places, with the white space before them that the tokens have themselves."""
    offsets: list[int] = []
    begun = reached = 0
    for data, start, end, added in zip(own, cut.starts, cut.ends, cut.added, strict=True):
        if added:
            offsets.append(len(text) if reached else 0)
            continue
        between = text[reached:start]
        spaces = len(between) - len(between.rstrip())
        begun = max(begun, start - min(_num_leading_spaces(data, is_word=start < end), spaces))
        reached = max(reached, end)
        offsets.append(begun)
    return offsets


def _num_leading_spaces(data: bytes | None, *, is_word: bool) -> int:
    """Of what a token adds. One of white space alone stands at its own place, unless it has none."""
    shown = (data or b"").decode(errors="replace")
    stripped = shown.lstrip()
    return 0 if is_word and not stripped else len(shown) - len(stripped)
