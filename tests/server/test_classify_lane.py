"""A lane that classifies: what becomes of those who leave while their batch runs."""

import asyncio
import threading

from loaded import Loaded, ask
from waiting import until


def test_who_leaves_while_the_batch_runs_is_counted_as_gone(tiny_repository):
    """Cancelled and not finished, the others of the batch are answered, and the lane holds on to nobody."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1", lanes=1) as model:
            (lane,) = model.engine.lanes
            entered, goes_on, session = threading.Semaphore(0), threading.Semaphore(0), lane.sessions["input_ids"]
            run, lengths = session.run, []

            def held(feeds):
                lengths.append(feeds["lengths"].tolist())
                entered.release()
                assert goes_on.acquire(timeout=20)
                return run(feeds)

            session.run = held
            first = asyncio.create_task(ask(model, text="the cat"))
            assert await asyncio.to_thread(entered.acquire, timeout=20)
            # Both are ready before the first run ends, so the next one has both.
            leaves, stays = (asyncio.create_task(ask(model, text="the cat")) for _ in range(2))
            await until(lambda: 2 * lengths[0][0] == model.engine.stats().queued_tokens)
            goes_on.release()
            assert await asyncio.to_thread(entered.acquire, timeout=20)
            assert [1, 2] == [len(each) for each in lengths]
            leaves.cancel()
            await asyncio.wait([leaves])
            goes_on.release()
            assert (await stays).labels
            assert (await first).labels
            counted = {name: count.value for (name, _), count in model.metrics.counters.items()}
            assert not lane.gone
            return counted

    counted = asyncio.run(run())
    assert {"cancelled_total": 1, "finished_total": 2} == {
        name: counted[name] for name in ("cancelled_total", "finished_total")
    }
