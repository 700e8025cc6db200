"""A grammar of spoken numbers and commands."""

import random
import re
import zlib
from dataclasses import dataclass

HELD_OUT_SHARE = 8
"""One in so many numbers that are more than one word, and one in so many phrases, is never trained on."""

SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
# How often.
TEMPLATES = (
    (6, "{number}"),
    (4, "call {digit} {digit} {digit} {digit}"),
    (4, "set a timer for {number} {unit}"),
    (4, "turn {switch} the {room} light"),
    (2, "set the volume to {number}"),
    (4, "what is {number} {operation} {number}"),
    (4, "{word}"),
)
SLOTS = {
    "unit": ("seconds", "minutes", "hours"),
    "switch": ("on", "off"),
    "room": ("kitchen", "bedroom", "garden"),
    "operation": ("plus", "minus"),
    "word": ("yes", "no", "stop", "start", "again", "next", "left", "right", "up", "down", "help"),
}


@dataclass(frozen=True, slots=True)
class Utterance:
    """What is said."""

    text: str
    is_held_out: bool


def sample(count: int, seed: int, *, held_out: bool) -> list[Utterance]:
    """Return so many phrases: those that may be trained on, or those that may not.

    Single words are trained on, and are never among those held out.
    """
    chance = random.Random(seed)  # noqa: S311 - data, not secrets
    phrases: list[Utterance] = []
    while len(phrases) < count:
        phrase = _draw(chance)
        if phrase.is_held_out == held_out:
            phrases.append(phrase)
    return phrases


def words() -> set[str]:
    """Return all words of all phrases."""
    return {word for phrase in sample(20_000, 0, held_out=False) for word in phrase.text.split()}


def say_number(number: int) -> str:
    """Say a number below 1,000 as the British do."""
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return f"{SMALL[hundreds]} hundred" + (f" and {say_number(rest)}" if rest else "")
    if rest < 20:
        return SMALL[rest]
    tens, ones = divmod(rest, 10)
    return TENS[tens - 2] + (f" {SMALL[ones]}" if ones else "")


def _draw(chance: random.Random) -> Utterance:
    template = chance.choices([each for _, each in TEMPLATES], [often for often, _ in TEMPLATES])[0]
    numbers: list[str] = []

    def fill(slot: re.Match[str]) -> str:
        name = slot[1]
        if name in SLOTS:
            return chance.choice(SLOTS[name])
        # Numbers of few words are often said.
        most = 10 if name == "digit" else chance.choice((20, 100, 1000))
        numbers.append(say_number(chance.randrange(most)))
        return numbers[-1]

    text = re.sub(r"{(\w+)}", fill, template)
    return Utterance(text, " " in text and any(_is_drawn(each) for each in (text, *numbers) if " " in each))


def _is_drawn(text: str) -> bool:
    return not zlib.crc32(text.encode()) % HELD_OUT_SHARE
