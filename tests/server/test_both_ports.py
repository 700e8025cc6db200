"""What befalls a call is told, counted and logged the same by gRPC and by HTTP, whatever its method.

The answers are made up here, so that each fault befalls each method. tests/e2e/test_http.py asks real models.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from both_ports import GrpcPort, HttpPort
from intercepted import MAX_REQUEST_BYTES, TOKENS, run
from waiting import until
from weft_proto.v1.methods import METHODS, SERVICES
from weft_server.errors import InvalidRequest, LaneFailed, ModelNotFound, ModelNotReady, Overloaded
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.telemetry.metrics_page import MetricsPage
from weft_server.transport.outgoing import Outgoing
from weft_server.transport.traffic import Traffic

OURS = [method for method in METHODS.values() if method.service in SERVICES]
NAMES = [method.name for method in OURS]
# More than the system keeps of what nobody reads, in a field that no message has.
UNREAD = b"\xfa\xff\xff\xff\x0f" + b"\x80\x80\x80\x03" + bytes(3 << 21)


async def _nothing():
    pass


async def _for_ever():
    await asyncio.Event().wait()


def _raises(error):
    async def fail():
        raise error

    return fail


async def _all(port, ask):
    """The status by method, all asked at once."""
    return dict(zip(NAMES, await asyncio.gather(*map(ask, OURS)), strict=True))


def _asks(data=b"", **more):
    """Each method is asked, and waited for."""

    async def act(port):
        return await _all(port, lambda method: port.ask(method, data, **more))

    return act


def _leave(**more):
    """Each caller goes while it is answered."""

    async def act(port):
        async with AsyncExitStack() as stack:
            for method in OURS:
                await stack.enter_async_context(port.begun(method, b"", **more))
            await until(lambda: len(OURS) == port.gate.num_active)

    return act


async def _send_halves(port):
    return await _all(port, lambda method: port.ask_half(method, b"\x0a"))


async def _drain(port):
    port.gate.refuse()
    return await _asks()(port)


async def _drain_halves(port):
    """It begins while each message is on its way."""
    async with asyncio.TaskGroup() as group:
        told = group.create_task(_send_halves(port))
        await until(lambda: len(OURS) == port.gate.traffic.incoming.num_receiving)
        port.gate.refuse()
    return told.result()


def _read_nothing(**more):
    """Each call is answered, and nobody reads."""

    async def act(port):
        async with AsyncExitStack() as stack:
            for method in OURS:
                await stack.enter_async_context(port.unread(method, b"", **more))
            await until(lambda: len(OURS) == _num_ended(port))

    return act


@dataclass
class Fault:
    """What befalls each call, and the code and the reason that it ends with.

    `first` and `then` are what answers it, before and behind the first message of a stream. `act` is what its caller
    does. `early_s` is how much before its deadline one who goes counts as late.
    """

    code: str
    reason: str = ""
    first: Any = _nothing
    then: Any = _nothing
    act: Any = field(default_factory=_asks)
    is_large: bool = False
    traffic: dict[str, Any] = field(default_factory=dict)
    tokens: str = ""
    early_s: float = 0.05
    max_request_bytes: int = MAX_REQUEST_BYTES


STEP_FAILED = LaneFailed("STEP_FAILED", "a step failed")
FAULTS = {
    "none": Fault("OK"),
    "wrong": Fault("INVALID_ARGUMENT", "INVALID_FIELD", _raises(InvalidRequest("text", "is wrong"))),
    "no model": Fault("NOT_FOUND", "MODEL_NOT_FOUND", _raises(ModelNotFound("there is none"))),
    "not ready": Fault("UNAVAILABLE", "MODEL_NOT_READY", _raises(ModelNotReady("it is loading", 1))),
    "full": Fault("RESOURCE_EXHAUSTED", "QUEUE_FULL", _raises(Overloaded("QUEUE_FULL", "it is full"))),
    "a failed step": Fault("INTERNAL", "STEP_FAILED", _raises(STEP_FAILED)),
    "a bug": Fault("INTERNAL", "", _raises(KeyError("secret"))),
    "a failed step in a stream": Fault("INTERNAL", "STEP_FAILED", then=_raises(STEP_FAILED)),
    "late": Fault("DEADLINE_EXCEEDED", "DEADLINE", _for_ever, act=_asks(timeout_s=0.3)),
    "late in a stream": Fault("DEADLINE_EXCEEDED", "DEADLINE", then=_for_ever, act=_asks(timeout_s=0.3)),
    "gone": Fault("CANCELLED", "", _for_ever, act=_leave()),
    "gone in a stream": Fault("CANCELLED", "", then=_for_ever, act=_leave()),
    "gone about its deadline": Fault(
        "DEADLINE_EXCEEDED", "DEADLINE", _for_ever, act=_leave(timeout_s=1000), early_s=1001
    ),
    "no message": Fault("INVALID_ARGUMENT", "MALFORMED_REQUEST", act=_asks(b"\x08")),
    # What gRPC itself refuses, beyond `--max-request-bytes`, is told without a reason there.
    "a large message": Fault(
        "INVALID_ARGUMENT", "MESSAGE_TOO_LARGE", act=_asks(UNREAD[: 1 << 17]), max_request_bytes=1 << 16
    ),
    "a slow message": Fault(
        "DEADLINE_EXCEEDED", "MESSAGE_TOO_SLOW", act=_send_halves, traffic={"receive_timeout_s": 0.1}
    ),
    "a drain": Fault("UNAVAILABLE", "DRAINING", act=_drain),
    "a drain while it comes": Fault("UNAVAILABLE", "DRAINING", act=_drain_halves),
    "nobody reads": Fault(
        "CANCELLED", "ANSWER_UNREAD", act=_read_nothing(), is_large=True, traffic={"send_timeout_s": 0}
    ),
    "nobody reads until it is late": Fault(
        "DEADLINE_EXCEEDED", "DEADLINE", act=_read_nothing(timeout_s=0.5), is_large=True
    ),
    "a stranger": Fault("UNAUTHENTICATED", "TOKEN_MISSING", tokens=TOKENS),
    "no role": Fault(
        "PERMISSION_DENIED",
        "ROLE_MISSING",
        tokens=TOKENS,
        act=_asks(metadata=[("authorization", "Bearer token-of-the-scraper")]),
    ),
    "too many calls": Fault("RESOURCE_EXHAUSTED", "TOO_MANY_CALLS", traffic={"max_open_calls": 0}),
    "no such priority": Fault("INVALID_ARGUMENT", "INVALID_FIELD", act=_asks(metadata=[("weft-priority", "x")])),
}


def _answer(method, fault):
    """What answers a method."""
    response = method.response.FromString(UNREAD) if fault.is_large else method.response()

    async def unary(request, _):
        REQUEST_CONTEXT.get().name("mine")
        await fault.first()
        await fault.then()
        return response

    async def stream(request, _):
        REQUEST_CONTEXT.get().name("mine")
        await fault.first()
        yield response
        await fault.then()
        yield response

    return stream if method.streams else unary


def _num_ended(port):
    return sum(value for name, value in _counts(port) if name[0] == "weft_requests_total")


def _counts(port):
    """All that is counted and not measured: (name, labels) and value."""
    families = text_string_to_metric_families(MetricsPage(port.metrics).render()[1].decode())
    samples = [sample for family in families for sample in family.samples]
    return sorted(
        ((each.name, tuple(sorted(each.labels.items()))), each.value)
        for each in samples
        if each.value and each.name.endswith(("_total", "_count")) and each.name.startswith("weft_")
    )


# Of two lines, those that depend on the protocol, or on the clock.
OWN = {"total_s", "request_bytes", "response_bytes"}
FIELDS = OWN | {
    "event", "log_level", "request_id", "trace_id", "method", "code", "reason", "model", "version", "tenant",
    "input_tokens", "output_tokens", "queue_s", "first_token_s",
}  # fmt: skip


def observed(kind, fault, tmp_path, access_log="all"):
    """What the callers are told, what is counted, and the lines of the log."""
    found = {}

    async def scenario():
        # A thread for each half of a message.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(OURS)))
        answers = {method.name: _answer(method, fault) for method in OURS}
        traffic = Traffic(**fault.traffic)
        # Where nobody reads, too much would be unread on a slow machine.
        traffic.outgoing = Outgoing(traffic.connections, 1 << 40, fault.traffic.get("send_timeout_s", 30))
        more = {"traffic": traffic, "entries": [], "access_log": access_log}
        more["max_request_bytes"] = fault.max_request_bytes
        async with kind.served(tmp_path, answers, fault.tokens, **more) as port:
            found["told"] = await fault.act(port)
            await until(lambda: len(OURS) == _num_ended(port))
            await until(lambda: not (port.gate.num_active or port.gate.traffic.num_open))
            assert 0 == traffic.incoming.num_bytes + traffic.outgoing.num_bytes + traffic.incoming.num_receiving
            found["counts"] = _counts(port)

    with capture_logs() as lines:
        run(scenario())
    told = [line for line in lines if line["event"] == "call"]
    assert all(FIELDS == set(line) for line in told)
    found["lines"] = sorted(
        tuple((key, str(value)) for key, value in sorted(line.items()) if key not in OWN) for line in told
    )
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_the_same_by_both_ports(name, tmp_path, monkeypatch):
    """Each method's caller hears the same status; counters are the same, and the one line of the log for each call."""
    monkeypatch.setattr("weft_server.transport.outgoing.MIN_BYTES_PER_S", 1 << 40)
    fault = FAULTS[name]
    monkeypatch.setattr("weft_server.calls.call_gate.EARLY_S", fault.early_s)
    by_grpc, by_http = (observed(kind, fault, tmp_path) for kind in (GrpcPort, HttpPort))

    assert by_grpc["lines"] == by_http["lines"]
    assert by_grpc["counts"] == by_http["counts"]
    assert by_grpc["told"] == by_http["told"]
    lines = [dict(line) for line in by_http["lines"]]
    assert sorted(NAMES) == sorted(line["method"] for line in lines)
    # Of who goes, the line says so. Nobody is told.
    reason = "CALLER_GONE" if (fault.code, fault.reason) == ("CANCELLED", "") else fault.reason
    assert {(fault.code, reason)} == {(line["code"], line["reason"]) for line in lines}
    if by_http["told"]:
        assert {fault.code} == set(by_http["told"].values())
