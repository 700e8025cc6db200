"""The pages of the HTTP port: /metrics for Prometheus, /livez and /readyz for people and probes."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.exposition import choose_encoder

from weft_server.auth.tokens import Role
from weft_server.errors import PermissionDenied, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from weft_server.auth.authorization import Authorization

# In an Accept header, a version that does not consist of a few numbers, each of a few digits.
_NO_VERSION = re.compile(r";\s*version=(?!\d{1,9}(\.\d{1,9}){0,9}\s*([;,]|$))[^;,]*")


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
        registry: CollectorRegistry,
        why_not_live: Callable[[], str],
        why_not_ready: Callable[[], str],
        access: Authorization,
    ) -> None:
        self._registry = registry
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

    def _metrics(self, asked: PageRequest) -> PageResponse:
        try:
            self._access.of_request(Role.METRICS, asked.authorization, asked.certificate)
        except PermissionDenied as error:
            return _text(HTTPStatus.FORBIDDEN, error.message)
        except RequestError as error:
            return _text(HTTPStatus.UNAUTHORIZED, error.message)
        # The library does not know quotes, and fails over a version that is none.
        encode, content_type = choose_encoder(_NO_VERSION.sub("", asked.accept.replace('"', "")))
        return PageResponse(HTTPStatus.OK, content_type, encode(self._registry))

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
