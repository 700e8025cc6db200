"""What comes out of the verbs whose answer is text."""

from dataclasses import dataclass

from weft._brief import Brief
from weft._decoding import Decoding
from weft._types import Alignment, FinishReason, FunctionCall, ResolvedModel, Timings, TopToken, Usage


@dataclass(frozen=True, slots=True, repr=False)
class Output(Brief):
    """One more answer to the same request. Its fields are those of `Completion`."""

    text: str
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    token_log_probs: tuple[float, ...]
    finish_reason: FinishReason
    score: float | None = None
    top_tokens: tuple[tuple[TopToken, ...], ...] = ()
    calls: tuple[FunctionCall, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Completion(Brief):
    """Produced text and how it came about.

    `tokens`, what each id stands for, and `token_log_probs` are empty unless `return_scores` was asked for, and
    `alignment` is None unless `explain` was.

    `score` is the answer's score in a beam search, else None. `others` are the further answers of
    `Decoding.num_outputs`. `top_tokens` are for each produced token the most probable ones of its step, best first, if
    `num_top_tokens` was asked for. `prompt_log_probs` are those of the prompt's tokens but the first, if
    `return_prompt_scores` was. All log-probabilities are natural logarithms, under the model at temperature 1.
    `calls` are those that the text makes of the `functions` of a chat. The text has them too.
    """

    text: str
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    token_log_probs: tuple[float, ...]
    finish_reason: FinishReason
    decoding: Decoding
    usage: Usage
    timings: Timings
    model: ResolvedModel
    request_id: str
    alignment: Alignment | None = None
    score: float | None = None
    others: tuple[Output, ...] = ()
    top_tokens: tuple[tuple[TopToken, ...], ...] = ()
    prompt_log_probs: tuple[float, ...] = ()
    calls: tuple[FunctionCall, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Translation(Completion):
    """A text in another language, or what a text-to-text model made of it."""


@dataclass(frozen=True, slots=True, repr=False)
class Caption(Completion):
    """A picture in words."""


@dataclass(frozen=True, slots=True, repr=False)
class Generation(Completion):
    """The continuation of a prompt, without the prompt."""


@dataclass(frozen=True, slots=True, repr=False)
class Answer(Completion):
    """What a model answers to a question about a picture.

    `alignment` is over the picture's grid, and over the question's tokens beside that.
    """


@dataclass(frozen=True, slots=True)
class Segment:
    """What was said between two moments, in seconds from a recording's beginning."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """A word and when it was said, in seconds from a recording's beginning."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, repr=False)
class Transcription(Completion):
    """What was said in a recording of `duration_s` seconds.

    `segments` are the parts that the model heard at once; with `timestamps`, those that it tells apart itself.
    `language` is what was named or told; empty for a model that knows no languages by name. `language_probability` is
    how probable it is, where the model told it. `words` are the rows of `alignment`, and come with it: when each is
    said is read off what it attends to. Of a model whose `Model.times_words` is set they come with each answer.
    """

    segments: tuple[Segment, ...] = ()
    duration_s: float = 0.0
    language: str = ""
    language_probability: float | None = None
    words: tuple[Word, ...] = ()
