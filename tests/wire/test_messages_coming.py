"""Messages on their way in: bounded in number, in bytes and in time, whoever sends them and however."""

import pytest

from raw_http2 import RawCaller, framed, unfinished
from wire_asks import (
    CANCELLED,
    CHECK,
    CLASSIFY,
    EXHAUSTED,
    GENERATE,
    INVALID,
    LATE,
    MEBIBYTE,
    OK,
    STREAM_GENERATE,
    at_rest,
    picture,
)

pytestmark = pytest.mark.e2e


# Whose last byte does not come.
LARGE = unfinished(4 * MEBIBYTE)


def test_messages_that_do_not_come_whole_end_their_calls(hasty):
    """Whatever of them has come, of each kind of call. Their caller hears why, and the connection goes on."""
    before = len(hasty.log)
    with RawCaller(hasty.target) as raw:
        streams = []
        for method in (CLASSIFY, STREAM_GENERATE, CHECK):
            streams += [raw.open(method), raw.open(method)]
            raw.send(streams[-1], unfinished(1000))
        assert [(LATE, "MESSAGE_TOO_SLOW")] * 6 == [raw.status(stream) for stream in streams]
        assert (OK, "") == raw.status(raw.call(CLASSIFY, picture()))
    hasty.wait_until(lambda: at_rest(hasty))
    # A call that has its status is not given another.
    assert [] == [event for event in hasty.log[before:] if event.get("level") not in ("info", "warning")]


@pytest.mark.parametrize("method", [CLASSIFY, GENERATE, STREAM_GENERATE, CHECK])
def test_a_call_without_a_message_is_answered(raw, method):
    """One that ends behind its headers is an error of its caller's."""
    assert (INVALID, "NO_MESSAGE") == raw.status(raw.open(method, end=True))


def test_unfinished_messages_of_one_caller_are_bounded_in_bytes(patient):
    """Of 24 messages of 4 MiB without their last byte, all but four are ended. Others are answered meanwhile."""
    before = patient.rss_bytes()
    with RawCaller(patient.target) as hostile, RawCaller(patient.target) as honest:
        streams = []
        for _ in range(24):
            streams.append(hostile.open(CLASSIFY))
            hostile.send(streams[-1], LARGE)
            assert (OK, "") == honest.status(honest.call(CLASSIFY, picture()))
        ended = [hostile.status(stream) for stream in streams[:16]]
        assert [(EXHAUSTED, "BYTE_BUDGET")] * 16 == ended
        peak = patient.rss_bytes()
    # 16 MiB of messages, and what comes between two sweeps. All of them would be 96 MiB.
    assert peak - before < 72 * MEBIBYTE
    patient.wait_until(lambda: at_rest(patient))


def test_who_is_slow_and_honest_keeps_its_place(patient):
    """Of all messages on their way, those of who has most are ended. One that comes in drops is answered."""
    with RawCaller(patient.target) as hostile, RawCaller(patient.target) as honest:
        data = framed(picture())
        slow = honest.open(CLASSIFY)
        honest.send(slow, data[:100])
        streams = [hostile.open(CLASSIFY) for _ in range(12)]
        for stream in streams:
            hostile.send(stream, LARGE)
        assert (EXHAUSTED, "BYTE_BUDGET") == hostile.status(streams[0])
        honest.send(slow, data[100:], end=True)
        assert (OK, "") == honest.status(slow)
    patient.wait_until(lambda: at_rest(patient))


def test_strangers_have_few_probes_on_their_way(closed):
    """Twenty health checks of 4 MiB by nobody who is known: bounded, and the probes of others are answered."""
    before = closed.rss_bytes()
    with RawCaller(closed.target) as stranger, RawCaller(closed.target) as probe:
        streams = []
        for _ in range(20):
            streams.append(stranger.open(CHECK))
            stranger.send(streams[-1], LARGE)
            assert (OK, "") == probe.status(probe.call(CHECK, b""))
        peak = closed.rss_bytes()
        ends = {stranger.status(stream) for stream in streams}
    assert ends <= {(EXHAUSTED, "BYTE_BUDGET"), (LATE, "MESSAGE_TOO_SLOW")}
    # All of them would be 80 MiB.
    assert peak - before < 60 * MEBIBYTE
    closed.wait_until(lambda: at_rest(closed))


def test_a_stranger_s_call_of_ours_ends_with_its_headers(closed):
    """Nothing of its message is waited for, and none of its bytes is taken."""
    with RawCaller(closed.target) as stranger:
        assert 16 == stranger.status(stranger.open(CLASSIFY))[0]
        assert 16 == stranger.status(stranger.open("/weft.v1.Nothing/Nothing"))[0]


def test_calls_of_one_connection_are_bounded(hasty):
    """HTTP/2 tells how many may be open. Headers alone, as many as that, end in time, and memory hardly grows."""
    with RawCaller(hasty.target) as raw:
        most = raw.http2.remote_settings.max_concurrent_streams
        assert 1024 == most
        before = hasty.rss_bytes()
        streams = [raw.open(CLASSIFY) for _ in range(most)]
        # gRPC itself cancels what comes faster than anybody can look at it.
        ends = {(LATE, "MESSAGE_TOO_SLOW"), (CANCELLED, "")}
        assert ends >= {raw.status(stream) for stream in streams}
        assert hasty.rss_bytes() - before < 100 * MEBIBYTE
    hasty.wait_until(lambda: at_rest(hasty))


def test_bytes_behind_a_message_are_not_taken(patient):
    """A caller that pushes 8 MiB behind the message of each call finds that the server takes little of it."""
    # It reads no answer, so that no call ends before all is pushed.
    with RawCaller(patient.target, window=0) as hostile:
        taken = []
        for _ in range(3):
            stream = hostile.open(CLASSIFY)
            hostile.send(stream, framed(picture()))
            taken.append(hostile.send(stream, bytes(8 * MEBIBYTE), timeout_s=1))
            assert stream not in hostile.ended
    assert max(taken) <= 2 * 65_535
    patient.wait_until(lambda: at_rest(patient))


def test_who_goes_leaves_nothing(patient):
    """A connection that closes with messages half sent takes them with it. The calls count as cancelled."""
    # What tests before it left has to be counted.
    patient.wait_until(lambda: at_rest(patient))
    before = patient.metric("weft_requests_total", code="CANCELLED")
    with RawCaller(patient.target) as caller:
        for _ in range(8):
            caller.send(caller.open(CLASSIFY), unfinished(MEBIBYTE))
        patient.wait_until(lambda: patient.metric("weft_messages_receiving") == 8)
    patient.wait_until(lambda: at_rest(patient))
    patient.wait_until(lambda: before + 8 == patient.metric("weft_requests_total", code="CANCELLED"))
