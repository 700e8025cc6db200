"""The grammar as a corpus: its size, the lengths of its sentences, and samples of its two parts."""

import random

from weft_recipes.grammar.clauses import tenses_of
from weft_recipes.grammar.lexicon import VERBS
from weft_recipes.grammar.pairs import Pair
from weft_recipes.grammar.phrases import PRONOUNS, noun_phrases, nouns_of
from weft_recipes.grammar.sentences import PEOPLE, Sampler

EXAMPLE = "we are eating bread"
MAX_SOURCE, MAX_TARGET = 64, 64
"""Tokens of a sentence in either language, at most."""


def count_clauses() -> int:
    """Count the clauses of subject, verb, tense and object, as statement or question, affirmed or denied.

    Owners, pronoun objects, adverbs, times, places and the other constructions are left out: a lower bound.
    """
    subjects = len(PRONOUNS) + sum(np.definite for noun in PEOPLE for np in noun_phrases(noun))
    total = 0
    for verb in VERBS:
        objects = sum(
            np.definite or kind != "person"
            for kind in verb.kinds
            for noun in nouns_of(kind)
            for np in noun_phrases(noun)
        )
        total += subjects * len(tenses_of(verb)) * (objects or 1) * 4
    return total


def sample(count: int, seed: int, *, held_out: bool) -> list[Pair]:
    """Draw sentences until `count` of them are in the wanted part, held out or not."""
    sampler = Sampler(random.Random(seed))  # noqa: S311  (sentences, not secrets)
    pairs: list[Pair] = []
    while len(pairs) < count:
        drawn = sampler.draw()
        if drawn.held_out == held_out:
            pairs.append(drawn)
    return pairs
