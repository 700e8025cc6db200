"""Verbs in context: tenses and modals of both languages, times, places and manners, and their Spanish conjugations."""

from dataclasses import dataclass

from weft_recipes.grammar.lexicon import Verb
from weft_recipes.grammar.phrases import Phrase, Subject, Word, fixed

# By person: yo, tú, él, nosotros, ellos.
ESTAR = ("estoy", "estás", "está", "estamos", "están")
ESTABA = ("estaba", "estabas", "estaba", "estábamos", "estaban")
SER = ("soy", "eres", "es", "somos", "son")
IR = ("voy", "vas", "va", "vamos", "van")
PODER = ("puedo", "puedes", "puede", "podemos", "pueden")
QUERER = ("quiero", "quieres", "quiere", "queremos", "quieren")
TENER = ("tengo", "tienes", "tiene", "tenemos", "tienen")

TENSES = ("present", "progressive", "past", "past progressive", "future", "will", "can", "want", "have to")


def tenses_of(verb: Verb) -> tuple[str, ...]:
    """Return the tenses a verb has: no progressive without a gerund, only the present for a state (know, love)."""
    if not verb.gerund and not verb.preterite:
        return ("present",)
    missing = ("past",) if not verb.preterite else ("progressive", "past progressive") if not verb.gerund else ()
    return tuple(tense for tense in TENSES if tense not in missing)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A verb in a tense for a person.

    English: `auxiliary`, which negation and questions need, and the words after it; `plain` are those of an affirmative
    statement, without do, does or did. Spanish: the conjugated word first.
    """

    auxiliary: Word
    after: tuple[Word, ...]
    plain: tuple[Word, ...]
    es: tuple[Word, ...]


def predicate(verb: Verb, tense: str, subject: Subject) -> Predicate:  # noqa: PLR0911  (one return for each tense)
    """Conjugate a verb in both languages."""
    person, third = subject.person, subject.person == 2
    # A dropped pronoun lives on in the conjugated Spanish word.
    finite = "aux+s.pro" if subject.dropped else "aux"
    base: tuple[Word, ...] = ((verb.en, "v"), *(((verb.particle, "v"),) if verb.particle else ()))

    def simple(auxiliary: str, inflected: str, rest: tuple[Word, ...], es: tuple[Word, ...]) -> Predicate:
        return Predicate((auxiliary, "aux"), rest, ((inflected, rest[0][1]), *rest[1:]), es)

    def compound(auxiliary: str, rest: tuple[Word, ...], es: tuple[Word, ...]) -> Predicate:
        return Predicate((auxiliary, "aux"), rest, ((auxiliary, "aux"), *rest), es)

    do = "does" if third else "do"
    if tense == "present":
        return simple(do, verb.third if third else verb.en, base, ((verb.present[person], f"v+{finite}"),))
    if tense == "past":
        return simple("did", verb.past, base, ((verb.preterite[person], f"v+{finite}"),))
    if tense in ("progressive", "past progressive"):
        be, forms = (subject.be(), ESTAR) if tense == "progressive" else (subject.was(), ESTABA)
        return compound(be, ((verb.ing, "v"), *base[1:]), ((forms[person], finite), (verb.gerund, "v")))
    to: Word = ("to", "to")
    infinitive: Word = (verb.es, "v")
    if tense == "future":
        return compound(
            subject.be(), (("going", "mod"), to, *base), ((IR[person], f"mod+{finite}"), ("a", "to"), infinitive)
        )
    if tense == "will":  # the near future too: ir a is how most people say it
        return compound("will", base, ((IR[person], finite), ("a", finite), infinitive))
    if tense == "can":
        return compound("can", base, ((PODER[person], finite), infinitive))
    if tense == "want":
        rest: tuple[Word, ...] = (("want", "mod"), to, *base)
        return simple(do, "wants" if third else "want", rest, ((QUERER[person], f"mod+{finite}"), infinitive))
    rest = (("have", "mod"), to, *base)
    es = ((TENER[person], f"mod+{finite}"), ("que", "to"), infinitive)
    return simple(do, "has" if third else "have", rest, es)


def _table(text: str) -> tuple[Phrase, ...]:
    return tuple(fixed(*(side.strip() for side in pair.split("|"))) for pair in text.strip().splitlines())


TIMES = {
    "present": _table("every day | todos los días\non sundays | los domingos\nin the morning | por la mañana\n"
                      "at night | por la noche"),
    "progressive": _table("now | ahora\ntoday | hoy\nat this moment | en este momento"),
    "past": _table("yesterday | ayer\nlast night | anoche\nlast week | la semana pasada"),
    "future": _table("tomorrow | mañana\ntonight | esta noche\nnext week | la próxima semana\ntoday | hoy"),
}  # fmt: skip
"""Times by tense; the past progressive takes the past's, will and the modals the future's."""

PLACES = _table("""
at home | en casa
in the kitchen | en la cocina
in the garden | en el jardín
in the park | en el parque
in the city | en la ciudad
in the street | en la calle
in the library | en la biblioteca
in the village | en el pueblo
at school | en la escuela
at the market | en el mercado
at the beach | en la playa
at the restaurant | en el restaurante
with my family | con mi familia
with her friends | con sus amigos
with us | con nosotros
without me | sin mí
""")
POSITIONS = _table("""
on the table | en la mesa
in the box | en la caja
in the kitchen | en la cocina
in the garden | en el jardín
under the bed | debajo de la cama
behind the door | detrás de la puerta
near the window | cerca de la ventana
in front of the house | delante de la casa
next to the tree | al lado del árbol
here | aquí
there | ahí
""")
FREQUENCIES = _table("always | siempre\nnever | nunca\nsometimes | a veces\noften | a menudo\nusually | normalmente")
MANNERS = _table("well | bien\na lot | mucho\nvery well | muy bien\nslowly | despacio")
WHYS = _table("why | por qué\nwhere | dónde\nwhen | cuándo\nhow | cómo")

# A person as a pronoun object: English, Spanish before the conjugated verb, and the subjects that cannot have it.
OBJECT_PRONOUNS = (
    ("me", "me", (0, 3)),
    ("you", "te", (1,)),
    ("him", "lo", ()),
    ("her", "la", ()),
    ("us", "nos", (0, 3)),
    ("them", "los", ()),
)
# Who likes it: by person; a noun phrase is doubled: al niño le gusta.
LIKERS = ("me", "te", "le", "nos", "les")
