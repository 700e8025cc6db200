"""What a load calls: the method of a task, and how to read its answers. Only the last message of an answer is read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft import _requests
from weft._bench.record import Record
from weft._types import Task
from weft.exceptions import InternalError
from weft_proto.v1 import caption_pb2, classification_pb2, common_pb2, generation_pb2, translation_pb2

PICTURE_TASKS = frozenset({Task.CAPTION, Task.CLASSIFY_IMAGE})


@dataclass(frozen=True, slots=True)
class _Rpc:
    """The messages of one task. A task that produces text has `stream` and `streamed`."""

    service: str
    method: str
    request: Callable[..., Any]
    response: Any
    stream: Any = None
    streamed: Any = None


def _classify_picture(picture: bytes, **options: Any) -> Any:
    return _requests.classify_request(None, picture, **options)


def _classify_text(text: Any, **options: Any) -> Any:
    return _requests.classify_request(text, None, **options)


_CLASSIFICATION = "weft.v1.ClassificationService"
_RPCS = {
    Task.TRANSLATE: _Rpc(
        "weft.v1.TranslationService",
        "Translate",
        _requests.translate_request,
        translation_pb2.TranslateResponse,
        translation_pb2.StreamTranslateRequest,
        translation_pb2.StreamTranslateResponse,
    ),
    Task.CAPTION: _Rpc(
        "weft.v1.CaptionService",
        "Caption",
        _requests.caption_request,
        caption_pb2.CaptionResponse,
        caption_pb2.StreamCaptionRequest,
        caption_pb2.StreamCaptionResponse,
    ),
    Task.GENERATE: _Rpc(
        "weft.v1.GenerationService",
        "Generate",
        _requests.generate_request,
        generation_pb2.GenerateResponse,
        generation_pb2.StreamGenerateRequest,
        generation_pb2.StreamGenerateResponse,
    ),
    Task.CLASSIFY_TEXT: _Rpc(_CLASSIFICATION, "Classify", _classify_text, classification_pb2.ClassifyResponse),
    Task.CLASSIFY_IMAGE: _Rpc(_CLASSIFICATION, "Classify", _classify_picture, classification_pb2.ClassifyResponse),
    Task.TAG: _Rpc(_CLASSIFICATION, "Tag", _requests.tag_request, classification_pb2.TagResponse),
}
TASKS = frozenset(_RPCS)
WRITES_TEXT = frozenset(task for task, rpc in _RPCS.items() if rpc.stream)


class Verb:
    """One method of the server, with bytes in and out."""

    def __init__(self, task: Task, *, streams: bool) -> None:
        self._rpc = _RPCS[task]
        self.streams = streams
        self.path = f"/{self._rpc.service}/{'Stream' if streams else ''}{self._rpc.method}"

    def payload(self, asked: Any, **options: Any) -> bytes:
        """Return the request as bytes; raises InvalidRequest for what can't be sent."""
        request = self._rpc.request(asked, **options)
        whole = self._rpc.stream(request=request) if self.streams else request
        return bytes(whole.SerializeToString())

    def read(self, message: bytes, record: Record) -> None:
        """Read the last message of an answer: what it says of tokens and times."""
        if self.streams:
            event = self._rpc.streamed.FromString(message)
            if event.WhichOneof("event") != "final":
                raise InternalError("the stream ended without its final message. This is a bug.")
            answer = event.final
        else:
            answer = self._rpc.response.FromString(message)
        said = answer.completion if self._rpc.stream else answer
        record.input_tokens, record.output_tokens = said.usage.input_tokens, said.usage.output_tokens
        times = said.timings
        record.queue, record.prefill, record.decode = (
            part.seconds + part.nanos / 1e9 for part in (times.queue, times.prefill, times.decode)
        )
        record.ends_itself = self._rpc.stream is not None and said.finish_reason == common_pb2.FINISH_REASON_STOP
