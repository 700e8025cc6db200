"""The gRPC server: which services it answers, at which port, and how it keeps its connections."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import grpc.aio

from weft_proto.inference import methods as open_inference
from weft_proto.v1.methods import ADMIN_SERVICE, METHODS, SERVICES
from weft_server.config import ConfigError
from weft_server.rpc.services import add_services, behaviours, open_inference_behaviours
from weft_server.rpc.standard_services import add_reflection
from weft_server.transport.addresses import NotFree, take
from weft_server.transport.traffic import MAX_CALLS_PER_CONNECTION

if TYPE_CHECKING:
    from weft_server.auth.credentials import Credentials
    from weft_server.config import ServerConfig
    from weft_server.lifecycle.lifecycle import Lifecycle
    from weft_server.models.registry import ModelRegistry
    from weft_server.rpc.health import Health
    from weft_server.rpc.interceptor import Interceptor

# On the admin port.
ADMIN_SERVICES = (ADMIN_SERVICE, METHODS["ListModels"].service)
# gRPC counts pings that come closer together than this as abuse. Our client pings every 15 s, so there is some room. It
# pings so often to leave a frozen server within half a minute.
MIN_PING_INTERVAL_MS = 10_000
# A client that pings more often is disconnected at the third ping too soon.
MAX_PING_STRIKES = 2
# Seconds for the handshake of a connection, TLS and HTTP/2. gRPC's default is two minutes.
HANDSHAKE_S = 10
# Headers of one call. A token is some hundred bytes. By its default gRPC refuses some calls with more than 8 KiB, at
# random, and all with more than 16.
MAX_METADATA_BYTES = 16 * 1024
NO_LIMIT = 2**31 - 1
# How long a call may go on once its connection is as old as it may be.
MAX_CALL_S = 3600
# A connection without any call, and without a watch of health, is ended after this time.
MAX_IDLE_S = 300
# Calls that have come and that nobody has looked at yet. gRPC ends calls beyond that with a bare CANCELLED, whosever
# they are. So it bounds memory, some 18 KB for each, and no flood: one connection cannot have as many calls.
MAX_PENDING_CALLS = 2048


class GrpcServer:
    """Listens from construction, answers from `start` to `stop`."""

    def __init__(
        self,
        models: ModelRegistry,
        config: ServerConfig,
        interceptor: Interceptor,
        health: Health,
        credentials: Credentials,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        """Bind the host and port of `config`: with a lifecycle those of its admin port, where other services answer.

        Port 0 takes a free one. Raises ConfigError when it cannot.
        """
        self._server = grpc.aio.server(interceptors=[interceptor], options=_options(config))
        if lifecycle:
            services: tuple[str, ...] = ADMIN_SERVICES
            flag = "--admin-port"
            host, port = config.admin_host, config.admin_port
        else:
            services, flag = SERVICES, "--port"
            host, port = config.host, config.port
        add_services(self._server, services, behaviours(models, config, lifecycle))
        if not lifecycle:
            answers = open_inference_behaviours(models, config, health)
            add_services(self._server, [open_inference.SERVICE], answers, open_inference.METHODS)
            services += (open_inference.SERVICE,)
        health.add_to(self._server)
        if config.reflection:
            add_reflection((*services, "grpc.health.v1.Health"), self._server)
        try:
            self.port = take(host, port, partial(credentials.add_port, self._server))
        except NotFree as error:
            kind = "; or gRPC takes no key of this kind, then use RSA or ECDSA" if config.tls_key else ""
            why = f"is another server there? {flag} takes another{kind}"
            raise ConfigError(f"cannot listen on {error.where}: {why}") from error
        interceptor.traffic.connections.ports.add(self.port)

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Stop answering. Calls that are still there after `grace_s` seconds are cut off."""
        await self._server.stop(grace_s)


def _options(config: ServerConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", config.max_request_bytes),
        # Clients ping while a call is silent. gRPC's default of five minutes would end such a connection.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
        ("grpc.http2.max_ping_strikes", MAX_PING_STRIKES),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.max_allowed_incoming_connections", config.max_connections),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_S * 1000),
        # gRPC adds some jitter. Calls that run may finish, within an hour.
        ("grpc.max_connection_age_ms", int(config.max_connection_age_s * 1000) or NO_LIMIT),
        ("grpc.max_connection_age_grace_ms", MAX_CALL_S * 1000),
        # Clients connect again when they call.
        ("grpc.max_connection_idle_ms", MAX_IDLE_S * 1000),
        ("grpc.max_concurrent_streams", MAX_CALLS_PER_CONNECTION),
        # A caller may push 64 KiB behind its message, which nobody reads. By default gRPC lets that grow to 8 MiB where
        # a connection is fast. Without that, a large message over a long way takes longer.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
        # Two servers on one port would share its connections silently.
        ("grpc.so_reuseport", 0),
    ]
