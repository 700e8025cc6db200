"""Real data is split so that nothing is both trained on and measured."""

import numpy as np
import pytest
import torch

from weft_recipes import digits, pydocs, topics
from weft_recipes.pictures.handwriting import split
from weft_recipes.texts.bigram import Bigram
from weft_recipes.texts.docstrings import read_docstrings, read_topics


def test_digits_are_split():
    """The two parts together are all 1,797 pictures once, and both have every label in like measure."""
    trained, labels, tested, test_labels = split()

    assert (1437, 360) == (len(trained), len(tested))
    assert np.array_equal(np.bincount(labels, minlength=10) > 130, np.ones(10, dtype=bool))
    assert np.array_equal(np.bincount(test_labels, minlength=10) > 30, np.ones(10, dtype=bool))
    again = split()
    assert np.array_equal(tested, again[2])


def test_distortion_stays_in_range():
    """A distorted digit has the shape and the range of values of a digit, and is not the digit itself."""
    pictures = torch.from_numpy(split()[0][:16]).float()[:, None] / 127.5 - 1
    distorted = digits.distort(pictures, torch.Generator().manual_seed(0))

    assert pictures.shape == distorted.shape
    assert -1.001 <= distorted.min() <= distorted.max() <= 1.001
    assert not torch.equal(pictures, distorted)


@pytest.mark.parametrize("read", [lambda *, held_out: topics.read(held_out=held_out)[0], pydocs.read])
def test_held_out_texts_are_never_trained_on(read):
    """No text of the held-out part is in the training part, and both parts have texts."""
    trained, held_out = read(held_out=False), read(held_out=True)

    assert not set(trained) & set(held_out)
    assert len(trained) > len(held_out) > 100


def test_docstrings_are_distinct_and_not_of_tests():
    """Each text is read once, from the library proper."""
    docstrings = read_docstrings()

    assert len({docstring.text for docstring in docstrings}) == len(docstrings) > 3_000
    assert not [
        docstring for docstring in docstrings if "site-packages" in docstring.path or "/test/" in docstring.path
    ]
    assert len(read_topics()) > 50


@pytest.mark.slow
def test_every_topic_has_held_out_texts():
    """No label is missing from either part."""
    for held_out in (False, True):
        assert set(range(len(topics.TOPICS))) == set(topics.read(held_out=held_out)[1])


def test_bigram_is_a_distribution():
    """The probabilities of what follows a token sum to 1, seen or not; a seen pair is likelier."""
    bigram = Bigram(torch.tensor([0, 1, 0, 1, 0, 2, 3]), 6)

    sums = [sum(np.exp(-bigram.loss(torch.tensor([a, b]))) for b in range(6)) for a in range(6)]
    np.testing.assert_allclose(1, sums, rtol=1e-9)
    assert bigram.loss(torch.tensor([0, 1])) < bigram.loss(torch.tensor([0, 2])) < bigram.loss(torch.tensor([0, 5]))
