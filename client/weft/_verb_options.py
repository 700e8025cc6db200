"""What the verbs take besides their input, by keyword."""

from collections.abc import Iterable
from typing import TypedDict

from weft._decoding import Decoding
from weft._types import Explain


class Options(TypedDict, total=False):
    """What every request takes.

    `model` and `model_version` name the model: by default the server's only one for the task, and the version that the
    server means, mostly the highest. `version_label` names the version by its label instead: "stable" or "canary".
    `adapter` names one of the model's adapters, by which it answers then; see `Model.adapters`.
    `request_id` comes back in the answer and stands in the server's log; at most 64 printable ASCII characters.
    `explain` asks for the alignment, at the cost of one more pass; an `Explain` says of which layer and head.
    """

    model: str
    model_version: int | None
    version_label: str | None
    adapter: str
    request_id: str
    explain: bool | Explain


class WritingOptions(Options, total=False):
    """What a request for text takes besides: how to produce it, and what to tell of its tokens.

    `return_scores` asks for each token's log-probability, `num_top_tokens` for so many of the most probable tokens of
    each step.
    """

    decoding: Decoding | None
    return_scores: bool
    num_top_tokens: int


class CaptionOptions(WritingOptions, total=False):
    """What a caption takes: all that a request for text does."""


class AnswerOptions(WritingOptions, total=False):
    """What a question takes: all that a request for text does."""


class TranscribeOptions(WritingOptions, total=False):
    """What a transcription takes besides: the BCP-47 tag of what is spoken, and whether to say it in English.

    Of several languages that it knows, the model tells which is spoken unless `language` names it. `timestamps` asks it
    to tell when each part is said. What is not given is as the model's checkpoint has it: `Model.default_language`,
    `Model.default_to_english` and `Model.default_timestamps`.
    """

    language: str
    to_english: bool
    timestamps: bool


class GenerateOptions(WritingOptions, total=False):
    """What a continuation takes besides.

    `return_prompt_scores` asks for the log-probability of the prompt's tokens, at the cost of one more pass over it.
    `cache_salt` keeps the server's prefix cache to requests that have the same one.
    """

    return_prompt_scores: bool
    cache_salt: str


class TranslateOptions(WritingOptions, total=False):
    """What a translation takes besides: BCP-47 tags, by default the model's only source and target language.

    `split_sentences` is for a text that is longer than the model takes: each sentence is translated by itself, and the
    translations are joined. It goes with neither token ids nor `explain`. `cache_salt` keeps the server's cache to
    requests that have the same one.
    """

    source_language: str
    target_language: str
    split_sentences: bool
    cache_salt: str


class ClassifyOptions(Options, total=False):
    """What a classification takes besides.

    `top_k` is how many labels to return at most, by default all of them up to 5; all of them where they do not exclude
    each other. `threshold` is the least score of a label that is returned. By default it is 0.5 where several labels
    may be true at once (`LabelScoring.SIGMOID`), and else there is none.
    `text_pair` is a second text to judge beside the first, for models with `Model.takes_pairs`.
    `labels` are those to choose from for a picture, for models with `Model.takes_labels`. Each is put into `label_text`
    in the place of {}, by default into the model's own.
    `prompt_name` is as for embedding; of two texts the prompt stands before the first.
    """

    top_k: int | None
    threshold: float | None
    text_pair: str | None
    labels: Iterable[str]
    label_text: str
    prompt_name: str | None


class TagOptions(Options, total=False):
    """What tagging takes: all that every request does."""


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


class FillMaskOptions(Options, total=False):
    """What filling masks takes besides.

    `top_k` is how many fillings to return for each mask at most, by default 5 and at most 100. `targets` are the only
    tokens to choose from: each as the vocabulary writes it, or a text that is one token, such as " capital".
    """

    top_k: int | None
    targets: Iterable[str]


class EmbedOptions(Options, total=False):
    """What embedding takes besides: `dimensions` cuts each vector to its first numbers, by default to none.

    `explain` is for one input alone. A request has at most `Limits.max_inputs` of the model's.
    `prompt_name` names one of `Model.prompts`, which then stands before each text: "query", perhaps. By default it is
    `Model.default_prompt_name`. An empty one asks for no prompt.
    """

    dimensions: int | None
    prompt_name: str | None


class ScoreOptions(TypedDict, total=False):
    """What scoring takes.

    `model` must name the model. `model_version`, `version_label`, `adapter` and `request_id` are as in `Options`.
    `source_language` and `target_language` are as for a translation. `num_top_tokens` asks for so many of the most
    probable tokens at each place, at most 20.
    """

    model: str
    model_version: int | None
    version_label: str | None
    adapter: str
    source_language: str
    target_language: str
    num_top_tokens: int
    request_id: str
