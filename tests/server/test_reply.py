"""Laws of a reply: only the event loop touches it, and nothing comes after its end."""

import asyncio
import threading

import pytest

from loaded import Loaded, ask
from weft_server.sequence import Reply


@pytest.mark.parametrize("name", ["tiny-text", "tiny-tags", "tiny-generate"])
def test_a_reply_is_touched_on_the_event_loop_only(tiny_repository, monkeypatch, name):
    """No lane reads or writes one from its thread: it hands over a Delivery, and the loop's thread opens it."""
    touched = []

    def read(reply, attribute):
        touched.append(threading.current_thread().name)
        return object.__getattribute__(reply, attribute)

    def write(reply, attribute, value):
        touched.append(threading.current_thread().name)
        object.__setattr__(reply, attribute, value)

    async def run():
        async with Loaded(tiny_repository / name / "1", lanes=1) as model:
            monkeypatch.setattr(Reply, "__getattribute__", read)
            monkeypatch.setattr(Reply, "__setattr__", write)
            await asyncio.gather(*(ask(model, text="the cat") for _ in range(5)))
            return threading.current_thread().name

    assert {asyncio.run(run())} == set(touched)


def test_a_reply_takes_nothing_after_its_end():
    """An outcome is final: later tokens and outcomes are dropped."""

    async def run():
        reply = Reply()
        reply.put([1], [0.0], None)
        reply.put([2], [0.0], ValueError("first"))
        reply.put([3], [0.0], ValueError("second"))
        with pytest.raises(ValueError, match="first"):
            await reply.done()
        assert [1, 2] == reply.token_ids

    asyncio.run(run())
