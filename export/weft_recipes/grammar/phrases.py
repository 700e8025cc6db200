"""Phrases in both languages with their word correspondences: noun phrases with agreement, and subjects."""

from dataclasses import dataclass
from functools import cache
from typing import Self

from weft_recipes.grammar.lexicon import ADJECTIVES, NOUNS, Adjective, Gender, Noun

# A word and the name of what it expresses: English and Spanish words with a name in common correspond. A Spanish word
# may express several things ("del" is "of the"), joined by "+".
Word = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Phrase:
    """The same phrase in both languages."""

    en: tuple[Word, ...]
    es: tuple[Word, ...]

    def under(self, role: str) -> Self:
        """Return the phrase with its role in the sentence before every name, so that names stay unique."""

        def prefix(words: tuple[Word, ...]) -> tuple[Word, ...]:
            return tuple((word, "+".join(f"{role}.{name}" for name in names.split("+"))) for word, names in words)

        return type(self)(prefix(self.en), prefix(self.es))


def fixed(en: str, es: str) -> Phrase:
    """Return a fixed phrase: word for word when both sides have as many words, otherwise as one whole."""
    en_words, es_words = en.split(), es.split()
    names = [str(i) for i in range(len(en_words))] if len(en_words) == len(es_words) else ["all"] * 9
    return Phrase(tuple(zip(en_words, names, strict=False)), tuple(zip(es_words, names, strict=False)))


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """A noun with a determiner and perhaps an adjective or an owner; `definite` for the, this, my and the like."""

    phrase: Phrase
    noun: Noun
    plural: bool
    definite: bool
    bare: bool


# English, number, Spanish masculine, Spanish feminine, definite
DETERMINERS = tuple(
    (en, number == "plural", m, f, kind == "definite")
    for en, number, m, f, kind in (
        line.split()
        for line in """
the singular el la definite
this singular este esta definite
that singular ese esa definite
my singular mi mi definite
your singular tu tu definite
his singular su su definite
her singular su su definite
our singular nuestro nuestra definite
their singular su su definite
a singular un una indefinite
the plural los las definite
these plural estos estas definite
those plural esos esas definite
my plural mis mis definite
your plural tus tus definite
his plural sus sus definite
her plural sus sus definite
our plural nuestros nuestras definite
their plural sus sus definite
two plural dos dos indefinite
three plural tres tres indefinite
many plural muchos muchas indefinite
some plural unos unas indefinite
""".strip().splitlines()
    )
)
# Feminine nouns that begin with a stressed a take "el" in the singular, yet feminine adjectives: el agua fría.
EL_FEMININE = {"agua"}


def article(en: str, following: str) -> str:
    """Return "an" for "a" before a vowel, any other determiner unchanged."""
    return "an" if en == "a" and following[0] in "aeiou" else en


def definite_article(noun: Noun, *, plural: bool) -> str:
    """Return el, la, los or las."""
    if plural:
        return "los" if noun.gender == "m" else "las"
    return "el" if noun.gender == "m" or noun.es in EL_FEMININE else "la"


def _noun_phrase(
    noun: Noun, determiner: tuple[str, bool, str, str, bool] | None, adjective: Adjective | None, *, plural: bool
) -> NounPhrase:
    head_en, head_es = (noun.plural, noun.plural_es) if plural else (noun.en, noun.es)
    en: list[Word] = [(head_en, "noun")]
    es: list[Word] = [(head_es, "noun")]
    if adjective:
        en.insert(0, (adjective.en, "adj"))
        es.append((adjective.agree(noun.gender, plural=plural), "adj"))
    definite = False
    if determiner:
        word, _, masculine, feminine, definite = determiner
        form = masculine if noun.gender == "m" else feminine
        if form == "la":
            form = definite_article(noun, plural=plural)
        en.insert(0, (article(word, en[0][0]), "det"))
        es.insert(0, (form, "det"))
    return NounPhrase(Phrase(tuple(en), tuple(es)), noun, plural, definite, determiner is None)


