"""Long sentences: statements of the grammar joined by "but", "because" and "while"."""

import random
from dataclasses import dataclass

from weft_recipes.grammar.pairs import Pair

# Not "and", which joins objects too: where a clause begins must be plain.
JOINS = (("but", "pero"), ("because", "porque"), ("while", "mientras"))


@dataclass(frozen=True, slots=True)
class Compound:
    """A sentence of one or more clauses in both languages; num_words counts the English ones."""

    source: str
    target: str
    num_words: int


def statements(pairs: list[Pair]) -> list[Pair]:
    """Leave out questions, which do not join."""
    return [pair for pair in pairs if "?" not in pair.en]


def draw_compounds(clauses: list[Pair], count: int, longest: int, seed: int) -> list[Compound]:
    """Join clauses drawn at random until the next one would be too many words.

    How many are too many is drawn evenly up to `longest`, so that every length has its share.
    """
    rng = random.Random(seed)  # noqa: S311  (sentences, not secrets)
    compounds: list[Compound] = []
    while len(compounds) < count:
        room = rng.randint(2, longest)
        en: tuple[str, ...] = ()
        es: tuple[str, ...] = ()
        while True:
            clause = rng.choice(clauses)
            join_en, join_es = rng.choice(JOINS)
            longer = (*en, join_en, *clause.en) if en else clause.en
            if len(longer) > room:
                break
            en, es = longer, (*es, join_es, *clause.es) if es else clause.es
        if en:
            whole = Pair(en, es, (), ())
            compounds.append(Compound(whole.source, whole.target, len(en)))
    return compounds
