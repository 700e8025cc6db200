"""What exporter and server ask of the tokens of a model that answers questions about pictures."""

import pytest

from weft_proto.questions import asked_text, begins_filled, picture_places, question_fault
from weft_proto.v1 import bundle_pb2


def text(**changes):
    """The tokens of a model with room for a question of 8 and an answer of 6, behind a prefix of 2."""
    stated = {"source_vocab_size": 9, "target_vocab_size": 9, "max_source_tokens": 8, "max_new_tokens": 6}
    return bundle_pb2.TextSpec(**{**stated, "prefix_ids": [3, 4], "max_total_tokens": 16, **changes})


@pytest.mark.parametrize(
    ("stated", "num_places", "fault"),
    [
        (text(), 0, None),
        (text(max_total_tokens=36), 20, None),
        (text(max_total_tokens=35), 20, "need 36"),
        (text(max_total_tokens=15), 0, "need 16"),
        (text(max_source_tokens=0), 0, "max_source_tokens is missing"),
        (text(source_vocab_size=8), 0, "text.target_vocab_size, 9"),
    ],
)
def test_the_longest_question_and_answer_have_room(stated, num_places, fault):
    """Behind the picture's places in the caches, if it stands there; and the decoder takes each token of a question."""
    found = question_fault(stated, num_places)

    assert found is None if fault is None else fault in found


def in_encoder(*forms, image_id=5, **changes):
    """The same where an encoder reads the question: it takes no room in the caches."""
    spec = {"image_id": image_id, "forms": [dict(zip(("token", "text"), form, strict=True)) for form in forms]}
    return text(question=spec, **{"max_total_tokens": 8, **changes})


@pytest.mark.parametrize(
    ("stated", "num_places", "fault"),
    [
        (in_encoder(("<A>", "Say {input}."), ("<B>", "Say it.")), 0, None),
        (in_encoder(source_vocab_size=8), 0, None),
        (in_encoder(max_total_tokens=7), 0, "need 8"),
        (in_encoder(max_total_tokens=80), 20, "begin with no picture"),
        (in_encoder(image_id=9), 0, "image_id 9 is outside the source vocabulary"),
        (in_encoder(("<A>", "a"), ("<A>", "b")), 0, "has a token twice"),
        (in_encoder(("", "a")), 0, "without a token"),
        (in_encoder(("<A>", "")), 0, "without a token or a text"),
        (in_encoder(("<A>", "{input} {input}")), 0, "more than once"),
    ],
)
def test_what_an_encoder_is_asked_fits_it(stated, num_places, fault):
    """Its tokens and its forms; and caches begin with no picture there."""
    found = question_fault(stated, num_places)

    assert found is None if fault is None else fault in found


def test_a_form_is_the_sentence_that_its_token_stands_for():
    """Those that stand alone come first, whatever their order; braces of a question are no places."""
    stated = in_encoder(("<A>", "Say {input}."), ("<B>", "Say it."))

    assert "Say a {input} b." == asked_text(stated, "<A> a {input} b ")
    assert "Say it." == asked_text(stated, "<B>")
    assert "what?" == asked_text(stated, "what?")
    with pytest.raises(ValueError, match="must be '<B>' alone"):
        asked_text(stated, "<A><B>")


def test_a_picture_has_a_place_for_each_patch_and_class_token():
    """So many begin a cache that an encoder fills, and none another."""
    cache, memory = bundle_pb2.STATE_KIND_KV_CACHE, bundle_pb2.STATE_KIND_MEMORY
    states = [bundle_pb2.StateTensor(kind=cache), bundle_pb2.StateTensor(kind=memory, encoder_output="m")]

    assert 13 == picture_places(bundle_pb2.ImageSpec(num_class_tokens=1, grid_rows=3, grid_columns=4))
    assert not begins_filled(states)
    assert begins_filled([*states, bundle_pb2.StateTensor(kind=cache, encoder_output="c")])
