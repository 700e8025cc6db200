"""What a load calls: a verb with bytes in and out. Only the last message of an answer is read."""

from typing import Any

from weft._bench.inputs import Kind
from weft._bench.record import Record
from weft._types import Task
from weft._verbs import VERBS, Verb, WritingVerb
from weft.exceptions import InternalError
from weft_proto import tasks
from weft_proto.v1 import common_pb2

_VERBS = {task: verb for verb in VERBS for task in verb.tasks}

TASKS = frozenset(_VERBS)
_ROWS = {Task(row.name): row for row in tasks.TASKS.values()}
# Of verbs that take two kinds of input, texts are the first argument.
PICTURES_SECOND = frozenset({Task.CLASSIFY_IMAGE, Task.EMBED_IMAGE, Task.MATCH})
WRITES_TEXT = frozenset(task for task, verb in _VERBS.items() if isinstance(verb, WritingVerb))


def reads(task: Task) -> Kind:
    """Return what the load sends to models of a task."""
    row = _ROWS[task]
    return Kind.RECORDINGS if row.takes_audio else Kind.PICTURES if row.takes_image else Kind.TEXTS


class Method:
    """The method that a task's models answer, unary or streaming. `path` is its name on the wire."""

    def __init__(self, task: Task, *, streams: bool) -> None:
        self._task = task
        self._verb: Verb[..., Any] = _VERBS[task]
        self._streaming = self._verb if isinstance(self._verb, WritingVerb) and streams else None
        self.streams = self._streaming is not None
        self.path = self._verb.path if self._streaming is None else self._streaming.stream_path

    def payload(self, asked: Any, **options: Any) -> bytes:
        """Return the request as bytes; raises InvalidRequest for what can't be sent."""
        given = (None, asked) if self._task in PICTURES_SECOND else (asked,)
        request = self._verb.request(*given, **options)
        if self._streaming is not None:
            request = self._streaming.stream_request(request=request)
        return request.SerializeToString()

    def read(self, message: bytes, record: Record) -> None:
        """Write down what the last message of an answer says of tokens and times."""
        answer = self._answer(message)
        writes = isinstance(self._verb, WritingVerb)
        said = answer.completion if writes else answer
        record.input_tokens = said.usage.input_tokens
        record.output_tokens = said.usage.output_tokens
        times = said.timings
        record.queue, record.prefill, record.decode = (
            part.seconds + part.nanos / 1e9 for part in (times.queue, times.prefill, times.decode)
        )
        record.ends_itself = writes and said.finish_reason == common_pb2.FINISH_REASON_STOP

    def _answer(self, message: bytes) -> Any:
        if self._streaming is None:
            return self._verb.response.FromString(message)
        event: Any = self._streaming.stream_response.FromString(message)
        if event.WhichOneof("event") != "final":
            raise InternalError("the stream ended without its final message. This is a bug.")
        return event.final
