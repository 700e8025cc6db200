"""A trained model, and all that a bundle says about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from weft_export.checkpoints.bounds import check_list, check_states, check_value
from weft_export.checkpoints.files import check_name
from weft_export.checkpoints.specs import (
    DEMANDS,
    check_audio,
    check_bidirectional,
    check_image,
    check_labels,
    check_matching,
    check_metric,
    check_question,
    check_sight,
    check_template,
    check_text,
    named_in,
)
from weft_export.choices import BLOCK_SIZES
from weft_export.errors import CheckpointError
from weft_export.families.classifier import IDENTITY, SIGMOID, Classifier
from weft_export.families.registry import family_of
from weft_export.families.writer import Writer
from weft_proto.bundle_rules import LIMITS, MAX_LAYERS
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2


@dataclass(frozen=True)
class Checkpoint:
    """A trained model and everything that a bundle says about it.

    files holds the tokenizers, a chat's template and the golden image or recording, by the names that text and golden
    give them.
    rounding says what was rounded, and how, in a checkpoint that is.
    multiplied and divided are by what a product's inputs and outputs were, in one that was smoothed: by its path.
    """

    family: str
    description: str
    model: Writer | Classifier
    golden: bundle_pb2.Golden
    text: bundle_pb2.TextSpec | None = None
    image: bundle_pb2.ImageSpec | None = None
    audio: bundle_pb2.AudioSpec | None = None
    labels: tuple[str, ...] = ()
    label_text: str = ""
    """Of a model that matches: the text of a label, which takes the place of {}, unless a request says otherwise."""
    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    decoding: common_pb2.Decoding = field(default_factory=common_pb2.Decoding)
    """How answers are written unless a request says otherwise, but for the two lengths above."""
    attention_layer: int | None = None
    metric: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    explains: bool = True
    """Whether its bundle gets an EXPLAIN graph, if the model attends."""
    rounding: bundle_pb2.Rounding | None = None
    multiplied: Mapping[str, Tensor] = field(default_factory=dict)
    divided: Mapping[str, Tensor] = field(default_factory=dict)
    paged: bool = False
    """Whether its bundle keeps keys and values in blocks, if the model can."""
    max_block_size: int = max(BLOCK_SIZES)
    """Where weights are in blocks, the most of them that get one scale if answers allow it."""
    adapters: bundle_pb2.AdapterSpec | None = None
    """Which products of the model take adapters. None: none."""

    def __post_init__(self) -> None:
        """Raise CheckpointError when the parts contradict each other."""
        family_of(self.family)
        config: Any = self.model.config
        try:
            check_matching(self.task, self.label_text, self.golden.labels)
            if self.towers == (self,):
                check_text(self.task, config, self.text)
                check_image(self.task, config, self.image)
                check_sight(self.text, config.sight if self.sees else None)
                if isinstance(self.model, Writer):
                    check_bidirectional(self.text_spec, self.image, self.model.bidirectional)
                check_audio(self.task, config, self.audio, self.text)
            asked = config if isinstance(self.model, Writer) and self.model.reads_question else None
            check_question(self.task, self.text, self.image, getattr(self.model, "states", ()), asked)
            check_labels(self.task, config, self.labels)
            check_metric(self.metrics, self.metric, self.unscored)
            check_value("description", self.description, LIMITS["BundleManifest"]["description"])
            check_value("golden.text", self.golden.text, LIMITS["Golden"]["text"])
            check_value("golden.question", self.golden.question, LIMITS["Golden"]["question"])
            check_list("the layers that attend", self.model.attention_heads, MAX_LAYERS)
            check_states(getattr(self.model, "states", ()))
        except ValueError as error:
            raise CheckpointError(str(error)) from error
        self._check_decoding()
        self._check_attention_layer()
        for name in self._file_names():
            if name not in self.files:
                raise CheckpointError(f"the file {name} is missing")
            check_name(name)
        if self.text is not None and self.text.HasField("chat"):
            check_template(self.text.chat, self.files[self.text.chat.template])

    @property
    def task(self) -> common_pb2.Task.ValueType:
        """What the model does."""
        return family_of(self.family).task

    @property
    def sees(self) -> bool:
        """Whether its prompts may hold pictures."""
        return isinstance(self.model, Writer) and self.model.sees

    @property
    def text_spec(self) -> bundle_pb2.TextSpec:
        """What is true of its texts, of a model that reads or writes some."""
        assert self.text is not None, "this model has no texts. This is a bug."
        return self.text

    @property
    def explained_layer(self) -> int:
        """The layer that explains when a request names none, of a model that attends."""
        assert self.attention_layer is not None, "this model does not attend. This is a bug."
        return self.attention_layer

    def read_media(self, what: str, data: bytes) -> Tensor:
        """Return the file of a picture as pixel_values [C, H, W], or of a recording as input_features [mels, frames].

        For a model that labels moments, a recording is a waveform [samples].

        Raises:
            CheckpointError: it begins with `what`, and says what a server would not take.
        """
        if self.image is not None:
            from weft_export.checkpoints.picture import read_picture  # noqa: PLC0415 - late: for models that take pictures

            return torch.from_numpy(read_picture(what, data, self.image))
        from weft_export.checkpoints.sound import read_recording  # noqa: PLC0415 - late: for models that hear

        assert self.audio is not None, "this model takes texts alone. This is a bug."
        return read_recording(what, data, self.audio)

    @property
    def towers(self) -> "tuple[Checkpoint, ...]":
        """Checkpoints that take one kind of input: of a model that matches, its pictures' and its texts'; else itself.

        Making them holds each to its own sizes. Pictures are what is explained.
        """
        if not TASKS[self.task].matches:
            return (self,)
        assert isinstance(self.model, Classifier)
        (pictures, of_pictures), (texts, of_texts) = self.model.towers.items()
        given = bundle_pb2.Golden(image_path=self.golden.image_path)
        asked = bundle_pb2.Golden(text=self.label_text.replace("{}", self.golden.labels[0]))
        return (
            replace(self, family=pictures, model=of_pictures, text=None, golden=given, label_text="", metric=None),
            replace(
                self,
                family=texts,
                model=of_texts,
                image=None,
                golden=asked,
                label_text="",
                explains=False,
                metric=None,
            ),
        )

    @property
    def explained_heads(self) -> tuple[int, ...]:
        """How many heads each layer has that its bundle can explain."""
        return self.model.attention_heads if self.explains else ()

    @property
    def has_several_right(self) -> bool:
        """Whether several labels of an input may be right at once."""
        return self._scoring == SIGMOID and len(self.labels) > 1

    @property
    def metrics(self) -> tuple[str, ...]:
        """What answers to held-out requests may be scored by; none for values, which are no answer of several."""
        if self.has_several_right:
            return ("label_f1",)
        has_token_vectors = TASKS[self.task].embeds and self.gives_rows
        return () if self._scoring == IDENTITY or has_token_vectors else DEMANDS[self.task].metrics

    @property
    def gives_rows(self) -> bool:
        """Whether each token of an input has values of its own: labels, or a vector."""
        config: Any = self.model.config
        return TASKS[self.task].labels_tokens or getattr(config, "tokens", None) is not None

    @property
    def unscored(self) -> str | None:
        """What kind of model this is whose answers nothing scores; None if something does."""
        if self.metrics:
            return None
        row = TASKS[self.task]
        return (
            f"the task {row.name}"
            if row.matches or row.labels_frames
            else "a model with a vector for each token"
            if row.embeds
            else "a model whose scores are values and no probabilities"
        )

    @property
    def _scoring(self) -> str | None:
        """What makes scores of the labels of a whole input; None if it has no such labels."""
        task, model = TASKS[self.task], self.model
        has_them = task.has_labels and not task.labels_tokens
        return model.scoring if has_them and isinstance(model, Classifier) else None

    @property
    def scored_by(self) -> str:
        """How answers to held-out requests are scored."""
        return self.metric or self.metrics[0]

    def _check_attention_layer(self) -> None:
        num_layers = len(self.model.attention_heads)
        if num_layers == 0 or self.model.summarises:
            if self.attention_layer is not None:
                raise CheckpointError("this model takes no 'attention_layer'")
        elif self.attention_layer is None or not 0 <= self.attention_layer < num_layers:
            raise CheckpointError(f"attention_layer must be in [0, {num_layers}), not {self.attention_layer}")

    def _check_decoding(self) -> None:
        if TASKS[self.task].writes_text:
            if self.max_new_tokens is None or not 1 <= self.max_new_tokens <= self.text_spec.max_new_tokens:
                most = f"text.max_new_tokens, which is {self.text_spec.max_new_tokens}"
                raise CheckpointError(
                    f"decoding.max_new_tokens must be between 1 and {most}, not {self.max_new_tokens}"
                )
            if not 0 <= self.min_new_tokens <= self.max_new_tokens:
                most = f"decoding.max_new_tokens, which is {self.max_new_tokens}"
                raise CheckpointError(
                    f"decoding.min_new_tokens must be between 0 and {most}, not {self.min_new_tokens}"
                )
        elif self.max_new_tokens is not None or self.min_new_tokens or self.decoding.ByteSize():
            raise CheckpointError("a classifier has no 'decoding'")

    def _file_names(self) -> list[str]:
        names = named_in(self.text) if self.text is not None else []
        row = TASKS[self.task]
        kind = "image" if row.takes_image or self.sees else "audio" if row.takes_audio else "text"
        if (self.golden.WhichOneof("input") or "").removesuffix("_path") != kind:
            raise CheckpointError(f"golden needs {kind}, which this model takes")
        if (row.takes_question or self.sees) != bool(self.golden.question):
            raise CheckpointError("golden.question is for a model that is asked about pictures, and needed there")
        path = self.golden.image_path or self.golden.audio_path
        if kind != "text" and not path:
            raise CheckpointError(f"golden.{kind} is empty")
        return [name for name in (*names, path) if name]
