"""A verb: a unary method of the server, and perhaps its streaming twin."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from google.protobuf.message import Message

from weft._types import Task
from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import METHODS, streaming

Asked = ParamSpec("Asked")
Other = ParamSpec("Other")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Verb(Generic[Asked, Answer]):
    """One unary method of the server, by its name in the contracts.

    `request` makes the message from the verb's arguments. `read` makes the answer from a message of type `response`.
    """

    name: str
    request: Callable[Asked, Message]
    read: Callable[[Any], Answer]

    @property
    def path(self) -> str:
        """The method's name on the wire."""
        return METHODS[self.name].path

    @property
    def response(self) -> type[Message]:
        """What the method answers with."""
        return METHODS[self.name].response

    @property
    def tasks(self) -> frozenset[Task]:
        """The tasks of the models that answer it; none where it is no task's own verb."""
        names = map(common_pb2.Task.Name, METHODS[self.name].tasks)
        return frozenset(Task(name.removeprefix("TASK_").lower()) for name in names)

    def asked_by(self, request: Callable[Other, Message]) -> "Verb[Other, Answer]":
        """Return the same method, whose request is made from other arguments."""
        return Verb(self.name, request, self.read)


@dataclass(frozen=True, slots=True)
class WritingVerb(Verb[Asked, Answer]):
    """A verb whose answer is text, and can be streamed."""

    @property
    def stream_path(self) -> str:
        """The streaming method's name on the wire."""
        return streaming(self.name).path

    @property
    def stream_request(self) -> Callable[..., Message]:
        """What wraps the request of the unary call."""
        return streaming(self.name).request

    @property
    def stream_response(self) -> type[Message]:
        """Each message of the stream."""
        return streaming(self.name).response
