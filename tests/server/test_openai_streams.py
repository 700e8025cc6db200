"""OpenAI's streams: what ends them, what is said while nothing comes, and that nothing goes on for nobody."""

import asyncio

import pytest

from openai_calls import Client, Scripted, form
from weft_proto.v1 import generation_pb2, transcription_pb2
from weft_server.errors import LaneFailed, Overloaded
from weft_server.openai_api.events import COMMENT, DONE, streamed

COMPLETIONS, TRANSCRIPTIONS = "/v1/completions", "/v1/audio/transcriptions"
DELTA = generation_pb2.StreamGenerateResponse(delta={"text": "a"})
FINAL = generation_pb2.StreamGenerateResponse(final={"completion": {"text": "a", "finish_reason": 1}})


def stream(*answers):
    """What a client gets of a stream of these answers: a status, and events or an error."""
    sent = Client(Scripted(*answers)).send("POST", COMPLETIONS, {"model": "m", "prompt": "p", "stream": True})
    status, _, answer = asyncio.run(sent)
    return status, answer


def test_what_ends_a_stream_is_told():
    """Before the first text an error is a status, behind it an event. A stream that failed has no [DONE]."""
    assert 429 == stream(Overloaded("QUEUE_FULL", "full"), FINAL)[0]
    status, events = stream(DELTA, LaneFailed("STEP_FAILED", "a step failed"))
    assert (200, 2, "step_failed") == (status, len(events), events[-1]["error"]["code"])
    status, events = stream(DELTA, ValueError("secret"))
    assert (200, "bug") == (status, events[-1]["error"]["code"])
    assert "secret" not in str(events)
    assert "[DONE]" == stream(DELTA, FINAL)[1][-1]


def test_a_silent_stream_says_that_it_is_there():
    """A comment comes while no text does, before the first text too, and none between texts that follow each other."""

    async def silent(wait):
        async def events():
            await wait.wait()
            yield b"data: 1\n\n"
            yield DONE

        answer = await streamed(events(), {}, silence_s=0.03)
        said = [await anext(answer.chunks) for _ in range(2)]
        wait.set()
        return said, [each async for each in answer.chunks if each != COMMENT]

    async def talk():
        async with asyncio.timeout(60):
            return await silent(asyncio.Event())

    assert ([COMMENT, COMMENT], [b"data: 1\n\n", DONE]) == asyncio.run(talk())
    assert COMMENT not in stream(DELTA, DELTA, FINAL)[1]


class Endless(Scripted):
    """A Caller whose one stream is held by it, and ends when it is closed."""

    is_ended = False

    def stream(self, *_):
        """Deltas without an end."""
        self.held = self._deltas()
        return self.held

    async def _deltas(self):
        try:
            while True:
                yield self.answers[0]
        finally:
            self.is_ended = True


HEARD = transcription_pb2.StreamTranscribeResponse(delta={"text": "a"})


@pytest.mark.parametrize(
    ("path", "delta", "sent"),
    [
        (COMPLETIONS, DELTA, (b'{"model": "m", "prompt": "p", "stream": true}', "application/json")),
        (TRANSCRIPTIONS, HEARD, form(b"x", model="m", stream="true")),
    ],
)
def test_a_stream_that_nobody_reads_any_more_is_ended(path, delta, sent):
    """Whoever closes the chunks ends the call, although a task awaits it, and somebody still holds it."""

    async def talk():
        caller = Endless(delta)
        answer = await Client(caller).answer("POST", path, *sent)
        await anext(answer.chunks)
        for _ in range(10):
            await asyncio.sleep(0)
        await answer.chunks.aclose()
        return caller.is_ended

    assert asyncio.run(talk())
