"""OpenAI's streams: what ends them, what is said while nothing comes, and that nothing goes on for nobody."""

import asyncio

import pytest

from http_calls import ask, asked, served
from openai_calls import Client, Scripted, form, refused
from weft_proto.v1 import generation_pb2, transcription_pb2
from weft_server.errors import LaneFailed, Overloaded
from weft_server.models.registry import ModelRegistry
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.openai_api.events import COMMENT, streamed
from weft_server.openai_api.routes import openai_routes

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


def test_several_prompts_share_a_stream():
    """With the first that fails all end, and the stream says so: its answers are not whole."""
    sent = {"model": "m", "prompt": ["p", "q"], "stream": True}
    caller = Scripted(DELTA, LaneFailed("STEP_FAILED", "a step failed"))
    status, _, events = asyncio.run(Client(caller).send("POST", COMPLETIONS, sent))

    assert (200, "step_failed") == (status, events[-1]["error"]["code"])
    assert {"data": 1} == {"data": sum("error" in each for each in events)}


def test_a_search_that_finds_less_moves_no_other_prompt():
    """Choice number i of a prompt is at the prompt's number times `n`, plus i, whole and streamed."""
    few = {"text": "a", "finish_reason": 1, "decoding": {"num_outputs": 2}}
    for streams in (False, True):
        answers = [generation_pb2.GenerateResponse(completion=few) for _ in range(2)]
        if streams:
            answers = [generation_pb2.StreamGenerateResponse(final=answers[0])]
        sent = {"model": "m", "prompt": ["p", "q"], "num_beams": 2, "n": 2, "stream": streams}
        _, _, answer = asyncio.run(Client(Scripted(*answers)).send("POST", COMPLETIONS, sent))
        chunks = answer[:-1] if streams else [answer]
        assert [0, 2] == sorted({choice["index"] for each in chunks for choice in each["choices"]})


def test_a_silent_stream_begins_with_a_comment():
    """While no text has come it is begun all the same. What fails then is an event."""

    async def talk():
        wait = asyncio.Event()

        async def events():
            await wait.wait()
            yield b"data: 1\n\n"
            raise refused(LaneFailed("STEP_FAILED", "a step failed"))

        answer = await streamed(events(), {}, silence_s=0.03)
        said = await anext(answer.chunks)
        wait.set()
        return said, answer.comment, [each async for each in answer.chunks]

    said, comment, (first, failed) = asyncio.run(talk())
    assert (COMMENT, COMMENT, b"data: 1\n\n") == (said, comment, first)
    assert b"step_failed" in failed
    assert COMMENT not in stream(DELTA, DELTA, FINAL)[1]


def test_all_steps_of_a_stream_are_of_its_call():
    """The first event is awaited by a task of its own, and the others not. What answers finds its call in each."""

    async def generate(request, call):
        for _ in range(3):
            yield generation_pb2.StreamGenerateResponse(delta={"text": REQUEST_CONTEXT.get().method})
        yield FINAL

    async def scenario():
        routes = openai_routes(ModelRegistry([]), 1 << 20)
        async with served(routes=routes, StreamGenerate=generate) as server:
            body = b'{"model": "m", "prompt": "p", "stream": true}'
            _, _, told = await ask(server, asked(body, COMPLETIONS))
            assert (3, 0) == (told.count(b'"text":"StreamGenerate"'), told.count(b'"error"'))

    asyncio.run(scenario())


class Endless(Scripted):
    """A ApiCaller whose streams are held by it, and end when they are closed."""

    num_open = 0

    def stream(self, *_):
        """Deltas without an end."""
        self.held = [*getattr(self, "held", ()), self._deltas()]
        return self.held[-1]

    async def _deltas(self):
        self.num_open += 1
        try:
            while True:
                yield self.answers[0]
        finally:
            self.num_open -= 1


HEARD = transcription_pb2.StreamTranscribeResponse(delta={"text": "a"})


@pytest.mark.parametrize(
    ("path", "delta", "sent"),
    [
        (COMPLETIONS, DELTA, (b'{"model": "m", "prompt": "p", "stream": true}', "application/json")),
        (COMPLETIONS, DELTA, (b'{"model": "m", "prompt": ["p", "q"], "stream": true}', "application/json")),
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
        begun = caller.num_open
        async with asyncio.timeout(60):
            await answer.chunks.aclose()
        return begun == len(caller.held), caller.num_open

    assert (True, 0) == asyncio.run(talk())


def test_who_leaves_before_the_first_event_ends_what_makes_it():
    """It has cleaned up behind itself when the answer is closed."""
    ended = []

    async def events():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(1)
        yield b""

    async def leave():
        answer = await streamed(events(), {}, silence_s=0.001)
        await answer.chunks.aclose()
        return list(ended)

    assert [1] == asyncio.run(leave())
