"""Rules that turn a word into another, each told by examples alone: "cat:tac dog:god sun:"."""

import random
import re
import string
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft_recipes.texts.docstrings import read_words

Letters = list[tuple[str, int | None]]
"""An answer letter by letter, each with the index of the word's letter that it is made of, if it is made of one."""

HELD_OUT_SHARE = 4
"""One in so many words is never trained on."""
LENGTHS = (3, 4)
"""How long words are; all words of a prompt are of one length."""

RULES: dict[str, Callable[[str], Letters]] = {
    "reverse": lambda word: _kept(word)[::-1],
    "upper case": lambda word: _kept(word.upper()),
    "capital": lambda word: _kept(word.title()),
    "twice": lambda word: _kept(word) * 2,
    "first letter": lambda word: _kept(word)[:1],
    "add s": lambda word: [*_kept(word), ("s", None)],
    "drop the last": lambda word: _kept(word)[:-1],
    "hide vowels": lambda word: _kept(re.sub("[aeiou]", "-", word)),
    "hide the second": lambda word: _kept(f"{word[0]}-{word[2:]}"),
    "vowels in capitals": lambda word: _kept(re.sub("[aeiou]", lambda found: found[0].upper(), word)),
    "second in capitals": lambda word: _kept(word[0] + word[1].upper() + word[2:]),
    "hyphens": lambda word: [part for letter in _kept(word) for part in (letter, ("-", None))][:-1],
    "stutter": lambda word: [*_kept(word)[:1], *_kept(word)],
}


@dataclass(frozen=True, slots=True)
class Task:
    """A rule and the words it is asked of, the last of them the question."""

    rule: str
    words: tuple[str, ...]

    @property
    def prompt(self) -> str:
        """The examples, and the question without its answer."""
        return " ".join([*(f"{word}:{answer(self.rule, word)}" for word in self.words[:-1]), f"{self.words[-1]}:"])


def answer(rule: str, word: str) -> str:
    """Return what a rule makes of a word."""
    return "".join(letter for letter, _ in RULES[rule](word))


def is_held_out(word: str) -> bool:
    """Whether a word is kept from training, by a hash of it."""
    return zlib.crc32(word.encode()) % HELD_OUT_SHARE == 0


class Tasks:
    """Draws tasks whose words are all held out, or all not; of the latter, a share is letters drawn at random."""

    def __init__(self, seed: int, *, held_out: bool, random_share: float = 0.0) -> None:
        self._rng = random.Random(seed)  # noqa: S311  (words, not secrets)
        self._words = {
            length: [word for word in read_words(length, length) if is_held_out(word) == held_out] for length in LENGTHS
        }
        self._random_share = random_share

    def draw(self, num_shots: int, rules: Sequence[str] = tuple(RULES)) -> Task:
        """Draw a rule, and the words of num_shots examples and a question, no word twice."""
        length, words = self._rng.choice(LENGTHS), list[str]()
        while len(words) <= num_shots:
            word = self._word(length)
            if word not in words:
                words.append(word)
        return Task(self._rng.choice(rules), tuple(words))

    def _word(self, length: int) -> str:
        while self._rng.random() < self._random_share:
            word = "".join(self._rng.choice(string.ascii_lowercase) for _ in range(length))
            if not is_held_out(word):
                return word
        return self._rng.choice(self._words[length])


def _kept(word: str) -> Letters:
    return [(letter, index) for index, letter in enumerate(word)]
