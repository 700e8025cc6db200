"""From the arguments of the verbs to the messages of the wire; what can't be sent is refused here."""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue

from weft._types import Decoding, Explain, Greedy, Messages, Picture, Sampling, Text
from weft.exceptions import FieldViolation, InvalidRequest
from weft_proto.v1 import caption_pb2, classification_pb2, common_pb2, generation_pb2, model_pb2, translation_pb2

# What the largest limit that a server can be given allows.
MAX_PICTURE_BYTES = 1 << 30


class Options(TypedDict, total=False):
    """What every request takes.

    `model` and `model_version` name the model: by default the server's only one for the task, and its highest version.
    `request_id` comes back in the answer and stands in the server's log; at most 64 printable ASCII characters.
    `explain` asks for the alignment, at the cost of one more pass; an `Explain` says of which layer and head.
    """

    model: str
    model_version: int | None
    request_id: str
    explain: bool | Explain


class GenerateOptions(Options, total=False):
    """What a request for text takes besides: how to produce it, and whether to return each token's log-probability."""

    decoding: Decoding | None
    return_scores: bool


class CaptionOptions(GenerateOptions, total=False):
    """What a caption takes: all that a request for text does."""


class TranslateOptions(GenerateOptions, total=False):
    """What a translation takes besides: BCP-47 tags, by default the model's only source and target language.

    `split_sentences` is for a text that is longer than the model takes: each sentence is translated by itself, and the
    translations are joined. It goes with neither token ids nor `explain`.
    """

    source_language: str
    target_language: str
    split_sentences: bool


class ClassifyOptions(Options, total=False):
    """What a classification takes besides: how many labels to return, by default all of them up to 5."""

    top_k: int | None


class TagOptions(Options, total=False):
    """What tagging takes: all that every request does."""


def _refuse(field: str, why: str, reason: str = "INVALID_FIELD") -> InvalidRequest:
    return InvalidRequest(f"{field}: {why}", reason=reason, field_violations=(FieldViolation(field, why),))


def _fill(message: Message, within: str = "", /, **values: Any) -> None:
    """Set every field whose value is not None; protobuf refuses wrong types, numbers out of range and bad Unicode.

    `within` is the path of the message in the request: a field is refused by the name that the server has for it.
    """
    for field, value in values.items():
        if value is None:
            continue
        try:
            if isinstance(value, Message):
                getattr(message, field).CopyFrom(value)
            elif isinstance(value, tuple):
                getattr(message, field).extend(value)
            else:
                setattr(message, field, value)
        except (TypeError, ValueError, OverflowError) as error:
            raise _refuse(within + field, str(error)) from None


def selector(model: str, version: int | None) -> common_pb2.ModelSelector:
    """Name a model."""
    message = common_pb2.ModelSelector()
    _fill(message, "model.", name=model, version=version)
    return message


def _fill_text(message: Message, text: Text) -> None:
    if isinstance(text, str):
        _fill(message, text=text)
    elif isinstance(text, bytes | bytearray):  # a sequence of integers too, but never meant as token ids
        raise _refuse("text", "must be a str or token ids, not bytes")
    else:
        ids = common_pb2.TokenIds()
        try:
            _fill(ids, "token_ids.", ids=tuple(text))
        except TypeError:
            raise _refuse("text", f"must be a str or token ids, not {type(text).__name__}") from None
        _fill(message, token_ids=ids)


def _messages(messages: Messages) -> generation_pb2.Messages:
    if isinstance(messages, str | Mapping):  # one message, or its text
        raise _refuse("messages", f"must be a list of messages, not {type(messages).__name__}")
    chat = generation_pb2.Messages()
    try:
        turns = list(messages)
    except TypeError:
        raise _refuse("messages", f"must be a list of messages, not {type(messages).__name__}") from None
    for index, turn in enumerate(turns):
        if not isinstance(turn, Mapping) or {"role", "content"} != turn.keys():
            raise _refuse(f"messages[{index}]", 'must be {"role": ..., "content": ...}')
        _fill(chat.turns.add(), f"messages[{index}].", **turn)
    return chat


def _image(picture: Picture) -> common_pb2.Image:
    if isinstance(picture, bytes | bytearray | memoryview):
        return common_pb2.Image(data=bytes(picture))
    try:
        status = Path(picture).stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # a pipe or a device may never end
            raise _refuse("image", f"{picture} is not a regular file", "BAD_IMAGE")
        if status.st_size > MAX_PICTURE_BYTES:
            raise _refuse("image", f"{picture} has {status.st_size} bytes; no server takes so many", "IMAGE_TOO_LARGE")
        return common_pb2.Image(data=Path(picture).read_bytes())
    except OSError as error:
        raise _refuse("image", f"cannot read {picture}: {error.strerror}", "BAD_IMAGE") from None
    except (TypeError, ValueError) as error:
        raise _refuse("image", str(error), "BAD_IMAGE") from None


