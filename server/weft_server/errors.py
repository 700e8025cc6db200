"""Domain errors and the one table that turns them into gRPC statuses; nothing else chooses a status code."""

import secrets
from typing import NamedTuple

import grpc
from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import error_details_pb2, status_pb2

DOMAIN = "weft"
# A status travels in headers, which clients cap at 8 KiB; the message is in there twice, up to 12 bytes a character.
MAX_MESSAGE_CHARS = 256


class RequestError(Exception):
    """A request that ends without an answer, and what its caller can do about it.

    Attributes:
        reason: ErrorInfo.reason, UPPER_SNAKE_CASE, stable for programs to switch on.
        message: one sentence for people.
        field: path of the offending request field, or empty.
        retry_after_s: seconds after which the same request may succeed, or None when retrying is pointless.
    """

    def __init__(self, reason: str, message: str, *, field: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s


class InvalidRequest(RequestError):
    """The request itself is wrong; the same request will always be refused.

    `message` says what is wrong with the field and goes on from its name: "must be at least 1".
    """

    def __init__(self, field: str, message: str, reason: str = "INVALID_FIELD") -> None:
        super().__init__(reason, f"{field} {message}" if field else message, field=field)


class ModelNotFound(RequestError):
    """The repository has no such model or version."""

    def __init__(self, message: str) -> None:
        super().__init__("MODEL_NOT_FOUND", message, field="model")


class ServiceNotFound(RequestError):
    """The health of a service is asked that there is not."""

    def __init__(self, service: str) -> None:
        super().__init__("SERVICE_NOT_FOUND", f"there is no service {service[:128]!r}", field="service")


class Overloaded(RequestError):
    """A queue is full: QUEUE_FULL counts requests, TOKEN_BUDGET counts tokens."""

    def __init__(self, reason: str, message: str, retry_after_s: float) -> None:
        super().__init__(reason, message, retry_after_s=retry_after_s)


class ModelNotReady(RequestError):
    """The model is loading, or its bundle was refused (then there is no retry hint)."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__("MODEL_NOT_READY", message, retry_after_s=retry_after_s)


class Draining(RequestError):
    """The server is going away; another one may answer."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        super().__init__("DRAINING", "the server is draining and takes no new requests", retry_after_s=retry_after_s)


class DeadlineExpired(RequestError):
    """The caller's deadline passed before the answer was complete."""

    def __init__(self, message: str = "the deadline passed before the answer was complete") -> None:
        super().__init__("DEADLINE", message)


class CannotExplain(RequestError):
    """An alignment was asked of a model whose bundle has no EXPLAIN graph."""

    def __init__(self, model: str) -> None:
        super().__init__("CANNOT_EXPLAIN", f"model {model!r} cannot explain its answers", field="explain")


class BundleError(Exception):
    """A bundle is refused: one sentence on one line says what is wrong with it. It is never a caller's status.

    Attributes:
        task: what its manifest says that it is for, a common_pb2.Task; 0 when that could not be read.
    """

    def __init__(self, sentence: str, task: int = 0) -> None:
        # It may quote what is in the bundle, and that can be anything.
        super().__init__(" ".join(sentence.split()))
        self.task = task


def first_line(error: BaseException) -> str:
    """What an exception says, in one line; its kind when it says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)


_CODES: dict[type[RequestError], grpc.StatusCode] = {
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    ModelNotFound: grpc.StatusCode.NOT_FOUND,
    ServiceNotFound: grpc.StatusCode.NOT_FOUND,
    Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ModelNotReady: grpc.StatusCode.UNAVAILABLE,
    Draining: grpc.StatusCode.UNAVAILABLE,
    DeadlineExpired: grpc.StatusCode.DEADLINE_EXCEEDED,
    CannotExplain: grpc.StatusCode.FAILED_PRECONDITION,
}


class Status(NamedTuple):
    """What `context.abort` takes, and for a bug the opaque id under which the caller logs the traceback."""

    code: grpc.StatusCode
    message: str
    trailing_metadata: tuple[tuple[str, str | bytes], ...]
    error_id: str | None = None


def to_status(error: BaseException) -> Status:
    """Return the gRPC status of any exception; one that is no RequestError is a bug and tells the client only an id."""
    if not isinstance(error, RequestError):
        error_id = secrets.token_hex(8)
        info = error_details_pb2.ErrorInfo(reason="BUG", domain=DOMAIN, metadata={"error_id": error_id})
        return _status(grpc.StatusCode.INTERNAL, f"internal error {error_id}", [info])._replace(error_id=error_id)
    text = error.message[:MAX_MESSAGE_CHARS]
    details: list[message.Message] = [error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)]
    if error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=text)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(_milliseconds(error.retry_after_s))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    # Another server may answer for one that drains, without the wait: the client's own backoff paces that.
    pushback_s = None if isinstance(error, Draining) else error.retry_after_s
    return _status(_CODES[type(error)], text, details, pushback_s)


def _status(
    code: grpc.StatusCode, text: str, details: list[message.Message], pushback_s: float | None = None
) -> Status:
    status = status_pb2.Status(code=code.value[0], message=text)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    metadata: list[tuple[str, str | bytes]] = [("grpc-status-details-bin", status.SerializeToString())]
    if pushback_s is not None:
        # gRPC clients read this one themselves and wait exactly so long before they retry.
        metadata.append(("grpc-retry-pushback-ms", str(_milliseconds(pushback_s))))
    return Status(code, text, tuple(metadata))


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))
