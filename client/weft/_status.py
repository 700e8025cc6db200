"""From gRPC status to exception: the one table, the details, and what a client knows by them."""

import re
import time
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from weft.exceptions import (
    AccessDenied,
    Cancelled,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    FieldViolation,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    Unavailable,
    Unsupported,
)

_KINDS: dict[grpc.StatusCode, type[Error]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNIMPLEMENTED: Unsupported,
    grpc.StatusCode.PERMISSION_DENIED: AccessDenied,
    grpc.StatusCode.UNAUTHENTICATED: AccessDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.ABORTED: Cancelled,
}  # every other status is an InternalError

# What gRPC's words about TLS mean.
_TLS = {
    "WRONG_VERSION_NUMBER": "the server speaks plain text, and this client TLS",
    "Hostname Verification Check failed": "the server's certificate is for another name",
    "certificate has expired": "the server's certificate has expired",
    "certificate is not yet valid": "the server's certificate is not valid yet",
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is of no authority that this client trusts",
    "BAD_SIGNATURE": "the server's certificate is of no authority that this client trusts",
}
# A call that the server did not look at may be asked again after this number of seconds.
SHED_RETRY_S = 1.0
# The reason where no server takes new requests, and none was asked.
NOT_ACCEPTING = "NOT_ACCEPTING"
# gRPC's words for servers that say by their health that they take nothing.
_UNHEALTHY = "backend unhealthy"
# Its words for servers whose health nobody says: a gateway refuses the watch, or a server goes away.
_UNWATCHED = "health check call failed"
# Its words for HTTP/2's REFUSED_STREAM (RFC 9113, section 8.7): a connection has too many calls, and nothing was done.
_REFUSED = "RST_STREAM with error code 7"
_STATUS = re.compile(r"^(?:[A-Z_]+: )+")
_ADDRESS = re.compile(r"^(ipv4|ipv6|unix|dns):\S+: ")


def error_of(call: Any, target: str) -> Error:
    """Give the exception for a call, or a grpc.RpcError, that did not end well."""
    code, text = call.code(), call.details() or ""
    info, bad, retry = _details(call.trailing_metadata() or ())
    kind = _KINDS.get(code, InternalError)
    reason = info.reason
    retry_after = None
    if kind is Overloaded and not reason and ("larger than max" in text or "metadata size" in text):
        # gRPC's own refusals of one large message, and of large headers.
        kind = InvalidRequest
        reason = "MESSAGE_TOO_LARGE"
    if kind is InternalError and not reason and "Received RST_STREAM" in text:
        # A proxy has lost the server behind it, in the middle of the answer. A bug of a server has a reason.
        kind = Unavailable
    if kind is Unavailable and not reason and text.endswith(_UNHEALTHY):
        text = "the server takes no new requests: it is starting, draining, or too old for this client"
        reason = NOT_ACCEPTING
    if kind is Unavailable and not reason and (why := next((why for word, why in _TLS.items() if word in text), "")):
        text = f"{target}: {why}"
        reason = "TLS"
    if not reason and ((kind is Cancelled and text == "CANCELLED") or (kind is Unavailable and _REFUSED in text)):
        # gRPC on the server's side has ended a call of a flood before the server saw it. Calls that somebody on this
        # side cancels have other words.
        kind, reason, retry_after = Overloaded, "SHED", SHED_RETRY_S
        text = "the server is flooded, and has not looked at the call"
    if retry.HasField("retry_delay"):
        retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    if not reason:  # gRPC's own words, with a status of its own in front
        text = _STATUS.sub("", text.rpartition("last error: ")[2])
    if "," not in target:  # of several servers it is worth knowing which
        text = _ADDRESS.sub("", text)
    return kind(
        # Without a reason the status comes from gRPC or a proxy, not from Weft: say whom we were talking to.
        text if reason else f"{target}: {text or code.name}{_hint(text)}",
        reason=reason,
        # A streaming call's message holds the request of the unary one; to a caller here both are one verb.
        field_violations=tuple(
            FieldViolation(each.field.removeprefix("request."), each.description) for each in bad.field_violations
        ),
        retry_after=retry_after,
        id=info.metadata.get("error_id", ""),
    )


def code_of(error: Error) -> str:
    """Give gRPC's word for an exception, which every language knows: of several the first in the table."""
    return next((code.name for code, kind in _KINDS.items() if type(error) is kind), "INTERNAL")


def is_passed_by(error: Any) -> bool:
    """Whether a call was sent to no server, because none says that it takes new requests."""
    said = (error.details() or "").endswith(_UNHEALTHY) or watch_failed(error)
    return bool(error.code() is grpc.StatusCode.UNAVAILABLE and said)


def watch_failed(error: Any) -> bool:
    """Whether a call was sent to no server, because a server's health cannot be watched."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and _UNWATCHED in (error.details() or "")


def _hint(text: str) -> str:
    """What may be behind words of gRPC."""
    if text == "Deadline Exceeded":
        return " (no answer came within the timeout)"
    if "Expected SETTINGS frame" in text:
        return " (no gRPC is spoken there: a server's port of gRPC is its --port, by default 7070)"
    if text.endswith("Socket closed"):
        return " (does the server want TLS, or a certificate?)"
    return ""


def _details(metadata: Any) -> tuple[ErrorInfo, BadRequest, RetryInfo]:
    """Read the google.rpc.Status that a server sent along; what it lacks, or what can't be read, stays empty."""
    found = (ErrorInfo(), BadRequest(), RetryInfo())
    for key, value in metadata:
        if key == "grpc-status-details-bin":
            try:
                for detail in Status.FromString(value).details:
                    any(detail.Unpack(each) for each in found)  # fills the one of the detail's type
            except DecodeError:
                break
    return found


# Where a server's health can't be watched, requests go to all servers for so long. Then the watch has another chance.
_UNWATCHED_S = 5.0


class Reach:
    """Whether there was a server, and whether the client is closed. Threads may share it.

    `answered` is set once a server has said something. Whoever asks many things then waits for it, if it goes away.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._unwatched_until = 0.0
        self.answered = False
        self.closed = False

    @property
    def passes_by(self) -> bool:
        """Whether requests are to pass servers by whose health says so."""
        return not self._unwatched_until or time.monotonic() >= self._unwatched_until

    def check_open(self) -> None:
        """Raise Error, if the client is closed."""
        if self.closed:
            raise Error("the client is closed: make another one", reason="CLIENT_CLOSED")

    def heard(self, message: Any) -> Any:
        """Give a server's message. Raise InternalError, if gRPC could not read it: then it is None."""
        if message is None:
            raise InternalError(f"{self.target}: the answer cannot be read: is it a Weft server, of this version?")
        self.answered = True
        return message

    def error(self, call: Any) -> Error:
        """Give the exception for a call, or a grpc.RpcError, that did not end well."""
        if watch_failed(call):
            self._unwatched_until = time.monotonic() + _UNWATCHED_S
            self.answered = True
        error = error_of(call, self.target)
        if isinstance(call, BaseException):
            error.__cause__ = call
        # Who gives a reason is a server, but for what we say of TLS.
        self.answered |= isinstance(error, Overloaded) or error.reason not in {"", "TLS"}
        return error

    def is_of_a_server(self, error: Error) -> bool:
        """Whether a server cancelled a call, and not we by closing the client."""
        return isinstance(error, Cancelled) and not self.closed
