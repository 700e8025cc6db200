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
    metric           how answers to held-out requests are scored: one of its task in specs.METRICS, or the first
    attention_layer  which attention layer explains unless a request names one, from 0; for a model that attends and has
                     no summary of all its layers

model.safetensors holds the model's state_dict in float32 or float16; it loads as float32.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from google.protobuf import json_format
from torch import Tensor

from weft_export.classifier import Classifier
from weft_export.errors import CheckpointError
from weft_export.families.registry import FAMILIES
from weft_export.specs import METRICS, WRITES_TEXT, check_image, check_labels, check_metric, check_text
from weft_export.writer import Writer
from weft_proto.v1 import bundle_pb2, common_pb2

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
_FILE_NAME = re.compile(r"[A-Za-z0-9._-]+")
_KEYS = {"family", "description", "model", "text", "image", "labels", "decoding", "golden", "attention_layer", "metric"}


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
        except ValueError as error:
            raise CheckpointError(str(error)) from error
        self._check_decoding()
        self._check_attention_layer()
        for name in self._file_names():
            if name not in self.files:
                raise CheckpointError(f"the file {name} is missing")
            if not _FILE_NAME.fullmatch(name) or name.endswith((".onnx", ".onnx.data")) or name == "bundle.json":
                raise CheckpointError(
                    f"the file name {name!r} cannot be in a bundle: letters, digits, '.', '_' and '-'"
                )

    @property
    def task(self) -> common_pb2.Task.ValueType:
        """What the model does."""
        return FAMILIES[self.family].task

    @property
    def scored_by(self) -> str:
        """How answers to held-out requests are scored."""
        return self.metric or METRICS[self.task][0]

    def _check_attention_layer(self) -> None:
        num_layers = len(self.model.attention_heads)
        if num_layers == 0 or self.model.summarises:
            if self.attention_layer is not None:
                raise CheckpointError("this model takes no 'attention_layer'")
        elif self.attention_layer is None or not 0 <= self.attention_layer < num_layers:
            raise CheckpointError(f"attention_layer must be in [0, {num_layers})")

    def _check_decoding(self) -> None:
        if self.task in WRITES_TEXT:
            assert self.text is not None
            if self.max_new_tokens is None or not 1 <= self.max_new_tokens <= self.text.max_new_tokens:
                raise CheckpointError("decoding.max_new_tokens must be in [1, text.max_new_tokens]")
        elif self.max_new_tokens is not None:
            raise CheckpointError("a classifier has no 'decoding'")

    def _file_names(self) -> list[str]:
        names = [self.text.source_tokenizer, self.text.target_tokenizer] if self.text is not None else []
        if (self.golden.WhichOneof("input") == "text") != (self.image is None):
            raise CheckpointError("golden needs an image for a model that takes images, else a text")
        return [name for name in (*names, self.golden.image_path) if name]


