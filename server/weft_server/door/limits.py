"""How large a message each method takes: a name, a text or a file; and how many parts one has."""

from functools import partial

from weft_proto.bundle_rules import MAX_MATCHED_LABELS
from weft_server.errors import InvalidRequest
from weft_server.serving.embedding import MAX_INPUTS

MAX_NAME_BYTES = 4096
MAX_TEXT_BYTES = 4 * 1024 * 1024
_NAMES = ("weft.v1.ModelService", "weft.v1.ModelAdminService", "grpc.health.", "grpc.reflection.")
# Of a message beside its inputs. Any may come several times.
_OTHER_FIELDS = 64
# Bits of a number.
_LONGEST = 63
_FILES = {
    *("Caption", "StreamCaption", "Answer", "StreamAnswer", "Transcribe", "StreamTranscribe"),
    *("Classify", "Embed", "Score"),
}


def max_bytes(method: str, most: int) -> int:
    """Return the largest number of bytes of a message to a method, by its full name. `most` is what any may have."""
    service, _, name = method.removeprefix("/").partition("/")
    if name in _FILES:
        return most
    return min(most, MAX_NAME_BYTES if service.startswith(_NAMES) else MAX_TEXT_BYTES)


def check_parts(data: bytes, field: str, most: int) -> None:
    """Raise InvalidRequest for a message of far too many fields: millions of empty ones would be gigabytes.

    `field` may come `most` times. What is no message is left to who parses it.
    """
    at = 0
    try:
        for _ in range(most + _OTHER_FIELDS):
            if at >= len(data):
                return
            key, at = _varint(data, at)
            size, at = _varint(data, at) if key & 7 in (0, 2) else ({1: 8, 5: 4}[key & 7], at)
            at += size if key & 7 else 0
    except (IndexError, KeyError):
        return
    raise InvalidRequest(field, f"must be 1..{most}, and there are more", "INPUT_TOO_LONG")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where the next one begins."""
    value = shift = 0
    while data[at] & 0x80 and shift < _LONGEST:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


CHECKS = {
    "/weft.v1.EmbeddingService/Embed": partial(check_parts, field="inputs", most=MAX_INPUTS),
    "/weft.v1.ClassificationService/Classify": partial(check_parts, field="labels", most=MAX_MATCHED_LABELS),
}
