"""Answers on their way out: counted until their callers have read them, bounded, and given up in time."""

import ssl
import threading
from contextlib import ExitStack

import pytest

from certificates import Authority
from process import ServerProcess
from raw_http2 import RawCaller, unfinished
from weft_proto.v1 import generation_pb2
from wire_asks import (
    CHECK,
    CLASSIFY,
    GENERATE,
    OK,
    STREAM_GENERATE,
    UNAVAILABLE,
    WATCH,
    at_rest,
    large_answer,
    long_stream,
    picture,
)

pytestmark = pytest.mark.e2e


def _wait_for_unread(server, count=1):
    server.wait_until(lambda: server.metric("weft_answers_sending") >= count, what="answers on their way")


UNREAD = [
    (GENERATE, large_answer()),
    (STREAM_GENERATE, long_stream()),
    (CLASSIFY, picture()),
    (CHECK, b""),
    (WATCH, b""),
]


def test_who_does_not_read_loses_the_connection(hasty):
    """Answers of each kind that nobody reads are given up in time, and nothing of them stays. Others are answered."""
    before = hasty.metric("weft_connections_given_up_total")
    with ExitStack() as stack:
        honest, *hostile = (
            stack.enter_context(RawCaller(hasty.target, **more)) for more in ({}, *[{"window": 0}] * len(UNREAD))
        )
        for caller, (method, message) in zip(hostile, UNREAD, strict=True):
            for _ in range(3):
                caller.call(method, message)
        _wait_for_unread(hasty, 3)
        assert [] == [caller for caller in hostile if not caller.wait_until(lambda at=caller: at.closed)]
        hasty.wait_until(lambda: at_rest(hasty))
        assert before + len(UNREAD) == hasty.metric("weft_connections_given_up_total")
        # A caller's fault does not look like one of the server's.
        assert [] == [event for event in hasty.log if event.get("level") == "error"]
        assert (OK, "") == honest.status(honest.call(CLASSIFY, picture()))


def test_who_reads_slowly_gets_all(patient):
    """An answer whose caller reads in pieces is counted until its last byte, and comes whole."""
    with RawCaller(patient.target) as whole, RawCaller(patient.target, window=16_000) as slow:
        stream = whole.call(GENERATE, large_answer())
        assert (OK, "") == whole.status(stream)
        slow.reads = False
        piece = slow.call(GENERATE, large_answer())
        _wait_for_unread(patient)
        assert (OK, "") == _read_on(slow, piece)
        assert _text(whole.data[stream]) == _text(slow.data[piece])
    patient.wait_until(lambda: at_rest(patient))


def test_unread_answers_are_counted(patient):
    """Their bytes, and their calls as open, until the connection closes."""
    with RawCaller(patient.target, window=0) as hostile:
        for _ in range(4):
            hostile.call(GENERATE, large_answer())
        _wait_for_unread(patient, 4)
        assert patient.metric("weft_answers_sending_bytes") > 4 * 100_000
        assert 4 == patient.metric("weft_calls_open")
    patient.wait_until(lambda: at_rest(patient))


def test_a_drain_waits_for_who_reads(few):
    """An answer that is read slowly when SIGTERM comes is read to its end. Then the server ends with 0."""
    with ServerProcess(few, drain_timeout_s=120) as server:
        server.wait_for("ready")
        with RawCaller(server.target, window=16_000) as slow:
            slow.reads = False
            stream = slow.call(GENERATE, large_answer())
            _wait_for_unread(server)
            code = []
            ending = threading.Thread(target=lambda: code.append(server.terminate(150)))
            ending.start()
            server.wait_for("draining")
            slow.pump(1)
            assert (OK, "") == _read_on(slow, stream)
        ending.join()
    assert [0] == code
    assert not [event for event in server.log if event["event"] == "drain timeout, ending the rest"]


def test_a_drain_ends_though_nobody_reads(few):
    """It waits for its timeout and no longer."""
    with ServerProcess(few, drain_timeout_s=1) as server:
        server.wait_for("ready")
        with RawCaller(server.target, window=0) as hostile:
            hostile.call(GENERATE, large_answer())
            hostile.call(STREAM_GENERATE, long_stream())
            _wait_for_unread(server, 2)
            assert 0 == server.terminate()
    assert [event for event in server.log if event["event"] == "drain timeout, ending the rest"]


def test_a_drain_refuses_what_has_not_come(few):
    """A message on its way when SIGTERM comes is refused at once: another server may take it."""
    with ServerProcess(few, drain_timeout_s=120) as server:
        server.wait_for("ready")
        with RawCaller(server.target) as caller:
            stream = caller.open(CLASSIFY)
            caller.send(stream, unfinished(1000))
            server.wait_until(lambda: server.metric("weft_messages_receiving") == 1)
            ending = threading.Thread(target=server.terminate)
            ending.start()
            assert (UNAVAILABLE, "DRAINING") == caller.status(stream)
        ending.join()


@pytest.mark.parametrize("host", ["::1", "::", "localhost"])
def test_connections_are_found_however_they_are_spelled(few, tmp_path, host):
    """Over TLS and IPv6, and by IPv4 where a socket speaks both, who does not read loses the connection too."""
    authority = Authority()
    cert, key = authority.issue().write(tmp_path)
    settings = {"host": host, "send_timeout_s": 0.5, "tls_cert": cert, "tls_key": key}
    with ServerProcess(few, **settings) as server:
        server.wait_for("ready")
        port = server.target.rpartition(":")[2]
        reached = {"::": "127.0.0.1", "::1": "::1", "localhost": "localhost"}[host]
        context = ssl.create_default_context(cadata=authority.certificate.decode())
        context.set_alpn_protocols(["h2"])
        with RawCaller(f"{reached}:{port}", window=0, context=context) as hostile:
            hostile.call(CLASSIFY, picture())
            assert hostile.wait_until(lambda: hostile.closed)


def _text(data):
    """The text of an answer, as it came."""
    return generation_pb2.GenerateResponse.FromString(data[5:]).completion.text


def _read_on(caller, stream):
    """Read an answer in pieces of 15,000 bytes; (status, reason)."""
    while stream not in caller.ended and not caller.closed:
        caller.read_on(stream, 15_000)
        caller.pump(0.02)
    return caller.status(stream)
