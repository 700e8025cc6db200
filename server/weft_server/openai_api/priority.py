"""`priority` of a body: the class that a request has among those who wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_server.admission.early_admission import PRIORITIES, PRIORITY_KEY
from weft_server.errors import InvalidRequest
from weft_server.openai_api.fields import Field
from weft_server.sequence import Priority

if TYPE_CHECKING:
    from weft_server.openai_api.api_request import ApiRequest

PRIORITY_FIELD = Field(
    "priority", int | str | None, "Who goes on first: `high`, `normal`, `low`, or the same as -1, 0, 1."
)
# Lower is earlier, as in vLLM. There are three classes, so all other numbers are refused. A form has texts alone.
_CLASSES = PRIORITIES | {"-1": Priority.HIGH, "0": Priority.NORMAL, "1": Priority.LOW}


def claim(http: ApiRequest, asked: Any) -> None:
    """Take the class that a request asks for. Raises InvalidRequest, and PermissionDenied as for the header."""
    given = asked.priority
    if given is None:
        return
    priority = _CLASSES.get(str(given))
    if priority is None:
        raise InvalidRequest("priority", f"must be one of {', '.join(_CLASSES)}, not {str(given)[:32]!r}")
    if http.priority and priority is not PRIORITIES[http.priority]:
        raise InvalidRequest("priority", f"is not that of the header {PRIORITY_KEY}, {http.priority}: give one of them")
    http.caller.claim(priority)
