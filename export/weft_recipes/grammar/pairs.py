"""A sentence in both languages with its word alignment, and which sentences are never trained on."""

import itertools
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from weft_recipes.grammar.phrases import Word

HELD_OUT_SHARE = 20
"""One in so many combinations of subject, verb and object (or place, or manner) is never trained on."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence in both languages.

    `alignment` holds for each Spanish word the indices of its English words; `combination` is the subject, the verb and
    what it is said of, two that are joined by "and" as "man&woman".
    """

    en: tuple[str, ...]
    es: tuple[str, ...]
    alignment: tuple[tuple[int, ...], ...]
    combination: tuple[str, ...]

    @property
    def source(self) -> str:
        """The English text."""
        return " ".join(self.en).replace(" 's", "'s").replace(" ?", "?")

    @property
    def target(self) -> str:
        """The Spanish text."""
        return " ".join(self.es).replace("¿ ", "¿").replace(" ?", "?")

    @property
    def held_out(self) -> bool:
        """Whether the combination is kept from training. A verb alone never is: "canté" could not be guessed."""
        if not self.combination[-1]:
            return False
        combinations = itertools.product(*(part.split("&") for part in self.combination))
        return any(zlib.crc32("|".join(parts).encode()) % HELD_OUT_SHARE == 0 for parts in combinations)


def pair(en: Iterable[Word], es: Iterable[Word], combination: tuple[str, ...], *, question: bool) -> Pair:
    """Put words together to a sentence: contractions made, question marks set, words aligned by what they express."""
    en, es = list(en), _contract(list(es))
    if question:
        en, es = [*en, ("?", "q")], [("¿", "q"), *es, ("?", "q")]
    where: dict[str, list[int]] = {}
    for index, (_, name) in enumerate(en):
        where.setdefault(name, []).append(index)
    alignment = tuple(tuple(i for name in names.split("+") for i in where.get(name, ())) for _, names in es)
    return Pair(tuple(word for word, _ in en), tuple(word for word, _ in es), alignment, combination)


def _contract(words: list[Word]) -> list[Word]:
    """Join "a el" to "al" and "de el" to "del"."""
    out: list[Word] = []
    for word, names in words:
        if out and word == "el" and out[-1][0] in ("a", "de"):
            first, first_names = out.pop()
            out.append((first + "l", f"{first_names}+{names}"))
        else:
            out.append((word, names))
    return out
