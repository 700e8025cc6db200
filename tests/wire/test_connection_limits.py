"""Connections and watches: strangers who take all they can get keep nobody out who is known."""

from contextlib import ExitStack

import pytest

import weft
from raw_http2 import RawCaller, framed
from wire_asks import CHECK, CLASSIFY, DIGIT, OK, TOKEN, UNIMPLEMENTED, WATCH, at_rest, picture

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def _nobody(closed):
    """Begin when the connections of the last test have gone."""
    closed.wait_until(lambda: closed.metric("weft_connections") == 0, what="an empty server")


def test_idle_strangers_make_room(closed):
    """Strangers take all connections and say nothing. Who is known keeps a connection, and new ones find a place."""
    with ExitStack() as stack:
        known = stack.enter_context(RawCaller(closed.target, token=TOKEN))
        assert (OK, "") == known.status(known.call(CLASSIFY, picture()))
        # Sixteen are all there are. Who comes when none is left is closed at once, and comes again.
        strangers = [_try(stack, closed.target) for _ in range(20)]
        closed.wait_until(lambda: closed.metric("weft_connections") <= 12, what="places for others")
        with weft.Client(closed.target, token=TOKEN, timeout=60) as client:
            assert "7" == client.classify(image=DIGIT.read_bytes(), model="digits").labels[0].label
        assert (OK, "") == known.status(known.call(CLASSIFY, picture()))
        for stranger in filter(None, strangers):
            stranger.pump(0.01)
        assert any(stranger and stranger.closed for stranger in strangers)


def test_who_only_watches_is_ended_last(closed):
    """Of sixteen connections fourteen may watch and never call. Strangers who do neither are ended before them."""
    with ExitStack() as stack:
        watching = [stack.enter_context(RawCaller(closed.target)) for _ in range(10)]
        for caller in watching:
            _watch(caller)
        closed.wait_until(lambda: closed.metric("weft_health_watches") == 10)
        strangers = [_try(stack, closed.target) for _ in range(5)]
        closed.wait_until(lambda: closed.metric("weft_connections") <= 12, what="places for others")
        assert not any(_is_closed(caller) for caller in watching)
        assert any(stranger and _is_closed(stranger) for stranger in strangers)
        # Now too many watch. Those before are the oldest.
        closed.wait_until(lambda: _one_more_watches(stack, closed) and any(map(_is_closed, watching)), what="an end")
        with weft.Client(closed.target, token=TOKEN, timeout=60) as client:
            assert "7" == client.classify(image=DIGIT.read_bytes(), model="digits").labels[0].label


def _one_more_watches(stack, server):
    if caller := _try(stack, server.target):
        _watch(caller)
    return True


def _is_closed(caller):
    caller.pump(0.001)
    return bool(caller.closed)


def test_watches_of_a_connection_are_bounded(closed):
    """Of a thousand watches by a stranger, sixteen stay. The others are told to do without, and the SDK watches on."""
    with RawCaller(closed.target) as stranger:
        watches = []
        for _ in range(10):
            watches += [_watch(stranger) for _ in range(100)]
            num_refused = len(watches) - 16
            stranger.wait_until(lambda num_refused=num_refused: len(stranger.ended) >= num_refused)
        refused = [stream for stream in watches if stream in stranger.ended]
        assert len(watches) - 16 == len(refused)
        assert {(UNIMPLEMENTED, "TOO_MANY_WATCHES")} == {stranger.status(stream) for stream in refused}
        assert 16 <= closed.metric("weft_health_watches") < 100
        with weft.Client(closed.target, token=TOKEN, timeout=60) as client:
            assert "7" == client.classify(image=DIGIT.read_bytes(), model="digits").labels[0].label
        # A client that was refused a watch calls without.
        assert (OK, "") == stranger.status(stranger.call(CHECK, b""))
    closed.wait_until(lambda: at_rest(closed))


def _try(stack, target):
    """A connection, or None if there is no place."""
    try:
        return stack.enter_context(RawCaller(target))
    except OSError:
        return None


def _watch(caller):
    stream = caller.open(WATCH)
    # The service "live": field 1, four bytes.
    caller.send(stream, framed(b"\x0a\x04live"), end=True)
    return stream
