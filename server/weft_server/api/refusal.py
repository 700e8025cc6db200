"""What is refused, as HTTP says it. The codes and reasons are those of gRPC, from the same table of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.rpc import status_pb2

from weft_server.errors import RequestError

if TYPE_CHECKING:
    from weft_server.transport.status import Status

# By the name of gRPC's status, as the Connect protocol has it: https://connectrpc.com/docs/protocol#error-codes
HTTP_STATUS = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request has no answer.

    Attributes:
        code: the name of gRPC's status, such as INVALID_ARGUMENT.
        reason: that of ErrorInfo, such as QUEUE_FULL. BUG for a bug of ours.
        message: a sentence for people.
        field: the path of the request's field that is wrong, or empty.
        retry_after_s: when the same request may succeed, or None.
        details: a google.rpc.Status, serialized: its details are those that gRPC sends.
    """

    code: str
    reason: str
    message: str
    field: str
    retry_after_s: float | None
    details: bytes

    @property
    def http_status(self) -> int:
        """The status of HTTP."""
        return HTTP_STATUS[self.code]

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """When to try again, in whole seconds, as HTTP says it; and how to say who calls."""
        if self.code == "UNAUTHENTICATED":
            return (("www-authenticate", "Bearer"),)
        if self.retry_after_s is None:
            return ()
        return (("retry-after", str(max(1, round(self.retry_after_s)))),)

    def unpacked(self) -> list[Any]:
        """Return the details, each a google.protobuf.Any."""
        return list(status_pb2.Status.FromString(self.details).details)


def refusal_of(error: Exception, status: Status) -> Refusal:
    """Return what is told of an error. `status` is what `to_status` made of it."""
    known = error if isinstance(error, RequestError) else None
    return Refusal(
        code=status.code.name,
        reason=known.reason if known else "BUG",
        message=status.message,
        field=known.field if known else "",
        retry_after_s=known.retry_after_s if known else None,
        details=status.details,
    )


class Refused(Exception):
    """A call that was refused or has failed. It is counted and logged already.

    Attributes:
        refusal: what to tell of it.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal
