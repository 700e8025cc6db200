"""The health service, grpc.health.v1.

Five kinds of services have a status:

1. "" is readiness.
2. "live" is the lanes' heartbeat.
3. "accepting" is for clients that balance. It serves once the models of the start have been loaded or refused, until
   new requests are refused. Readiness is no help there: a server with one refused bundle is not ready, and still
   answers for its other models.
4. Each service of weft.v1 is as ready as the server.
5. "model/<name>" says whether the model answers.

grpcio's own servicer has two faults. One watcher that leaves silences the other watchers of its service. A slow watcher
blocks whoever sets a status. Balancers watch, so they would hear of a drain late or never.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from weft_server.errors import CannotWatch, Overloaded, ServiceNotFound
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.tally import Tally

LIVE = "live"
ACCEPTING = "accepting"
READY = ""
MODEL_PREFIX = "model/"
# A watch ends this soon once requests are refused. A client that watches this very server starts it again at once.
REWATCH_S = 0.5
MAX_WATCHES = 2000
# A proxy brings those of several clients.
MAX_WATCHES_PER_CONNECTION = 16
# The longest watch.
WATCH_S = 3600.0
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def is_open(service: str) -> bool:
    """Whether everybody may ask for a service's status. Probes and balancing clients send no token.

    Not for a model's: which models there are is for callers who are known.
    """
    return service in {READY, LIVE, ACCEPTING} or service.startswith("weft.v1.")


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # grpcio ships no types for it
    """Starts live and not ready. To be used on the event loop's thread."""

    def __init__(self, services: Sequence[str], max_watches: int = MAX_WATCHES) -> None:
        """Everybody may watch, so no more than `max_watches` do at a time, and few on one connection."""
        self._max_watches = max_watches
        # How many there are on each connection that has one.
        self._watches = Tally()
        self.num_watches = 0
        self._services = (READY, *services)
        self._statuses = {LIVE: _SERVING, ACCEPTING: _NOT_SERVING} | dict.fromkeys(self._services, _NOT_SERVING)
        self._draining = self._refuses = False
        self._changed = asyncio.Event()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Answer Check and Watch on `server`."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    def serves(self, service: str) -> bool:
        """Whether a service's status is SERVING."""
        return bool(self._statuses.get(service) == _SERVING)

    @property
    def watchers(self) -> list[str]:
        """The peers that watch, as gRPC spells them."""
        return list(self._watches)

    async def set_ready(self, *, serving: bool) -> None:
        """Say whether every service takes requests. Ignored once the server drains."""
        if not self._draining:
            self._set(dict.fromkeys(self._services, _SERVING if serving else _NOT_SERVING))

    async def accept(self) -> None:
        """Say that new requests are taken. Ignored once they are refused."""
        if not self._refuses:
            self._set({ACCEPTING: _SERVING})

    async def set_live(self, *, serving: bool) -> None:
        """Say whether the lanes move. An orchestrator restarts a process that is not live."""
        self._set({LIVE: _SERVING if serving else _NOT_SERVING})

    async def set_model(self, name: str, *, serving: bool) -> None:
        """Say whether a model answers, in any version. Ignored once the server drains."""
        if not self._draining:
            self._set({f"{MODEL_PREFIX}{name}": _SERVING if serving else _NOT_SERVING})

    async def forget_model(self, name: str) -> None:
        """Know a model no more, for no version of it is left. Its watchers get SERVICE_UNKNOWN."""
        self._statuses.pop(f"{MODEL_PREFIX}{name}", None)
        self._tell()

    async def drain(self) -> None:
        """Say for good that the server is not ready. It stays live, and accepts what comes until `refuse`."""
        self._draining = True
        self._set(dict.fromkeys(self._statuses.keys() - {LIVE, ACCEPTING}, _NOT_SERVING))

    async def refuse(self) -> None:
        """Say for good that new requests are refused. The process stays live: it still finishes what it admitted."""
        self._refuses = True
        self._statuses |= {ACCEPTING: _NOT_SERVING}
        self._tell()

    def _set(self, statuses: dict[str, Any]) -> None:
        if statuses.items() <= self._statuses.items():
            return
        self._statuses |= statuses
        self._tell()

    def _tell(self) -> None:
        # Each watcher waits for the event that it saw. A change wakes all of them, and the next change has a new event.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - gRPC names it
        """Answer with a service's status. Raises ServiceNotFound for one that is not known."""
        if request.service not in self._statuses:
            raise ServiceNotFound(request.service)
        return health_pb2.HealthCheckResponse(status=self._statuses[request.service])

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - gRPC names it
        """Send a service's status now and whenever it changes. It is SERVICE_UNKNOWN as long as it is not known.

        Once requests are refused, a watch ends soon. A client behind a proxy then watches again, and finds another
        server.

        Raises:
            CannotWatch: too many watch, and the service serves.
            Overloaded: too many watch, and it does not.
        """
        peer = REQUEST_CONTEXT.get().peer
        if self.num_watches >= self._max_watches or self._watches[peer] >= MAX_WATCHES_PER_CONNECTION:
            # A client that hears CannotWatch calls without watching, so it must not hear that of a server that refuses.
            if self.serves(request.service):
                raise CannotWatch
            raise Overloaded("TOO_MANY_WATCHES", "too many callers watch; ask by Check")
        self.num_watches += 1
        self._watches[peer] += 1
        try:
            # Its client begins a new one.
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_S):
                    await self._watch(request, context)
        finally:
            self.num_watches -= 1
            self._watches.less(peer)

    async def _watch(self, request: Any, context: Any) -> None:
        last = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, _UNKNOWN)
            if status != last:
                await context.write(health_pb2.HealthCheckResponse(status=status))
                last = status
            elif self._refuses:
                await asyncio.sleep(REWATCH_S)
                return
            else:
                await changed.wait()
