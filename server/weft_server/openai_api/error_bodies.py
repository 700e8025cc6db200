"""What is refused, in OpenAI's shape: a status, a type, and who may try again. From the table of gRPC's statuses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from weft_server.api.http_messages import HttpResponse
from weft_server.openai_api.params import param_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft_server.api.refusal import Refusal

# By the name of gRPC's status: the `type` of an error.
_WRONG, _FAILED = "invalid_request_error", "server_error"
TYPES = {
    "INVALID_ARGUMENT": _WRONG,
    "FAILED_PRECONDITION": _WRONG,
    "NOT_FOUND": _WRONG,
    "UNIMPLEMENTED": _WRONG,
    "UNAUTHENTICATED": "authentication_error",
    "PERMISSION_DENIED": "permission_error",
    "RESOURCE_EXHAUSTED": "rate_limit_error",
    "UNAVAILABLE": _FAILED,
    "DEADLINE_EXCEEDED": _FAILED,
    "INTERNAL": _FAILED,
}
# Statuses that HTTP tells apart, and gRPC does not.
_STATUS_OF_CODE = {"UNIMPLEMENTED": 404}
_STATUS_OF_REASON = {
    "MESSAGE_TOO_LARGE": 413,
    "IMAGE_TOO_LARGE": 413,
    "AUDIO_TOO_LARGE": 413,
    "MESSAGE_TOO_SLOW": 408,
    "COMPRESSED": 415,
}
# Where the same request may succeed, later or at another server.
_MAY_SUCCEED = {408, 429, 503}
# Another server may answer in place of one that goes, without the wait.
_GOING = {"DRAINING", "MODEL_FAILED"}


def status_of(refusal: Refusal) -> int:
    """Return the status of HTTP."""
    named = _STATUS_OF_REASON.get(refusal.reason) or _STATUS_OF_CODE.get(refusal.code)
    return named or refusal.http_status


def error_body(refusal: Refusal, params: Mapping[str, str]) -> bytes:
    """Return `{"error": ...}`. `params` are the endpoint's own names of fields of weft.v1."""
    message, param = param_of(refusal, params)
    error: dict[str, Any] = {
        "message": message,
        "type": TYPES[refusal.code],
        "param": param or None,
        "code": refusal.reason.lower(),
    }
    return msgspec.json.encode({"error": error})


def error_response(refusal: Refusal, params: Mapping[str, str]) -> HttpResponse:
    """Return the response of what is refused before anything else was sent."""
    status = status_of(refusal)
    return HttpResponse(status, error_body(refusal, params), headers=_headers(refusal, status))


def _headers(refusal: Refusal, status: int) -> tuple[tuple[str, str], ...]:
    """Both SDKs try again by themselves after 408, 409, 429 and 5xx, unless a header says that they should not."""
    said = refusal.headers if refusal.code == "UNAUTHENTICATED" else ()
    is_refused_for_good = status == 503 and refusal.retry_after_s is None
    if status not in _MAY_SUCCEED or is_refused_for_good:
        return (*said, ("x-should-retry", "false"))
    if refusal.retry_after_s is None or refusal.reason in _GOING:
        return said
    milliseconds = str(max(1, round(refusal.retry_after_s * 1000)))
    return (*said, ("retry-after-ms", milliseconds), ("retry-after", str(max(1, math.ceil(refusal.retry_after_s)))))
