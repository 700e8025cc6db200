"""The gRPC server: which services it answers, at which port, and how it keeps its connections."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import grpc.aio

from weft_proto.v1 import (
    admin_pb2_grpc,
    answer_pb2_grpc,
    caption_pb2_grpc,
    classification_pb2_grpc,
    embedding_pb2_grpc,
    generation_pb2_grpc,
    model_pb2_grpc,
    score_pb2_grpc,
    tokenization_pb2_grpc,
    transcription_pb2_grpc,
    translation_pb2_grpc,
)
from weft_server.config import ConfigError
from weft_server.rpc.admin_service import ModelAdminServicer
from weft_server.rpc.classification_service import ClassificationServicer
from weft_server.rpc.embedding_service import EmbeddingServicer
from weft_server.rpc.model_service import ModelServicer
from weft_server.rpc.reflection import add_reflection
from weft_server.rpc.score_service import ScoreServicer
from weft_server.rpc.text_services import (
    AnswerServicer,
    CaptionServicer,
    GenerationServicer,
    TranscriptionServicer,
    TranslationServicer,
)
from weft_server.rpc.tokenization_service import TokenizationServicer
from weft_server.transport.addresses import NotFree, take
from weft_server.transport.traffic import MAX_CALLS_PER_CONNECTION

if TYPE_CHECKING:
    from weft_server.auth.credentials import Credentials
    from weft_server.config import ServerConfig
    from weft_server.lifecycle.lifecycle import Lifecycle
    from weft_server.models.registry import ModelRegistry
    from weft_server.rpc.health import Health
    from weft_server.rpc.interceptor import Interceptor

SERVICES = (
    "weft.v1.TranslationService",
    "weft.v1.CaptionService",
    "weft.v1.AnswerService",
    "weft.v1.TranscriptionService",
    "weft.v1.ClassificationService",
    "weft.v1.GenerationService",
    "weft.v1.ScoreService",
    "weft.v1.EmbeddingService",
    "weft.v1.TokenizationService",
    "weft.v1.ModelService",
)
# On the admin port.
ADMIN_SERVICES = ("weft.v1.ModelAdminService", "weft.v1.ModelService")
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
            admin = ModelAdminServicer(lifecycle, models, config)
            admin_pb2_grpc.add_ModelAdminServiceServicer_to_server(admin, self._server)
            model_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(models, config), self._server)
        else:
            services, flag = SERVICES, "--port"
            host, port = config.host, config.port
            _add_services(self._server, models, config)
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


def _add_services(server: grpc.aio.Server, models: ModelRegistry, config: ServerConfig) -> None:
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(TranslationServicer(models), server)
    caption_pb2_grpc.add_CaptionServiceServicer_to_server(CaptionServicer(models), server)
    answer_pb2_grpc.add_AnswerServiceServicer_to_server(AnswerServicer(models), server)
    transcription_pb2_grpc.add_TranscriptionServiceServicer_to_server(TranscriptionServicer(models), server)
    classification_pb2_grpc.add_ClassificationServiceServicer_to_server(ClassificationServicer(models), server)
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(GenerationServicer(models), server)
    score_pb2_grpc.add_ScoreServiceServicer_to_server(ScoreServicer(models), server)
    tokenization_pb2_grpc.add_TokenizationServiceServicer_to_server(TokenizationServicer(models), server)
    embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server(EmbeddingServicer(models), server)
    model_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(models, config), server)


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
