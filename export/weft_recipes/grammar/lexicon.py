"""Nouns, adjectives and verbs of the English-Spanish grammar, with their inflections."""

from dataclasses import dataclass
from typing import Literal

from weft_recipes.grammar.words import ADJECTIVES as ADJECTIVES_TABLE
from weft_recipes.grammar.words import NOUNS as NOUNS_TABLE
from weft_recipes.grammar.words import VERBS as VERBS_TABLE

Gender = Literal["m", "f"]


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun in both languages; the plurals are empty when it has none here (bread, water, tennis)."""

    en: str
    es: str
    gender: Gender
    plural: str
    plural_es: str
    kind: str


@dataclass(frozen=True, slots=True)
class Adjective:
    """An adjective, its masculine Spanish form, and the copula it takes as a predicate (ser or estar)."""

    en: str
    es: str
    copula: Literal["ser", "estar"]

    def agree(self, gender: Gender, *, plural: bool) -> str:
        """Return the Spanish form for a noun's gender and number."""
        form = self.es[:-1] + "a" if gender == "f" and self.es.endswith("o") else self.es
        return pluralize_es(form) if plural else form


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: English base, -ing and past forms; Spanish infinitive, gerund, present and preterite.

    The five Spanish persons are yo, tú, él, nosotros, ellos. An empty gerund says the verb has no progressive (know,
    want); an empty preterite says it has no simple past here. `particle` follows the English verb (look for).
    """

    en: str
    ing: str
    past: str
    particle: str
    es: str
    gerund: str
    present: tuple[str, ...]
    preterite: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def key(self) -> str:
        """The Spanish infinitive with the English verb: play is both tocar and jugar."""
        return f"{self.en}:{self.es}"

    @property
    def third(self) -> str:
        """The English third person singular."""
        return {"have": "has", "do": "does"}.get(self.en) or pluralize_en(self.en)


def pluralize_en(word: str) -> str:
    """Return a regular English plural, which is also the third person singular of a regular verb."""
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + "s"


def pluralize_es(word: str) -> str:
    """Return a Spanish plural: -s after a vowel, -es after a consonant, z to c, and the accent of -ón, -ín dropped."""
    if word == "joven":  # the stress stays where it is, so an accent must mark it
        return "jóvenes"
    if word[-1] in "aeiouáéó":
        return word + "s"
    if word.endswith("z"):
        return word[:-1] + "ces"
    for accented, plain in (("ón", "on"), ("ín", "in")):
        if word.endswith(accented):
            word = word[: -len(accented)] + plain
    return word + "es"


def _plural(form: str, rule: str, word: str) -> str:
    return "" if form == "-" else form or (pluralize_en(word) if rule == "en" else pluralize_es(word))


def _read_nouns() -> tuple[Noun, ...]:
    nouns = []
    for kind, entries in _sections(NOUNS_TABLE):
        for entry in entries:
            en_forms, es_forms, gender = entry
            en, _, plural = en_forms.partition("/")
            es, _, plural_es = es_forms.partition("/")
            side: Gender = "f" if gender == "f" else "m"
            nouns.append(Noun(en, es, side, _plural(plural, "en", en), _plural(plural_es, "es", es), kind))
    return tuple(nouns)


def _read_adjectives() -> dict[str, tuple[Adjective, ...]]:
    return {
        kind: tuple(Adjective(en, es, "ser" if copula == "ser" else "estar") for en, es, copula in entries)
        for kind, entries in _sections(ADJECTIVES_TABLE)
    }


def _lines(text: str) -> list[str]:
    """Split a table into its lines; one that begins with a blank continues the one above."""
    return text.replace("\n ", " ").strip().splitlines()


def _sections(text: str) -> list[tuple[str, list[list[str]]]]:
    """Split `kind: a b c, d e f` sections."""
    sections = []
    for line in _lines(text):
        kind, _, entries = line.partition(":")
        sections.append((kind, [entry.split() for entry in entries.split(",")]))
    return sections


def _read_verb(line: str) -> Verb:
    english, spanish, present, preterite, kinds = (cell.split() for cell in line.split("|"))
    base, ing, past, particle = ("" if word == "-" else word.removeprefix("+") for word in (*english, "-")[:4])
    es, gerund = (word.removeprefix("-") for word in spanish)
    return Verb(
        base,
        ing,
        past,
        particle,
        es,
        gerund,
        present=tuple(present),
        preterite=() if preterite == ["-"] else tuple(preterite),
        kinds=tuple(kinds),
    )


NOUNS = _read_nouns()
ADJECTIVES = _read_adjectives()
VERBS = tuple(_read_verb(line) for line in _lines(VERBS_TABLE))
