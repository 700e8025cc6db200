"""Laws of drafts that a text itself suggests."""

import random

import numpy as np
import pytest

from weft_server.engine.prompt_lookup import look_up


@pytest.mark.parametrize(
    ("history", "most", "drafts", "matched"),
    [
        ([1, 2, 3, 4, 5, 1, 2, 3], 2, [4, 5], 3),
        ([9, 2, 3, 4, 5, 1, 2, 3], 3, [4, 5, 1], 2),
        ([1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3], 1, [8], 3),
        ([8, 2, 3, 7, 1, 2, 3, 9, 8, 2, 3], 1, [7], 3),
        ([4, 6, 4, 6, 4], 5, [6, 4, 6, 4, 6], 3),
        ([5, 5, 5], 3, [5, 5, 5], 2),
        ([1, 2, 3, 4], 3, [], 0),
        ([3, 1, 3], 3, [], 0),
        ([3], 3, [], 0),
        ([], 3, [], 0),
    ],
)
def test_drafts_are_what_followed_the_last_tokens_before(history, most, drafts, matched):
    """Three tokens before two, of equal matches the last one; a draft that reaches the end begins anew."""
    found = look_up(np.array(history, np.int64), most)
    assert (drafts, matched) == (found.token_ids.tolist(), found.num_matched)


def test_drafts_follow_a_match_wherever_there_is_one():
    """Of random texts: what is drafted stands in the text behind its last tokens, and without a match is nothing."""
    rng = random.Random(0)
    for _ in range(300):
        history = [rng.randrange(4) for _ in range(rng.randrange(1, 30))]
        found = look_up(np.array(history), 1)
        followed = {
            size: [
                history[place + size]
                for place in range(len(history) - size)
                if history[place : place + size] == history[-size:]
            ]
            for size in (3, 2)
        }
        size = next((size for size in (3, 2) if followed[size]), 0)
        assert (followed[size][-1:] if size else []) == found.token_ids.tolist()
        assert size == found.num_matched
