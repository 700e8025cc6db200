"""`extract`: the spans of a text that answer a question."""

from dataclasses import dataclass
from typing import Unpack

from weft._answers import reader
from weft._brief import Brief
from weft._fields import fill
from weft._requests import fill_options, two_of
from weft._types import Alignment, ResolvedModel, Timings, Usage
from weft._verbs.options import Options
from weft._verbs.verb import Verb
from weft_proto.v1 import classification_pb2


class ExtractOptions(Options, total=False):
    """What extracting an answer takes besides.

    `top_k` is how many answers to return at most, by default 1 and at most 20. `max_answer_tokens` is how many tokens
    an answer has at most, by default 15 and at most 128. With `allow_no_answer`, that there is none is an answer too.
    A text that does not fit is read in windows: of `max_seq_len` tokens with the question, by default as many as the
    model takes, that share `doc_stride` tokens, by default 128 or half a window.
    """

    top_k: int | None
    max_answer_tokens: int | None
    allow_no_answer: bool
    max_seq_len: int | None
    doc_stride: int | None


@dataclass(frozen=True, slots=True)
class ExtractedAnswer:
    """A span of the context that answers the question: `context[start:end]`, in code points as Python's str counts.

    `score` is the probability that an answer starts at its first token times that of ending at its last one. The answer
    that there is none has an empty text, and both places are 0.
    """

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True, repr=False)
class Extraction(Brief):
    """The most probable answers to a question, best first; `alignment` is None unless `explain` was asked for."""

    answers: tuple[ExtractedAnswer, ...]
    usage: Usage
    timings: Timings
    model: ResolvedModel
    request_id: str
    alignment: Alignment | None = None


def extract_request(
    context: str, question: str, **options: Unpack[ExtractOptions]
) -> classification_pb2.ExtractRequest:
    """Ask a question whose answer stands in a context."""
    message = classification_pb2.ExtractRequest()
    fill(message, context=context, question=question)
    fill_options(message, {**options})
    return message


def extract_pair_request(
    asked: tuple[str, str], **options: Unpack[ExtractOptions]
) -> classification_pb2.ExtractRequest:
    """Do as `extract_request` with a context and a question about it in one."""
    context, question = two_of(asked, "questions", "a context and a question")
    return extract_request(context, question, **options)


EXTRACT = Verb("Extract", extract_request, reader(Extraction))
# Two arguments in one.
EXTRACT_PAIR = EXTRACT.asked_by(extract_pair_request)
