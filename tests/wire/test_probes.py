"""Probes that nobody reads: they cost those who are known no place."""

from contextlib import ExitStack

import pytest

from raw_http2 import RawCaller
from wire_asks import CHECK, CLASSIFY, EXHAUSTED, OK, TOKEN, at_rest, picture

pytestmark = pytest.mark.e2e


def test_unread_probes_take_no_place_of_calls(closed):
    """Strangers leave all probes unread that they may have. Who is known is answered, and so are others' probes."""
    with ExitStack() as stack:
        known = stack.enter_context(RawCaller(closed.target, token=TOKEN))
        assert (OK, "") == known.status(known.call(CLASSIFY, picture()))
        strangers = [stack.enter_context(RawCaller(closed.target, window=0)) for _ in range(4)]
        for stranger in strangers:
            streams = [stranger.call(CHECK, b"") for _ in range(100)]
            stranger.wait_until(lambda stranger=stranger: len(stranger.ended) >= 36)
            refused = [stream for stream in streams if stream in stranger.ended]
            assert [(EXHAUSTED, "TOO_MANY_CALLS")] * 36 == [stranger.status(stream) for stream in refused]
        assert closed.metric("weft_calls_open") >= 4 * 64
        assert (OK, "") == known.status(known.call(CLASSIFY, picture()))
        assert (OK, "") == known.status(known.call(CHECK, b""))
    closed.wait_until(lambda: at_rest(closed))
