"""The HTTP port of calls: binds it, speaks TLS with the certificate of now, and drains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.api.cross_origin import CrossOrigin
from weft_server.api.dispatcher import Dispatcher
from weft_server.api.http_connections import HttpConnections
from weft_server.api.listener import Listener
from weft_server.api.own_hosts import OwnHosts
from weft_server.config import LOOPBACK, ConfigError
from weft_server.transport.addresses import addresses_of, bound, free_port, place

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from weft_server.api.http_messages import HttpRequest, Response, Route
    from weft_server.api.refusal import Refusal
    from weft_server.auth.authorization import Authorization
    from weft_server.auth.credentials import Credentials
    from weft_server.calls.call_gate import CallGate
    from weft_server.config import ServerConfig

# Hosts that mean each address of the machine.
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - it is compared with


class ApiServer:
    """Binds at construction, answers from `start` to `stop`."""

    def __init__(
        self,
        config: ServerConfig,
        gate: CallGate,
        access: Authorization,
        credentials: Credentials,
        answers: Mapping[str, Callable[[Any, Any], Any]],
        routes: Iterable[Route],
        refuse: Callable[[HttpRequest, Refusal], Response],
    ) -> None:
        """Bind the host of `config` and its port of the API. Port 0 takes a free one.

        `answers` has what answers each method of weft.v1. `refuse` refuses what has no route.
        Raises ConfigError when it cannot.
        """
        assert config.api_port is not None, "an HTTP port of calls that is off. This is a bug."
        sockets = _bind(config, config.api_port)
        self.port = int(sockets[0].getsockname()[1])
        self._is_tls = config.tls_cert is not None
        is_here = config.host in {*LOOPBACK, *EVERYWHERE}
        self._name = config.address(self.port, "localhost" if is_here else config.host)
        pages, hosts = CrossOrigin(config.allowed_origins), OwnHosts(config)
        dispatcher = Dispatcher(routes, gate, access, answers, pages, hosts, refuse)
        max_age_s = config.max_connection_age_s or float("inf")
        self.connections = HttpConnections(dispatcher.answer, gate, config.max_connections, max_age_s)
        self._listener = Listener(sockets, self.connections, credentials.calls_context())
        gate.traffic.connections.ports.add(self.port)

    @property
    def url(self) -> str:
        """Where a browser finds it: on this machine, if it is to be reached there."""
        return f"{'https' if self._is_tls else 'http'}://{self._name}/"

    def start(self) -> None:
        """Begin to answer."""
        self._listener.start()

    async def stop(self, grace_s: float) -> None:
        """Stop answering. Requests that are still answered after `grace_s` seconds are cut off."""
        self._listener.stop()
        await self.connections.close(grace_s)


def _bind(config: ServerConfig, port: int) -> list[socket.socket]:
    addresses = addresses_of(config.host)
    if not port and len(addresses) > 1:
        port = free_port(addresses)
    taken: list[socket.socket] = []
    for address in addresses:
        try:
            taken.append(bound(address, port))
        except OSError as error:
            for each in taken:
                each.close()
            raise ConfigError(
                f"cannot listen on {place(address, port)} for HTTP calls: {error.strerror}; --api-port takes another"
            ) from error
    return taken
