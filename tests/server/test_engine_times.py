"""Laws of what the engine says of time."""

import asyncio
import threading

import pytest

from running import Running
from toy import Toy
from weft_server.runtime.session import Session
from weft_server.sequence import Decoding


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The toy and its two sessions."""
    toy = Toy(tmp_path_factory.mktemp("toy"))
    toy.encoder, toy.decoder = Session(toy.encoder_path, 1), Session(toy.path, 1)
    return toy


class Delaying:
    """A lock at which a lane has to wait, while something else happens."""

    def __init__(self, lock, happen):
        self._lock, self._happen = lock, happen

    def __enter__(self):
        if threading.current_thread().name.startswith("lane-"):
            self._happen()
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


def test_nobody_is_admitted_before_they_came(toy):
    """Also who comes while a lane waits for the lock of the queue. No time in an answer is negative.

    Envoy's JSON refuses an answer with a negative time: "nanos and seconds signs do not match".
    """

    async def run():
        loop, asked, all_came = asyncio.get_running_loop(), [], asyncio.Event()
        async with Running(toy, num_lanes=1) as running:

            def submit(came):
                asked.append(running.submit([5], Decoding(4)))
                came.set()
                if len(asked) == 20:
                    all_came.set()

            def come():
                if len(asked) < 20:
                    came = threading.Event()
                    loop.call_soon_threadsafe(submit, came)
                    assert came.wait(30)

            running.submit([5], Decoding(4))
            running.engine.lock = Delaying(running.engine.lock, come)
            await all_came.wait()
            for sequence in asked:
                await sequence.reply.done()
                times = sequence.times
                assert times.accepted <= times.admitted <= times.first_token <= times.finished

    asyncio.run(run())
