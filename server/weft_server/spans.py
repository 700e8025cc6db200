"""Runs of tagged tokens that belong together: IOB2, "Text Chunking using Transformation-Based Learning" (1995)."""

from collections.abc import Iterable

from weft_proto.v1 import classification_pb2

_BEGIN, _INSIDE = "B", "I"


def spans_of(tokens: Iterable[classification_pb2.TokenLabel], text: str) -> list[classification_pb2.Span]:
    """Return the spans that a text's tokens form, in order.

    B-X begins a span X, and so does an I-X that continues none; I-X continues the span X right before it. Other labels
    are outside of spans. A token that stands for no text is passed over. A span's score is the least of its tokens'.
    """
    spans: list[classification_pb2.Span] = []
    kind_before = ""
    for token in tokens:
        if token.start == token.end:
            continue
        prefix, _, kind = token.label.partition("-")
        if prefix == _INSIDE and kind and kind == kind_before:
            span = spans[-1]
            span.end, span.score = token.end, min(span.score, token.score)
        elif prefix in {_BEGIN, _INSIDE} and kind:
            spans.append(classification_pb2.Span(label=kind, start=token.start, end=token.end, score=token.score))
        else:
            kind = ""
        kind_before = kind
    for span in spans:
        span.text = text[span.start : span.end]
    return spans
