"""Labels of tokens to spans of text."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from weft_export.checkpoints.tokenizer import encode
from weft_proto.offsets import Offsets

Span = tuple[str, int, int]
"""Kind, and the characters from where to where."""


# What a word-boundary mark is written as, in Metaspace and in ByteLevel.
_MARKS = " ▁Ġ"


def spans_of(labels: Sequence[str], text: str, tokenizer: Tokenizer) -> list[Span]:
    """Return the spans that the tokens' labels make in IOB2 (Ramshaw and Marcus 1995), as a server returns them.

    An I continues its own kind, and else begins a span like a B. White space around a token belongs to no span. A token
    that stands for no text is passed over, and special ones are in none.
    """
    spans: list[Span] = []
    open_kind = ""
    encoding = encode(tokenizer, text)
    whole = Offsets(tokenizer).of(text, encoding)
    places = [_place(text, token, *place) for token, place in zip(encoding.tokens, whole, strict=True)]
    for label, (start, end), special in zip(labels, places, encoding.special_tokens_mask, strict=True):
        if start == end and not special:
            continue
        part, _, kind = ("O", "", "") if special else label.partition("-")
        if part == "I" and kind == open_kind:
            spans[-1] = (kind, spans[-1][1], end)
        elif kind and part in ("B", "I"):
            spans.append((kind, start, end))
        open_kind = kind if part in ("B", "I") else ""
    return spans


def _place(text: str, token: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    if not part.strip():
        return start, end
    if not token.strip(_MARKS):  # a mark that the tokenizer put before the word
        return start, start
    return end - len(part.lstrip()), start + len(part.rstrip())
