"""The formal register says usted where the grammar says tú, and changes nothing else."""

import importlib

import pytest

from weft_recipes.catalogue import ADAPTERS
from weft_recipes.grammar.corpus import sample
from weft_recipes.grammar.pairs import Pair
from weft_recipes.grammar.register import formal, is_familiar


@pytest.mark.parametrize(
    ("familiar", "said"),
    [
        ("¿ tienes tu libro ?", "¿ tiene su libro ?"),
        ("te veo", "lo veo"),
        ("te gusta el pan", "le gusta el pan"),
        ("estás comiendo tus manzanas", "está comiendo sus manzanas"),
        ("el niño come", "el niño come"),
    ],
)
def test_you_is_usted(familiar, said):
    """Verbs, possessives and objects of the second person become those of the third."""
    words = tuple(familiar.split())
    pair = Pair((), words, ((),) * len(words), ("", "", ""))
    assert tuple(said.split()) == formal(pair).es
    assert (familiar != said) == is_familiar(pair)


def test_only_sentences_with_you_change():
    """Where English says neither you nor your, Spanish stays as it is; and a quarter of the sentences say it."""
    pairs = sample(400, 1, held_out=False)
    changed = [pair for pair in pairs if is_familiar(pair)]
    assert all({"you", "your"} & set(pair.en) for pair in changed)
    assert 40 < len(changed) < 200


def test_recipes_of_adapters_exist():
    """Each name leads to a module with a `train`."""
    for name in ADAPTERS:
        assert callable(importlib.import_module(f"weft_recipes.{name.replace('-', '_')}").train)
