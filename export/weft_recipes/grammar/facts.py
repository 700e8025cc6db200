"""Plain clauses of the English-Spanish grammar, with what a summary keeps of them and what they are about."""

import random
from dataclasses import dataclass
from functools import cache

from weft_recipes.grammar.clauses import PLACES, TIMES, predicate, tenses_of
from weft_recipes.grammar.lexicon import VERBS, Verb
from weft_recipes.grammar.pairs import Pair, pair
from weft_recipes.grammar.phrases import PRONOUNS, NounPhrase, Phrase, Subject, article, nouns_of, subject_of
from weft_recipes.grammar.sentences import phrases_of

TOPICS = {
    "food": ("food",),
    "drinks": ("drink",),
    "reading": ("text",),
    "music": ("media", "instrument"),
    "languages": ("language",),
    "house and town": ("opening", "place"),
    "belongings": ("thing", "container"),
}
"""What a clause is about: the kinds of noun that its object may be."""
# Of each verb two forms are to learn in either language, of which neither depends on the subject.
TENSES = ("progressive", "will")
NOTHING = Phrase((), ())


@dataclass(frozen=True, slots=True)
class Fact:
    """Who does what to what, perhaps where and when, stated in both languages.

    gist is the indices of the English words that say only that: without adjectives, place and time.
    """

    pair: Pair
    topic: str
    gist: tuple[int, ...]
    object_index: int

    @property
    def summary(self) -> list[str]:
        """The words of the gist; leaving out an adjective may turn "an" into "a"."""
        words = [self.pair.en[index] for index in self.gist]
        return [
            article("a", words[i + 1]) if word in ("a", "an") and i + 1 < len(words) else word
            for i, word in enumerate(words)
        ]


class FactSampler:
    """Draws facts; the same generator state gives the same facts."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def draw(self, topic: str, *, held_out: bool) -> Fact:
        """Draw a fact about a topic, of a combination that is held out from training or not."""
        while True:
            fact = self._any(topic)
            if fact.pair.held_out == held_out:
                return fact

    def _any(self, topic: str) -> Fact:
        kind = self.rng.choice(TOPICS[topic])
        verb = self.rng.choice(_verbs(kind))
        subject, thing = self._subject(), self._noun_phrase(kind, definite=False)
        tense = self.rng.choice([tense for tense in TENSES if tense in tenses_of(verb)])
        where = self.rng.choice(PLACES).under("p") if self.rng.random() < 0.25 else NOTHING
        when = self.rng.choice(TIMES.get(tense, TIMES["future"])).under("t") if self.rng.random() < 0.25 else NOTHING
        who, what, does = subject.phrase.under("s"), thing.phrase.under("o"), predicate(verb, tense, subject)
        en = (*who.en, *does.plain, *what.en, *where.en, *when.en)
        es = (*who.es, *does.es, *what.es, *where.es, *when.es)
        details = ("p.", "t.")
        gist = [i for i, (_, name) in enumerate(en) if not name.startswith(details) and not name.endswith("adj")]
        combination = (subject.head, verb.key, thing.noun.en)
        stated = pair(en, es, combination, question=False)
        return Fact(stated, topic, tuple(gist), [name for _, name in en].index("o.noun"))

    def _subject(self) -> Subject:
        if self.rng.random() < 0.3:
            return self.rng.choice(PRONOUNS)
        return subject_of(self._noun_phrase("person", definite=True))

    def _noun_phrase(self, kind: str, *, definite: bool) -> NounPhrase:
        return self.rng.choice(phrases_of(self.rng.choice(_nouns(kind)), definite, self.rng.random() < 0.6))


_nouns = cache(nouns_of)


@cache
def _verbs(kind: str) -> tuple[Verb, ...]:
    return tuple(verb for verb in VERBS if kind in verb.kinds and set(TENSES) & set(tenses_of(verb)))
