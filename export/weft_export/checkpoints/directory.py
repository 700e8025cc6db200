"""The directory of a checkpoint: config.json, model.safetensors, tokenizer files and a golden input.

model.safetensors holds the model's state_dict in float32, float16 or bfloat16; it loads as float32.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from google.protobuf import json_format
from torch import nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.config_file import config_of, fields_of, read_config
from weft_export.checkpoints.files import check_directory, check_name, read_file
from weft_export.checkpoints.sharing import without_weights
from weft_export.checkpoints.specs import named_in
from weft_export.checkpoints.weights import WEIGHTS_FILE, check_header, read_header, read_weights, write_weights
from weft_export.errors import CheckpointError
from weft_export.families.registry import family_of
from weft_export.families.sizes import num_layers_of, read_sizes
from weft_proto.bundle_rules import CONFIG_FILE
from weft_proto.v1 import bundle_pb2

MAX_TABLE_NUMBERS = 2**25
"""The most that all tables beside the weights may hold. For example 32,768 by 1,024, or twice T5's 4,096 by 4,096."""


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A checkpoint, where it comes from, and what a person should know of it.

    weights: the files of weights that it was made of.
    held_out: where held-out examples may lie.
    notes: sentences for who exports it.
    made_of: by weight of ours, the tensors of theirs that it is made of. A checkpoint of ours has none.
    """

    checkpoint: Checkpoint
    weights: tuple[Path, ...]
    held_out: Path
    notes: tuple[str, ...]
    made_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def save_checkpoint(directory: Path, checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> None:
    """Write a checkpoint into a directory, which is made if need be.

    torch.float16 halves the file. Then measure the quality of the model that load_checkpoint returns.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in checkpoint.files.items():
        (directory / name).write_bytes(content)
    write_weights(directory / WEIGHTS_FILE, checkpoint.model.state_dict(), dtype)
    text = json.dumps(config_of(checkpoint), indent=2, ensure_ascii=False)
    (directory / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")


def load_checkpoint(directory: Path, *, filled: bool = True) -> Checkpoint:
    """Read a checkpoint; its model is in eval mode and float32, and its float32 weights lie in the mapped file.

    If it is not to be filled, its weights stay on meta, and of the file only the header is read.

    Raises:
        CheckpointError: There are three cases:
            1. A file is missing or cannot be read.
            2. The family is unknown, a size is beyond its bound, or sizes contradict each other.
            3. A tensor is missing, unexpected or of another shape.
    """
    check_directory(directory)
    config = read_config(directory)
    family = family_of(config["family"])
    try:
        sizes = read_sizes(config["family"], family.config, config["model"])
        fields = fields_of(config)
    except (KeyError, TypeError, ValueError, json_format.ParseError) as error:
        raise CheckpointError(f"{directory / CONFIG_FILE}: {_reason(error)}") from error
    path = directory / WEIGHTS_FILE
    header = read_header(path)
    check_layers(path, sizes, len(header))
    # Without memory behind it: what config.json says is held to the weights before anything of that size is made.
    with torch.device("meta"):
        shell = family.model(sizes)
    check_tables(directory, shell)
    try:
        files = {name: _read_named(directory, name) for name in _named_files(fields)}
        checkpoint = Checkpoint(family=config["family"], model=shell, files=files, **fields)
    except CheckpointError as error:
        raise CheckpointError(f"{directory}: {error}") from error
    check_header(path, header, shell.state_dict())
    if not filled:
        return checkpoint
    with without_weights():
        model = family.model(sizes)
    model.load_state_dict(read_weights(path, shell.state_dict()), assign=True)
    return replace(checkpoint, model=model.eval())


def check_layers(path: Path, sizes: Any, num_tensors: int) -> None:
    """Refuse more layers than the file has tensors: each has one at least. Layers take time even without memory."""
    for name, number in num_layers_of(sizes).items():
        if number > num_tensors:
            raise CheckpointError(f"model.{name} is {number}, but {path} has {num_tensors} tensors in all")


def check_tables(directory: Path, shell: nn.Module) -> None:
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
    return {*named_in(text), fields["golden"].image_path, fields["golden"].audio_path} - {""}


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
