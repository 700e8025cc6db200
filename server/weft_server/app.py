"""The composition root: it alone constructs the server's parts, and starts, drains and stops them."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog

from weft_proto.v1 import model_pb2
from weft_proto.v1.methods import ADMIN_SERVICE, SERVICES
from weft_server.admission.early_admission import EarlyAdmission
from weft_server.api.api_server import ApiServer
from weft_server.api.connect_protocol import connect_routes
from weft_server.api.docs_routes import with_docs
from weft_server.auth.authorization import Authorization
from weft_server.auth.credentials import Credentials
from weft_server.bundle.repository import scan_repository
from weft_server.calls.access_log import AccessLog
from weft_server.calls.call_gate import CallGate
from weft_server.calls.recent_refusals import RecentRefusals
from weft_server.config import ConfigError
from weft_server.console.console_routes import console_routes
from weft_server.errors import Draining
from weft_server.http.endpoints import Endpoints
from weft_server.http.http_server import HttpServer
from weft_server.lifecycle.labels_file import read_labels, restrict
from weft_server.lifecycle.lifecycle import Lifecycle
from weft_server.lifecycle.repository_watcher import RepositoryWatcher
from weft_server.lifecycle.watchdog import Watchdog
from weft_server.loading.loader import load_entries, load_entry
from weft_server.models.placement import Placement
from weft_server.models.registry import ModelRegistry, RegistryEntry
from weft_server.models.version_labels import VersionLabels
from weft_server.openai_api.routes import openai_routes, refuse_path
from weft_server.process.background_tasks import BackgroundTasks
from weft_server.process.exit_codes import ExitCode
from weft_server.process.failpoints import POINTS
from weft_server.process.garbage import keep_objects
from weft_server.process.sd_notify import notify
from weft_server.rpc.grpc_server import GrpcServer
from weft_server.rpc.health import Health
from weft_server.rpc.interceptor import Interceptor
from weft_server.rpc.services import behaviours
from weft_server.runtime.cpus import cpu_quota, loading_places
from weft_server.runtime.device import devices_of
from weft_server.runtime.huge_pages import collapse
from weft_server.runtime.session import verify_device
from weft_server.telemetry.logs import num_dropped
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.tracing import open_tracing
from weft_server.transport.traffic import MAX_OPEN_CALLS, WATCHES_PER_CONNECTION, Traffic

if TYPE_CHECKING:
    from weft_server.calls.call_spans import CallSpans
    from weft_server.config import ServerConfig
    from weft_server.process.shutdown import Shutdown
    from weft_server.telemetry.tracing import Tracing

_log = structlog.get_logger(__name__)
# At most this number of oddities of a repository is logged.
MAX_ODDITIES = 10
# Seconds that lanes get to end their last step.
STOP_S = 5.0
# The listener closes once no call has come for this number of seconds.
LINGER_S = 0.2
# How long a thread keeps the interpreter. Python's default is 5 ms. A lane that comes back from a model run should not
# have to wait that long.
SWITCH_INTERVAL_S = 0.0005


class App:
    """One server process."""

    def __init__(self, config: ServerConfig, stopping: Shutdown) -> None:
        self.config = config
        self._stopping = stopping
        devices = devices_of(config)
        for device in devices:
            verify_device(device)
        self._placement = Placement(devices)
        scan = scan_repository(config.repository)
        for oddity in scan.oddities[:MAX_ODDITIES]:
            _log.warning("repository", oddity=oddity)
        if len(scan.oddities) > MAX_ODDITIES:
            _log.warning("repository", more_oddities=len(scan.oddities) - MAX_ODDITIES)
        self.models = ModelRegistry([RegistryEntry(*candidate) for candidate in scan.candidates])
        self._read_labels()
        self.metrics = Metrics()
        # A bundle may be refused before its task is known.
        for entry in self.models.entries:
            self.metrics.for_model(entry.name, entry.version, "")
        self.metrics.log_events_dropped = num_dropped
        self.metrics.claimed_bytes = self._placement.claimed
        self.credentials = Credentials(config, self.metrics)
        self.access = Authorization(self.credentials)
        # Whoever lets more wait lets more be open.
        max_open_calls = max(MAX_OPEN_CALLS, 2 * config.max_queued_requests)
        self.traffic = Traffic(
            config.max_held_bytes,
            config.max_request_bytes,
            max_open_calls,
            config.receive_timeout_s,
            config.send_timeout_s,
            config.max_connections,
        )
        self.access_log = AccessLog(config.access_log)
        self._refusals = RecentRefusals()
        self._tracing = open_tracing(os.environ)
        spans = _call_spans(self._tracing)
        early_admission = EarlyAdmission(self.models, config.tenant_key)
        told = (self.traffic, self.access_log, self._refusals, spans)
        self.gate = CallGate(self.metrics, early_admission, *told)
        self.health = Health(SERVICES, WATCHES_PER_CONNECTION * config.max_connections)
        self.traffic.places.watching = lambda: self.health.watchers
        self.metrics.traffic = lambda: self.traffic.figures() | {"health_watches": self.health.num_watches}
        self.pages = Endpoints(self.metrics, self.why_not_live, self.why_not_ready, self.access)
        self.http = self._http_server()
        self.grpc = GrpcServer(self.models, config, self._interceptor(self.gate), self.health, self.credentials)
        self._places = loading_places(cpu_quota())
        self.lifecycle = Lifecycle(
            self.models,
            config,
            self.metrics,
            changed=self._model_changed,
            settled=self._settle_memory,
            num_places=self._places,
            placement=self._placement,
        )
        self.api = self._api_server() if config.api_port is not None else None
        # Nobody waits for its calls.
        self.admin_gate = CallGate(self.metrics, EarlyAdmission(self.models), *told)
        self.admin = self._admin_server() if config.admin else None
        self._draining = asyncio.Event()
        # Why the server ends by itself. The exit code is 1 then.
        self._failure = ""
        # What systemd has to hear: nothing while models load.
        self._phase = ""
        self._background = BackgroundTasks(self._fail, self._tell_health)
        self._watchdog = Watchdog(self.models, config.step_timeout_s, fail=self._fail, also=self._go_on)

    def why_not_live(self) -> str:
        """Return what is stuck, or nothing while every lane and the event loop move. Any thread may ask."""
        if why := self._background.why_not("pulse"):
            return f"lanes are not supervised: {why}"
        return self._watchdog.why_not_live()

    def why_not_ready(self) -> str:
        """Return the first reason why the server is not ready. Any thread may ask.

        Empty when every model is ready, nothing is stuck, and the server takes requests.
        """
        if self._draining.is_set():
            return "draining"
        if why := self.why_not_live():
            return why
        for entry in self.models.entries:
            if entry.state in {model_pb2.MODEL_STATE_LOADING, model_pb2.MODEL_STATE_FAILED}:
                return f"model {entry.name} version {entry.version}: {entry.error or 'loading'}"
        return ""

    async def run(self) -> None:
        """Serve until a signal, then drain."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            with suppress(RuntimeError):  # the loop has ended by itself
                loop.call_soon_threadsafe(self._draining.set)

        self._stopping.serve(stop, self.config.drain_delay_s + self.config.drain_timeout_s, _log.error)
        sys.setswitchinterval(SWITCH_INTERVAL_S)

        self.http.start()
        await self.grpc.start()
        at = self.config.address
        listening = {"grpc": at(self.grpc.port), "http": at(self.http.port)}
        if self.api:
            self.api.start()
            listening["api"] = at(self.api.port)
        if self.admin:
            await self.admin.start()
            listening["admin"] = at(self.admin.port, self.config.admin_host)
        _log.info("listening", **listening)
        self._begin()
        await self._draining.wait()

        is_cut_off = self._background.cancel("load")
        for follower in ("watch", "doze"):
            self._background.cancel(follower)
        await self._drain()
        await self._background.stop()
        is_cut_off |= self.lifecycle.is_stuck
        self.http.stop()
        self._stop_models(is_cut_off=is_cut_off)

    def _begin(self) -> None:
        """Load the models, and do all that goes on beside the calls."""
        background = self._background
        background.need("load", self._load())
        background.keep("pulse", self._watchdog.beat)
        background.keep("credentials", self._watch_credentials)
        background.keep("places", self.traffic.places.keep_looking)
        if self.config.watch:
            background.keep("watch", RepositoryWatcher(self.lifecycle, self.models, self.config.repository).watch)
        if self.config.idle_unload_s:
            background.keep("doze", self.lifecycle.doze)
        if POINTS:
            _log.warning("failpoints are on: this server is for tests")
            points, under_way = POINTS, self._under_way
            background.keep("failpoints", lambda: points.tell(under_way))

    def _fail(self, why: str) -> None:
        """End the server as a signal would, with exit code 1."""
        if not self._draining.is_set():
            _log.error("the server ends", why=why)
            self._failure = why
            self._stopping.begin()
            self._draining.set()

    def _stop_models(self, *, is_cut_off: bool) -> None:
        """Stop what the models run. Python waits for threads at its exit, so it is not left to exit in three cases.

        1. A lane or a worker does not end: the exit code says so. Waiting would end in the orchestrator's kill.
        2. The server has failed: the exit code says so too.
        3. Loading was cut off, or a refused model left threads behind: nobody needs what they do.
        """
        stuck = [entry.name for entry in self.models.entries if entry.model and not entry.model.stop(STOP_S)]
        failed = [entry.name for entry in self.models.entries if entry.model and entry.model.has_failed]
        if stuck:
            _log.error("stopped with threads that are stuck", models=stuck)
            self._stopping.exit_now(ExitCode.FAILED)
        if failed:
            _log.error("stopped after too many failures", models=failed)
            self._stopping.exit_now(ExitCode.FAILED)
        if self._failure:
            _log.error("stopped after a failure", why=self._failure)
            self._stopping.exit_now(ExitCode.FAILED)
        _log.info("stopped")
        if is_cut_off or any(entry.is_stuck for entry in self.models.entries):
            self._stopping.exit_now(ExitCode.DONE)

    async def _load(self) -> None:
        await load_entries(self.models.entries, self._load_entry, self._settled, num_places=self._places)
        why = self.why_not_ready()
        if why:
            _log.error("not ready", why=why)
        else:
            await self.health.set_ready(serving=True)
            # Whoever starts it by hand wants to open that next.
            page = {"console": self.api.url} if self.api and self.config.console else {}
            _log.info("ready", models=len(self.models.entries), **page)
        # A bundle that is refused keeps no other one from being asked.
        self._phase = "READY=1"
        self._tell_manager()

    async def _load_entry(self, entry: RegistryEntry) -> None:
        await load_entry(entry, self.config, self.metrics, self._placement)
        await self._model_changed(entry.name)

    async def _model_changed(self, name: str) -> None:
        """Let the health service follow what has become of a model's versions."""
        if versions := self.models.versions(name):
            await self.health.set_model(name, serving=any(entry.answers for entry in versions))
        else:
            await self.health.forget_model(name)
        if not self.why_not_ready():
            await self.health.set_ready(serving=True)

    def _read_labels(self) -> None:
        """Set the labels that the repository states. Raises RepositoryError for a file that states no labels."""
        for name in {entry.name for entry in self.models.entries}:
            stated = read_labels(self.config.repository / name) or VersionLabels()
            versions = [entry.version for entry in self.models.versions(name)]
            self.models.set_labels(name, restrict(stated, versions))

    async def _settled(self) -> None:
        """Take requests for the models that are there. Only slow ones are left to load."""
        await self._settle_memory()
        await self.health.accept()

    async def _settle_memory(self) -> None:
        """Move the models' weights into huge pages, now that all of their memory has been touched. Keep its objects."""
        keep_objects()
        await asyncio.to_thread(collapse)

    async def _go_on(self) -> None:
        """At each beat, see that probes are answered, on both ports, and that systemd knows of it."""
        if not self.why_not_live():
            self._tell_manager("WATCHDOG=1")
        self.http.supervise()
        await self._tell_health()

    def _tell_manager(self, *states: str) -> None:
        """Tell systemd how the server is. Each beat says it again: one that does not listen may hear the next."""
        if self._phase:
            states = (*states, self._phase, f"STATUS={self.why_not_ready() or 'ready'}")
        notify(*states)

    async def _tell_health(self) -> None:
        await self.health.set_live(serving=not self.why_not_live())
        await self.health.set_ready(serving=not self.why_not_ready())

    async def _watch_credentials(self) -> None:
        """Look for new certificates and tokens once a second. A file system that hangs keeps nothing else waiting."""
        while True:
            await asyncio.to_thread(self.credentials.refresh)
            await asyncio.sleep(1)

    def _under_way(self) -> dict[str, int]:
        """What is under way now. At rest the tasks are always as many, and the calls none."""
        return {"calls": self.gate.num_active, "tasks": len(asyncio.all_tasks())}

    async def _drain(self) -> None:
        """Drain the server.

        1. Say that it is not ready, and serve on until load balancers notice.
        2. Refuse new calls.
        3. Let admitted calls finish, until the timeout. End the rest.
        4. Close the listener.
        """
        _log.info("draining", active=self.gate.num_active)
        self.metrics.set_draining()
        await self.health.drain()
        self._phase = "STOPPING=1"
        self._tell_manager()
        await asyncio.sleep(self.config.drain_delay_s)
        await self.health.refuse()
        self.gate.refuse()
        self.admin_gate.refuse()
        self.lifecycle.close()
        try:
            await asyncio.wait_for(self.gate.idle(), self.config.drain_timeout_s)
        except TimeoutError:
            _log.warning("drain timeout, ending the rest", active=self.gate.num_active)
            for entry in self.models.entries:
                if entry.model:
                    entry.model.cancel_all(partial(Draining, "the server is draining, and the time for this is over"))
        # Calls that are still on their way get UNAVAILABLE from the interceptor. gRPC itself would end them with
        # CANCELLED.
        await self.gate.quiet(LINGER_S, at_most=10 * LINGER_S)
        await self.grpc.stop(grace_s=1)
        if self.api:
            await self.api.stop(grace_s=1)
        if self.admin:
            await self.admin.stop(grace_s=1)
        self.access_log.end_window()
        if self._tracing:
            await asyncio.to_thread(self._tracing.close)

    def _admin_server(self) -> GrpcServer:
        interceptor = self._interceptor(self.admin_gate)
        return GrpcServer(self.models, self.config, interceptor, self.health, self.credentials, self.lifecycle)

    def _api_server(self) -> ApiServer:
        """The port of calls by HTTP, which drains with that of gRPC."""
        config = self.config
        most = config.max_request_bytes
        # Where roles say who may, and as many may reach the admin port.
        changes = config.admin and config.console and config.tokens is not None and config.admin_host == config.host
        services = (*SERVICES, ADMIN_SERVICE) if changes else SERVICES
        calls = (*connect_routes(services, most), *openai_routes(self.models, most, config.max_queued_requests))
        routes = with_docs(calls, refuse_path)
        if config.console:
            refusals = self._refusals.rows if changes else None
            asks_token = self.access.asks_token
            routes += tuple(
                console_routes(refuse_path, lambda: self.grpc.port, self.pages.metrics, asks_token, refusals)
            )
        answers = behaviours(self.models, config, self.lifecycle)
        return ApiServer(config, self.gate, self.access, self.credentials, answers, routes, refuse_path)

    def _interceptor(self, gate: CallGate) -> Interceptor:
        return Interceptor(gate, self.access, self.config.max_request_bytes)

    def _http_server(self) -> HttpServer:
        host, port = self.config.host, self.config.http_port
        try:
            return HttpServer(host, port, self.pages, self.credentials)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self.config.address(port)} for HTTP: {error.strerror}; --http-port takes another"
            ) from error


def _call_spans(tracing: Tracing | None) -> CallSpans | None:
    if tracing is None:
        return None
    from weft_server.calls.call_spans import CallSpans  # noqa: PLC0415 - it needs OpenTelemetry

    return CallSpans(tracing.tracer)
