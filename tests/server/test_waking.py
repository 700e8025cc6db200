"""Laws of those who wait for a model that sleeps."""

import asyncio

import pytest

from weft_server.errors import ModelNotReady, Overloaded
from weft_server.lifecycle.waking import Waking
from weft_server.sequence import Priority, Standing


def test_who_waits_for_a_model_to_wake_leaves_places_to_others():
    """One tenant has four fifths of the places, low ones have half, and all places are free again in the end."""

    async def run():
        free = asyncio.Event()

        async def load():
            await free.wait()
            return ""

        waking = Waking("model 'm'", load, 10)

        async def refused(standing):
            with pytest.raises(Overloaded) as caught:
                await waking(standing)
            return caught.value.reason

        waiting = [asyncio.create_task(waking(Standing(tenant="many"))) for _ in range(8)]
        await asyncio.sleep(0)
        assert "TENANT_QUEUE_FULL" == await refused(Standing(tenant="many"))
        assert "QUEUE_FULL" == await refused(Standing(Priority.LOW, "few"))
        waiting += [asyncio.create_task(waking(Standing(tenant="few"))) for _ in range(2)]
        await asyncio.sleep(0)
        assert "QUEUE_FULL" == await refused(Standing(tenant="few"))
        free.set()
        await asyncio.gather(*waiting)
        assert 0 == waking.num_waiting

    asyncio.run(run())


def test_all_who_wait_for_a_model_that_cannot_be_woken_are_told_why():
    """Also who asks soon after. Then it is not tried."""
    tries = []

    async def load():
        tries.append(1)
        await asyncio.sleep(0)
        return "its files differ"

    async def run():
        waking = Waking("model 'm'", load, 10)
        waiting = [asyncio.create_task(waking()) for _ in range(3)]
        await asyncio.wait(waiting)
        for each in (*waiting, asyncio.create_task(waking())):
            with pytest.raises(ModelNotReady, match="model 'm' could not be woken: its files differ"):
                await each

    asyncio.run(run())
    assert [1] == tries
