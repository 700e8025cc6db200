"""Labels of tokens to spans of text."""

from collections.abc import Sequence

from tokenizers import Encoding

Span = tuple[str, int, int]
"""Kind, and the characters from where to where."""


def spans_of(labels: Sequence[str], encoding: Encoding) -> list[Span]:
    """Return the spans that the tokens' labels make in IOB2 (Ramshaw and Marcus 1995); special tokens are in none.

    An I continues its own kind, and else begins a span like a B.
    """
    spans: list[Span] = []
    open_kind = ""
    for label, (start, end), special in zip(labels, encoding.offsets, encoding.special_tokens_mask, strict=True):
        part, _, kind = ("O", "", "") if special else label.partition("-")
        if part == "I" and kind == open_kind:
            spans[-1] = (kind, spans[-1][1], end)
        elif kind and part in ("B", "I"):
            spans.append((kind, start, end))
        open_kind = kind if part in ("B", "I") else ""
    return spans
