"""Everything that can go wrong, as one tree of exceptions under `Error`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that was refused, and why."""

    field: str
    description: str


class Error(Exception):
    """The root: whatever fails in Weft, here or on the server, is one of its leaves.

    Attributes:
        message: One sentence for people.
        reason: The machine's word for it, such as "QUEUE_FULL"; empty when nobody gave one.
        field_violations: The fields that were refused; empty unless the request was at fault.
        retry_after: Seconds after which trying again makes sense; None when the server did not say.
        id: The name under which the server logged a bug of its own; else empty.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        field_violations: tuple[FieldViolation, ...] = (),
        retry_after: float | None = None,
        id: str = "",  # noqa: A002 - the word that the server's log uses
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.field_violations = field_violations
        self.retry_after = retry_after
        self.id = id


class InvalidRequest(Error):
    """The request is at fault; sent again unchanged it fails again. Also raised before anything is sent."""


class NotFound(Error):
    """The server has no such model, version, or health service."""


class FailedPrecondition(Error):
    """The request is sound but this model can't do it, for instance explain an answer."""


class Unsupported(Error):
    """The server does not have this call at all."""


class AccessDenied(Error):
    """The credentials or the token were missing or not enough."""


class Overloaded(Error):
    """The server's queue is full; try again after `retry_after` seconds. Never retried on its own."""


class Unavailable(Error):
    """No server answers, or it is starting or draining, and the retries did not help."""


class DeadlineExceeded(Error):
    """The answer did not come within the timeout."""


class Cancelled(Error):
    """The call was cancelled, by `Stream.cancel`, by closing the client, or by the server."""


class InternalError(Error):
    """A bug of the server or of this package; `id` finds it in the server's log."""
