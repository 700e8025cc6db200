"""What a golden request holds, by the kind of its model."""

import pytest
from tiny import CHECKPOINTS

from weft_export.errors import CheckpointError
from weft_export.verification.golden import GoldenRequest
from weft_export.verification.golden_inputs import parts_of
from weft_proto.v1 import bundle_pb2

FP32 = bundle_pb2.PRECISION_FP32


def test_masks_have_the_best_token_of_each_and_its_score():
    """The request stands beside them, as it was."""
    checkpoint = CHECKPOINTS["tiny-masks"]()
    golden = GoldenRequest(checkpoint, FP32).answer()
    assert checkpoint.golden.text == golden.text
    assert len(golden.token_ids) == len(golden.scores) > 0
    assert max(golden.token_ids) < checkpoint.text.source_vocab_size


def test_a_part_of_a_text_is_asked_as_the_whole_was():
    """In the same language, and of a question about a picture that very picture: only the words are fewer."""
    checkpoint = CHECKPOINTS["tiny-translate"]()
    checkpoint.golden.target_language = "es"
    parts = parts_of(checkpoint)
    assert len(parts) > 1
    assert {"es"} == {part.target_language for part in parts}
    assert all(part.text in checkpoint.golden.text for part in parts)
    assert checkpoint.golden.text not in {part.text for part in parts}


@pytest.mark.parametrize(
    ("question", "why"), [("  ", "golden.question is blank"), ("a" * 9999, "golden.question has 9999 characters")]
)
def test_a_question_that_no_server_takes_is_named(question, why):
    """By its field: the picture beside it is good."""
    checkpoint = CHECKPOINTS["tiny-llava"]()
    checkpoint.golden.question = question
    with pytest.raises(CheckpointError, match=why):
        GoldenRequest(checkpoint, FP32).answer()
