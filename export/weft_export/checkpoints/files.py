"""The files of a checkpoint: regular files of a bounded size, with names that a bundle may have."""

import stat
from pathlib import Path

from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import FILE_NAME, MANIFEST_FILE, MAX_READ_BYTES

# Examples beside the weights, on which rounding is measured.
HELD_OUT_FILE = "held_out.jsonl"
# How such a pointer begins: git-lfs, docs/spec.md.
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"


def check_name(name: str) -> None:
    """Raise CheckpointError unless a bundle may hold a file of this name beside its graphs and manifest."""
    if Path(name).name != name or "\0" in name:
        raise CheckpointError(f"{name!r} is not the name of a file in the checkpoint")
    if not FILE_NAME.fullmatch(name) or name.endswith((".onnx", ".onnx.data")) or name == MANIFEST_FILE:
        raise CheckpointError(f"the file name {name!r} cannot be in a bundle: letters, digits, '.', '_' and '-'")


def check_directory(directory: Path) -> None:
    """Raise CheckpointError unless a checkpoint could be there."""
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise CheckpointError(f"{directory} {what}; a checkpoint is a directory with config.json and model.safetensors")


def check_regular(path: Path) -> int:
    """Return a file's size in bytes.

    Raises:
        CheckpointError: There are three cases:
            1. It is not there, or may not be read.
            2. It is a pipe or a device, which could be read for ever.
            3. It stands for a file that Git LFS keeps elsewhere.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path} is not a regular file")
        with path.open("rb") as file:
            start = file.read(len(_LFS_POINTER))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if start == _LFS_POINTER:
        raise CheckpointError(
            f"{path} is a pointer of Git LFS, and not the file itself: `git lfs pull` in its folder fetches it"
        )
    return status.st_size


def read_file(path: Path) -> bytes:
    """Read a regular file of at most MAX_READ_BYTES. For any other file, CheckpointError says what is wrong."""
    size = check_regular(path)
    if size > MAX_READ_BYTES:
        raise CheckpointError(f"{path} has {size} bytes; {MAX_READ_BYTES} are allowed")
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
