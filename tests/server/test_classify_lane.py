"""A lane that classifies: what becomes of those who leave while their batch runs."""

import asyncio
import threading

from loaded import Loaded, ask


def test_who_leaves_while_the_batch_runs_is_counted_as_gone(tiny_repository):
    """Cancelled and not finished, the others of the batch are answered, and the lane holds on to nobody."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1", lanes=1) as model:
            (lane,) = model.engine.lanes
            entered, goes_on, session = threading.Event(), threading.Event(), lane.sessions["input_ids"]
            run = session.run

            def held(feeds):
                entered.set()
                assert goes_on.wait(20)
                return run(feeds)

            session.run = held
            leaves, stays = (asyncio.create_task(ask(model, text="the cat")) for _ in range(2))
            assert await asyncio.to_thread(entered.wait, 20)
            leaves.cancel()
            await asyncio.wait([leaves])
            goes_on.set()
            assert (await stays).labels
            counted = {name: count.value for (name, _), count in model.metrics.counters.items()}
            assert not lane.gone
            return counted

    counted = asyncio.run(run())
    assert {"cancelled_total": 1, "finished_total": 1} == {
        name: counted[name] for name in ("cancelled_total", "finished_total")
    }
