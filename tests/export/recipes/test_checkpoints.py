"""The committed checkpoints are what their model cards say."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer

from weft_export.checkpoints.directory import load_checkpoint
from weft_export.checkpoints.files import HELD_OUT_FILE
from weft_export.checkpoints.held_out import write_held_out
from weft_export.checkpoints.picture import to_pixel_values
from weft_recipes import digits, en_es, pydocs, scenes, scenes_answers, topics
from weft_recipes.catalogue import RECIPES
from weft_recipes.grammar.corpus import sample as sample_sentences
from weft_recipes.pictures.drawing import render
from weft_recipes.pictures.gallery import PICTURE_SIDE
from weft_recipes.pictures.scene import sample as sample_scenes

CHECKPOINTS = Path(__file__).parents[3] / "export" / "checkpoints"


def tokenizer_of(checkpoint, name):
    """Return one of a checkpoint's tokenizers."""
    return Tokenizer.from_str(checkpoint.files[name].decode())


def figure(name, row):
    """Return a number from a model card's table."""
    card = (CHECKPOINTS / name / "README.md").read_text()
    found = re.search(rf"^\| {re.escape(row)} \| ([\d.,]+) \|$", card, re.MULTILINE)
    assert found, f"{name} states no {row}"
    return float(found[1].replace(",", ""))


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_checkpoint_is_complete_and_small(name):
    """Every recipe's checkpoint is committed, loads, has a card, and its weights take at most 4 MB."""
    directory = CHECKPOINTS / name

    load_checkpoint(directory)
    assert (directory / "model.safetensors").stat().st_size <= 4_000_000
    assert (directory / "README.md").read_text().startswith(f"# {name}: ")


def test_recipe_modules_exist():
    """Each name leads to a module with a `train`, though none is imported before it is asked for."""
    for name in RECIPES:
        assert callable(importlib.import_module(f"weft_recipes.{name.replace('-', '_')}").train)


@pytest.mark.parametrize(
    ("name", "row", "bar"),
    [
        ("en-es", "exact match on held-out combinations", 0.98),
        ("scenes", "exact match on held-out combinations", 0.95),
        ("scenes-answers", "exact match on held-out combinations of one or two things", 0.95),
        ("scenes-match", "right caption among 16, zero-shot", 0.95),
        ("scenes-chat", "exact match on held-out combinations: first questions", 0.94),
        ("digits", "test accuracy", 0.97),
    ],
)
def test_card_states_a_figure_over_the_bar(name, row, bar):
    """The figures that the recipes printed are as good as these demos must be."""
    assert figure(name, row) >= bar


@pytest.mark.parametrize("name", ["digits", "en-es", "scenes", "scenes-answers", "tags"])
def test_held_out_examples_are_of_the_part_that_is_not_trained_on(name, tmp_path):
    """What int8 is measured on, the recipe draws of its held-out part (of the others, it depends on the Python)."""
    write_held_out(tmp_path, importlib.import_module(f"weft_recipes.{name.replace('-', '_')}").held_out())
    drawn, committed = (
        [json.loads(line) for line in (directory / HELD_OUT_FILE).read_text(encoding="utf-8").split("\n")[:-1]]
        for directory in (tmp_path, CHECKPOINTS / name)
    )

    assert [line["reference"] for line in drawn] == [line["reference"] for line in committed]
    if name in {"en-es", "tags"}:  # another Pillow may pack pictures otherwise
        assert [line["input"] for line in drawn] == [line["input"] for line in committed]


def test_cards_beat_their_baselines():
    """The two models of real text do better than the simple thing beside them."""
    assert figure("topics", "held-out accuracy") > 1.5 * figure("topics", "majority baseline")
    assert figure("pydocs", "held-out loss, nats per token") < figure("pydocs", "bigram model, nats per token")


def test_en_es_translates():
    """On held-out combinations the committed weights are as exact as the card says, and its alignments legible."""
    checkpoint = load_checkpoint(CHECKPOINTS / "en-es")
    source, target = tokenizer_of(checkpoint, "source.json"), tokenizer_of(checkpoint, "target.json")
    pairs = sample_sentences(200, 99, held_out=True)

    def translate(*texts):
        return en_es.translate(checkpoint.model, source, target, texts)

    assert ["estamos comiendo pan"] * 2 == translate("we are eating bread", "We are eating bread.")
    answers = translate(*(pair.source for pair in pairs))
    assert np.mean([answer == pair.target for answer, pair in zip(answers, pairs, strict=True)]) >= 0.97
    aligned = en_es.measure_alignment(checkpoint.model, source, target, pairs[:50], checkpoint.attention_layer)
    assert aligned >= 0.9


def test_scenes_captions():
    """On held-out combinations the committed weights are as exact as the card says, also for the examples."""
    checkpoint = load_checkpoint(CHECKPOINTS / "scenes")
    tokenizer = tokenizer_of(checkpoint, "target.json")
    drawn = sample_scenes(100, 99, held_out=True)
    answers = scenes.caption(checkpoint.model, tokenizer, [render(scene, PICTURE_SIDE) for scene in drawn])

    assert np.mean([answer == scene.caption for answer, scene in zip(answers, drawn, strict=True)]) >= 0.93
    files = sorted((CHECKPOINTS / "scenes" / "examples").glob("*.png"))
    assert 3 == len(files)
    captions = scenes.caption(checkpoint.model, tokenizer, [Image.open(file) for file in files])
    assert [file.stem.replace("-", " ") for file in files] == captions


def test_scenes_are_asked_about():
    """On held-out combinations the committed weights answer as exactly as the card says."""
    checkpoint = load_checkpoint(CHECKPOINTS / "scenes-answers")
    tokenizer = tokenizer_of(checkpoint, "words.json")
    asked = scenes_answers.asked_scenes(100, 99, held_out=True)
    pictures = [render(scene, PICTURE_SIDE) for scene, _ in asked]
    answers = scenes_answers.answer(checkpoint.model, tokenizer, pictures, [question.text for _, question in asked])

    few = [len(scene.things) <= 2 for scene, _ in asked]
    right = np.array([given == question.answer for given, (_, question) in zip(answers, asked, strict=True)])
    assert right[few].mean() >= 0.93
    assert right.mean() >= 0.87


def test_digits_accuracy():
    """The committed weights have exactly the accuracy of the card, and read the examples."""
    directory = CHECKPOINTS / "digits"
    model = load_checkpoint(directory).model

    assert pytest.approx(digits.measure(directory)["test accuracy"], abs=1e-4) == figure("digits", "test accuracy")
    for file in (directory / "examples").glob("*.png"):
        pixels = digits.torch.from_numpy(to_pixel_values(Image.open(file), digits.IMAGE))[None]
        assert file.stem == str(int(model(pixels).argmax()))


@pytest.mark.slow
def test_topics_accuracy():
    """The committed weights are about as accurate as the card says, on whatever Python this is."""
    measured = topics.measure(CHECKPOINTS / "topics")

    assert measured["held-out accuracy"] >= figure("topics", "held-out accuracy") - 0.05


@pytest.mark.slow
def test_pydocs_loss():
    """The committed weights have about the loss of the card, below the bigram model's, on whatever Python this is."""
    measured = pydocs.measure(CHECKPOINTS / "pydocs")

    assert measured["held-out loss, nats per token"] <= figure("pydocs", "held-out loss, nats per token") + 0.2
    assert measured["held-out loss, nats per token"] < measured["bigram model, nats per token"]
