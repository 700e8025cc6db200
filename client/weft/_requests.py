"""From the arguments of the verbs to the messages of the wire; what can't be sent is refused here."""

import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from google.protobuf.message import Message

from weft._decoding_message import decoding_message
from weft._fields import fill, refusal
from weft._types import (
    Explain,
    Messages,
    Picture,
    Recording,
    Text,
)
from weft._verb_options import (
    AnswerOptions,
    CaptionOptions,
    ClassifyOptions,
    EmbedOptions,
    ExtractOptions,
    FillMaskOptions,
    GenerateOptions,
    ScoreOptions,
    TagOptions,
    TranscribeOptions,
    TranslateOptions,
)
from weft.exceptions import InvalidRequest
from weft_proto.recordings import is_recording
from weft_proto.v1 import (
    answer_pb2,
    caption_pb2,
    classification_pb2,
    common_pb2,
    embedding_pb2,
    generation_pb2,
    score_pb2,
    transcription_pb2,
    translation_pb2,
)

# What the largest limit that a server can be given allows.
MAX_FILE_BYTES = 1 << 30


def selector(
    model: str, version: int | None, version_label: str | None = None, adapter: str = ""
) -> common_pb2.ModelSelector:
    """Name a model, and perhaps an adapter of it."""
    if version is not None and version_label is not None:
        raise refusal("model.version_label", "names a version, and model.version does so too: give one of them")
    message = common_pb2.ModelSelector()
    fill(message, "model.", name=model, version=version, version_label=version_label, adapter=adapter)
    return message


def _fill_text(message: Message, text: Text, field: str = "text", ids_field: str = "token_ids") -> None:
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


def messages_of(messages: Messages) -> generation_pb2.Messages:
    """Return a chat as the wire has it."""
    if isinstance(messages, str | Mapping):  # one message, or its text
        raise refusal("messages", f"must be a list of messages, not {type(messages).__name__}")
    chat = generation_pb2.Messages()
    try:
        turns = list(messages)
    except TypeError:
        raise refusal("messages", f"must be a list of messages, not {type(messages).__name__}") from None
    for index, turn in enumerate(turns):
        if not isinstance(turn, Mapping) or {"role", "content"} != turn.keys():
            raise refusal(f"messages[{index}]", 'must be {"role": ..., "content": ...}')
        fill(chat.turns.add(), f"messages[{index}].", **turn)
    return chat


def _image(picture: Picture) -> common_pb2.Image:
    return common_pb2.Image(data=_bytes("image", picture))


def _audio(recording: Recording) -> common_pb2.Audio:
    return common_pb2.Audio(data=_bytes("audio", recording))


def recording_of(path: Path) -> bytes:
    """Return the bytes of a file that has to be a recording."""
    data = _bytes("audio", path)
    if not is_recording(data):
        raise refusal("audio", f"{path} is not a WAV or FLAC file", "BAD_AUDIO")
    return data


def _bytes(field: str, given: Picture | Recording, kind: str = "") -> bytes:
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


def _two(given: Any, field: str, what: str) -> tuple[Any, Any]:
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


def _fill_options(message: Message, options: dict[str, Any]) -> None:
    known = {*message.DESCRIPTOR.fields_by_name, "model_version", "version_label", "adapter"} - _INPUTS
    if unknown := options.keys() - known:
        raise TypeError(f"unknown option {min(unknown)!r}")
    which = (options.pop("model", ""), options.pop("model_version", None), options.pop("version_label", None))
    model = selector(*which, options.pop("adapter", ""))
    decoding = decoding_message(options.pop("decoding", None))
    explain = _explain(options.pop("explain", False))
    fill(message, model=model, decoding=decoding, explain=explain, **options)


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


def answer_request(image: Picture, question: Text, **options: Unpack[AnswerOptions]) -> answer_pb2.AnswerRequest:
    """Ask a question about a picture."""
    message = answer_pb2.AnswerRequest(image=_image(image))
    _fill_text(message, question)
    _fill_options(message, {**options})
    return message


def answer_pair_request(asked: tuple[Picture, Text], **options: Unpack[AnswerOptions]) -> answer_pb2.AnswerRequest:
    """Do as `answer_request` with a picture and a question about it in one."""
    image, question = _two(asked, "questions", "a picture and a question")
    return answer_request(image, question, **options)


def transcribe_request(audio: Recording, **options: Unpack[TranscribeOptions]) -> transcription_pb2.TranscribeRequest:
    """Ask what is said in a recording."""
    message = transcription_pb2.TranscribeRequest(audio=_audio(audio))
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
        message.messages.CopyFrom(messages_of(messages))
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
    given = {**options}
    if given.get("text_pair") == "":
        # On the wire it would be none, and the one text would be judged alone.
        raise refusal("text_pair", "must not be empty: leave it out where there is one text", "EMPTY_INPUT")
    if "labels" in given:
        given["labels"] = _texts("labels", given["labels"])
    _fill_options(message, given)
    return message