def _decoding(decoding: Decoding | None) -> common_pb2.Decoding | None:
    if decoding is None:
        return None
    if not isinstance(decoding, Decoding):
        raise _refuse("decoding", f"must be a weft.Decoding, not {type(decoding).__name__}")
    if isinstance(decoding.stop, str):  # a tuple of characters otherwise
        raise _refuse("decoding.stop", "must be a tuple of strings, not one string")
    try:
        stop = tuple(decoding.stop or ())
    except TypeError:
        raise _refuse("decoding.stop", f"must be a tuple of strings, not {type(decoding.stop).__name__}") from None
    message = common_pb2.Decoding()
    lengths = {"max_new_tokens": decoding.max_new_tokens, "min_new_tokens": decoding.min_new_tokens}
    _fill(message, "decoding.", **lengths, stop=stop)
    match decoding.strategy:
        case None:
            pass
        case Greedy() | Sampling(temperature=0):
            message.greedy.SetInParent()
        case Sampling(temperature, top_k, top_p, seed):
            message.sampling.SetInParent()
            _fill(message.sampling, "decoding.sampling.", temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        case other:  # the class without its parentheses, a name
            raise _refuse("decoding.strategy", f"must be weft.Greedy() or weft.Sampling(...), not {other!r}")
    return message


def _explain(explain: bool | Explain | None) -> common_pb2.Explain | None:  # noqa: FBT001 - True is the plain way to ask
    if not isinstance(explain, bool | Explain | None):
        raise _refuse("explain", f"must be a bool or weft.Explain, not {type(explain).__name__}")
    if explain is None or explain is False:
        return None
    message = common_pb2.Explain()
    if isinstance(explain, Explain):
        if explain.layer is None and explain.head is not None:
            raise _refuse("explain.head", "needs a layer")
        for part, number in (("layer", explain.layer), ("head", explain.head)):
            _fill(message, "explain.", **{part: number})
    return message


def _fill_options(message: Message, options: dict[str, Any]) -> None:
    known = {*message.DESCRIPTOR.fields_by_name, "model_version"} - {"text", "token_ids", "image", "messages"}
    if unknown := options.keys() - known:
        raise TypeError(f"unknown option {min(unknown)!r}")
    model = selector(options.pop("model", ""), options.pop("model_version", None))
    decoding = _decoding(options.pop("decoding", None))
    explain = _explain(options.pop("explain", False))
    _fill(message, model=model, decoding=decoding, explain=explain, **options)


def translate_request(text: Text, **options: Unpack[TranslateOptions]) -> translation_pb2.TranslateRequest:
    """Ask for a translation."""
    message = translation_pb2.TranslateRequest()
    _fill_text(message, text)
    _fill_options(message, {**options})
    return message


def caption_request(image: Picture, **options: Unpack[CaptionOptions]) -> caption_pb2.CaptionRequest:
    """Ask for a caption."""
    message = caption_pb2.CaptionRequest(image=_image(image))
    _fill_options(message, {**options})
    return message


def generate_request(
    prompt: Text | None, messages: Messages | None = None, **options: Unpack[GenerateOptions]
) -> generation_pb2.GenerateRequest:
    """Ask for the continuation of a prompt or of a chat."""
    message = generation_pb2.GenerateRequest()
    if (prompt is None) == (messages is None):
        raise InvalidRequest("give either a prompt or messages to go on with", reason="WRONG_INPUT_KIND")
    if messages is not None:
        message.messages.CopyFrom(_messages(messages))
    elif prompt is not None:
        _fill_text(message, prompt)
    _fill_options(message, {**options})
    return message


def classify_request(
    text: Text | None, image: Picture | None = None, **options: Unpack[ClassifyOptions]
) -> classification_pb2.ClassifyRequest:
    """Ask for the labels of a text or of a picture."""
    message = classification_pb2.ClassifyRequest()
    if (text is None) == (image is None):
        raise InvalidRequest("give either a text or an image to classify", reason="WRONG_INPUT_KIND")
    if image is not None:
        message.image.CopyFrom(_image(image))
    elif text is not None:
        _fill_text(message, text)
    _fill_options(message, {**options})
    return message


def tag_request(text: Text, **options: Unpack[TagOptions]) -> classification_pb2.TagRequest:
    """Ask for the label of each token of a text."""
    message = classification_pb2.TagRequest()
    _fill_text(message, text)
    _fill_options(message, {**options})
    return message


def get_model_request(name: str, version: int | None) -> model_pb2.GetModelRequest:
    """Ask for what a server says of one model."""
    return model_pb2.GetModelRequest(model=selector(name, version))


def health_request(service: str) -> StringValue:
    """Ask whether a health service serves; see `_channel.health_check` for the type."""
    message = StringValue()
    _fill(message, value=service)
    return message
