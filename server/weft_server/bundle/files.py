"""The files of a bundle: sizes and digests, and what changes when somebody changes one."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import TYPE_CHECKING

from weft_proto.bundle_rules import FILE_NAME, MANIFEST_FILE
from weft_server.errors import BundleError

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

    from weft_proto.v1 import bundle_pb2

_SHA256 = re.compile(r"[0-9a-f]{64}")


def read_small_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most max_bytes."""
    size = _size_of(path)
    if size > max_bytes:
        raise BundleError(f"{path.name} has {size} bytes; at most {max_bytes} are read")
    with _open(path) as file:
        return file.read()


def verify_files(directory: Path, manifest: bundle_pb2.BundleManifest) -> None:
    """Refuse names that are paths, links, and files that are missing, changed or not listed."""
    listed = _listed(manifest)
    verify_names(directory, listed | {MANIFEST_FILE}, MANIFEST_FILE)
    for file in manifest.files:
        verify_file(directory / file.path, file)


def verify_names(directory: Path, names: set[str], manifest: str) -> None:
    """Refuse a file that is none of the names that a manifest lists."""
    for entry in sorted(directory.iterdir()):
        if entry.name not in names:
            raise BundleError(f"{entry.name} is not listed in {manifest}")


def _listed(manifest: bundle_pb2.BundleManifest) -> set[str]:
    """Return the names of the files that a manifest lists. Each is a name, listed once, and has a digest."""
    listed: set[str] = set()
    for file in manifest.files:
        _verify_entry(file)
        if file.path in listed:
            raise BundleError(f"{file.path} is listed twice")
        listed.add(file.path)
    return listed


def _verify_entry(file: bundle_pb2.BundleFile) -> None:
    if not FILE_NAME.fullmatch(file.path) or file.path in {".", "..", MANIFEST_FILE}:
        raise BundleError(f"file name {file.path!r} is not allowed")
    if not _SHA256.fullmatch(file.sha256):
        raise BundleError(f"{file.path} has a sha256 that is not 64 lower-case hexadecimal digits")


def verify_file(path: Path, file: bundle_pb2.BundleFile) -> None:
    """Refuse a file that is a link, or has another size or digest than is said of it."""
    _verify_entry(file)
    size = _size_of(path)
    if size != file.size_bytes:
        raise BundleError(f"{file.path} has {size} bytes; the manifest says {file.size_bytes}")
    with _open(path) as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != file.sha256:
        raise BundleError(f"{file.path} has sha256 {digest}; the manifest says {file.sha256}")


def _size_of(path: Path) -> int:
    """Return the size of a plain file with one name. A link leads out of the bundle. A fifo or a device would block."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise BundleError(f"{path.name} is missing") from None
    if stat.S_ISLNK(status.st_mode):
        raise BundleError(f"{path.name} is a symbolic link; copy the file into the bundle")
    if not stat.S_ISREG(status.st_mode):
        raise BundleError(f"{path.name} is not a regular file")
    if status.st_nlink > 1:
        raise BundleError(f"{path.name} is a hard link; copy the file into the bundle")
    return status.st_size


def _open(path: Path) -> BufferedReader:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")


# Name, size, and the times of content and of status of each file.
Print = tuple[tuple[str, int, int, int], ...]


def fingerprint_of(directory: Path) -> Print:
    """Look at what lies in a folder, without reading it. Empty when it cannot be listed.

    Nobody sets the time of status (ctime). So a file that is repaired with the same size and the time of content that
    it had is another one. Numbers of inodes tell no more, and some file systems of networks change them.
    """
    try:
        stats = [(path.name, path.lstat()) for path in sorted(directory.iterdir())]
    except OSError:
        return ()
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in stats)
