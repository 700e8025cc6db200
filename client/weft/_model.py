"""What a server says of its models."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from weft._brief import Brief
from weft._decoding import Decoding
from weft._types import LabelScoring, Task


class Prompt(NamedTuple):
    """A text that stands before those of requests, and the name that a request calls it by.

    `max_tokens` bounds a text with it, the prompt included; 0: `Limits.max_source_tokens` does.
    """

    name: str
    text: str
    max_tokens: int = 0


class QuestionForm(NamedTuple):
    """A word of a question, such as `<CAPTION>`, and the sentence that a model reads in its place.

    Where the sentence has {input}, the rest of the question stands there. Otherwise the word stands alone.
    """

    token: str
    text: str


class VectorKind(StrEnum):
    """What `embed` gives of a text: a vector of the whole, one for each token, or the weights of tokens."""

    UNSPECIFIED = "unspecified"
    WHOLE = "whole"
    TOKENS = "tokens"
    WEIGHTS = "weights"


class TruncationSide(StrEnum):
    """Where a model cuts a text that is too long: at its end, at its beginning, or nowhere: then it is refused."""

    UNSPECIFIED = "unspecified"
    RIGHT = "right"
    LEFT = "left"


class ModelState(StrEnum):
    """Whether a model answers. One that sleeps is woken by the next request, and one that drains takes none."""

    UNSPECIFIED = "unspecified"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    SLEEPING = "sleeping"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, repr=False)
class Limits(Brief):
    """What a model refuses to go beyond, in tokens, bytes, pixels, seconds, beams and outputs; 0: it does not apply.

    `max_beams` bounds `Beams.num_beams`, `max_outputs` the `Decoding.num_outputs` of draws and alternatives,
    `max_inputs` the inputs of one `embed`, `max_labels` the labels of one `classify`.
    `window_s` is how many seconds of a recording a model hears at once: a longer one is cut where it is quiet.
    """

    max_source_tokens: int
    max_prompt_tokens: int
    max_new_tokens: int
    max_total_tokens: int
    max_image_bytes: int
    max_image_pixels: int
    max_beams: int = 0
    max_outputs: int = 0
    max_inputs: int = 0
    max_audio_bytes: int = 0
    max_audio_s: int = 0
    window_s: float = 0.0
    max_labels: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Model(Brief):
    """One version of one model: what it does, whether it answers, and what it takes.

    `error` says why `state` is FAILED. `decoding` is what an empty one resolves to; None for a classifier.
    `attention_heads` counts the heads of each layer that `Explain` may name; empty when it cannot explain.
    `default_attention_layer` is None when it explains by attention rollout. Where `prefixes` are given, a source text
    must begin with one of them: they tell a text-to-text model what to do.
    `takes_messages` is whether `generate` takes `messages`, and `takes_pictures` whether these may hold pictures.
    `can_score` is whether it scores given texts and prompts, or how well two texts match.
    `call_format` is how an answer to `messages` writes a call of a function; empty where that is not known.
    `takes_constraints` is whether it keeps to `Decoding.json_schema`, `regex`, `lark` and `choices`.
    `version_labels` are the labels of this version, "stable" and "canary". `canary_share` is a canary's share of the
    requests that name neither version nor label. `precision` is what it computes in, such as "fp32" or "int4",
    and `size_bytes` what its bundle's files have.
    `devices` are those that it runs on: "cpu", or "cuda:0", "cuda:1" and so on.
    `dimensions` is how many numbers a vector of `embed` has, and `normalized` whether it has the length 1.
    `vector_kinds` are the `kinds` that `embed` takes, what it gives by itself first.
    `takes_pairs` is whether `classify` takes a `text_pair`, and `label_scoring` what the scores of its labels are; by
    default they are probabilities that sum to 1.
    `mask_token` is what a text of `fill_mask` has where tokens are asked for; empty unless the model fills masks.
    `takes_labels` is whether `classify` needs `labels`, and `label_text` what each is put into, in the place of {}.
    `tells_timestamps` is whether `transcribe` takes `timestamps`, and `times_words` whether each of its answers has
    `words`. `default_language`, `default_to_english` and
    `default_timestamps` are how it answers where a request does not say; without a language it tells it.
    `takes_adapters` is whether a request may name an adapter. `adapters` are those that lie beside it now.
    `prompts` are those that `prompt_name` of `embed` and `classify` may name, and `default_prompt_name` names the one
    of a request that names none. `truncation_side` is where a text of more than `Limits.max_source_tokens` is cut.
    `question_forms` are words of a question of `answer` that stand for a sentence.
    """

    name: str
    version: int
    task: Task
    state: ModelState
    error: str
    family: str
    description: str
    limits: Limits
    labels: tuple[str, ...]
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    decoding: Decoding | None
    vocab_size: int
    can_explain: bool
    attention_heads: tuple[int, ...] = ()
    default_attention_layer: int | None = None
    prefixes: tuple[str, ...] = ()
    takes_messages: bool = False
    can_score: bool = False
    takes_constraints: bool = False
    version_labels: tuple[str, ...] = ()
    canary_share: float = 0.0
    precision: str = ""
    devices: tuple[str, ...] = ()
    dimensions: int = 0
    normalized: bool = False
    takes_pairs: bool = False
    label_scoring: LabelScoring = LabelScoring.UNSPECIFIED
    tells_timestamps: bool = False
    times_words: bool = False
    default_language: str = ""
    default_to_english: bool = False
    default_timestamps: bool = False
    takes_adapters: bool = False
    adapters: tuple[str, ...] = ()
    takes_labels: bool = False
    label_text: str = ""
    mask_token: str = ""
    prompts: tuple[Prompt, ...] = ()
    default_prompt_name: str = ""
    truncation_side: TruncationSide = TruncationSide.UNSPECIFIED
    call_format: str = ""
    size_bytes: int = 0
    takes_pictures: bool = False
    vector_kinds: tuple[VectorKind, ...] = ()
    question_forms: tuple[QuestionForm, ...] = ()
