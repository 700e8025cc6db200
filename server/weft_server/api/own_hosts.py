"""By which names a server may be asked that asks nobody who they are, and listens to this machine alone.

A page may give its own name this machine's address, once a browser has loaded it (DNS rebinding). What it asks then is
of its own origin, and a GET says no origin. But it names its host.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from weft_server.config import LOOPBACK

if TYPE_CHECKING:
    from weft_server.api.http_messages import HttpRequest
    from weft_server.config import ServerConfig


class OwnHosts:
    """Knows the names. With tokens, with TLS, or for a network, any name will do."""

    def __init__(self, config: ServerConfig) -> None:
        host = config.host.lower()
        is_open = config.tokens is None and config.tls_cert is None
        self._names = {_in_brackets(name) for name in (*LOOPBACK, host)} if is_open and _is_loopback(host) else None

    def allows(self, request: HttpRequest) -> bool:
        """Whether a request names this machine, or nothing: HTTP/1.0 may."""
        if self._names is None:
            return True
        host = request.header("host").lower()
        name, _, port = host.rpartition(":")
        return not host or (name if port.isdecimal() else host) in self._names


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
