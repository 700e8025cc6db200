"""Hundreds of mixed requests at once: no error, nothing left behind, and memory stays where it is."""

import asyncio
import random

import pytest

import weft
from few import counts

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
CONCURRENCY, ROUNDS = 64, 2
WORDS = ("we", "you", "they", "are", "eating", "reading", "the", "a", "big", "red", "bread", "book", "not", "in", "my")
# Growth that a round may show over the one before: allocators round up, leaks of this many requests do not hide in it.
MAX_GROWTH_BYTES = 12 << 20


async def one(client, rng, scene, digit):
    """One random request of any kind; streams are read to the end, and some are left midway."""
    kind = rng.randrange(7)
    decoding = weft.Decoding(
        max_new_tokens=rng.randrange(1, 40),
        strategy=weft.Sampling(temperature=0.8, seed=rng.randrange(1 << 60)) if rng.random() < 0.5 else None,
    )
    sentence = " ".join(rng.choices(WORDS, k=rng.randrange(1, 12)))
    if kind == 0:
        await client.translate(sentence, decoding=weft.Decoding(max_new_tokens=16), explain=rng.random() < 0.2)
    elif kind == 1:
        await client.caption(scene)
    elif kind == 2:
        await client.classify(image=digit)
    elif kind == 3:
        await client.classify(text=sentence)
    elif kind == 4:
        await client.generate(sentence, decoding=decoding)
    else:
        async with client.stream_generate(sentence, decoding=decoding) as stream:
            async for _ in stream:
                if kind == 6 and rng.random() < 0.1:
                    break


async def round_of(target, scene, digit, seed, count):
    """So many requests, CONCURRENCY at a time; every exception surfaces."""
    rng, gate = random.Random(seed), asyncio.Semaphore(CONCURRENCY)
    async with weft.AsyncClient(target, timeout=60) as client:

        async def gated():
            async with gate:
                await one(client, rng, scene, digit)

        await asyncio.gather(*(gated() for _ in range(count)))


@pytest.mark.parametrize("count", counts(300, 1000))
def test_mixed_requests_leave_nothing_behind(server, scene, digit, count):
    """Two rounds at concurrency 64: zero errors, all slots free, the queue empty, and in the second RSS is flat."""
    memory = []
    for seed in range(ROUNDS):
        asyncio.run(round_of(server.target, scene, digit[0], seed, count))
        for gauge in ("weft_decode_slots_used", "weft_requests_queued", "weft_requests_running", "weft_queued_tokens"):
            server.wait_until(lambda name=gauge: server.metric(name) == 0, what=f"{gauge} at 0")
        memory.append(server.rss_bytes())

    samples = server.metrics()
    codes = {
        dict(labels)["code"] for (name, labels), value in samples.items() if name == "weft_requests_total" and value
    }
    assert codes <= {"OK", "CANCELLED"}
    assert sum(v for (name, _), v in samples.items() if name == "weft_requests_total") >= ROUNDS * count
    first, second = memory
    assert second - first < MAX_GROWTH_BYTES, f"RSS after each round: {memory}"
