"""What goes wrong with calls in a soak: how often each fault comes, and with which status a call may then end."""

import random
from typing import Any, NamedTuple

from asks import DIGITS, PROMPTS, SCENES, SOURCES

from weft import Beams, Decoding, Explain, Sampling

# The status that a call may have.
ENDS = {
    "none": {"OK"},
    "cancel": {"CANCELLED", "OK"},
    "deadline": {"DEADLINE_EXCEEDED", "OK"},
    "slow reader": {"OK"},
    "bad input": {"INVALID_ARGUMENT"},
    "unknown": {"NOT_FOUND"},
}
# Of all calls.
SHARES = {"cancel": 0.08, "deadline": 0.04, "slow reader": 0.01, "bad input": 0.05, "unknown": 0.02}
# A cancelled call is cancelled within this many seconds, and a deadline is as near. Then some calls are before it.
SOON_S = 0.03


class Bad(NamedTuple):
    """A request that the client sends and the server refuses."""

    verb: str
    given: tuple[Any, ...]
    options: dict[str, Any]


def _decoding(**fields):
    return Bad("generate", (PROMPTS[0],), {"model": "pydocs", "decoding": Decoding(**fields)})


# Of any method, in bytes that are no message.
GARBAGE = Bad("garbage", (), {})
BAD = (
    GARBAGE,
    Bad("translate", ("",), {"model": "en-es"}),
    Bad("translate", (SOURCES[0] + " and" * 5000,), {"model": "en-es"}),
    Bad("translate", (SOURCES[0],), {"model": "en-es", "target_language": "tlh"}),
    Bad("translate", (SOURCES[0],), {"model": "topics"}),
    Bad("translate", (SOURCES[0],), {"model": "en-es", "explain": Explain(layer=99)}),
    Bad("generate", ((10**6,),), {"model": "pydocs"}),
    Bad("caption", (b"no picture",), {"model": "scenes"}),
    Bad("answer", (b"no picture", "how many stars are there?"), {"model": "scenes-answers"}),
    Bad("answer", (SCENES[0], "star " * 40), {"model": "scenes-answers"}),
    Bad("transcribe", (b"no recording",), {"model": "commands"}),
    Bad("classify", (), {"image": DIGITS[0][:100], "model": "digits"}),
    Bad("classify", ("Open a new window",), {"model": "topics", "top_k": 0}),
    Bad("tag", ("a\x00b",), {"model": "tags", "explain": Explain(layer=0, head=99)}),
    _decoding(max_new_tokens=100_000),
    _decoding(strategy=Sampling(temperature=-1.0)),
    _decoding(strategy=Beams(1000)),
    _decoding(regex="("),
    _decoding(stop=("",)),
)
UNKNOWN = (
    Bad("translate", (SOURCES[0],), {"model": "en-fr"}),
    Bad("generate", (PROMPTS[0],), {"model": "pydocs", "model_version": 99}),
    Bad("classify", ("Open a new window",), {"model": "../topics"}),
)


def draw(chance: random.Random) -> str:
    """A fault, or none."""
    at = chance.random()
    for fault, share in SHARES.items():
        if (at := at - share) < 0:
            return fault
    return "none"
