"""The weights of a Hugging Face directory: one safetensors file, several, or what torch.save wrote.

safetensors are preferred.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from weft_export.checkpoints.files import check_name, read_file
from weft_export.checkpoints.weights import DATA_TYPES, Entry, open_weights, placed, read_header
from weft_export.errors import CheckpointError

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
MAX_FILES = 1024
Readers = dict[str, tuple[Entry, Callable[[], Tensor]]]
"""Of each tensor what it is, and what reads it."""
_TORCH_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


class NamedTensors:
    """Tensors by name, out of the files of `paths`. None is read before it is asked for."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.paths: list[Path] = []
        self.is_pickle = False
        self._readers: dict[str, Callable[[], Tensor]] = {}

    def read(self, name: str) -> Tensor:
        """Return a tensor in float32; one that is stored so stays in its mapped file."""
        return placed(self._readers[name](), torch.float32)

    def reader(self, name: str) -> Callable[[], Tensor]:
        """Return what reads a tensor as it is stored."""
        return self._readers[name]

    def add(self, path: Path, name: str, entry: Entry, reader: Callable[[], Tensor]) -> None:
        """Take a tensor of a file: what is said of it, and what reads it. CheckpointError where the name is taken."""
        if name in self.entries:
            raise CheckpointError(f"{path}: the tensor {name} is in another file too")
        self.entries[name] = entry
        self._readers[name] = reader


class StoredTensors(NamedTensors):
    """All tensors of a directory."""

    def __init__(self, directory: Path) -> None:
        """Read the headers.

        Raises:
            CheckpointError: There are no weights, or they are not what they say.
        """
        super().__init__()
        self.paths = _weight_files(directory)
        for path in self.paths:
            self.is_pickle = self.is_pickle or path.suffix == ".bin"
            for name, (entry, reader) in tensors_of(path).items():
                self.add(path, name, entry, reader)


def _weight_files(directory: Path) -> list[Path]:
    for single, index in ((SINGLE, INDEX), (PICKLE, PICKLE_INDEX)):
        if (directory / single).exists():
            return [directory / single]
        if (directory / index).exists():
            return _listed(directory, index)
    names: list[str] = []
    with suppress(OSError):
        names = sorted(path.name for path in directory.iterdir())
    others = [name for name in names if name.endswith((".safetensors", ".bin", ".gguf", ".h5", ".msgpack", ".pt"))]
    hint = f"; {others[0]} is there, and is not read under that name" if others else ""
    if others and others[0].endswith(".gguf"):
        hint = f"; {others[0]} is there: give the path of that file"
    raise CheckpointError(f"{directory} has no weights: neither {SINGLE} nor {INDEX}{hint}")


def _listed(directory: Path, index: str) -> list[Path]:
    """Return the files that an index names."""
    path = directory / index
    try:
        listed = json.loads(read_file(path))["weight_map"].values()
        names = sorted({name for name in listed if isinstance(name, str)})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is no index of weights: it has no weight_map") from error
    if not 1 <= len(names) <= MAX_FILES:
        raise CheckpointError(f"{path} names {len(names)} files; 1 to {MAX_FILES} are read")
    for name in names:
        check_name(name)
        if not name.endswith(path.name.split(".")[1]):
            raise CheckpointError(f"{path} names {name}, which is no such file of weights")
        if not (directory / name).exists():
            raise CheckpointError(f"{path} names {name}, which is missing")
    return [directory / name for name in names]


def tensors_of(path: Path) -> Readers:
    """Return what a file of weights has by name, by its suffix a pickle or safetensors. Nothing is read of the latter.

    Raises:
        CheckpointError: it is not such a file.
    """
    return _pickled(path) if path.suffix == ".bin" else _mapped(path)


def _mapped(path: Path) -> Readers:
    header = read_header(path)
    file = open_weights(path)

    def reader(name: str) -> Callable[[], Tensor]:
        return lambda: file.get_tensor(name)

    return {name: (entry, reader(name)) for name, entry in header.items()}


def _pickled(path: Path) -> Readers:
    from weft_export.converters.pickles import read_pickle  # noqa: PLC0415 - late: for such files alone

    def reader(tensor: Tensor) -> Callable[[], Tensor]:
        return tensor.contiguous

    return {name: (entry_of(tensor), reader(tensor)) for name, tensor in read_pickle(path).items()}


def entry_of(tensor: Tensor) -> Entry:
    """Return what is said of a tensor that a pickle holds."""
    return Entry(tuple(tensor.shape), _TORCH_NAMES.get(tensor.dtype, str(tensor.dtype)))


def check_type(path: str, name: str, entry: Entry) -> None:
    """Raise CheckpointError unless a tensor is of a type that is read."""
    if entry.data_type not in DATA_TYPES:
        known = "float32, float16 and bfloat16 are read"
        raise CheckpointError(f"{path}: the tensor {name} is of the type {entry.data_type}; {known}")
