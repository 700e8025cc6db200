"""Sentences of the English-Spanish grammar: statements, denials, questions, and the constructions that differ most."""

import random
from dataclasses import replace
from functools import cache

from weft_recipes.grammar.clauses import (
    ESTAR,
    FREQUENCIES,
    LIKERS,
    MANNERS,
    OBJECT_PRONOUNS,
    PLACES,
    POSITIONS,
    SER,
    TIMES,
    WHYS,
    predicate,
    tenses_of,
)
from weft_recipes.grammar.lexicon import ADJECTIVES, VERBS, Noun, Verb
from weft_recipes.grammar.pairs import Pair, pair
from weft_recipes.grammar.phrases import (
    PRONOUNS,
    NounPhrase,
    Phrase,
    Subject,
    Word,
    both,
    conjunction,
    noun_phrases,
    nouns_of,
    owned,
    subject_of,
    with_article,
)

Words = tuple[Word, ...]
NOTHING = Phrase((), ())
# "What are you doing?": to do is hacer, as to make is, but it has no other object here.
DO = replace(next(verb for verb in VERBS if verb.en == "make"), en="do", ing="doing", past="did")
PEOPLE = nouns_of("person")
SEEN = nouns_of("thing", "container", "animal", "person")


class Sampler:
    """Draws sentences; the same generator state gives the same sentences."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def draw(self) -> Pair:
        """Draw one sentence."""
        kinds = (
            self._clause,
            self._who,
            self._what,
            self._ask_how,
            self._copula,
            self._likes,
            self._position,
            self._there_is,
        )
        return self._rng.choices(kinds, (64, 3, 3, 3, 12, 7, 5, 3))[0]()

    def _maybe(self, share: float) -> bool:
        return self._rng.random() < share

    def _noun_phrase(self, kind: str, *, definite: bool = False) -> NounPhrase:
        noun = self._rng.choice(nouns_of(kind))
        if noun.kind not in ("game", "language") and self._maybe(0.1):
            owner = self._rng.choice(_owners())
            return owned(noun, owner, plural=bool(noun.plural) and self._maybe(0.3))
        if noun.kind in ("food", "drink") and not definite and self._maybe(0.25):
            return self._rng.choice([np for np in noun_phrases(noun) if np.bare])
        # Half of the phrases go without an adjective, which are a small part of all there are.
        return self._rng.choice(phrases_of(noun, definite, self._maybe(0.5)))

    def _tense(self, verb: Verb) -> str:
        """Draw a tense; those whose forms must be learned verb by verb come more often than the modals."""
        tenses = tenses_of(verb)
        weights = [3 if tense in ("present", "progressive", "past") else 1 for tense in tenses]
        return self._rng.choices(tenses, weights)[0]

    def _subject(self, kind: str) -> Subject:
        subject = self._single_subject(kind)
        if not subject.dropped and self._maybe(0.08):
            return both(subject, subject_of(self._noun_phrase(kind, definite=True)))
        return subject

    def _single_subject(self, kind: str) -> Subject:
        if kind == "person" and self._maybe(0.55):
            return self._rng.choice(PRONOUNS)
        return subject_of(self._noun_phrase(kind, definite=True))

    def _object(self, verb: Verb, subject: Subject) -> tuple[Phrase, str, Words]:
        """Return an object, its noun, and the Spanish pronoun that stands before the verb instead of it."""
        kind = self._rng.choice(verb.kinds)
        if kind == "person" and self._maybe(0.3):
            en, es, _ = self._rng.choice([p for p in OBJECT_PRONOUNS if subject.person not in p[2]])
            return Phrase(((en, "o.pro"),), ()), en, ((es, "o.pro"),)
        np = self._noun_phrase(kind, definite=kind == "person")
        phrase = np.phrase.under("o")
        if kind not in ("person", "game") and self._maybe(0.08):
            other = self._noun_phrase(kind)
            return conjunction(phrase, other.phrase.under("o2")), f"{np.noun.en}&{other.noun.en}", ()
        if kind == "person":
            phrase = Phrase(phrase.en, (("a", "o.noun"), *phrase.es))
        if kind == "game":
            phrase = Phrase(phrase.en, (("a", "o.noun"), ("el", "o.noun"), *phrase.es))
        return phrase, np.noun.en, ()

    def _adjuncts(self, verb: Verb, tense: str) -> tuple[Phrase, Phrase]:
        """Return a phrase for the end, or one for the beginning, or neither."""
        times = TIMES["past"] if tense == "past progressive" else TIMES.get(tense, TIMES["future"])
        end, begin = NOTHING, NOTHING
        if not verb.kinds and self._maybe(0.3):
            end = self._rng.choice(MANNERS).under("m")
        elif self._maybe(0.25):
            end = self._rng.choice(PLACES).under("p")
        if self._maybe(0.2):
            time = self._rng.choice(times).under("t")
            if self._maybe(0.4):
                begin = time
            else:
                end = Phrase(end.en + time.en, end.es + time.es)
        return begin, end

    def _clause(self) -> Pair:
        verb, subject = self._rng.choice(VERBS), self._subject("person")
        if not verb.kinds and self._maybe(0.2):
            subject = self._subject("animal")
        object_, object_noun, clitic = self._object(verb, subject) if verb.kinds else (NOTHING, "", ())
        tense = self._tense(verb)
        p = predicate(verb, tense, subject)
        who = subject.phrase.under("s")
        begin, end = self._adjuncts(verb, tense)
        question, negative = self._maybe(0.2), self._maybe(0.2)
        often = NOTHING
        if tense == "present" and not negative and not begin.en and self._maybe(0.25):
            often = self._rng.choice(FREQUENCIES).under("f")
        deny_en: Words = (("not", "not"),) if negative else ()
        deny_es: Words = (("no", "not"),) if negative else ()
        if question:
            begin = NOTHING
            en = (p.auxiliary, *who.en, *deny_en, *often.en, *p.after)
        elif negative:
            en = (*who.en, p.auxiliary, *deny_en, *p.after)
        else:
            en = (*who.en, *often.en, *p.plain)
        es = (*who.es, *deny_es, *often.es, *clitic, *p.es)
        return pair(
            (*begin.en, *en, *object_.en, *end.en),
            (*begin.es, *es, *object_.es, *end.es),
            (subject.head, verb.key, object_noun or _text(end)),
            question=question,
        )

    def _who(self) -> Pair:
        """Who is eating the bread?"""
        verb = self._rng.choice([verb for verb in VERBS if verb.gerund])
        who = Subject(Phrase((("who", "who"),), (("quién", "who"),)), "who", 2, "m", plural=False)
        object_, noun, clitic = self._object(verb, who) if verb.kinds else (NOTHING, "", ())
        p = predicate(verb, self._tense(verb), who)
        es = (*who.phrase.es, *clitic, *p.es, *object_.es)
        return pair((*who.phrase.en, *p.plain, *object_.en), es, ("who", verb.key, noun), question=True)

    def _what(self) -> Pair:
        """What is the girl eating?: Spanish puts the subject last."""
        verbs = [verb for verb in VERBS if verb.kinds and "person" not in verb.kinds and verb.en != "play"]
        verbs += [DO] * 4
        verb, subject = self._rng.choice(verbs), self._subject("person")
        p, who = predicate(verb, self._tense(verb), subject), subject.phrase.under("s")
        en = (("what", "what"), p.auxiliary, *who.en, *p.after)
        return pair(en, (("qué", "what"), *p.es, *who.es), (subject.head, verb.key, "what"), question=True)

    def _ask_how(self) -> Pair:
        """Why is the girl crying?"""
        verb, subject = self._rng.choice([verb for verb in VERBS if not verb.kinds]), self._subject("person")
        p, who = predicate(verb, self._tense(verb), subject), subject.phrase.under("s")
        ask = self._rng.choice(WHYS).under("w")
        key = (subject.head, verb.key, ask.en[0][0])
        return pair((*ask.en, p.auxiliary, *who.en, *p.after), (*ask.es, *p.es, *who.es), key, question=True)

    def _copula(self) -> Pair:
        """The water is cold: el agua está fría."""
        kind = self._rng.choice(tuple(ADJECTIVES))
        plain = [np for np in phrases_of(self._rng.choice(nouns_of(kind)), False, True) if np.definite or np.bare]
        subject = (
            subject_of(self._rng.choice(plain)) if kind != "person" or self._maybe(0.5) else self._rng.choice(PRONOUNS)
        )
        adjective = self._rng.choice(ADJECTIVES[kind])
        very = self._maybe(0.25)
        negative, question = self._maybe(0.2), self._maybe(0.2)
        who = subject.phrase.under("s")
        be = (subject.be(), "aux")
        deny_en: Words = (("not", "not"),) if negative else ()
        rest_en: Words = ((("very", "very"),) if very else ()) + ((adjective.en, "adj"),)
        es_be = (SER if adjective.copula == "ser" else ESTAR)[subject.person]
        agreed = adjective.agree(subject.gender, plural=subject.plural)
        en = (be, *who.en, *deny_en, *rest_en) if question else (*who.en, be, *deny_en, *rest_en)
        es = (
            *who.es,
            *((("no", "not"),) if negative else ()),
            (es_be, "aux+s.pro" if subject.dropped else "aux"),
            *((("muy", "very"),) if very else ()),
            (agreed, "adj"),
        )
        return pair(en, es, (subject.head, "be", adjective.en), question=question)

    def _likes(self) -> Pair:
        """The boy likes bread: al niño le gusta el pan."""
        noun = self._rng.choice(nouns_of("food", "drink", "text", "thing", "media", "game", "language"))
        liked = self._rng.choice([np for np in phrases_of(noun, False, self._maybe(0.6)) if np.definite or np.bare])
        subject = self._single_subject("person")
        who = subject.phrase.under("s")
        negative, question = self._maybe(0.2), self._maybe(0.2)
        do: Word = ("does" if subject.person == 2 else "do", "aux")
        deny_en: Words = (("not", "not"),) if negative else ()
        thing = with_article(liked).under("o")
        if question:
            en: Words = (do, *who.en, *deny_en, ("like", "v"))
        elif negative:
            en = (*who.en, do, *deny_en, ("like", "v"))
        else:
            en = (*who.en, ("likes" if subject.person == 2 else "like", "v"))
        es = (
            *((("a", "s.noun"), *who.es) if who.es else ()),
            *((("no", "not"),) if negative else ()),
            (LIKERS[subject.person], "s.pro+s.noun"),
            ("gustan" if liked.plural else "gusta", "v+aux"),
            *thing.es,
        )
        return pair((*en, *thing.en), es, (subject.head, "like", noun.en), question=question)

    def _position(self) -> Pair:
        """Where is my book?, or: the cat is under the bed."""
        subject = subject_of(self._rng.choice(phrases_of(self._rng.choice(SEEN), True, self._maybe(0.6))))
        who, be, es_be = subject.phrase.under("s"), (subject.be(), "aux"), (ESTAR[subject.person], "aux")
        if self._maybe(0.3):
            key = (subject.head, "be", "where")
            return pair((("where", "w"), be, *who.en), (("dónde", "w"), es_be, *who.es), key, question=True)
        where, negative, question = self._rng.choice(POSITIONS).under("p"), self._maybe(0.2), self._maybe(0.2)
        deny_en: Words = (("not", "not"),) if negative else ()
        en = (be, *who.en, *deny_en) if question else (*who.en, be, *deny_en)
        es = (*who.es, *((("no", "not"),) if negative else ()), es_be)
        key = (subject.head, "be", where.en[-1][0])
        return pair((*en, *where.en), (*es, *where.es), key, question=question)

    def _there_is(self) -> Pair:
        """There are two dogs in the garden: hay dos perros en el jardín."""
        noun = self._rng.choice(SEEN)
        np = self._rng.choice([np for np in noun_phrases(noun) if not np.definite and not np.bare])
        thing, where, question = np.phrase.under("o"), self._rng.choice(POSITIONS).under("p"), self._maybe(0.25)
        be = ("are" if np.plural else "is", "v")
        start: Words = (be, ("there", "v")) if question else (("there", "v"), be)
        key = (noun.en, "there", where.en[-1][0])
        return pair((*start, *thing.en, *where.en), (("hay", "v"), *thing.es, *where.es), key, question=question)


def _text(phrase: Phrase) -> str:
    return " ".join(word for word, _ in phrase.en)


@cache
def _owners() -> tuple[NounPhrase, ...]:
    """Return who can own something: a person in the singular without an adjective."""
    return tuple(
        np for noun in PEOPLE for np in noun_phrases(noun) if np.definite and not np.plural and len(np.phrase.en) == 2
    )


@cache
def phrases_of(noun: Noun, definite: bool, plain: bool) -> tuple[NounPhrase, ...]:  # noqa: FBT001  (cache keys)
    """Return a noun's phrases: only definite ones if asked, with an adjective or without."""
    chosen = [np for np in noun_phrases(noun) if (np.definite or not definite) and _has_adjective(np) != plain]
    return tuple(chosen) or noun_phrases(noun)


def _has_adjective(np: NounPhrase) -> bool:
    return any(name == "adj" for _, name in np.phrase.en)
