"""How large a message each method takes: a name, a text or a picture."""

MAX_NAME_BYTES = 4096
MAX_TEXT_BYTES = 4 * 1024 * 1024
_NAMES = ("weft.v1.ModelService", "weft.v1.ModelAdminService", "grpc.health.", "grpc.reflection.")
_PICTURES = {"Caption", "StreamCaption", "Classify", "Embed", "Score"}


def max_bytes(method: str, most: int) -> int:
    """Return the largest number of bytes of a message to a method, by its full name. `most` is what any may have."""
    service, _, name = method.removeprefix("/").partition("/")
    if name in _PICTURES:
        return most
    return min(most, MAX_NAME_BYTES if service.startswith(_NAMES) else MAX_TEXT_BYTES)
