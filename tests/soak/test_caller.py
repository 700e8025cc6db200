"""The load notices a wrong answer, an error and a call without an end."""

import asyncio
from dataclasses import replace

import caller
import pytest
from asks import ASKS
from caller import Caller
from golden import Golden

import weft

ASK = next(ask for ask in ASKS if ask.name == "classify text, plain")
RIGHT = weft.Classification(
    (weft.LabelScore("sport", 0, 0.75),), weft.Usage(5, 0), weft.Timings(0, 0, 0), weft.ResolvedModel("topics", 1), "a"
)


class Client:
    """Answers what it was told to."""

    def __init__(self, answer):
        self.answer = answer

    async def classify(self, *given, **options):
        """One answer, an error, or none for a long time."""
        if self.answer is None:
            await asyncio.sleep(60)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def call(answer):
    """(status, whether it is wrong) of a call that gets that answer, where RIGHT was given alone."""

    async def run():
        golden = Golden([ASK])
        await golden.fetch(Client(RIGHT))
        _, code, is_wrong = await Caller({None: Client(answer)}, golden, 1).call(ASK, "none")
        return code, is_wrong

    return asyncio.run(run())


def test_what_differs_from_call_to_call_is_no_matter():
    """Times, ids, versions and what a cache held are not compared."""
    other = replace(
        RIGHT,
        timings=weft.Timings(1, 2, 3),
        request_id="b",
        model=weft.ResolvedModel("topics", 2),
        usage=weft.Usage(5, 0, 4),
    )

    assert ("OK", False) == call(RIGHT)
    assert ("OK", False) == call(other)


def test_one_bit_is_a_wrong_answer():
    """The next number to a probability is another one."""
    (label,) = RIGHT.labels

    assert ("OK", True) == call(replace(RIGHT, labels=(replace(label, score=0.7500000000000001),)))


@pytest.mark.parametrize("error", [weft.InternalError("a bug"), ValueError("a bug")])
def test_an_error_that_nothing_explains_is_no_status_to_expect(error):
    """What no server said is told in words."""
    code, is_wrong = call(error)

    assert "a bug" in code
    assert not is_wrong


def test_a_call_without_an_end_is_noticed(monkeypatch):
    """It is waited for until the limit."""
    monkeypatch.setattr(caller, "LIMIT_S", 0.01)

    assert ("no end", False) == call(None)
