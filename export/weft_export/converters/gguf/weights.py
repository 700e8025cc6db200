"""The weights of a GGUF file in float32, by their names in a Hugging Face directory. Each is read when it is asked."""

import mmap
from collections.abc import Callable

import torch
from torch import Tensor

from weft_export.checkpoints.weights import Entry
from weft_export.converters.gguf.architectures import Architecture, Heads, Undo
from weft_export.converters.gguf.block_types import widened
from weft_export.converters.gguf.header import Header, Place
from weft_export.converters.tensors import NamedTensors
from weft_export.errors import CheckpointError


def gguf_tensors(header: Header, architecture: Architecture, heads: Heads, unnamed: tuple[str, ...]) -> NamedTensors:
    """Return the tensors of a file, but for those that are no weights.

    Raises:
        CheckpointError: two of them are the same weight, or one cannot be put in order.
    """
    tensors = NamedTensors()
    tensors.paths = list(header.paths)
    for name, place in header.tensors.items():
        if name in unnamed:
            continue
        undo = architecture.undone(name)
        theirs = architecture.name_of(name)
        tensors.add(place.path, theirs, Entry(_shape(name, place, undo, heads), "F32"), _reader(place, undo, heads))
    return tensors


def read_place(place: Place) -> Tensor:
    """Return a tensor in float32."""
    with place.path.open("rb") as file:
        # A copy as soon as somebody writes, as torch asks for; the file stays as it is.
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        if place.first + place.num_bytes > len(content):
            raise CheckpointError(f"{place.path} has become shorter while it was read")
        return widened(
            torch.frombuffer(content, dtype=torch.uint8, count=place.num_bytes, offset=place.first),
            place.shape,
            place.kind,
        )


def _reader(place: Place, undo: Undo | None, heads: Heads) -> Callable[[], Tensor]:
    def read() -> Tensor:
        tensor = read_place(place)
        return tensor if undo is None else undo(tensor, heads).contiguous()

    return read


def _shape(name: str, place: Place, undo: Undo | None, heads: Heads) -> tuple[int, ...]:
    if undo is None:
        return place.shape
    try:
        return tuple(undo(torch.empty(place.shape, device="meta"), heads).shape)
    except RuntimeError as error:
        raise CheckpointError(
            f"{place.path}: the tensor {name} has the shape {list(place.shape)}, which does not fit {heads.queries}"
            f" heads of queries and {heads.keys} of keys"
        ) from error
