"""By which names a server may be asked that asks nobody who they are, and listens to this machine alone.

A page may give its own name this machine's address, once a browser has loaded it (DNS rebinding). What it asks then is
of its own origin, and a GET says no origin. But it names its host.
"""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from weft_server.config import LOOPBACK

if TYPE_CHECKING:
    from weft_server.api.http_messages import HttpRequest
    from weft_server.config import ServerConfig


class OwnHosts:
    """Knows the names. With tokens, with TLS, or for a network, any name will do."""

    def __init__(self, config: ServerConfig) -> None:
        host = config.host.lower()
        self._is_open = config.tokens is None and config.tls_cert is None
        is_listed = self._is_open and _is_loopback(host)
        self._names = {_in_brackets(name) for name in (*LOOPBACK, host)} if is_listed else None
        # A proxy in front may speak TLS.
        self._schemes = {"https"} if config.tls_cert else {"http", "https"}

    def allows(self, request: HttpRequest) -> bool:
        """Whether a request names this machine, or nothing: HTTP/1.0 may."""
        if self._names is None:
            return True
        host = request.header("host")
        return not host or _without_port(host) in self._names

    def is_own_page(self, request: HttpRequest) -> bool:
        """Whether a page of this server sends a request that is allowed. Such as /docs.

        A server of a network that asks nobody who they are must be asked by its address, or as this machine: pages can
        give it other names. Browsers ask nobody which address `localhost` has.
        """
        host = request.header("host").lower()
        scheme, _, asked = request.header("origin").lower().partition("://")
        name = _without_port(host)
        is_surely_ours = not self._is_open or self._names is not None or _is_address(name) or name in LOOPBACK
        return bool(host) and host == asked and scheme in self._schemes and is_surely_ours


# Nearly all ask by the same few names.
@lru_cache(64)
def _without_port(host: str) -> str:
    name, _, port = host.lower().rpartition(":")
    return name if port.isdecimal() else host.lower()


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host.strip("[]")))
    return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
