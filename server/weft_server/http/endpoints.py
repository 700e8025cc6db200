"""The pages of the HTTP port: /metrics for Prometheus, /livez and /readyz for people and probes."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_server.auth.tokens import Role
from weft_server.errors import PermissionDenied, RequestError
from weft_server.telemetry.metrics_page import MetricsPage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weft_server.auth.authorization import Authorization
    from weft_server.telemetry.metrics import Metrics


class PageRequest(NamedTuple):
    """What a page depends on: the headers, and the certificate that was shown as `ssl` gives it, or None."""

    accept: str = ""
    authorization: Sequence[str] = ()
    certificate: Mapping[str, Any] | None = None


class PageResponse(NamedTuple):
    """An answer."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Endpoints:
    """Makes each page.

    `why_not_live` and `why_not_ready` give a sentence, or nothing when all is well. They are called from any thread.
    """

    def __init__(
        self,
        metrics: Metrics,
        why_not_live: Callable[[], str],
        why_not_ready: Callable[[], str],
        access: Authorization,
    ) -> None:
        self._page = MetricsPage(metrics)
        self._why_not_live = why_not_live
        self._why_not_ready = why_not_ready
        self._access = access

    def get(self, path: str, asked: PageRequest) -> PageResponse:
        """Return the page of a path."""
        match path:
            case "/metrics":
                return self._metrics(asked)
            case "/livez":
                return self._probe(self._why_not_live(), "not live", asked)
            case "/readyz":
                return self._probe(self._why_not_ready(), "not ready", asked)
            case _:
                return _text(HTTPStatus.NOT_FOUND, "not found")

    def metrics(self, accept: str = "") -> tuple[str, bytes]:
        """Return the media type and the text of the metrics, for who has been judged elsewhere."""
        return self._page.render(accept)

    def _metrics(self, asked: PageRequest) -> PageResponse:
        try:
            self._access.of_request(Role.METRICS, asked.authorization, asked.certificate)
        except PermissionDenied as error:
            return _text(HTTPStatus.FORBIDDEN, error.message)
        except RequestError as error:
            return _text(HTTPStatus.UNAUTHORIZED, error.message)
        return PageResponse(HTTPStatus.OK, *self.metrics(asked.accept))

    def _probe(self, why_not: str, short: str, asked: PageRequest) -> PageResponse:
        """Everybody hears whether all is well. Why not is for who is known: it names models."""
        if not why_not:
            return _text(HTTPStatus.OK, "ok")
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, why_not if self._is_known(asked) else short)

    def _is_known(self, asked: PageRequest) -> bool:
        try:
            self._access.of_request(Role.METRICS, asked.authorization, asked.certificate)
        except RequestError:
            return False
        return True


def _text(status: HTTPStatus, line: str) -> PageResponse:
    return PageResponse(status, "text/plain; charset=utf-8", f"{line}\n".encode())