def save_checkpoint(directory: Path, checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> None:
    """Write a checkpoint into a directory, which is made if need be.

    torch.float16 halves the file; measure a model's quality on what load_checkpoint then returns.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in checkpoint.files.items():
        (directory / name).write_bytes(content)
    tensors = {name: tensor.detach().to(dtype).contiguous() for name, tensor in checkpoint.model.state_dict().items()}
    # Not save_file, which makes a file that only its owner may read.
    (directory / WEIGHTS_FILE).write_bytes(safetensors.torch.save(tensors))
    text = json.dumps(_to_config(checkpoint), indent=2, ensure_ascii=False)
    (directory / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")


def load_checkpoint(directory: Path) -> Checkpoint:
    """Read a checkpoint; its model is in eval mode and float32.

    Raises:
        CheckpointError: a file is missing or not readable, the family is unknown, sizes contradict each other, or a
            tensor is missing, unexpected or of another shape.
    """
    config = _read_config(directory)
    family = str(config.get("family"))
    if family not in FAMILIES:
        raise CheckpointError(f"{directory}: unknown family {family!r}; known are {', '.join(sorted(FAMILIES))}")
    try:
        sizes = FAMILIES[family].config(**config["model"])
        # Without memory behind it: what config.json says is held to the weights before anything of that size is made.
        with torch.device("meta"):
            shapes = FAMILIES[family].model(sizes).state_dict()
        fields = _from_config(config)
    except (KeyError, TypeError, ValueError, AttributeError, json_format.ParseError) as error:
        raise CheckpointError(f"{directory / CONFIG_FILE}: {_reason(error)}") from error
    weights = _read_weights(shapes, directory / WEIGHTS_FILE)
    model = FAMILIES[family].model(sizes)
    model.load_state_dict(weights)
    files = {name: _read_file(directory, name) for name in _named_files(fields)}
    try:
        return Checkpoint(family=family, model=model.eval(), files=files, **fields)
    except CheckpointError as error:
        raise CheckpointError(f"{directory}: {error}") from error


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


def _from_config(config: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(config) - _KEYS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    given = _typed(config["golden"], dict, "golden")
    if len(given) != 1 or not given.keys() <= {"text", "image"}:
        raise ValueError("golden must have text or image, and nothing else")
    golden = {"image_path" if key == "image" else key: value for key, value in given.items()}
    labels, decoding = _typed(config.get("labels", []), list, "labels"), config.get("decoding")
    fields: dict[str, Any] = {
        "description": _typed(config["description"], str, "description"),
        "golden": json_format.ParseDict(golden, bundle_pb2.Golden()),
        "labels": tuple(_typed(label, str, "a label") for label in labels),
    }
    if decoding is not None:
        if set(_typed(decoding, dict, "decoding")) != {"max_new_tokens"}:
            raise ValueError("decoding must have max_new_tokens, and nothing else")
        fields["max_new_tokens"] = _typed(decoding["max_new_tokens"], int, "decoding.max_new_tokens")
    if "attention_layer" in config:
        fields["attention_layer"] = _typed(config["attention_layer"], int, "attention_layer")
    if "metric" in config:
        fields["metric"] = _typed(config["metric"], str, "metric")
    if "text" in config:
        fields["text"] = json_format.ParseDict(config["text"], bundle_pb2.TextSpec())
    if "image" in config:
        fields["image"] = json_format.ParseDict(config["image"], bundle_pb2.ImageSpec())
    return fields


def _named_files(fields: dict[str, Any]) -> set[str]:
    text = fields.get("text", bundle_pb2.TextSpec())
    return {text.source_tokenizer, text.target_tokenizer, fields["golden"].image_path} - {""}


def _read_config(directory: Path) -> dict[str, Any]:
    try:
        config = json.loads(_read_file(directory, CONFIG_FILE))
    except ValueError as error:
        raise CheckpointError(f"{directory / CONFIG_FILE} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{directory / CONFIG_FILE} is not a JSON object")
    return config


def _read_file(directory: Path, name: str) -> bytes:
    if Path(name).name != name:
        raise CheckpointError(f"{name!r} is not the name of a file in the checkpoint")
    try:
        return (directory / name).read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {directory / name}: {error.strerror}") from error


def _read_weights(expected: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    try:
        tensors = safetensors.torch.load(_read_file(path.parent, path.name))
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise CheckpointError(f"{path}: the tensor {name} is missing")
        if name not in expected:
            raise CheckpointError(f"{path}: the tensor {name} is unexpected")
        if tensors[name].shape != expected[name].shape:
            shapes = f"{list(tensors[name].shape)}, expected {list(expected[name].shape)}"
            raise CheckpointError(f"{path}: the tensor {name} has shape {shapes}")
        if tensors[name].dtype not in (torch.float32, torch.float16):
            raise CheckpointError(f"{path}: the tensor {name} is {tensors[name].dtype}, not float32 or float16")
    return {name: tensor.float() for name, tensor in tensors.items()}


def _typed(value: Any, kind: type[Any], name: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, not {type(value).__name__}")
    return value


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