@cache
def noun_phrases(noun: Noun) -> tuple[NounPhrase, ...]:
    """Return every phrase with this noun as its head: determiners times adjectives, owners aside."""
    adjectives = (None, *ADJECTIVES[noun.kind])
    if noun.kind in ("game", "language"):
        return (_noun_phrase(noun, None, None, plural=False),)
    choices: list[tuple[tuple[str, bool, str, str, bool] | None, bool]] = [
        (determiner, determiner[1])
        for determiner in DETERMINERS
        if (noun.plural or not determiner[1]) and not (determiner[0] == "a" and not noun.plural)
    ]
    choices.append((None, bool(noun.plural)))
    return tuple(
        _noun_phrase(noun, determiner, adjective, plural=plural)
        for determiner, plural in choices
        for adjective in adjectives
    )


def owned(noun: Noun, owner: NounPhrase, *, plural: bool) -> NounPhrase:
    """Return "the boy's book", el libro del niño: the owner is a person without an adjective, in the singular."""
    of = owner.phrase.under("own")
    en = (*of.en, ("'s", "of"), (noun.plural if plural else noun.en, "noun"))
    es = ((definite_article(noun, plural=plural), "of"), (noun.plural_es if plural else noun.es, "noun"))
    return NounPhrase(Phrase(en, (*es, ("de", "of"), *of.es)), noun, plural, definite=True, bare=False)


@dataclass(frozen=True, slots=True)
class Subject:
    """Who does it: a pronoun, which Spanish drops, or a noun phrase. `person` indexes yo, tú, él, nosotros, ellos."""

    phrase: Phrase
    head: str
    person: int
    gender: Gender
    plural: bool

    @property
    def dropped(self) -> bool:
        """Whether Spanish leaves it out."""
        return not self.phrase.es

    def be(self) -> str:
        """Return am, are or is."""
        return {0: "am", 2: "is"}.get(self.person, "are")

    def was(self) -> str:
        """Return was or were."""
        return "was" if self.person in (0, 2) else "were"


def _pronoun(en: str, person: int, gender: Gender, *, plural: bool) -> Subject:
    return Subject(Phrase(((en, "pro"),), ()), en, person, gender, plural)


PRONOUNS = (
    _pronoun("i", 0, "m", plural=False),
    _pronoun("you", 1, "m", plural=False),
    _pronoun("he", 2, "m", plural=False),
    _pronoun("she", 2, "f", plural=False),
    _pronoun("we", 3, "m", plural=True),
    _pronoun("they", 4, "m", plural=True),
)


def subject_of(np: NounPhrase) -> Subject:
    """Return a noun phrase as a subject; a bare one takes the article: chess is easy, el ajedrez es fácil."""
    phrase = with_article(np)
    return Subject(phrase, np.noun.en, 4 if np.plural else 2, np.noun.gender, np.plural)


def both(first: Subject, second: Subject) -> Subject:
    """Return "the man and the woman": masculine unless both are feminine."""
    gender: Gender = "f" if first.gender == second.gender == "f" else "m"
    phrase = conjunction(first.phrase.under("1"), second.phrase.under("2"))
    return Subject(phrase, f"{first.head}&{second.head}", 4, gender, plural=True)


def conjunction(first: Phrase, second: Phrase) -> Phrase:
    """Join two phrases by "and": y, which is e before the sound of i."""
    word = "e" if second.es[0][0].startswith(("i", "hi")) else "y"
    return Phrase((*first.en, ("and", "and"), *second.en), (*first.es, (word, "and"), *second.es))


def with_article(np: NounPhrase) -> Phrase:
    """Return the phrase with the definite article that Spanish wants on a bare subject (me gusta el pan)."""
    if not np.bare:
        return np.phrase
    return Phrase(np.phrase.en, ((definite_article(np.noun, plural=np.plural), "noun"), *np.phrase.es))


def nouns_of(*kinds: str) -> tuple[Noun, ...]:
    """Return the nouns of some kinds."""
    return tuple(noun for noun in NOUNS if noun.kind in kinds)
