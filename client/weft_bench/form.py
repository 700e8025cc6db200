"""What a form of requests and answers by HTTP is: see `http_port` for those that there are."""

from collections.abc import Callable
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status

from weft_bench.record import Record
from weft_bench.workload import Method


class Reading(Protocol):
    """One answer, as it comes."""

    def feed(self, data: bytes) -> None:
        """Take a piece of the body."""

    def end(self, status: int, record: Record) -> None:
        """Write down what the whole answer says. `status` is HTTP's. Raises Failed."""


class Form(Protocol):
    """How requests and answers of a method travel by HTTP."""

    def path(self, method: Method) -> str:
        """Return where requests are posted. Raises InvalidRequest for a method that this form lacks."""

    def content_type(self, method: Method) -> str:
        """Return what a body is."""

    def payload(self, request: Message, method: Method) -> bytes:
        """Return the body of a request of a method that has a path."""

    def reading(self, method: Method, note: Callable[[], None]) -> Reading:
        """Return what reads an answer. `note` is called for each message of a stream."""


class Failed(Exception):
    """An answer is an error. It tells what it knows as a call of gRPC does: see `weft._status.error_of`."""

    def __init__(self, code: str, message: str, details: bytes = b"") -> None:
        """Take the name of gRPC's status, and a google.rpc.Status as bytes."""
        super().__init__(message)
        self._code = grpc.StatusCode[code]
        self._message = message
        self._details = details

    @classmethod
    def of(cls, code: str, message: str, details: list[Any]) -> "Failed":
        """Return an error with details: each a google.protobuf.Any."""
        return cls(code, message, Status(details=details).SerializeToString())

    def code(self) -> grpc.StatusCode:
        """Return gRPC's status."""
        return self._code

    def details(self) -> str:
        """Return the message."""
        return self._message

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        """Return what gRPC would send behind the answer."""
        return (("grpc-status-details-bin", self._details),)
