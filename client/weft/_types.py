"""What goes in and comes out of the verbs: frozen dataclasses, tuples, and plain strings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike
from typing import Any

from weft._brief import Brief

Text = str | Sequence[int]
"""A text, or the ids of its tokens made with the model's own tokenizer."""

Messages = Iterable[Mapping[str, Any]]
"""A chat to go on with: {"role": "user", "content": "Hello"} and so on, in order. Roles are the model's to know.

What is said to a model with `Model.takes_pictures` may be a list:
{"content": ["What is this?", weft.Picture("scene.png")]}. A string is a text; the bytes or the Path of a file are a
picture, too. {"text": ...} and {"image": ...} say which it is.
An answer with calls goes back with them: {"role": "assistant", "content": "", "calls": answer.calls}. What a function
gave goes back with the call's id: {"role": "tool", "content": "rain", "call_id": call.id}.
"""

PictureFile = bytes | str | PathLike[str]
"""The bytes of a PNG, JPEG or WebP file, or the path of one."""

Recording = bytes | str | PathLike[str]
"""The bytes of a WAV or FLAC file, or the path of one."""


@dataclass(frozen=True)
class Picture:
    """A picture among the texts of a message, where a string alone would be a text: `weft.Picture("scene.png")`."""

    file: PictureFile
    """Its bytes, or its path."""


class Task(StrEnum):
    """What a model does."""

    UNSPECIFIED = "unspecified"
    TRANSLATE = "translate"
    CAPTION = "caption"
    CLASSIFY_TEXT = "classify_text"
    CLASSIFY_IMAGE = "classify_image"
    GENERATE = "generate"
    TAG = "tag"
    EMBED_TEXT = "embed_text"
    EMBED_IMAGE = "embed_image"
    TRANSCRIBE = "transcribe"
    ANSWER = "answer"
    MATCH = "match"
    EXTRACT = "extract"
    FILL_MASK = "fill_mask"
    TRANSCRIBE_CTC = "transcribe_ctc"


class FinishReason(StrEnum):
    """Why an answer ended: its end-of-sequence token, a stop string, or max_new_tokens."""

    UNSPECIFIED = "unspecified"
    STOP = "stop"
    STOP_STRING = "stop_string"
    LENGTH = "length"


class Health(StrEnum):
    """What a health service says of itself."""

    UNKNOWN = "unknown"
    SERVING = "serving"
    NOT_SERVING = "not_serving"


@dataclass(frozen=True, slots=True)
class Explain:
    """Which attention to return: of one layer, and of one head of it; counted from 0, see `Model.attention_heads`.

    Without a layer it is the model's default one or, where `Model.default_attention_layer` is None, the attention
    rollout (Abnar and Zuidema 2020) of all layers. Without a head it is the average over them.
    """

    layer: int | None = None
    head: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts: of the source or prompt, and of the answers with their end-of-sequence tokens.

    `cached_tokens` is how many of the input's were not read again, because the server's cache held them.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the server's time went, in seconds: waiting, up to the first token, from there to the last."""

    queue: float
    prefill: float
    decode: float


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """The model that answered, and the adapter by which it did, or an empty string."""

    name: str
    version: int
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class PictureColumns:
    """A grid of an alignment's columns that are places of a picture in a prompt.

    `picture` counts the pictures of all messages, from 0. The grid begins at `first_column`, and each row of
    `grid_columns` begins `row_columns` behind the row above: more than those where a place stands for a row's end.

    `region` is where the grid lies on the upright picture: its left, top, right and bottom edge, as shares of the width
    and of the height. One below 0 or over 1 is outside of the picture.

    Of a picture that is read in tiles there are several grids: that of the whole picture first, then that of its tiles.
    """

    picture: int
    first_column: int
    grid_rows: int
    grid_columns: int
    row_columns: int
    region: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True, repr=False)
