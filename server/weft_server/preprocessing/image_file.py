"""A picture's file as Pillow reads it: its work is bounded, and it is given up when nobody waits any more."""

import io
import re
import struct

from weft_server.errors import InvalidRequest
from weft_server.preprocessing.wanted import Wanted

FIELD = "image.data"
# Chunks of a PNG, or segments of a JPEG. Each costs time, even an empty one. An honest picture has a few thousand.
MAX_PIECES = 16_384
# Pillow reads a piece in up to four reads, and pixels in blocks of this size. They are small, so that a picture is
# given up soon.
BLOCK = 4096
_READS = 4
_PNG = b"\x89PNG\r\n\x1a\n"
# The chunks that a picture is made of. The rest is not even read: texts and profiles may have any length.
_PNG_CHUNKS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT", b"eXIf"})
# These texts say how a picture stands, in files that are older than eXIf.
_PNG_TEXTS = (b"Raw profile type exif\0", b"XML:com.adobe.xmp\0")
# Behind such a marker a new segment begins. A stuffed 0xFF, a restart and a filling byte are no such markers.
_JPEG_MARKER = re.compile(rb"\xff([^\x00\x01\xff\xd0-\xd7])", re.DOTALL)
_START_OF_SCAN, _END_OF_IMAGE = b"\xda", b"\xd9"


class BoundedImageFile(io.BytesIO):
    """Bytes that can be read while somebody wants them, and in a bounded number of reads."""

    def __init__(self, data: bytes, wanted: Wanted) -> None:
        """Take the whole file."""
        super().__init__(data)
        self._wanted = wanted
        self._reads_left = _READS * MAX_PIECES + len(data) // BLOCK

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as any file.

        Raises:
            DeadlineExpired: nobody waits any more.
            InvalidRequest: there were too many reads.
        """
        self._wanted.check()
        if self._reads_left == 0:
            raise _crumbs()
        self._reads_left -= 1
        return super().read(size)


def without_metadata(data: bytes) -> bytes:
    """Return a PNG without the chunks that do not change its pixels, and any other file as it is.

    What says how the picture stands may be behind the pixels in a file. It is put before them.

    Raises:
        InvalidRequest: it has more than MAX_PIECES chunks.
    """
    if not data.startswith(_PNG):
        return data
    head, at = [_PNG], len(_PNG)
    rest: list[bytes] = []
    for _ in range(MAX_PIECES):
        if len(data) - at < 8:  # a length and a kind
            return b"".join((*head, *rest, data[at:]))
        length, kind = struct.unpack_from(">I4s", data, at)
        says_how = kind == b"eXIf" or data.startswith(_PNG_TEXTS, at + 8)
        if kind in _PNG_CHUNKS or says_how:
            is_behind = not says_how and (rest or kind == b"IDAT")
            (rest if is_behind else head).append(data[at : at + 12 + length])
        at += 12 + length
        if kind == b"IEND":
            return b"".join((*head, *rest))
    raise _crumbs()


def num_scans(data: bytes) -> int:
    """Return how often a JPEG's decoder goes over its pixels: its start-of-scan segments before the end of the image.

    The same bytes in a comment or in a preview picture do not count.

    Raises:
        InvalidRequest: it has more than MAX_PIECES segments.
    """
    count, at = 0, 2
    for _ in range(MAX_PIECES):
        marker = _JPEG_MARKER.search(data, at)
        if marker is None or marker[1] == _END_OF_IMAGE:
            return count
        count += marker[1] == _START_OF_SCAN
        # The length of a segment counts its own two bytes.
        at = marker.end() + max(2, int.from_bytes(data[marker.end() : marker.end() + 2]))
    raise _crumbs()


def _crumbs() -> InvalidRequest:
    return InvalidRequest(FIELD, f"is in too many pieces; at most {MAX_PIECES} are taken", "BAD_IMAGE")
