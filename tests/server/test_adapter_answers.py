"""What an adapter must answer before it is used: of the kind and of the size that its base answers."""

import pytest

from drafts import classify_text, embed_text, extract, fill_mask, tag
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.adapter import verify_golden
from weft_server.errors import BundleError

# A draft of a base, the field of its answer, the numbers of one row, and whether a text may have other rows.
ANSWERS = [
    pytest.param(classify_text, "probabilities", 3, False, id="classify_text"),
    pytest.param(tag, "probabilities", 3, True, id="tag"),
    pytest.param(extract, "scores", 2, True, id="extract"),
    pytest.param(fill_mask, "token_ids", 1, True, id="fill_mask"),
    pytest.param(embed_text, "embedding", 3, False, id="embed_text"),
]


@pytest.mark.parametrize(("make", "name", "width", "has_rows"), ANSWERS)
def test_an_adapter_may_be_tried_with_another_text(tmp_path, make, name, width, has_rows):
    """Its answer may have other rows than the base's where a text has rows. Any other size or kind is refused."""
    base = make(tmp_path / "tiny" / "1").manifest
    verify_golden(base.golden, base)
    scores = {"scores": [-1.0] * 3} if make is fill_mask else {}

    def refusal(**answer):
        try:
            verify_golden(bundle_pb2.Golden(text="hello", **answer), base)
        except BundleError as error:
            return str(error)
        return ""

    other_size = f"golden.{name} is missing, or has another size than the base's"
    assert ("" if has_rows else other_size) == refusal(**{**scores, name: [1] * (3 * width)})
    assert other_size == refusal(**{**scores, name: [1] * (3 * width + 1)})
    assert other_size == refusal(**{key: value for key, value in scores.items() if key != name})
    other = "probabilities" if name == "embedding" else "embedding"
    assert other_size == refusal(**{**scores, name: list(getattr(base.golden, name)), other: [1.0]})


def test_its_tokens_are_those_of_the_base(tmp_path):
    """Of a model that fills masks they are of the vocabulary of its texts."""
    base = fill_mask(tmp_path / "tiny" / "1").manifest
    with pytest.raises(BundleError, match="or none of its tokens"):
        verify_golden(bundle_pb2.Golden(text="hello", token_ids=[1, 20], scores=[-1, -2]), base)
