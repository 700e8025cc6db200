"""What each kind of call answers when it is asked alone, and what of an answer must be the same ever after."""

import asyncio
from dataclasses import replace
from itertools import starmap


def plain(answer):
    """An answer without what differs from call to call: times, the id, the model's version, what a cache held."""
    changed = {"request_id": "", "model": None}
    if hasattr(answer, "timings"):
        changed["timings"] = None
    if hasattr(answer, "usage"):
        changed["usage"] = replace(answer.usage, cached_tokens=0)
    return replace(answer, **changed)


class Golden:
    """The answers to all inputs of all kinds of call."""

    def __init__(self, asks):
        self._asks, self._answers = asks, {}

    async def fetch(self, client):
        """Ask for each alone, and then for all at once: pools of threads are full before anything is measured."""

        def asked(ask, number):
            given, options = ask.arguments(number)
            return getattr(client, ask.verb)(*given, **options)

        every = [(ask, number) for ask in self._asks for number in range(len(ask.inputs))]
        for ask, number in every:
            self._answers[ask.name, number] = plain(await asked(ask, number))
        for (ask, number), answer in zip(every, await asyncio.gather(*starmap(asked, every)), strict=True):
            assert not self.is_wrong(ask, number, answer), ask.name

    def is_wrong_text(self, ask, number, text):
        """Whether the text of an answer differs."""
        return text != self._answers[ask.name, number].text

    def is_wrong(self, ask, number, answer):
        """Whether an answer differs from the one that was asked for alone, in any bit of what stays."""
        return plain(answer) != self._answers[ask.name, number]
