"""Callers that ask for every kind of answer without an end, and compare each with the one that was asked alone."""

import asyncio
import threading
import time
from typing import NamedTuple

import weft

DECODING = weft.Decoding(max_new_tokens=12)


class Ended(NamedTuple):
    """A call that has ended. Times are monotonic seconds; `error` is None behind an answer."""

    kind: str
    began: float
    ended: float
    error: weft.Error | None

    @property
    def seconds(self):
        """How long it took."""
        return self.ended - self.began


async def _generate(client, _):
    answer = await client.generate("Return the", decoding=DECODING, model="pydocs")
    return answer.text, answer.token_ids


async def _stream(client, _):
    async with client.stream_generate("Open a file and", decoding=DECODING, model="pydocs") as stream:
        text = "".join([piece async for piece in stream])
        return text, stream.result.token_ids


async def _translate(client, _):
    answer = await client.translate("we are eating bread", model="en-es")
    return answer.text, answer.token_ids


async def _classify(client, picture):
    return (await client.classify(image=picture, model="digits")).labels


ASKS = {"generate": _generate, "stream": _stream, "translate": _translate, "classify": _classify}


class Traffic:
    """A context manager. Callers share one client, in a thread; each kind has as many of them."""

    def __init__(self, target, picture, *, callers=24, pause_s=0.1, **client):
        self._how, self._picture = {"target": target, "timeout": 60} | client, picture
        self._num_callers, self._pause_s = callers, pause_s
        self.ended, self.wrong = [], []
        self._golden = {}
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_done.set()
        self._thread.join()

    @property
    def errors(self):
        """Calls that brought no answer."""
        return [call for call in list(self.ended) if call.error]

    def since(self, began):
        """Calls that began later and have ended."""
        return [call for call in list(self.ended) if call.began >= began]

    async def _main(self):
        async with weft.AsyncClient(**self._how) as client:
            for kind, ask in ASKS.items():
                self._golden[kind] = await ask(client, self._picture)
            kinds = list(ASKS)
            await asyncio.gather(*(self._call(client, kinds[n % len(kinds)]) for n in range(self._num_callers)))

    async def _call(self, client, kind):
        while not self._is_done.is_set():
            began, error = time.monotonic(), None
            try:
                answer = await ASKS[kind](client, self._picture)
            except weft.Error as raised:
                error = raised
            else:
                if answer != self._golden[kind]:
                    self.wrong.append((kind, answer))
            self.ended.append(Ended(kind, began, time.monotonic(), error))
            await asyncio.sleep(self._pause_s)
