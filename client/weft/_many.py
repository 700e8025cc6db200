"""What `Many` and `AsyncMany` ask, and where they read their inputs."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

from weft._fields import refusal
from weft._status import Reach
from weft._verbs.verb import Verb
from weft._window import Asked
from weft.exceptions import InvalidRequest

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


class Reader:
    """Reads inputs one by one, each when it is wanted."""

    def __init__(self, inputs: Any, _: threading.Event) -> None:
        self._inputs: Iterator[Any] = iter(inputs)

    def is_there(self) -> bool:
        """Whether an input, or their end, can be taken now."""
        return True

    def take(self) -> Any:
        """Give the next input; raises StopIteration behind the last one, and what they raise."""
        return next(self._inputs)

    def cancel(self) -> None:
        """Wait for no input."""

    def close(self) -> None:
        """Return when nothing waits for an input."""


class LoopReader:
    """Reads inputs one by one, and waits in the event loop for those of an async iterable. `news` is set at each."""

    def __init__(self, inputs: Any, news: asyncio.Event) -> None:
        self._inputs: Iterator[Any] | AsyncIterator[Any]
        self._inputs = aiter(inputs) if isinstance(inputs, AsyncIterable) else iter(inputs)
        self._coming: asyncio.Future[Any] | None = None
        self._news = news

    def is_there(self) -> bool:
        """Whether an input, or their end, can be taken now; if not, begin to wait for it."""
        if isinstance(self._inputs, Iterator):
            return True
        if self._coming is None:
            self._coming = asyncio.ensure_future(anext(self._inputs))
            self._coming.add_done_callback(partial(_wake, self._news))
        return self._coming.done()

    def take(self) -> Any:
        """Give the next input; raises Stop(Async)Iteration behind the last one, and what they raise."""
        if isinstance(self._inputs, Iterator):
            return next(self._inputs)
        assert self._coming is not None
        coming, self._coming = self._coming, None
        return coming.result()

    def cancel(self) -> None:
        """Wait for no input."""
        if self._coming is not None:
            self._coming.cancel()

    async def close(self) -> None:
        """Return when nothing waits for an input."""
        if self._coming is not None:
            await asyncio.wait([self._coming])


# What a call calls when it ends holds none of those who wait: so one that is left behind goes away at once.
def note(ended: deque[Asked[Any]], news: asyncio.Event | threading.Event, asked: Asked[Any], _: Any) -> None:
    """Note a call that has ended."""
    ended.append(asked)
    news.set()


def _wake(news: asyncio.Event, coming: "asyncio.Future[Any]") -> None:
    news.set()
    if not coming.cancelled():
        coming.exception()  # or asyncio complains that nobody has looked, where all has been cancelled
