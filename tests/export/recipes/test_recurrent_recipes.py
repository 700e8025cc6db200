"""The recurrent recipes: answers by steps, compounds, BLEU, and what the committed checkpoints say."""

import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from weft_export.checkpoints.directory import load_checkpoint
from weft_recipes import scenes_lstm
from weft_recipes.grammar import recurrent_translation
from weft_recipes.grammar.alignment import measure_alignment
from weft_recipes.grammar.compounds import JOINS, draw_compounds, statements
from weft_recipes.grammar.corpus import sample as sample_sentences
from weft_recipes.pictures.drawing import render
from weft_recipes.pictures.gallery import measure_pointing
from weft_recipes.pictures.scene import sample as sample_scenes
from weft_recipes.shared.figures import bleu
from weft_recipes.shared.greedy import answer_by_steps

CHECKPOINTS = Path(__file__).parents[3] / "export" / "checkpoints"


def tokenizer_of(checkpoint, name):
    """Return one of a checkpoint's tokenizers."""
    return Tokenizer.from_str(checkpoint.files[name].decode())


@pytest.mark.parametrize("name", ["tiny-rnn", "tiny-attention-rnn"])
def test_answers_by_steps_are_those_of_the_whole_decoder(name):
    """Step by step over states, a model answers what its teacher-forced decoder finds likeliest, to the end token."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tiny_recurrent import RECURRENT

    torch.manual_seed(0)
    model = RECURRENT[name]().model
    ids, lengths = torch.randint(4, 20, (3, 9)), torch.tensor([9, 2, 5], dtype=torch.int32)
    answers = answer_by_steps(model, ids, lengths, memory_lengths=lengths, start=2, end=3, max_new_tokens=12)

    for row, answer in enumerate(answers):
        written = torch.tensor([[2, *answer]])
        likeliest = model.decode(written, ids[row : row + 1], lengths[row : row + 1])[0].argmax(-1).tolist()
        assert answer == likeliest[: len(answer)]
        assert len(answer) == 12 or likeliest[len(answer)] == 3
        assert 3 not in answer


def test_bleu():
    """A perfect answer has 1, one without any four right words in a row 0, a short one pays exp(1 - wanted / given)."""
    reference = "el gato come el pan en la cocina"

    assert 1 == bleu([reference], [reference])
    assert 0 == bleu(["pan el come gato el cocina la en"], [reference])
    assert pytest.approx(2.718281828**-1) == bleu(["el gato come el"], [reference])
    # Of 8, 7, 6 and 5 runs 7, 5, 4 and 3 are right.
    changed = reference.replace("en", "de")
    assert pytest.approx((7 / 8 * 5 / 7 * 3 / 6 * 2 / 5) ** 0.25) == bleu([changed], [reference])
    # A word counts as often as it is wanted.
    assert pytest.approx((4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25) == bleu(["el el el el el"], ["el el el el gato"])


def test_compounds_are_clauses_joined_in_both_languages():
    """A compound's clauses are the given ones, in order, joined by words of the same meaning; no length is exceeded."""
    clauses = statements(sample_sentences(300, 1, held_out=False))
    target_of = {clause.source: clause.target for clause in clauses}
    joined = dict(JOINS)
    compounds = draw_compounds(clauses, 200, 25, 3)

    assert compounds == draw_compounds(clauses, 200, 25, 3)
    assert {True, False} == {compound.num_words > 20 for compound in compounds}
    for compound in compounds:
        expected, part = [], []
        for word in [*compound.source.split(), "but"]:
            if word in joined:
                expected += [target_of[" ".join(part)], joined[word]]
                part = []
            else:
                part.append(word)
        assert " ".join(expected[:-1]) == compound.target
        assert compound.num_words == len(compound.source.replace("'s", " 's").split()) <= 25


@pytest.mark.parametrize(("name", "bar"), [("en-es-rnn", 0.85), ("en-es-attention", 0.97)])
def test_translators_translate(name, bar):
    """On combinations that no training sentence has, the committed weights are about as exact as the card says."""
    checkpoint = load_checkpoint(CHECKPOINTS / name)
    source, target = tokenizer_of(checkpoint, "source.json"), tokenizer_of(checkpoint, "target.json")
    pairs = sample_sentences(200, 99, held_out=True)

    answers = recurrent_translation.translate(checkpoint.model, source, target, [pair.source for pair in pairs])

    assert sum(answer == pair.target for answer, pair in zip(answers, pairs, strict=True)) / 200 >= bar
    assert ["estamos comiendo pan"] == recurrent_translation.translate(
        checkpoint.model, source, target, ["We are eating bread."]
    )


def test_the_alignment_is_legible():
    """Nearly every Spanish word looks most at an English word that it stands for."""
    checkpoint = load_checkpoint(CHECKPOINTS / "en-es-attention")
    source, target = tokenizer_of(checkpoint, "source.json"), tokenizer_of(checkpoint, "target.json")

    pairs = sample_sentences(50, 98, held_out=True)
    assert measure_alignment(checkpoint.model, source, target, pairs, 0) >= 0.97


def test_the_captioner_captions():
    """On held-out combinations the committed weights are as exact as the card says, and look at what they name."""
    checkpoint = load_checkpoint(CHECKPOINTS / "scenes-lstm")
    tokenizer = tokenizer_of(checkpoint, "target.json")
    scenes = sample_scenes(60, 97, held_out=True)
    answers = scenes_lstm.caption(checkpoint.model, tokenizer, [render(scene, 256) for scene in scenes])

    assert sum(answer == scene.caption for answer, scene in zip(answers, scenes, strict=True)) / 60 >= 0.95
    assert measure_pointing(checkpoint.model, tokenizer, scenes, 0) >= 0.9
