"""The formal register says usted where the grammar says tú, and changes nothing else."""

import importlib
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from weft_export.adapters.merging import write_merged
from weft_export.adapters.peft import read_adapter
from weft_export.checkpoints.directory import load_checkpoint
from weft_recipes import en_es
from weft_recipes.catalogue import ADAPTERS
from weft_recipes.en_es_formal import EXAMPLE
from weft_recipes.grammar.corpus import sample
from weft_recipes.grammar.pairs import Pair
from weft_recipes.grammar.register import formal, is_familiar

CHECKPOINTS = Path(__file__).parents[3] / "export" / "checkpoints"


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


def test_the_kept_adapter_says_usted(tmp_path):
    """Added to the translator's weights, it answers as its card says, and it is as small as an adapter should be."""
    directory = CHECKPOINTS / "en-es-formal"
    write_merged(CHECKPOINTS / "en-es", read_adapter(directory), tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    tokenizers = (Tokenizer.from_str(checkpoint.files[name].decode()) for name in ("source.json", "target.json"))
    (said,) = en_es.translate(checkpoint.model, *tokenizers, [EXAMPLE])
    card = (directory / "README.md").read_text()
    assert f"| “{EXAMPLE}” | {said} |" in card
    assert "tiene su libro" in said
    assert 300_000 > (directory / "adapter_model.safetensors").stat().st_size


def test_recipes_of_adapters_exist():
    """Each name leads to a module with a `train`."""
    for name in ADAPTERS:
        assert callable(importlib.import_module(f"weft_recipes.{name.replace('-', '_')}").train)
