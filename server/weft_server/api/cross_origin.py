"""Which pages of other origins may call: those that the settings name, and no others (CORS).

A browser sends `Origin` with what a page of another site asks for. Without this check, any page that somebody opens
could ask a server on the same machine. https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.api.http_messages import HttpResponse

if TYPE_CHECKING:
    from weft_server.api.http_messages import HttpRequest

ANY = "*"
# What a browser says of a page that is not this server's own, also where it says no origin: for a picture, or a link.
_OTHERS = {"cross-site", "same-site"}
# Seconds for which a browser need not ask again.
_MAX_AGE = "7200"


class CrossOrigin:
    """Knows the origins."""

    def __init__(self, origins: frozenset[str]) -> None:
        self._origins = origins

    def allows(self, request: HttpRequest) -> bool:
        """Whether a request comes from no page, or from one that may call."""
        if request.header("origin"):
            return self.knows(request)
        return ANY in self._origins or request.header("sec-fetch-site") not in _OTHERS

    def knows(self, request: HttpRequest) -> bool:
        """Whether a request comes from a page that may call."""
        origin = request.header("origin")
        return bool(origin) and (ANY in self._origins or origin in self._origins)

    def headers(self, request: HttpRequest) -> tuple[tuple[str, str], ...]:
        """Return what a response says to the browser, for an origin that is allowed."""
        if not self.knows(request):
            return ()
        origin = request.header("origin")
        return (("access-control-allow-origin", origin), ("vary", "origin"), ("access-control-expose-headers", ANY))

    def preflight(self, request: HttpRequest) -> HttpResponse:
        """Return what a browser hears that asks whether it may send a request."""
        allowed = (
            ("access-control-allow-methods", "GET, POST"),
            # The origin is trusted, so it may send what it wants. `*` would not stand for `authorization`.
            ("access-control-allow-headers", request.header("access-control-request-headers")),
            ("access-control-max-age", _MAX_AGE),
        )
        return HttpResponse(204, content_type="", headers=allowed)
