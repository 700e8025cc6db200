"""Many inputs, asked a few at a time, and answered in their order."""

import queue
import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

import grpc
from google.protobuf.message import Message

from weft._fields import refusal
from weft._home import Home
from weft._reach import Reach
from weft._verbs import Verb
from weft._window import Asked, Window, checked_concurrency
from weft.exceptions import Error, InvalidRequest

Answer = TypeVar("Answer")


# An input of each kind that is good enough to see whether the options are.
_BLANKS: dict[str, Any] = {
    "texts": "",
    "prompts": "",
    "messages": (),
    "images": b"",
    "recordings": b"",
    "pairs": ("a", "b"),
    "questions": (b"", ""),
}


@dataclass(frozen=True, slots=True)
class Sending(Generic[Answer]):
    """How each of many inputs is asked.

    `make` gives the request of an input, `send` starts its call, `read` gives the answer of a response. `patience_s` is
    how long an input may wait for a server that is full or went away, `wait_s` for one that never was there.
    """

    inputs: Any
    make: Callable[[Any], Message]
    send: Callable[[Any], Any]
    read: Callable[[Any], Answer]
    reach: Reach
    home: Home
    concurrency: int
    patience_s: float
    wait_s: float


class Questions(NamedTuple, Generic[Answer]):
    """What is asked of a verb many times: inputs, and what makes the request of one."""

    verb: Verb[..., Answer]
    inputs: Any
    make: Callable[[Any], Message]


def asking(verb: Verb[..., Answer], options: Mapping[str, Any], **inputs: Any) -> Questions[Answer]:
    """Return what is asked of a verb for each input.

    Args:
        verb: What is asked for each.
        options: Of the verb; what is wrong with them is raised here, and not for each input.
        inputs: The kinds of input that the verb takes, in the order of its arguments; one of them is given.
    """
    given = [name for name, items in inputs.items() if items is not None]
    if len(given) != 1:
        raise InvalidRequest(
            f"give {'either ' if len(inputs) > 1 else ''}{' or '.join(inputs)}", reason="WRONG_INPUT_KIND"
        )
    (name,) = given
    before = (None,) * list(inputs).index(name)
    if isinstance(inputs[name], str | bytes) or not isinstance(inputs[name], Iterable | AsyncIterable):
        raise refusal(name, f"must be an iterable of inputs, not {type(inputs[name]).__name__}")

    def make(one: Any) -> Message:
        return verb.request(*before, one, **options)

    make(_BLANKS[name])
    return Questions(verb, inputs[name], make)


class ManyInputs(Generic[Answer]):
    """What `Many` and `AsyncMany` have in common."""

    def __init__(self, sending: Sending[Answer]) -> None:
        self._is_over = False
        self._sending = sending
        self._window: Window[Answer] = Window(
            checked_concurrency(sending.concurrency), sending.patience_s, sending.reach, sending.wait_s
        )
        self._why_over: BaseException | None = None

    def cancel(self) -> None:
        """End it: what is in flight is cancelled, and the server frees its slots. Nothing more is read or given."""
        self._is_over = True
        self._why_over = None
        for call in self._window.clear():
            self._sending.home.end(call.cancel)

    def __del__(self) -> None:
        if hasattr(self, "_window"):
            self.cancel()

    def _no_more(self, error: BaseException | None) -> None:
        """Read no more; what was read is answered, and then comes the error of who gave the inputs, if any."""
        self._is_over = True
        self._why_over = error

    def _end(self) -> BaseException | None:
        """Give that error, once."""
        why, self._why_over = self._why_over, None
        return why

    def _take_input(self, given: Any) -> Asked[Answer] | None:
        """Give what to ask for an input; None where that can't be asked."""
        try:
            request = self._sending.make(given)
        except Error as error:
            self._window.read(error)
            return None
        return self._window.read(request)

    def _start(self, asked: Asked[Answer], ended: Callable[[Asked[Answer]], None]) -> None:
        try:
            call = self._sending.send(asked.request)
        except Error:  # the client is closed
            self.cancel()
            raise
        self._window.started(asked, call)
        call.add_done_callback(lambda _: ended(asked))


class Many(ManyInputs[Answer], Iterator[Answer | Error]):
    """Gives an answer, or a `weft.Error` in its place, for each input, in the order of the inputs.

    Inputs are read as they are needed, at most a few times `concurrency` before the answer that is taken; so they may
    be without end. They are read, and calls begin, while the next answer is waited for: who takes no answer asks for
    nothing more. A full server is waited for, as long as it says, up to `timeout` for each input; so is one that went
    away, once it has answered. As a context manager, or left behind half-read, it cancels what is in flight. One
    thread reads it.
    """

    def __init__(self, sending: Sending[Answer]) -> None:
        super().__init__(sending)
        self._inputs: Iterator[Any] = iter(sending.inputs)
        self._ended: queue.SimpleQueue[Asked[Answer]] = queue.SimpleQueue()

    def or_raise(self) -> Iterator[Answer]:
        """Give the answers alone, and raise the first error: with it all ends."""
        with self:
            for answer in self:
                if isinstance(answer, Error):
                    raise answer
                yield answer

    def __iter__(self) -> Self:
        """Return self: answers are read once."""
        return self

    def __next__(self) -> Answer | Error:
        """Wait for the next answer."""
        self._sending.home.check()
        while True:
            now = time.monotonic()
            self._send(now)
            if (outcome := self._window.take()) is not None:
                return outcome
            if self._is_over and not len(self._window):
                raise self._end() or StopIteration
            self._wait(now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cancel()

    def _send(self, now: float) -> None:
        while self._window.may_send(now):
            if (asked := self._window.again(now)) is None:
                if self._is_over or self._window.is_full:
                    return
                try:
                    asked = self._take_input(next(self._inputs))
                except StopIteration:
                    self._no_more(None)
                    return
                except Exception as error:  # noqa: BLE001 - whoever gave the inputs gets it, behind the answers
                    self._no_more(error)
                    return
            if asked is not None:
                self._start(asked, self._ended.put)

    def _wait(self, now: float) -> None:
        """Wait until a call has ended, or a pause."""
        try:
            asked = self._ended.get(timeout=self._window.pause_s(now))
        except queue.Empty:
            return
        call = asked.call
        self._window.ended(asked, self._outcome(call), time.monotonic())

    def _outcome(self, call: Any) -> Answer | Error:
        reach = self._sending.reach
        if call.code() is not grpc.StatusCode.OK:
            return reach.error(call)
        try:
            return self._sending.read(reach.heard(call.result()))
        except Error as error:
            return error
