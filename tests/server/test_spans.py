"""Spans are runs of labels in IOB2, cut out of the request's own text."""

import pytest

from weft_proto.v1 import classification_pb2
from weft_server.preprocessing.token_labels import spans_of

TEXT = "Ana 👩‍👧 Ñúñez vive en  São Paulo"
WORDS = [(0, 3), (4, 7), (8, 13), (14, 18), (19, 21), (23, 26), (27, 32)]
SCORES = [0.9, 0.5, 0.75, 0.25, 1.0, 0.875, 0.625]


def spans(*labels):
    """(label, text, score) of each span that labels of the first words make."""
    tokens = [
        classification_pb2.TokenLabel(start=start, end=end, label=label, score=score)
        for label, (start, end), score in zip(labels, WORDS, SCORES, strict=False)
    ]
    found = spans_of(tokens, TEXT)
    assert [TEXT[span.start : span.end] for span in found] == [span.text for span in found]
    return [(span.label, span.text, pytest.approx(span.score)) for span in found]


def test_one_beginning_and_what_follows_is_one_span():
    """B-X I-X I-X is one span X over all that lies between, and its score is the least of the three."""
    assert [("PER", "Ana 👩‍👧 Ñúñez", 0.5)] == spans("B-PER", "I-PER", "I-PER", "O")


def test_a_span_that_ends_the_text_ends_with_it():
    """The last token belongs to a span as any other does, and white space inside a span stays as it is."""
    expected = [("PER", "Ana", 0.9), ("LOC", "en  São Paulo", 0.625)]
    assert expected == spans("B-PER", "O", "O", "O", "B-LOC", "I-LOC", "I-LOC")


@pytest.mark.parametrize(
    ("labels", "kinds"),
    [
        (("B-X", "B-X"), ["X", "X"]),  # a beginning never continues
        (("B-X", "I-Y"), ["X", "Y"]),  # another kind is another span
        (("I-X", "I-X"), ["X"]),  # an inside that continues nothing begins
        (("O", "I-X"), ["X"]),
        (("B-X", "O", "I-X"), ["X", "X"]),  # what is outside ends what was before
        (("I-Y", "I-X", "I-Y"), ["Y", "X", "Y"]),
        (("B-X", "X", "I-X"), ["X", "X"]),  # a label without a prefix is outside
        (("O", "X", "NOUN", ""), []),
        (("B-", "I-", "b-X", "E-X", "BX"), []),  # no kind, or no such prefix
        (("B-a-b", "I-a-b", "I-a"), ["a-b", "a"]),  # a kind may hold the hyphen
    ],
)
def test_who_continues_whom(labels, kinds):
    """Only I-X right after a label of kind X continues it."""
    assert kinds == [kind for kind, _, _ in spans(*labels)]


def test_a_token_that_stands_for_no_text_is_passed_over():
    """It begins no span and ends none."""
    tokens = [
        classification_pb2.TokenLabel(start=start, end=end, label=label, score=1)
        for start, end, label in [(0, 3, "B-X"), (0, 0, "O"), (4, 7, "I-X"), (7, 7, "B-Y")]
    ]
    assert [classification_pb2.Span(label="X", start=0, end=7, text=TEXT[:7], score=1)] == spans_of(tokens, TEXT)


def test_nothing_tagged_makes_no_spans():
    """No tokens, no spans."""
    assert [] == spans()
