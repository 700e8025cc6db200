"""Laws of a completion: what streams is what is answered at once, however slowly it is read, whatever cuts it."""

import asyncio
import random
import threading
from contextlib import aclosing, suppress

import numpy as np
import pytest

from loaded import Loaded, ask
from weft_proto.v1 import common_pb2
from weft_server.engine import prefill_chunks
from weft_server.models.request_context import RequestContext
from weft_server.requests.generate import Completed, complete
from weft_server.sequence import FinishReason
from weft_server.source import Ids


async def answer(model, ids, decoding, *, streams=False, pause=0.0):
    """(deltas joined, Completed), each delta held for `pause` seconds as a slow reader does."""
    deltas = []
    async with aclosing(
        complete(RequestContext("x"), model, lambda _: Ids(np.array(ids)), decoding, streams=streams)
    ) as events:
        async for event in events:
            if isinstance(event, Completed):
                return "".join(deltas), event
            deltas.append(event)
            await asyncio.sleep(pause)
    raise AssertionError("no answer")


@pytest.mark.parametrize("pause", [0.0, 0.003])
def test_a_stream_is_the_whole_answer_however_slowly_it_is_read(tiny_repository, pause):
    """Deltas joined, the final text and the unary text are one, also when the end comes during a write."""

    async def run():
        rng = random.Random(1)
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            for _ in range(40):
                ids = [rng.randrange(2, 300) for _ in range(rng.randrange(1, 20))]
                decoding = common_pb2.Decoding(max_new_tokens=rng.randrange(1, 30))
                _, whole = await answer(model, ids, decoding)
                joined, streamed = await answer(model, ids, decoding, streams=True, pause=pause)
                assert whole.text == streamed.text == joined
                assert whole.token_ids == streamed.token_ids

    asyncio.run(run())


def test_a_text_cut_by_a_stop_string_says_so(tiny_repository):
    """Whenever the text is shorter than without the stop string, the reason is STOP_STRING, and never otherwise."""

    async def run():
        rng = random.Random(2)
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            for _ in range(150):
                ids = [rng.randrange(2, 300) for _ in range(rng.randrange(1, 8))]
                _, whole = await answer(model, ids, common_pb2.Decoding(max_new_tokens=rng.randrange(1, 16)))
                stop = rng.choice(["\ufffd", " ", "e", whole.text[-1:] or "x"])
                decoding = common_pb2.Decoding(max_new_tokens=whole.sequence.decoding.max_new_tokens, stop=[stop])
                _, cut = await answer(model, ids, decoding)
                assert whole.text.split(stop)[0] == cut.text
                assert (cut.finish_reason is FinishReason.STOP_STRING) == (stop in whole.text)

    asyncio.run(run())


@pytest.mark.parametrize(("lanes", "slots", "budget"), [(1, 4, 8), (2, 5, 8), (3, 7, 16)])
def test_prompts_in_many_chunks_survive_moves_and_cancels(tiny_repository, monkeypatch, lanes, slots, budget):
    """Prompts spread over steps while rows beside them end, move and are cancelled: answers stay bit-identical."""
    monkeypatch.setattr(prefill_chunks, "PREFILL_CHUNK", 8)
    monkeypatch.setattr(prefill_chunks, "PREFILL_BUCKETS", (4, 8))

    async def run():
        rng = random.Random(5)
        settings = {"lanes": lanes, "slots": slots, "prefill_budget": budget}
        async with Loaded(tiny_repository / "tiny-generate" / "1", **settings) as model:
            asked = []
            for index in range(60):
                ids, count = [rng.randrange(2, 300) for _ in range(rng.randrange(1, 50))], rng.randrange(1, 14)
                decoding = common_pb2.Decoding(max_new_tokens=count, min_new_tokens=count)
                if index % 2:
                    decoding.sampling.seed = index
                asked.append((ids, decoding))

            async def leave(request):
                with suppress(TimeoutError):
                    await asyncio.wait_for(answer(model, *request, streams=True), rng.random() * 0.1)

            async def late(request):
                await asyncio.sleep(rng.random() * 0.05)
                _, done = await answer(model, *request)
                # Who is sampled has log-probabilities; who is not, only by chance of who else runs.
                return done.token_ids, done.log_probs if request[1].HasField("sampling") else None

            alone = [await late(request) for request in asked]
            noise = [asyncio.create_task(leave(rng.choice(asked))) for _ in range(150)]
            assert alone == await asyncio.gather(*(late(request) for request in asked))
            await asyncio.gather(*noise)

    asyncio.run(run())


def test_metrics_see_every_way_an_answer_ends(tiny_repository):
    """Output tokens, finish reasons and cancellations are exactly what was asked, answered and left."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1", lanes=1) as model:
            for _ in range(5):
                six = common_pb2.Decoding(max_new_tokens=6, min_new_tokens=6)
                await ask(model, token_ids=common_pb2.TokenIds(ids=[5, 6]), decoding=six)
            (lane,), left = model.engine.lanes, threading.Event()
            decode, steps = lane.runner.decode, []

            def held(num_rows):
                steps.append(num_rows)
                assert len(steps) < 4 or left.wait(30)
                return decode(num_rows)

            lane.runner.decode = held
            forever = common_pb2.Decoding(max_new_tokens=60, min_new_tokens=60)
            async with aclosing(
                complete(RequestContext("x"), model, Ids(np.array([5])), forever, streams=True)
            ) as events:
                await anext(events)
            left.set()
        metrics = model.metrics
        wasted = metrics.wasted_tokens.value
        assert 5 == metrics.counters["finished_total", "length"].value
        assert 1 == metrics.counters["cancelled_total", "decode"].value
        assert 1 <= wasted <= 5  # prefill's token and the steps until it left
        assert 30 + wasted == metrics.request_output_tokens.snapshot()[1] == metrics.generated_tokens.value
        assert 6 == metrics.time_to_first_token.snapshot()[0][-1][1]

    asyncio.run(run())
