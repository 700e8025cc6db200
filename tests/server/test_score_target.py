"""The answer that a request wants scored: text or ids, not empty, and no longer than the model may answer."""

from types import SimpleNamespace

import pytest

from weft_proto.v1 import bundle_pb2, common_pb2, score_pb2
from weft_server.errors import InvalidRequest
from weft_server.requests.score import MAX_CHARS_PER_TOKEN, target_of

TEXT = bundle_pb2.TextSpec(target_vocab_size=9, max_new_tokens=3, max_total_tokens=5)
MODEL = SimpleNamespace(manifest=bundle_pb2.BundleManifest(task=common_pb2.TASK_TRANSLATE, text=TEXT))


@pytest.mark.parametrize(
    ("target", "field", "reason"),
    [
        ({}, "target", "EMPTY_INPUT"),
        ({"target_text": ""}, "target_text", "EMPTY_INPUT"),
        ({"target_text": "a" * (3 * MAX_CHARS_PER_TOKEN + 1)}, "target_text", "INPUT_TOO_LONG"),
        ({"target_ids": {}}, "target_ids.ids", "EMPTY_INPUT"),
        ({"target_ids": {"ids": [1, 2, 3, 4]}}, "target_ids.ids", "INPUT_TOO_LONG"),
        ({"target_ids": {"ids": [9]}}, "target_ids.ids[0]", "TOKEN_OUT_OF_RANGE"),
    ],
    ids=["none", "no text", "long text", "no ids", "many ids", "no token"],
)
def test_a_target_that_no_model_gives_is_refused_by_its_field(target, field, reason):
    """Before its source is read."""
    with pytest.raises(InvalidRequest) as refused:
        target_of(MODEL, score_pb2.ScoreRequest(**target), ())
    assert (field, reason) == (refused.value.field, refused.value.reason)


def test_ids_have_the_room_that_a_prefix_leaves():
    """A target of an encoder's model stands behind what its decoder is fed first."""
    request = score_pb2.ScoreRequest(target_ids={"ids": [1, 2, 3]})
    source = SimpleNamespace(num_tokens=99)
    assert [1, 2, 3] == target_of(MODEL, request, (7, 7))(source)
    with pytest.raises(InvalidRequest, match="is 3 tokens long; the model gives at most 2"):
        target_of(MODEL, request, (7, 7, 7))(source)
