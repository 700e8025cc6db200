"""The HTTP port of calls without sockets: bytes go into a connection, and what it writes is kept.

So a test sees each step of the event loop, and knows when all that can be done is done.
"""

import asyncio
import time
from types import SimpleNamespace

import httptools
from structlog.testing import capture_logs

from intercepted import MAX_REQUEST_BYTES, credentials_of, gate_of
from waiting import until
from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import METHODS, SERVICES
from weft_server.api.connect_protocol import connect_routes
from weft_server.api.connection import Connection
from weft_server.api.cross_origin import CrossOrigin
from weft_server.api.dispatcher import Dispatcher
from weft_server.api.http_connections import HttpConnections
from weft_server.api.own_hosts import OwnHosts
from weft_server.auth.authorization import Authorization
from weft_server.config import ServerConfig
from weft_server.models.registry import ModelRegistry
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.openai_api.routes import openai_routes, refuse_path
from weft_server.telemetry.metrics import Metrics

# In which whatever is whole is answered.
PATIENCE_S = 60


def filled(descriptor, make, depth=6):
    """A message with every field set, and one of each that is repeated. `make` gives the class of a descriptor."""
    message = make(descriptor)()
    for field in descriptor.fields if depth else ():
        if field.message_type:
            inner = filled(field.message_type, make, depth - 1)
            place = getattr(message, field.name)
            place.add().CopyFrom(inner) if field.is_repeated else place.CopyFrom(inner)
            continue
        value = {"string": "a", "bytes": b"a", "bool": True, "float": 0.5, "enum": 1}.get(_KINDS[field.type], 1)
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


_KINDS = dict.fromkeys(range(1, 19), "int") | {1: "float", 2: "float", 8: "bool", 9: "string", 12: "bytes", 14: "enum"}


class Models(ModelRegistry):
    """Says of any model that it has the task of its name."""

    def find(self, selector, allowed):
        """A model, whatever its name."""
        task = getattr(common_pb2, f"TASK_{selector.name.upper()}", common_pb2.TASK_GENERATE)
        return SimpleNamespace(task=task, model=None, card=None)


class Transport:
    """What asyncio gives a connection. All that is written is out at once."""

    def __init__(self):
        self.written, self.is_closed = bytearray(), False

    def write(self, data):
        """Keep it."""
        self.written += data

    def close(self):
        """End."""
        self.is_closed = True

    abort = close

    def is_closing(self):
        """Whether it has ended."""
        return self.is_closed

    def write_eof(self):
        """Nothing more is written."""

    def can_write_eof(self):
        """It can."""
        return True

    def set_write_buffer_limits(self, **_):
        """There is no buffer."""

    def get_extra_info(self, _):
        """Nothing is known."""


class Port:
    """The port. `faults` are bugs, and errors that nobody has caught."""

    def __init__(self, answers):
        self.metrics = Metrics()
        self.gate = gate_of(self.metrics)
        config = ServerConfig(repository="models")
        routes = [*connect_routes(SERVICES, MAX_REQUEST_BYTES), *openai_routes(Models([]), MAX_REQUEST_BYTES)]
        access = Authorization(credentials_of(self.metrics))
        cross_origin = CrossOrigin(("https://app.example.com",))
        dispatcher = Dispatcher(routes, self.gate, access, answers, cross_origin, OwnHosts(config), refuse_path)
        self._dispatcher = dispatcher
        self.connections = HttpConnections(self._answer, self.gate, 1000, float("inf"))
        self.faults = []
        # The request that is answered, if there is one.
        self._answered = None

    async def _answer(self, request, connection):
        self._answered = request
        try:
            await self._dispatcher.answer(request, connection)
        finally:
            self._answered = None

    def talk(self, runner, pieces, *, leaves=False):
        """Send pieces on a connection of its own; what came back. If it `leaves`, its caller goes at once then."""
        with capture_logs() as lines:
            written = runner.run(self._talk(pieces, leaves))
        self.faults += [line for line in lines if line["event"] != "call"]
        return written

    async def _talk(self, pieces, leaves):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.faults.append(context))
        connection, transport = Connection(self.connections, "ipv4:127.0.0.1:5"), Transport()
        assert self.connections.add(connection)
        connection.connection_made(transport)
        for piece in pieces:
            if transport.is_closed:
                break
            connection.data_received(piece)
            await asyncio.sleep(0)
        if not leaves:
            await _until(lambda: self._answered is None or self._waits_for_more())
            # Either it has ended, or there is a time at which it does.
            watched = connection.until < float("inf") or self._waits_for_more()
            assert transport.is_closed or watched, "a connection that nobody watches"
        connection.connection_lost(None)
        await _until(lambda: self._answered is None and not self.held())
        return bytes(transport.written)

    def _waits_for_more(self):
        is_half = self._answered is not None and not self._answered.incoming.is_whole
        return is_half and self.gate.traffic.incoming.num_receiving > 0

    def held(self):
        """What is not zero, and should be."""
        traffic = self.gate.traffic
        counts = (self.gate.num_active, traffic.num_open, traffic.incoming.num_bytes, traffic.incoming.num_receiving)
        return [count for count in (*counts, traffic.outgoing.num_bytes, len(self.connections.peers)) if count]


async def _until(condition):
    """Return when a condition holds. A thread may have something to do for it."""
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0)
    await until(condition, PATIENCE_S)


class Steps:
    """Measures the steps of event loops while it is entered: `longest` is (processor seconds, what it was)."""

    def __init__(self):
        self.longest = (0.0, "")

    def __enter__(self):
        self._run = run = asyncio.Handle._run

        def measured(handle):
            before = time.thread_time()
            run(handle)
            self.longest = max(self.longest, (time.thread_time() - before, repr(handle)))

        asyncio.Handle._run = measured
        return self

    def __exit__(self, *_):
        asyncio.Handle._run = self._run


class Responses:
    """Reads what a connection wrote: the status of each response. Raises httptools' errors for what is none."""

    def __init__(self, written):
        self.statuses, self.num_whole = [], 0
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(written)

    def on_headers_complete(self):
        """Note the status."""
        self.statuses.append(self._parser.get_status_code())

    def on_message_complete(self):
        """Note its end."""
        self.num_whole += 1


def answers(make):
    """What answers each method: whatever it is asked, with every field set."""
    return {name: _answer(method, make) for name, method in METHODS.items() if method.service in SERVICES}


def _answer(method, make):
    whole = filled(method.response.DESCRIPTOR, make)

    async def unary(request, _):
        REQUEST_CONTEXT.get().name(getattr(request, "request_id", ""))
        return whole

    async def stream(request, _):
        REQUEST_CONTEXT.get().name(request.request.request_id)
        delta = filled(method.response.DESCRIPTOR.fields_by_name["delta"].message_type, make)
        for _ in range(3):
            yield method.response(delta=delta)
        yield whole

    return stream if method.streams else unary
