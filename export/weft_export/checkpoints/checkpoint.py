"""Checkpoints: a directory with config.json, model.safetensors, tokenizer files and a golden input.

config.json:

    family           one of weft_export.families.registry.FAMILIES
    description      one sentence for people
    model            the sizes: the fields of the family's config dataclass
    text             weft.v1.TextSpec, field names as in bundle.proto; for a model that takes or gives text
    image            weft.v1.ImageSpec, likewise; for a model that takes an image
    labels           the classes in index order; for a classifier
    decoding         {"max_new_tokens": n}, the default of a request; for a model that gives text
    golden           {"text": "..."} or {"image": "golden.png"}: the request that a server tries before it is ready
    metric           how answers to held-out requests are scored: one of the task's metrics in specs.DEMANDS, by default
                     the first
    attention_layer  which attention layer explains, counted from 0, when a request names none; for a model that attends
                     and has no summary of all its layers

model.safetensors holds the model's state_dict in float32, float16 or bfloat16; it loads as float32.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from google.protobuf import json_format
from torch import nn

from weft_export.checkpoints.bounds import check_list, check_states, check_value
from weft_export.checkpoints.config_file import fields_of, read_config
from weft_export.checkpoints.files import check_directory, check_name, read_file
from weft_export.checkpoints.sharing import without_weights
from weft_export.checkpoints.specs import DEMANDS, check_image, check_labels, check_metric, check_text
from weft_export.checkpoints.weights import WEIGHTS_FILE, check_header, read_header, read_weights, write_weights
from weft_export.errors import CheckpointError
from weft_export.families.classifier import Classifier
from weft_export.families.registry import FAMILIES
from weft_export.families.sizes import num_layers_of, read_sizes
from weft_export.families.writer import Writer
from weft_proto.bundle_rules import CONFIG_FILE, LIMITS, MAX_LAYERS
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2

MAX_TABLE_NUMBERS = 2**25
"""The most that all tables beside the weights may hold. For example 32,768 by 1,024, or twice T5's 4,096 by 4,096."""