class Alignment(Brief):
    """What the model attended to: for each target token a distribution over the source.

    `weights[i][j]` is how much token i looked at source token j, or at patch j of an image counted row by row on a grid
    of `grid_rows` x `grid_columns`. Each row sums to 1. A text has a grid of 0 x 0, an image has no `source_tokens`.
    Of a recording, j is one of `num_columns` moments, each `column_s` seconds long; it has neither tokens nor a grid.
    The targets are the produced tokens and the source is what was given, for `generate` the prompt; for `transcribe`
    they are words; for `classify` the only target is the first label; for `tag` both are the text's tokens.

    `region` is where the grid lies on the upright picture, for a model that cuts the middle out: its left, top, right
    and bottom edge, as shares of the width and of the height. By default it is all of the picture.

    `source_mass[i]` is the share of token i's attention that lay on the source at all, before its row was made to sum
    to 1. `layer` is None for attention rollout, `head` for the average over heads.

    Of an answer about a picture, `question_weights[i][k]` is how much token i looked at token k of the question, and
    `question_mass[i]` the share of its attention that lay there. Where the picture is a memory of the model, words have
    an attention of their own, and it is a share of that. There are none for other tasks, and of a bundle that does not
    tell.

    Of a chat with pictures, `pictures` says which columns are places of them, and how these lie on them; their
    `source_tokens` are the model's token for pictures. `word_columns` are the others.
    """

    target_tokens: tuple[str, ...]
    source_tokens: tuple[str, ...]
    grid_rows: int
    grid_columns: int
    weights: tuple[tuple[float, ...], ...]
    source_mass: tuple[float, ...] = ()
    layer: int | None = None
    head: int | None = None
    column_s: float = 0.0
    num_columns: int = 0
    region: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    question_tokens: tuple[str, ...] = ()
    question_weights: tuple[tuple[float, ...], ...] = ()
    question_mass: tuple[float, ...] = ()
    pictures: tuple[PictureColumns, ...] = ()

    def rows(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield each target token with its weights over the source."""
        return zip(self.target_tokens, self.weights, strict=True)

    def grid(self, index: int) -> tuple[tuple[float, ...], ...]:
        """Return the weights of target token `index` as [grid_rows, grid_columns]; of a text's there are none."""
        row = self.weights[index]
        width = self.grid_columns
        if not width:
            return ()
        return tuple(row[start : start + width] for start in range(0, self.grid_rows * width, width))

    def over(self, index: int, columns: PictureColumns) -> tuple[tuple[float, ...], ...]:
        """Return the weights of target token `index` over a grid of `pictures`, as [grid_rows, grid_columns]."""
        row, first = self.weights[index], columns.first_column
        starts = (first + each * columns.row_columns for each in range(columns.grid_rows))
        return tuple(row[start : start + columns.grid_columns] for start in starts)

    @property
    def word_columns(self) -> tuple[int, ...]:
        """The columns of `source_tokens` that are no places of pictures."""
        places = {self.source_tokens[each.first_column] for each in self.pictures}
        return tuple(at for at, token in enumerate(self.source_tokens) if token not in places)


@dataclass(frozen=True, slots=True)
class TopToken:
    """One of the most probable tokens of a step: its id, the text it stands for, its log-probability."""

    id: int
    token: str
    log_prob: float


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a chat's model may call. `parameters` is the JSON Schema of an object, or None: it takes none.

    It is for a model whose template tells of functions: see `Model.call_format`.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call that a model has written. `id` names it, for the message with what the function gave.

    `arguments` are what the model wrote. They may be no JSON, and need not fit the function's parameters.
    """

    id: str
    name: str
    arguments: str


class LabelScoring(StrEnum):
    """What a classifier's scores are.

    Unspecified: probabilities that sum to 1. Sigmoid: each label has a probability of its own, so several may be true.
    Identity: any numbers, as of a regression.
    """

    UNSPECIFIED = "unspecified"
    SIGMOID = "sigmoid"
    IDENTITY = "identity"
