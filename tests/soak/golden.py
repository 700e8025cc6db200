"""What each kind of call answers when it is asked alone, and what of an answer must be the same ever after."""

from dataclasses import replace


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
        """Ask for each alone."""
        for ask in self._asks:
            for number in range(len(ask.inputs)):
                given, options = ask.arguments(number)
                self._answers[ask.name, number] = plain(await getattr(client, ask.verb)(*given, **options))

    def is_wrong(self, ask, number, answer):
        """Whether an answer differs from the one that was asked for alone, in any bit of what stays."""
        return plain(answer) != self._answers[ask.name, number]