@dataclass(frozen=True)
class Checkpoint:
    """A trained model and everything that a bundle says about it.

    files holds the tokenizers and the golden image, by the names that text and golden give them.
    """

    family: str
    description: str
    model: Writer | Classifier
    golden: bundle_pb2.Golden
    text: bundle_pb2.TextSpec | None = None
    image: bundle_pb2.ImageSpec | None = None
    labels: tuple[str, ...] = ()
    max_new_tokens: int | None = None
    attention_layer: int | None = None
    metric: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise CheckpointError when the parts contradict each other."""
        if self.family not in FAMILIES:
            raise CheckpointError(f"unknown family {self.family!r}; known are {', '.join(sorted(FAMILIES))}")
        config: Any = self.model.config
        try:
            check_text(self.task, config, self.text)
            check_image(self.task, config, self.image)
            check_labels(self.task, config, self.labels)
            check_metric(self.task, self.metric)
            check_value("description", self.description, LIMITS["BundleManifest"]["description"])
            check_value("golden.text", self.golden.text, LIMITS["Golden"]["text"])
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

    @property
    def task(self) -> common_pb2.Task.ValueType:
        """What the model does."""
        return FAMILIES[self.family].task

    @property
    def scored_by(self) -> str:
        """How answers to held-out requests are scored."""
        return self.metric or DEMANDS[self.task].metrics[0]

    def _check_attention_layer(self) -> None:
        num_layers = len(self.model.attention_heads)
        if num_layers == 0 or self.model.summarises:
            if self.attention_layer is not None:
                raise CheckpointError("this model takes no 'attention_layer'")
        elif self.attention_layer is None or not 0 <= self.attention_layer < num_layers:
            raise CheckpointError(f"attention_layer must be in [0, {num_layers}), not {self.attention_layer}")

    def _check_decoding(self) -> None:
        if TASKS[self.task].writes_text:
            assert self.text is not None
            if self.max_new_tokens is None or not 1 <= self.max_new_tokens <= self.text.max_new_tokens:
                most = f"text.max_new_tokens, which is {self.text.max_new_tokens}"
                raise CheckpointError(
                    f"decoding.max_new_tokens must be between 1 and {most}, not {self.max_new_tokens}"
                )
        elif self.max_new_tokens is not None:
            raise CheckpointError("a classifier has no 'decoding'")

    def _file_names(self) -> list[str]:
        names = [self.text.source_tokenizer, self.text.target_tokenizer] if self.text is not None else []
        if (self.golden.WhichOneof("input") == "text") != (self.image is None):
            raise CheckpointError("golden needs an image for a model that takes images, else a text")
        if self.image is not None and not self.golden.image_path:
            raise CheckpointError("golden.image is empty")
        return [name for name in (*names, self.golden.image_path) if name]


def save_checkpoint(directory: Path, checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> None:
    """Write a checkpoint into a directory, which is made if need be.

    torch.float16 halves the file. Then measure the quality of the model that load_checkpoint returns.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in checkpoint.files.items():
        (directory / name).write_bytes(content)
    write_weights(directory / WEIGHTS_FILE, checkpoint.model.state_dict(), dtype)
    text = json.dumps(_to_config(checkpoint), indent=2, ensure_ascii=False)
    (directory / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")


def load_checkpoint(directory: Path) -> Checkpoint:
    """Read a checkpoint; its model is in eval mode and float32, and its float32 weights lie in the mapped file.

    Raises:
        CheckpointError: There are three cases:
            1. A file is missing or cannot be read.
            2. The family is unknown, a size is beyond its bound, or sizes contradict each other.
            3. A tensor is missing, unexpected or of another shape.
    """
    check_directory(directory)
    config = read_config(directory)
    family = FAMILIES[config["family"]]
    try:
        sizes = read_sizes(config["family"], family.config, config["model"])
        fields = fields_of(config)
    except (KeyError, TypeError, ValueError, json_format.ParseError) as error:
        raise CheckpointError(f"{directory / CONFIG_FILE}: {_reason(error)}") from error
    path = directory / WEIGHTS_FILE
    header = read_header(path)
    _check_layers(path, sizes, len(header))
    # Without memory behind it: what config.json says is held to the weights before anything of that size is made.
    with torch.device("meta"):
        shell = family.model(sizes)
    _check_tables(directory, shell)
    try:
        files = {name: _read_named(directory, name) for name in _named_files(fields)}
        checkpoint = Checkpoint(family=config["family"], model=shell, files=files, **fields)
    except CheckpointError as error:
        raise CheckpointError(f"{directory}: {error}") from error
    check_header(path, header, shell.state_dict())
    with without_weights():
        model = family.model(sizes)
    model.load_state_dict(read_weights(path, shell.state_dict()), assign=True)
    return replace(checkpoint, model=model.eval())


def _check_layers(path: Path, sizes: Any, num_tensors: int) -> None:
    """Refuse more layers than the file has tensors: each has one at least. Layers take time even without memory."""
    for name, number in num_layers_of(sizes).items():
        if number > num_tensors:
            raise CheckpointError(f"model.{name} is {number}, but {path} has {num_tensors} tensors in all")


def _check_tables(directory: Path, shell: nn.Module) -> None:
    """Refuse what is made beside the weights, tables of positions, when it is larger than any model needs."""
    weights = shell.state_dict().keys()
    total = sum(buffer.numel() for name, buffer in shell.named_buffers() if name not in weights)
    if total > MAX_TABLE_NUMBERS:
        raise CheckpointError(
            f"{directory / CONFIG_FILE}: tables of positions would hold {total} numbers, {MAX_TABLE_NUMBERS} are"
            " allowed; the model's lengths or pictures are too large"
        )


def _read_named(directory: Path, name: str) -> bytes:
    check_name(name)
    return read_file(directory / name)


def _named_files(fields: dict[str, Any]) -> set[str]:
    text = fields.get("text", bundle_pb2.TextSpec())
    return {text.source_tokenizer, text.target_tokenizer, fields["golden"].image_path} - {""}


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _to_config(checkpoint: Checkpoint) -> dict[str, Any]:
    model_config: Any = checkpoint.model.config
    image = checkpoint.golden.image_path
    config: dict[str, Any] = {"family": checkpoint.family, "description": checkpoint.description}
    config["model"] = asdict(model_config)
    for key, spec in (("text", checkpoint.text), ("image", checkpoint.image)):
        if spec is not None:
            config[key] = json_format.MessageToDict(spec, preserving_proto_field_name=True)
    if checkpoint.labels:
        config["labels"] = list(checkpoint.labels)
    if checkpoint.max_new_tokens is not None:
        config["decoding"] = {"max_new_tokens": checkpoint.max_new_tokens}
    config["golden"] = {"image": image} if image else {"text": checkpoint.golden.text}
    if checkpoint.attention_layer is not None:
        config["attention_layer"] = checkpoint.attention_layer
    if checkpoint.metric is not None:
        config["metric"] = checkpoint.metric
    return config
