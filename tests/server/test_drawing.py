"""The graph of a decoder for steps that draw on a device: more of the best tokens, and what all of a row weigh."""

import numpy as np
import onnx
import pytest

from drawn_tails import tail, weights_of
from weft_server.runtime.cuda.drawing import MOST_CANDIDATES, TEMPERATURES, TOTAL_WEIGHTS, drawing
from weft_server.runtime.session import Session

MANY = 65_536


def run(model, logits, temperatures):
    """What the graph for draws says of rows of logits."""
    drawn = drawing(model)
    onnx.checker.check_model(drawn, full_check=True)
    told = np.array(temperatures, np.float32)
    return Session(drawn.SerializeToString(), 1).run({"product": logits, TEMPERATURES: told})


@pytest.mark.parametrize("vocab", [100, 4_000, MANY, MANY + 37])
@pytest.mark.parametrize("coarse", [False, True], ids=["", "ties"])
def test_the_best_are_those_of_all_logits(vocab, coarse):
    """The best 256, or all there are: the best first, and the lower id where logits are equal, in groups too."""
    logits = np.random.default_rng(1).normal(0, 3, (4, vocab)).astype(np.float32)
    if coarse:
        logits = np.round(logits)
    logits[3, 5:] = -np.inf
    found = run(tail(vocab), logits, [1, 1, 1, 1])
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :MOST_CANDIDATES]
    assert (4, min(vocab, MOST_CANDIDATES)) == found["topk_ids"].shape
    assert np.take_along_axis(logits, expected, 1).tolist() == found["topk_logits"].tolist()
    assert expected[:3].tolist() == found["topk_ids"][:3].tolist()
    # Of what is ruled out, any may come behind the rest.
    assert expected[3, :5].tolist() == found["topk_ids"][3, :5].tolist()


@pytest.mark.parametrize("shift", [0, 5_000, -5_000])
def test_all_tokens_weigh_what_they_weigh(shift):
    """Within a part in 100,000, at any temperature, however large the logits are."""
    temperatures = [0.001, 0.05, 0.7, 1.0, 1.5, 100.0]
    logits = np.random.default_rng(2).normal(shift, 4, (6, 32_000)).astype(np.float32)
    found = run(tail(32_000), logits, temperatures)[TOTAL_WEIGHTS]
    np.testing.assert_allclose(found, weights_of(logits, temperatures), rtol=1e-5)


def test_what_is_ruled_out_weighs_nothing():
    """A row with one token left weighs 1."""
    logits = np.full((1, 50), -np.inf, np.float32)
    logits[0, 7] = -3
    assert [1] == run(tail(50, 8), logits, [0.5])[TOTAL_WEIGHTS].tolist()


def test_a_graph_that_looks_in_groups_gives_as_many_as_before():
    """It looks for few, which it has been made for."""
    logits = np.random.default_rng(3).normal(size=(2, 300)).astype(np.float32)
    found = run(tail(300, 16, in_groups=True), logits, [1, 2])
    assert (2, 16) == found["topk_ids"].shape
    np.testing.assert_allclose(found[TOTAL_WEIGHTS], weights_of(logits, [1, 2]), rtol=1e-5)


def test_the_graph_that_it_is_made_of_stays():
    """Another graph is made of it too."""
    model = tail(300)
    before = model.SerializeToString()
    drawing(model)
    assert before == model.SerializeToString()
