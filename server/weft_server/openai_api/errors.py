"""The one table that turns errors into those of OpenAI: a status, a type, and who may try again."""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weft_server.errors import (
    AdapterNotFound,
    AdapterRefused,
    BundleRefused,
    CannotAdapt,
    CannotConstrain,
    CannotExplain,
    CannotScore,
    CannotWatch,
    DeadlineExpired,
    Draining,
    InvalidRequest,
    LaneFailed,
    MessageTooSlow,
    MethodNotFound,
    ModelFailed,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    PermissionDenied,
    RequestError,
    ServiceNotFound,
    Unauthenticated,
)
from weft_server.openai_api.http_messages import HttpResponse
from weft_server.openai_api.params import param_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(NamedTuple):
    """What an error is to a client. `again`: whether the same request may succeed later, or at another server."""

    status: int
    type: str
    again: bool = False


_WRONG = Kind(400, "invalid_request_error")
_NOT_FOUND = Kind(404, "invalid_request_error")
_AWAY = Kind(503, "server_error", again=True)
KINDS: dict[type[RequestError], Kind] = {
    InvalidRequest: _WRONG,
    ModelNotFound: _NOT_FOUND,
    AdapterNotFound: _NOT_FOUND,
    ServiceNotFound: _NOT_FOUND,
    MethodNotFound: _NOT_FOUND,
    CannotWatch: _WRONG,
    Unauthenticated: Kind(401, "authentication_error"),
    PermissionDenied: Kind(403, "permission_error"),
    Overloaded: Kind(429, "rate_limit_error", again=True),
    ModelNotReady: _AWAY,
    Draining: _AWAY,
    ModelFailed: _AWAY,
    # A request that breaks a lane would break those of all servers.
    LaneFailed: Kind(500, "server_error"),
    DeadlineExpired: Kind(504, "server_error"),
    MessageTooSlow: Kind(408, "invalid_request_error", again=True),
    BundleRefused: _WRONG,
    AdapterRefused: _WRONG,
    CannotAdapt: _WRONG,
    CannotConstrain: _WRONG,
    CannotExplain: _WRONG,
    CannotScore: _WRONG,
}
_TOO_LARGE = Kind(413, "invalid_request_error")
# Reasons for which a request is too large as bytes, and not only for a model.
_TOO_LARGE_REASONS = {"MESSAGE_TOO_LARGE", "IMAGE_TOO_LARGE", "AUDIO_TOO_LARGE"}
_BUG = Kind(500, "server_error")


class ApiError(NamedTuple):
    """An error in OpenAI's shape. `error_id` is set for a bug: the log has its traceback under it."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]
    error_id: str = ""

    def response(self) -> HttpResponse:
        """Return it as an answer."""
        return HttpResponse(self.body, self.status, headers=self.headers)


def api_error(error: BaseException, params: Mapping[str, str]) -> ApiError:
    """Return any exception in OpenAI's shape. `params` are the endpoint's own names of fields of weft.v1.

    One that is no RequestError is a bug: the client gets only an id.
    """
    if not isinstance(error, RequestError):
        error_id = secrets.token_hex(8)
        body = _body(_BUG, f"internal error {error_id}", "bug", "")
        return ApiError(_BUG.status, body, _headers(_BUG, None), error_id)
    kind = _TOO_LARGE if error.reason in _TOO_LARGE_REASONS else KINDS[type(error)]
    if isinstance(error, ModelNotReady) and error.retry_after_s is None:
        kind = kind._replace(again=False)
    # Another server may answer in place of one that goes, without the wait.
    retry_after_s = None if isinstance(error, Draining | ModelFailed) else error.retry_after_s
    message, param = param_of(error, params)
    return ApiError(kind.status, _body(kind, message, error.reason.lower(), param), _headers(kind, retry_after_s))


def _body(kind: Kind, message: str, code: str, param: str) -> bytes:
    error: dict[str, Any] = {"message": message, "type": kind.type, "param": param or None, "code": code}
    return msgspec.json.encode({"error": error})


def _headers(kind: Kind, retry_after_s: float | None) -> tuple[tuple[str, str], ...]:
    """Both SDKs try again by themselves after 408, 409, 429 and 5xx, unless a header says that they should not."""
    if not kind.again:
        return (("x-should-retry", "false"),)
    if retry_after_s is None:
        return ()
    milliseconds = str(max(1, round(retry_after_s * 1000)))
    return (("retry-after-ms", milliseconds), ("retry-after", str(max(1, math.ceil(retry_after_s)))))
