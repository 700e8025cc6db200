"""Descriptions of scenes are true of what they say, and the checkpoint of scenes-match finds which fits."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from few import counts
from weft_recipes import scenes_match
from weft_recipes.pictures.description import coloured_shapes, describe, describe_fully, true_of
from weft_recipes.pictures.scene import Scene, Thing, sample

CHECKPOINT = Path(__file__).parents[3] / "export" / "checkpoints" / "scenes-match"
RED = Thing("circle", "red", "small", 0.5, 0.2, 0.1, 0.0)
BLUE = Thing("square", "blue", "large", 0.5, 0.7, 0.2, 0.0)
BELOW = Scene((BLUE, RED), "below", 0)
ALONE = Scene((RED,), "at the top", 0)


def texts_of(scene):
    """Every way in which a scene is described."""
    rng = random.Random(1)
    return {describe(scene, rng).text for _ in range(300)}


def test_a_scene_is_described_in_many_ways():
    """Sizes and places may be left out, two things may change places, and then so does what is said of them."""
    assert {
        "a red circle",
        "a small red circle",
        "a red circle at the top",
        "a small red circle at the top",
    } == texts_of(ALONE)
    told = texts_of(BELOW)
    assert {"a blue square below a red circle", "a red circle above a large blue square"} <= told
    assert {"a red circle and a blue square", "a blue square and a small red circle"} <= told
    assert 16 == len(told)
    assert {"an orange circle"} <= texts_of(Scene((replace(RED, color="orange"),), "at the top", 0))


def test_a_description_is_true_of_what_it_says():
    """Each is true of its own scene, a caption of scenes with that caption alone, and what is left out may be any."""
    scenes, rng = sample(300, 3, held_out=False), random.Random(2)
    assert true_of(scenes, [describe(scene, rng) for scene in scenes]).diagonal().all()

    equal = [[scene.caption == other.caption for other in scenes] for scene in scenes]
    assert equal == true_of(scenes, [describe_fully(scene) for scene in scenes]).tolist()

    others = [ALONE, replace(ALONE, relation="on the left"), Scene((BLUE,), "at the top", 0), BELOW]
    (red,) = [description for description in coloured_shapes() if description.text == "a red circle"]
    assert [True, True, False, False] == true_of(others, [red])[:, 0].tolist()


def test_the_order_of_two_things_tells_nothing_alone():
    """A text without a relation is true whichever thing is named first, and one with it only as it stands."""
    above = Scene((RED, replace(BLUE, size="small")), "above", 0)
    rng = random.Random(3)
    told = {each.text: each for each in (describe(BELOW, rng) for _ in range(300))}

    assert [[True, True, True]] * 2 == true_of(
        [BELOW, above],
        [told[text] for text in ("a red circle and a blue square", "a blue square and a red circle",
                                 "a blue square below a red circle")],
    ).tolist()  # fmt: skip
    turned = Scene((BLUE, RED), "above", 0)
    assert [[True, False]] == true_of(
        [turned], [told["a red circle and a blue square"], told["a red circle above a blue square"]]
    ).tolist()


def test_the_loss_is_the_paper_s_where_each_picture_has_one_text():
    """It is the mean of both cross-entropies, and what is true of another picture too counts neither way."""
    logits, own = torch.randn(5, 5, generator=torch.Generator().manual_seed(4)), torch.arange(5)
    expected = (functional.cross_entropy(logits, own) + functional.cross_entropy(logits.t(), own)) / 2
    matches = torch.eye(5, dtype=torch.bool)

    assert pytest.approx(expected.item(), abs=1e-6) == scenes_match.contrast(logits, own, matches).item()
    matches[0, 1] = True
    without = scenes_match.contrast(logits, own, matches)
    logits[0, 1] = 100
    assert without == scenes_match.contrast(logits, own, matches)


@pytest.mark.parametrize("num_scenes", counts(80, 250))
def test_the_checkpoint_finds_what_fits(num_scenes):
    """On held-out combinations the committed weights are about as good as the card says."""
    measured = scenes_match.measure(CHECKPOINT, num_scenes)

    assert measured["right caption among 16, zero-shot"] >= 0.9
    assert measured["right one of 35 coloured shapes alone, zero-shot"] >= 0.9
