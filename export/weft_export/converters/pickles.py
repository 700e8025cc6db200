"""Named tensors that torch.save wrote: in a zip, or as before 2020 one behind the other.

torch.load(weights_only=True) runs no code. But a small file can make it take any amount of memory. So it reads only
what torch.save writes of named tensors, in a file that is as large as it says.
"""

import io
import pickletools
import zipfile
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from weft_export.checkpoints.files import check_regular
from weft_export.errors import CheckpointError

MAX_PICKLE_BYTES = 2**23
"""Of names and shapes. A tensor takes about 200."""
# A tensor has four. Some 100,000 in each other are too deep for the interpreter.
_MAX_TUPLES = 2**16
# Numbers up to here do no harm, however short a file is.
_SMALL = 2**16
# An embedding that is the output projection too is one storage, and BART has it under four names.
_MAX_SHARING = 8
_ZIP = b"PK\3\4"
# Two pickles of one number each: a mark and a version.
_OLD = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."
# The machine, the tensors, and the order of their storages.
_NUM_OLD_PICKLES = 3
_STORAGES = ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Short", "Char", "Byte", "Bool")
_NAMED = frozenset(
    [
        "collections OrderedDict",
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        *(f"torch {each}Storage" for each in _STORAGES),
    ]
)


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file. Those in a zip stay in the mapped file.

    Raises:
        CheckpointError: it holds something else, or is not what it says.
    """
    size = check_regular(path)
    try:
        is_zip = _check(path, size)
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # a broken pickle may raise anything, in a zip or in torch
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise CheckpointError(
            f"{path} is not a file of weights that is read without running code: {reason:.300}"
        ) from error
    if not isinstance(loaded, dict) or not all(
        isinstance(name, str) and isinstance(each, Tensor) for name, each in loaded.items()
    ):
        raise CheckpointError(f"{path} holds something else than named tensors")
    for name, tensor in loaded.items():
        if tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise CheckpointError(f"{path}: the tensor {name:.80} is sparse, or has no values")
    claimed = sum(tensor.nbytes for tensor in loaded.values())
    if claimed > _MAX_SHARING * size:
        raise CheckpointError(f"{path}: its tensors would take {claimed} bytes, and the file has {size}")
    return {name: tensor.detach() for name, tensor in loaded.items()}


def _check(path: Path, size: int) -> bool:
    """Whether a file is a zip. ValueError when torch should not read it."""
    with path.open("rb") as file:
        beginning = file.read(len(_OLD))
        if beginning.startswith(_ZIP):
            _check_zip(file, size)
            return True
        if beginning != _OLD:
            raise ValueError("it does not begin as torch.save's files do")
        head = io.BytesIO(file.read(MAX_PICKLE_BYTES))
        for _ in range(_NUM_OLD_PICKLES):
            _check_pickle(head, size)
        return False


def _check_zip(file: IO[bytes], size: int) -> None:
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        # Then torch, which reads zips by itself, finds the same entries.
        if archive.comment or min(entry.header_offset for entry in entries):
            raise ValueError("there is something around its zip")
        names = [entry.filename.lower() for entry in entries]
        if len(set(names)) < len(names):
            raise ValueError("its zip has a name twice")
        for entry, name in zip(entries, names, strict=True):
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                raise ValueError(f"{entry.filename} is compressed in its zip")
            if entry.file_size > size:
                raise ValueError(f"{entry.filename} is said to be longer than the file")
            if name.endswith("data.pkl"):
                if entry.file_size > MAX_PICKLE_BYTES:
                    raise ValueError(f"{entry.filename} has {entry.file_size} bytes; {MAX_PICKLE_BYTES} are read")
                _check_pickle(io.BytesIO(archive.read(entry)), size)


def _check_pickle(file: IO[bytes], size: int) -> None:
    """Look through a pickle without running it, up to its end. ValueError for what no file of weights needs."""
    num_tuples = 0
    for opcode, argument, _ in pickletools.genops(file):
        num_tuples += opcode.name.startswith("TUPLE")
        if opcode.name == "GLOBAL" and argument not in _NAMED:
            raise ValueError(f"it asks for {str(argument).replace(' ', '.'):.80}, which is no tensor")
        if isinstance(argument, int) and argument > max(size, _SMALL):
            raise ValueError(f"it has the number {argument}, and the file has {size} bytes")
    if num_tuples > _MAX_TUPLES:
        raise ValueError(f"it has {num_tuples} tuples; {_MAX_TUPLES} are read")
