"""What a load asks for, as the options say it, and which model and method that means."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from google.protobuf.message import DecodeError, Message

from weft._model import Model, ModelState
from weft._types import Task
from weft._verbs.table import VERBS
from weft._verbs.verb import Verb, WritingVerb
from weft.exceptions import InternalError, InvalidRequest
from weft_bench.inputs import Kind, kind_of
from weft_bench.lengths import Lengths
from weft_bench.record import Record
from weft_proto import tasks
from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import METHODS

_VERBS = {task: verb for verb in VERBS for task in verb.tasks}

TASKS = frozenset(_VERBS)
_ROWS = {Task(row.name): row for row in tasks.TASKS.values()}
# Their verbs take two kinds of input, and texts are the first argument.
PICTURES_SECOND = frozenset(task for task, row in _ROWS.items() if row.takes_image and not row.writes_text)
WRITES_TEXT = frozenset(task for task in _VERBS if _ROWS[task].writes_text)


def reads(task: Task) -> Kind:
    """Return what the load sends to models of a task."""
    row = _ROWS[task]
    return Kind.RECORDINGS if row.takes_audio else Kind.PICTURES if row.takes_image else Kind.TEXTS


# Of an answer.
UNREADABLE = "the answer cannot be read: is it a Weft server, of this version?"


class Method:
    """The method that a task's models answer, unary or streaming.

    Attributes:
        name: of the unary method, also where this one is its streaming twin.
        path: its name on the wire.
        writes: whether an answer is text.
    """

    def __init__(self, task: Task, *, streams: bool) -> None:
        self._task = task
        self._verb: Verb[..., Any] = _VERBS[task]
        self._streaming = self._verb if isinstance(self._verb, WritingVerb) and streams else None
        self.streams = self._streaming is not None
        self.writes = isinstance(self._verb, WritingVerb)
        self.name = self._verb.name
        self.path = self._verb.path if self._streaming is None else self._streaming.stream_path

    def request(self, asked: Any, **options: Any) -> Message:
        """Return the request; raises InvalidRequest for what can't be sent."""
        given = (None, asked) if self._task in PICTURES_SECOND else (asked,)
        request = self._verb.request(*given, **options)
        return request if self._streaming is None else self._streaming.stream_request(request=request)

    def read(self, message: bytes, record: Record) -> None:
        """Write down what the last message of an answer says of tokens and times."""
        answer = self._answer(message)
        said = answer.completion if self.writes else answer
        record.input_tokens = said.usage.input_tokens
        record.output_tokens = said.usage.output_tokens
        times = said.timings
        record.queue, record.prefill, record.decode = (
            part.seconds + part.nanos / 1e9 for part in (times.queue, times.prefill, times.decode)
        )
        record.ends_itself = self.writes and said.finish_reason == common_pb2.FINISH_REASON_STOP

    def _answer(self, message: bytes) -> Any:
        kind = self._verb.response if self._streaming is None else self._streaming.stream_response
        try:
            event: Any = kind.FromString(message)
        except DecodeError:
            raise InternalError(UNREADABLE) from None
        if self._streaming is None:
            return event
        return event.final if event.WhichOneof("event") == "final" else self.lacks_final()

    def lacks_final(self) -> NoReturn:
        """Raise what a stream without its final message is."""
        raise InternalError("the stream ended without its final message. This is a bug.")


# Their models are asked something about each input.
_ASKED = frozenset(task for task, row in _ROWS.items() if row.takes_question or row.takes_context)


def _takes_ids(request: Any) -> bool:
    """Whether a request may hold the ids of a text's tokens, or each of its inputs may, by its descriptor."""
    fields = request.fields_by_name
    return "token_ids" in fields or ("inputs" in fields and _takes_ids(fields["inputs"].message_type))


# They are asked about texts alone, as random tokens would be no question, and have no mask; or about no texts.
TAKE_NO_IDS = frozenset(task for task, verb in _VERBS.items() if not _takes_ids(METHODS[verb.name].request.DESCRIPTOR))


@dataclass(frozen=True, slots=True)
class Workload:
    """Without `paths`, token ids are drawn; without `output_tokens`, the model decides how long an answer is.

    `streams` is None for a stream wherever text is produced. `forced` answers have exactly the length that was drawn;
    others may end before. `question` is asked about each picture, or each text.
    """

    model: str = ""
    version: int | None = None
    paths: tuple[Path, ...] = ()
    input_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    forced: bool = True
    streams: bool | None = None
    seed: int = 0
    question: str = ""

    def find(self, models: tuple[Model, ...]) -> Model:
        """Return the model that is meant: the named one, or the only one that takes such inputs.

        Raises:
            InvalidRequest: There is none, or more than one, or it is not ready.
        """
        ready = {(m.name, m.version): m for m in models if m.state is ModelState.READY}
        if self.model:
            versions = [m for m in models if m.name == self.model and self.version in (None, m.version)]
            if not versions:
                named = f"{self.model} {self.version or ''}".rstrip()
                known = ", ".join(sorted({m.name for m in models})) or "none"
                raise InvalidRequest(f"--model: the server has no {named}; it has {known}")
            found = [m for m in versions if (m.name, m.version) in ready]
            if not found:
                raise InvalidRequest(f"--model: {self.model} is {versions[-1].state}")
            return max(found, key=lambda m: m.version)

        if self.version is not None:
            raise InvalidRequest("--model-version needs --model")

        latest = {m.name: m for _, m in sorted(ready.items())}
        fitting = [m for m in latest.values() if self._fits(m)]
        if not fitting:
            raise InvalidRequest("no model of the server fits; `weft models` lists them")
        if len(fitting) > 1:
            raise InvalidRequest(f"several models fit; --model names one: {', '.join(m.name for m in fitting)}")
        return fitting[0]

    def _fits(self, model: Model) -> bool:
        if model.task not in TASKS:
            return False
        given = kind_of(self.paths) if self.paths else Kind.TEXTS
        writes = model.task in WRITES_TEXT
        if (model.task in _ASKED) is not bool(self.question):
            return False
        return reads(model.task) is given and (writes or not (self.output_tokens or self.streams))

    def method(self, model: Model) -> Method:
        """Return what is called; refuses options that mean nothing to the model."""
        if model.task not in TASKS:
            raise InvalidRequest(f"--model: this client is too old to know what {model.name} does")
        if model.task in _ASKED and not self.question:
            raise InvalidRequest(f"--question: {model.name} answers questions about its inputs; give one")
        if self.question and model.task not in _ASKED:
            raise InvalidRequest(f"--question: {model.name} answers none")
        if writes := model.task in WRITES_TEXT:
            return Method(model.task, streams=self.streams is not False)
        for name, given in (("--stream", self.streams), ("--output-tokens", self.output_tokens)):
            if given:
                raise InvalidRequest(f"{name}: {model.name} writes no text")
        return Method(model.task, streams=writes)
