"""The English-Spanish grammar writes correct Spanish, once for each English sentence."""

from collections import Counter

import pytest

from few import counts
from weft_recipes.grammar.clauses import TENSES, predicate, tenses_of
from weft_recipes.grammar.corpus import count_clauses, sample
from weft_recipes.grammar.lexicon import ADJECTIVES, NOUNS, VERBS, pluralize_es
from weft_recipes.grammar.phrases import PRONOUNS, both, noun_phrases, owned, subject_of, with_article
from weft_recipes.shared.vocabulary import word_tokenizer

NOUN = {noun.en: noun for noun in NOUNS}
VERB = {verb.key: verb for verb in VERBS}
SUBJECT = {subject.head: subject for subject in PRONOUNS}


def text(words):
    """Return a phrase's words as text."""
    return " ".join(word for word, _ in words)


def noun_phrase(en):
    """Return the one noun phrase that reads so in English."""
    found = [np for noun in NOUNS for np in noun_phrases(noun) if text(np.phrase.en) == en]
    assert 1 == len(found), found
    return found[0]


@pytest.mark.parametrize(
    ("en", "es"),
    [
        ("the sweet oranges", "las naranjas dulces"),
        ("a red car", "un coche rojo"),
        ("an old woman", "una mujer vieja"),
        ("the young men", "los hombres jóvenes"),
        ("our new shirts", "nuestras camisas nuevas"),
        ("their house", "su casa"),
        ("these blue pencils", "estos lápices azules"),
        ("that interesting poem", "ese poema interesante"),
        ("two brown rabbits", "dos conejos marrones"),
        ("some difficult letters", "unas cartas difíciles"),
        ("the cold water", "el agua fría"),
        ("this cold water", "esta agua fría"),
        ("many green lamps", "muchas lámparas verdes"),
        ("my gardens", "mis jardines"),
        ("fresh bread", "pan fresco"),
    ],
)
def test_noun_phrases_agree(en, es):
    """Determiner and adjective take the noun's gender and number; the adjective stands after it."""
    assert es == text(noun_phrase(en).phrase.es)


@pytest.mark.parametrize(
    ("verb", "tense", "who", "en", "es"),
    [
        ("eat:comer", "progressive", "we", "are eating", "estamos comiendo"),
        ("eat:comer", "past progressive", "we", "were eating", "estábamos comiendo"),
        ("read:leer", "progressive", "she", "is reading", "está leyendo"),
        ("sleep:dormir", "progressive", "they", "are sleeping", "están durmiendo"),
        ("sleep:dormir", "past", "he", "slept", "durmió"),
        ("ask:pedir", "progressive", "i", "am asking for", "estoy pidiendo"),
        ("ask:pedir", "past", "they", "asked for", "pidieron"),
        ("make:hacer", "past", "he", "made", "hizo"),
        ("bring:traer", "past", "they", "brought", "trajeron"),
        ("look:buscar", "past", "i", "looked for", "busqué"),
        ("play:tocar", "past", "i", "played", "toqué"),
        ("play:jugar", "present", "you", "play", "juegas"),
        ("close:cerrar", "present", "we", "close", "cerramos"),
        ("know:conocer", "present", "i", "know", "conozco"),
        ("smile:sonreír", "present", "she", "smiles", "sonríe"),
        ("wash:lavar", "present", "he", "washes", "lava"),
        ("study:estudiar", "present", "he", "studies", "estudia"),
        ("carry:llevar", "future", "you", "are going to carry", "vas a llevar"),
        ("carry:llevar", "will", "you", "will carry", "vas a llevar"),
        ("help:ayudar", "can", "they", "can help", "pueden ayudar"),
        ("cook:cocinar", "want", "she", "wants to cook", "quiere cocinar"),
        ("run:correr", "have to", "he", "has to run", "tiene que correr"),
    ],
)
def test_verbs_are_conjugated(verb, tense, who, en, es):
    """Both languages have the right form for tense and person."""
    conjugated = predicate(VERB[verb], tense, SUBJECT[who])

    assert en == text(conjugated.plain)
    assert es == text(conjugated.es)


def test_negation_and_questions_have_an_auxiliary():
    """What a statement inflects, a denial leaves bare after do, does or did."""
    conjugated = predicate(VERB["want:querer"], "present", SUBJECT["she"])

    assert ("does", "want") == (conjugated.auxiliary[0], text(conjugated.after))


