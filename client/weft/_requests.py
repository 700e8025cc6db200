"""What the requests of the verbs are made of; what can't be sent is refused here."""

import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message

from weft._decoding_message import decoding_message
from weft._fields import fill, refusal
from weft._types import Explain, Function, FunctionCall, PictureFile, Recording, Text
from weft_proto.recordings import is_recording
from weft_proto.v1 import common_pb2

# What the largest limit that a server can be given allows.
MAX_FILE_BYTES = 1 << 30
Kind = TypeVar("Kind", Function, FunctionCall)


def selector(
    model: str, version: int | None, version_label: str | None = None, adapter: str = ""
) -> common_pb2.ModelSelector:
    """Name a model, and perhaps an adapter of it."""
    if version is not None and version_label is not None:
        raise refusal("model.version_label", "names a version, and model.version does so too: give one of them")
    message = common_pb2.ModelSelector()
    fill(message, "model.", name=model, version=version, version_label=version_label, adapter=adapter)
    return message


def fill_text(message: Message, text: Text, field: str = "text", ids_field: str = "token_ids") -> None:
    """Put a text, or the ids of its tokens, into the field of a request that is for it."""
    if isinstance(text, str):
        fill(message, **{field: text})
    elif isinstance(text, bytes | bytearray):  # a sequence of integers too, but never meant as token ids
        raise refusal(field, "must be a str or token ids, not bytes")
    else:
        ids = common_pb2.TokenIds()
        try:
            fill(ids, f"{ids_field}.", ids=tuple(text))
        except TypeError:
            raise refusal(field, f"must be a str or token ids, not {type(text).__name__}") from None
        fill(message, **{ids_field: ids})


def several_of(field: str, given: Any, kind: type[Kind]) -> list[Kind]:
    """Return what an option has several of."""
    several = (
        None if isinstance(given, str | bytes | bytearray | Mapping) or not isinstance(given, Iterable) else [*given]
    )
    if several is None or not all(isinstance(each, kind) for each in several):
        raise refusal(field, f"must be a list of weft.{kind.__name__}")
    return several


def image_of(picture: PictureFile) -> common_pb2.Image:
    """Return a picture as the wire has it."""
    return common_pb2.Image(data=bytes_of("image", picture))


def audio_of(recording: Recording) -> common_pb2.Audio:
    """Return a recording as the wire has it."""
    return common_pb2.Audio(data=bytes_of("audio", recording))


def recording_of(path: Path) -> bytes:
    """Return the bytes of a file that has to be a recording."""
    data = bytes_of("audio", path)
    if not is_recording(data):
        raise refusal("audio", f"{path} is not a WAV or FLAC file", "BAD_AUDIO")
    return data


def bytes_of(field: str, given: PictureFile | Recording, kind: str = "") -> bytes:
    """Return the bytes of a file, or those given. `kind` is "image" or "audio", by default the field."""
    kind = (kind or field).upper()
    bad, too_large = f"BAD_{kind}", f"{kind}_TOO_LARGE"
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if given == "":
        raise refusal(field, "is an empty path", bad)
    try:
        status = Path(given).stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # a pipe or a device may never end
            raise refusal(field, f"{given} is not a regular file", bad)
        if status.st_size > MAX_FILE_BYTES:
            raise refusal(field, f"{given} has {status.st_size} bytes; no server takes so many", too_large)
        return Path(given).read_bytes()
    except OSError as error:
        raise refusal(field, f"cannot read {given}: {error.strerror}", bad) from None
    except TypeError:
        raise refusal(field, f"must be bytes or the path of a file, not {type(given).__name__}", bad) from None
    except ValueError:
        raise refusal(field, f"{given!r} is not the path of a file", bad) from None


def _explain(explain: bool | Explain | None) -> common_pb2.Explain | None:  # noqa: FBT001 - True is the plain way to ask
    if not isinstance(explain, bool | Explain | None):
        raise refusal("explain", f"must be a bool or weft.Explain, not {type(explain).__name__}")
    if explain is None or explain is False:
        return None
    message = common_pb2.Explain()
    if isinstance(explain, Explain):
        if explain.layer is None and explain.head is not None:
            raise refusal("explain.head", "needs a layer")
        for part, number in (("layer", explain.layer), ("head", explain.head)):
            fill(message, "explain.", **{part: number})
    return message


def two_of(given: Any, field: str, what: str) -> tuple[Any, Any]:
    """Return what stands together in one of several inputs, which are all in `field`."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise refusal(field, f"must each be a tuple of {what}")
    first, second = given
    return first, second


# What a verb's own arguments say.
_INPUTS = {
    *("text", "token_ids", "image", "audio", "inputs", "messages", "target_text", "target_ids"),
    *("context", "question"),
}


def fill_options(message: Message, options: dict[str, Any]) -> None:
    """Put the options of a verb into its request. Raises TypeError for one that it does not know."""
    known = {*message.DESCRIPTOR.fields_by_name, "model_version", "version_label", "adapter"} - _INPUTS
    if unknown := options.keys() - known:
        raise TypeError(f"unknown option {min(unknown)!r}")
    which = (options.pop("model", ""), options.pop("model_version", None), options.pop("version_label", None))
    model = selector(*which, options.pop("adapter", ""))
    decoding = decoding_message(options.pop("decoding", None))
    explain = _explain(options.pop("explain", False))
    fill(message, model=model, decoding=decoding, explain=explain, **options)


def texts_of(field: str, given: Any) -> tuple[str, ...]:
    """Return the texts of an option that takes several."""
    if isinstance(given, str | bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        raise refusal(field, f"must be a list of texts, not {type(given).__name__}")
    return tuple(given)
