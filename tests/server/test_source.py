"""Laws of sources: tokens are counted and padded by the kind of input, and a run is fed as its graph wants it."""

import numpy as np

from weft_server.source import Ids, Pixels, feeds_of

PICTURE = Pixels(np.ones((3, 240, 240), np.float32), (15, 15))


def ids(length):
    """Ids of so many tokens."""
    return Ids(np.arange(1, length + 1))


def test_padding_depends_on_the_input_alone():
    """A batch's padded length is the next multiple of eight, beyond 64 tokens of two."""
    assert [8, 8, 16, 64, 66, 66, 68] == [ids(length).bucket for length in (1, 8, 9, 64, 65, 66, 67)]


def test_an_encoders_run_is_no_longer_than_needed():
    """Up to 64 tokens lengths may share a run, so it is as long as its longest; beyond, it is a padded length."""
    assert [1, 9, 64, 66, 66] == [ids(length).width for length in (1, 9, 64, 65, 66)]


def test_nothing_is_added_to_pictures():
    """They are all of one size; their patches count as tokens."""
    assert (225, 225, 225) == (PICTURE.num_tokens, PICTURE.bucket, PICTURE.width)


def test_class_tokens_are_of_the_memory_and_not_shown():
    """They count as tokens; an explanation is over the patches."""
    picture = Pixels(PICTURE.array, (15, 15), 2)
    assert (227, 227, 227, 225) == (picture.num_tokens, picture.bucket, picture.width, picture.num_shown)
    assert 9 == ids(9).num_shown


def test_ids_are_padded_behind_and_their_lengths_told():
    """Each row of a run is one input; int64 ids and int32 lengths."""
    feeds = feeds_of([ids(3), ids(1)], 4, pad_id=9)

    assert [[1, 2, 3, 9], [1, 9, 9, 9]] == feeds["input_ids"].tolist()
    assert [3, 1] == feeds["lengths"].tolist()
    assert {"input_ids": np.int64, "lengths": np.int32} == {name: array.dtype for name, array in feeds.items()}


def test_pixels_are_stacked():
    """A run of pictures reads nothing but their pixels."""
    feeds = feeds_of([PICTURE, PICTURE], PICTURE.width, pad_id=9)

    assert {"pixel_values": (2, 3, 240, 240)} == {name: array.shape for name, array in feeds.items()}
    assert np.float32 == feeds["pixel_values"].dtype