def test_owner_and_conjunction():
    """An owner follows with "de"; two subjects are masculine plural unless both are feminine; y is e before i."""
    girl = noun_phrase("the girl")

    assert "el libro de la niña" == text(owned(NOUN["book"], girl, plural=False).phrase.es)
    mixed = both(subject_of(girl), subject_of(noun_phrase("the boy")))
    assert ("la niña y el niño", "m", 4) == (text(mixed.phrase.es), mixed.gender, mixed.person)
    assert "f" == both(subject_of(girl), subject_of(girl)).gender
    languages = both(*(subject_of(noun_phrase(en)) for en in ("spanish", "italian")))
    assert "el español y el italiano" == text(languages.phrase.es)
    assert "el pan" == text(with_article(noun_phrase("bread")).es)


def test_regular_plurals():
    """Spanish plurals keep the spoken stress."""
    singular = ("casa", "flor", "lápiz", "jardín", "canción", "joven", "café")

    assert ["casas", "flores", "lápices", "jardines", "canciones", "jóvenes", "cafés"] == [
        pluralize_es(word) for word in singular
    ]


def test_tables_are_complete():
    """Every verb has five forms of each tense it has, every noun its adjectives or none, and no word occurs twice."""
    for verb in VERBS:
        assert 5 == len(verb.present), verb
        assert len(verb.preterite) in (0, 5), verb
        assert set(tenses_of(verb)) <= set(TENSES)
        assert bool(verb.past) == bool(verb.preterite), verb
        assert bool(verb.ing) == bool(verb.gerund), verb
    assert set(ADJECTIVES) == {noun.kind for noun in NOUNS}
    assert {kind for verb in VERBS for kind in verb.kinds} <= set(ADJECTIVES)
    assert 1 == max(Counter(noun.en for noun in NOUNS).values())


@pytest.mark.parametrize("num_sentences", counts(5_000, 20_000))
def test_one_translation_for_each_sentence(num_sentences):
    """No English sentence has two translations, questions look like questions, and "a el", "de el" never occur."""
    translations = {}
    for pair in sample(num_sentences, 4, held_out=False):
        assert pair.target == translations.setdefault(pair.source, pair.target)
        assert pair.source.endswith("?") == pair.target.endswith("?") == pair.target.startswith("¿")
        assert not {("a", "el"), ("de", "el")} & set(zip(pair.es, pair.es[1:], strict=False)), pair.target
        assert len(pair.es) == len(pair.alignment)
        assert all(0 <= index < len(pair.en) for indices in pair.alignment for index in indices)


@pytest.mark.parametrize("num_sentences", counts(5_000, 20_000))
def test_large_enough(num_sentences):
    """The grammar has far more than a hundred thousand sentences, and samples rarely repeat themselves."""
    pairs = sample(num_sentences, 5, held_out=False)

    assert count_clauses() > 1e9
    assert len({pair.source for pair in pairs}) > 0.9 * len(pairs)


@pytest.mark.parametrize("num_sentences", counts(6_000, 30_000))
def test_held_out_combinations_are_never_trained_on(num_sentences):
    """No combination of subject, verb and object of the held-out part occurs in the training part."""
    trained = {pair.combination for pair in sample(num_sentences, 6, held_out=False)}
    held_out = {pair.combination for pair in sample(1_000, 7, held_out=True)}

    assert not trained & held_out
    assert len(held_out) > 500


def test_every_word_is_one_token():
    """Tokens are the grammar's words, so an alignment of tokens is one of words; decoding gives the text back."""
    pairs = sample(3_000, 8, held_out=False)
    source = word_tokenizer(word for pair in pairs for word in pair.en)
    target = word_tokenizer(word for pair in pairs for word in pair.es)

    for pair in pairs:
        assert len(pair.en) + 1 == len(source.encode(pair.source).ids)
        ids = target.encode(pair.target).ids
        assert len(pair.es) + 1 == len(ids)
        assert pair.target == target.decode(ids)


def test_tokenizer_forgives():
    """Case, final punctuation, commas, blanks and contractions make no difference; unknown words are spelled."""
    words = ["we", "are", "not", "eating", "bread", "today", "the", "boy", "'s", "cat", "will", "can", "?"]
    tokenizer = word_tokenizer(words)

    def tokens(line):
        return tokenizer.encode(line).tokens

    assert tokens("today we are not eating bread") == tokens("  Today,  we aren't eating bread. ")
    assert tokens("can not we will not") == tokens("Can't we won't!")
    assert tokens("the boy 's cat ?") == tokens("The boy\N{RIGHT SINGLE QUOTATION MARK}s cat?")
    assert "zürich 🙂" == tokenizer.decode(tokenizer.encode("Zürich 🙂").ids)
    assert ["<end>"] == tokens("")
