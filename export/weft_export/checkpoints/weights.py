"""model.safetensors: what its header says it holds, and the weights themselves, each held to what a model has."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from weft_export.checkpoints.files import check_regular
from weft_export.errors import CheckpointError

WEIGHTS_FILE = "model.safetensors"
# The names of types in a header. All load as float32.
DATA_TYPES = ("F32", "F16", "BF16")
# Smaller tensors, in bytes, are copied out of the mapped file.
_LEAST_MAPPED = 2**20
# What others keep weights in.
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True)
class Entry:
    """What a header says of a tensor: its shape, and its data type as safetensors calls it."""

    shape: tuple[int, ...]
    data_type: str


def read_header(path: Path) -> dict[str, Entry]:
    """Return what a safetensors file says of each of its tensors, without reading one.

    Raises:
        CheckpointError: it is not there, or not a safetensors file.
    """
    if not path.exists():
        raise CheckpointError(_missing(path))
    check_regular(path)
    with open_weights(path) as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        return {name: Entry(tuple(part.get_shape()), str(part.get_dtype())) for name, part in parts.items()}


def check_header(path: Path, header: Mapping[str, Entry], expected: Mapping[str, Tensor]) -> None:
    """Hold what a file says it has to the tensors that a model has, which may lie on meta.

    Raises:
        CheckpointError: the first tensor that is missing, unexpected, or of another shape or data type.
    """
    missing, unexpected = sorted(expected.keys() - header.keys()), sorted(header.keys() - expected.keys())
    if missing:
        others = f"; the file has {_some(unexpected)}, which the model has not" if unexpected else ""
        raise CheckpointError(f"{path}: the tensor {_some(missing)} is missing{others}")
    if unexpected:
        tied = " (here the embedding is the output projection too: leave it out)" * ("lm_head.weight" in unexpected)
        raise CheckpointError(f"{path}: the tensor {_some(unexpected)} is unexpected: the model has none such{tied}")
    for name, entry in sorted(header.items()):
        if entry.shape != tuple(expected[name].shape):
            shapes = f"{list(entry.shape)}, expected {list(expected[name].shape)}"
            raise CheckpointError(f"{path}: the tensor {name} has shape {shapes}")
        if entry.data_type not in DATA_TYPES:
            known = "float32, float16 and bfloat16 are read"
            raise CheckpointError(f"{path}: the tensor {name} is of the type {entry.data_type}; {known}")


def read_weights(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file whose header has been checked, in the data types of those that a model has.

    The file is mapped. A large tensor of its own data type is read when it is used, and the system can have its memory
    back at any time. Writing to it does not change the file.

    Raises:
        CheckpointError: it can be read no more.
    """
    with open_weights(path) as file:
        return {name: placed(file.get_tensor(name), tensor.dtype) for name, tensor in expected.items()}


def placed(mapped: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor of a mapped file in a data type: as it lies there if it is large and of that type."""
    # Small products sum in an order that goes with where a weight lies, and a file has it anywhere. Memory of its own
    # begins at a multiple of 64 bytes, so an answer's last bits do not depend on the length of the file's header.
    return mapped.to(dtype, copy=mapped.nbytes < _LEAST_MAPPED)


def write_weights(path: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Write a state_dict in one data type. Tensors that share memory are each written."""
    kept = {name: tensor.detach().to(dtype).contiguous() for name, tensor in tensors.items()}
    # Beside its place first: a model may be mapped from the file that is there.
    fresh = path.with_name(f".{path.name}.fresh")
    # Not save_file, which makes a file that only its owner may read.
    fresh.write_bytes(safetensors.torch.save(kept))
    fresh.replace(path)


def open_weights(path: Path) -> Any:
    """Map a safetensors file. Raises CheckpointError when it is none."""
    try:
        return safetensors.safe_open(path, framework="pt")
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file, or cut short: {error}") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


def _missing(path: Path) -> str:
    """Say what lies there instead of the one file."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(other.name for other in path.parent.iterdir())
    for name in names:
        if name.endswith((".safetensors", ".safetensors.index.json")):
            return (
                f"{path} is missing, and {name} is there: weights in several files, or under another name, are not"
                f" read; put all tensors into one {path.name}"
            )
    for name in names:
        if name.endswith(_PICKLES):
            return (
                f"{path} is missing, and {name} is there: a pickle is not read, because it may run code; write"
                f" torch.load({name!r}, weights_only=True) with safetensors.torch.save_file(..., {path.name!r})"
            )
    return f"cannot read {path}: there is no such file"


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
