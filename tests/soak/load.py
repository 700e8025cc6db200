"""The load of a soak, in a process of its own: calls of all kinds at random times, which wait for nobody.

    python tests/soak/load.py TARGET API RATE FILE SEED

TARGET is gRPC's port, API that of HTTP.

It asks for the golden answers, and says `ready`. Then each line of stdin is a number of seconds to make calls in. When
all of them are over, it says `rest`. How each call ended is a line of FILE. It ends with stdin.
"""

import asyncio
import json
import random
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from unittest import mock

# Run as a script: what the tests share lies above.
sys.path.insert(0, str(Path(__file__).parents[1]))

import faults
from asks import ASKS, NAMED
from caller import Caller, Ended
from golden import Golden
from http_channel import HttpClient

import weft
from weft import _channel

# What a reader can be slow with.
LARGE = tuple(ask for ask in ASKS if ask.can_stream and ask.how == "explain")
# Bytes that the connection of a slow reader takes before it is read.
WINDOW = ("grpc.http2.lookahead_bytes", 64)


async def open_clients(target, api, stack):
    """A client for each priority, and one that reads slowly; all of them by HTTP, too."""
    clients = {
        priority: await stack.enter_async_context(weft.AsyncClient(target, priority=priority))
        for priority in (None, "high", "low")
    }
    others = [option for option in _channel.CHANNEL_OPTIONS if option[0] != WINDOW[0]]
    with mock.patch.object(_channel, "CHANNEL_OPTIONS", [*others, WINDOW]):
        clients["slow reader"] = await stack.enter_async_context(weft.AsyncClient(target))
    for priority in (None, "high", "low"):
        clients["HTTP", priority] = await stack.enter_async_context(HttpClient(target, api, priority=priority))
    narrow = HttpClient(target, api, is_narrow=True)
    clients["HTTP", "slow reader"] = await stack.enter_async_context(narrow)
    # Each connects now, so that the connections are there when files are counted.
    for client in clients.values():
        await client.tag(NAMED[0], model="tags")
    return clients


class Load:
    """Calls at random times (Poisson), each in a task of its own, whose ends go to a file."""

    def __init__(self, caller, rate, file, seed):
        self._caller, self._rate, self._file = caller, rate, file
        self._chance = random.Random(seed)
        self._stretch = 0

    async def run(self, seconds):
        """Make calls for some seconds, and wait until all are over."""
        started = time.monotonic()
        due = 0.0
        async with asyncio.TaskGroup() as calls:
            while (due := due + self._chance.expovariate(self._rate)) < seconds:
                await asyncio.sleep(max(0.0, started + due - time.monotonic()))
                calls.create_task(self._call(started, due))
        self._file.flush()
        self._stretch += 1

    async def _call(self, started, due):
        fault = faults.draw(self._chance)
        asks = LARGE if fault == "slow reader" else ASKS
        (ask,) = self._chance.choices(asks, [each.weight for each in asks])
        name, code, is_wrong = await self._caller.call(ask, fault)
        ended = Ended(self._stretch, due, time.monotonic() - started - due, ask.task, name, fault, code, is_wrong)
        self._file.write(json.dumps(ended) + "\n")


async def main(target, api, rate, file, seed):
    """See the module."""
    async with AsyncExitStack() as stack:
        clients = await open_clients(target, api, stack)
        golden = Golden(ASKS)
        await golden.fetch(clients[None])
        load = Load(Caller(clients, golden, seed), rate, file, seed)
        print("ready", flush=True)
        while seconds := await asyncio.to_thread(sys.stdin.readline):
            await load.run(float(seconds))
            for client in clients.values():
                if isinstance(client, HttpClient):
                    client.rest()
            print("rest", flush=True)


if __name__ == "__main__":
    _, grpc_target, http_target, rate, path, seed = sys.argv
    with Path(path).open("w") as ends:
        asyncio.run(main(grpc_target, http_target, float(rate), ends, int(seed)))
