"""Batch invariance, the sacred law: a request's answer is bit-identical alone and in any crowd."""

import asyncio
import random
from pathlib import Path

import pytest
from tiny import CHECKPOINTS, INT4, INT8, export_tiny

from crowd import answers_of, requests_for
from few import counts
from weft_server.bundle.load import load_bundle

ROOT = Path(__file__).parents[2]
TRAINED = sorted(path.parent.name for path in ROOT.glob("export/checkpoints/*/config.json"))


def check(directory, count):
    """Compare a crowd in random order with one at a time."""
    asked = requests_for(load_bundle(directory).manifest, count, seed=11)
    order = random.Random(12).sample(range(count), count)

    crowded = asyncio.run(answers_of(directory, asked, order, crowd=True))
    alone = asyncio.run(answers_of(directory, asked, range(count), crowd=False))

    different = [index for index in range(count) if alone[index] != crowded[index]]
    assert [] == different


@pytest.mark.slow
@pytest.mark.parametrize("count", counts(40, 200))
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_tiny_models_answer_the_same_alone_and_crowded(tiny_repository, name, count):
    """Random weights, every family: tokens, scores, probabilities and alignments are bit-identical."""
    check(tiny_repository / name / "1", count)


@pytest.mark.slow
@pytest.mark.parametrize("count", counts(40, 100))
@pytest.mark.parametrize("name", INT8)
def test_int8_models_answer_the_same_alone_and_crowded(int8_repository, name, count):
    """At int8 as at fp32: tokens, scores, probabilities and alignments are bit-identical."""
    check(int8_repository / f"{name}-int8" / "1", count)


@pytest.mark.slow
@pytest.mark.parametrize("count", counts(40, 60))
@pytest.mark.parametrize("name", INT4)
def test_int4_models_answer_the_same_alone_and_crowded(int4_repository, name, count):
    """With weights in blocks too."""
    check(int4_repository / f"{name}-int4" / "1", count)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["int4", "int8-weights", "nf4"])
@pytest.mark.parametrize("name", INT8)
def test_weights_in_blocks_for_every_kind_of_product(name, precision, tmp_path):
    """A model is exported with all its graphs, passes parity, and answers the same alone and crowded."""
    export_tiny(tmp_path, tmp_path / "models", name, precision)
    check(tmp_path / "models" / f"{name}-{precision}" / "1", 60)


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", TRAINED)
def test_trained_models_answer_the_same_alone_and_crowded(name, count):
    """Trained weights: tokens, scores, probabilities and alignments are bit-identical."""
    found = [ROOT / "build" / folder / name / "1" for folder in ("models", "families")]
    directory = next((path for path in found if path.is_dir()), None)
    assert directory, "run `make models families` first"
    check(directory, count)
