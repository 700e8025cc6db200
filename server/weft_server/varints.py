"""Numbers as protobuf writes them, seven bits a byte, read without making a message."""

from google.protobuf.message import DecodeError

# Of one number. protobuf reads no more either.
_MAX_BYTES = 10
# All of a number's, but for its last.
_CONTINUED = bytes(range(128, 256))


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where the next one begins.

    Raises DecodeError if it does not end, and IndexError where the data do before.
    """
    value = 0
    for shift in range(0, 7 * _MAX_BYTES, 7):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 128:
            return value, at
    raise DecodeError


def num_varints(data: bytes, at: int, end: int, most: int) -> int:
    """Return how many numbers end before `end`, or a number beyond `most`. Then not all bytes are looked at."""
    if end - at > most * _MAX_BYTES:
        return most + 1
    return len(data[at:end].translate(None, _CONTINUED))