def classify_one_request(
    text: Text | None, image: Picture | None = None, pair: Any = None, **options: Unpack[ClassifyOptions]
) -> classification_pb2.ClassifyRequest:
    """Do as `classify_request` for one text, one picture, or two texts in one."""
    if pair is None:
        return classify_request(text, image, **options)
    first, second = _two(pair, "pairs", "two texts")
    if options.get("text_pair") is not None:
        raise refusal("text_pair", "is in each of pairs")
    if not isinstance(second, str):
        raise refusal("text_pair", f"must be a str, not {type(second).__name__}")
    judged: ClassifyOptions = {**options, "text_pair": second}
    return classify_request(first, **judged)


def _texts(field: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str | bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        raise refusal(field, f"must be a list of texts, not {type(given).__name__}")
    return tuple(given)


def tag_request(text: Text, **options: Unpack[TagOptions]) -> classification_pb2.TagRequest:
    """Ask for the label of each token of a text."""
    message = classification_pb2.TagRequest()
    _fill_text(message, text)
    _fill_options(message, {**options})
    return message


def extract_request(
    context: str, question: str, **options: Unpack[ExtractOptions]
) -> classification_pb2.ExtractRequest:
    """Ask a question whose answer stands in a context."""
    message = classification_pb2.ExtractRequest()
    fill(message, context=context, question=question)
    _fill_options(message, {**options})
    return message


def extract_pair_request(
    asked: tuple[str, str], **options: Unpack[ExtractOptions]
) -> classification_pb2.ExtractRequest:
    """Do as `extract_request` with a context and a question about it in one."""
    context, question = _two(asked, "questions", "a context and a question")
    return extract_request(context, question, **options)


def fill_mask_request(text: str, **options: Unpack[FillMaskOptions]) -> classification_pb2.FillMaskRequest:
    """Ask which tokens fit in the places of a text's masks."""
    message = classification_pb2.FillMaskRequest()
    fill(message, text=text)
    given: dict[str, Any] = {**options}
    if "targets" in given:
        given["targets"] = _texts("targets", given["targets"])
    _fill_options(message, given)
    return message


def embed_request(
    texts: str | Iterable[Text] | None,
    images: Picture | Iterable[Picture] | None = None,
    **options: Unpack[EmbedOptions],
) -> embedding_pb2.EmbedRequest:
    """Ask for the vectors of some texts or of some pictures. One of them may stand alone."""
    message = embedding_pb2.EmbedRequest()
    if (texts is None) == (images is None):
        raise InvalidRequest("give either texts or images to embed", reason="WRONG_INPUT_KIND")
    if texts is not None:
        for index, text in enumerate(_each("texts", [texts] if isinstance(texts, str) else texts)):
            with _within(f"inputs[{index}]."):
                _fill_text(message.inputs.add(), text)
    elif images is not None:
        is_one = isinstance(images, bytes | bytearray | memoryview | str | PathLike)
        for index, image in enumerate(_each("images", [images] if is_one else images)):
            with _within(f"inputs[{index}]."):
                message.inputs.add().image.CopyFrom(_image(image))
    _fill_options(message, {**options})
    return message


@contextmanager
def _within(place: str) -> Iterator[None]:
    """Name what is refused by its place in the request."""
    try:
        yield
    except InvalidRequest as error:
        (violation,) = error.field_violations
        raise refusal(place + violation.field, violation.description, error.reason) from None


def embed_one_request(
    text: Text | None, image: Picture | None = None, **options: Unpack[EmbedOptions]
) -> embedding_pb2.EmbedRequest:
    """Do as `embed_request` for one text or one picture."""
    return embed_request(None if text is None else [text], None if image is None else [image], **options)


def _each(field: str, inputs: Any) -> Iterable[Any]:
    if isinstance(inputs, bytes | bytearray | Mapping) or not isinstance(inputs, Iterable):
        raise refusal(field, f"must be a list of inputs, not {type(inputs).__name__}")
    return inputs


def score_request(source: Text | bytes | Path, target: Text, **options: Unpack[ScoreOptions]) -> score_pb2.ScoreRequest:
    """Ask how probable a target is behind a source: a text, token ids, or a file as its path or its bytes.

    The file is a recording if it begins as one, else a picture.
    """
    message = score_pb2.ScoreRequest()
    if isinstance(source, bytes | Path):
        data = _bytes("source", source, "image")
        (message.audio if is_recording(data) else message.image).data = data
    else:
        _fill_text(message, source)
    _fill_text(message, target, "target_text", "target_ids")
    _fill_options(message, {**options})
    return message


def score_pair_request(
    pair: tuple[Text | bytes | Path, Text], **options: Unpack[ScoreOptions]
) -> score_pb2.ScoreRequest:
    """Do as `score_request` with a source and its target in one."""
    source, target = _two(pair, "pairs", "a source and a target")
    return score_request(source, target, **options)
