"""What a bundle may give a request that asks for nothing. What a request may ask for: see test_completion."""

import pytest

from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import BundleError, InvalidRequest
from weft_server.serving.decoding import Widths, resolve_decoding, verify_default

WIDTHS = Widths(max_beams=8, max_outputs=8)
TEXT = bundle_pb2.TextSpec(max_total_tokens=16, max_new_tokens=8)


def manifest(**sampling):
    """A manifest whose default draws tokens."""
    decoding = common_pb2.Decoding(max_new_tokens=8, sampling=common_pb2.Sampling(**sampling))
    return bundle_pb2.BundleManifest(text=TEXT, decoding=decoding)


def test_a_default_that_a_request_may_ask_for_is_taken():
    """Numbers in their ranges raise nothing."""
    verify_default(manifest(temperature=0.7, top_p=0.9), WIDTHS)


@pytest.mark.parametrize(
    ("sampling", "refusal"),
    [
        ({"temperature": float("nan")}, "decoding.sampling.temperature must be above 0"),
        ({"top_p": -1}, "decoding.sampling.top_p must be above 0"),
    ],
    ids=["temperature", "top_p"],
)
def test_a_default_that_no_request_may_ask_for_is_refused(sampling, refusal):
    """A request that asks for nothing is never the first to meet it."""
    with pytest.raises(BundleError, match=refusal):
        verify_default(manifest(**sampling), WIDTHS)


def test_a_least_length_may_be_a_models_default():
    """An empty request resolves to it. It gives way to what a request says: to a least length, and to fewer tokens."""
    decoding = common_pb2.Decoding(max_new_tokens=8, min_new_tokens=5)
    default = bundle_pb2.BundleManifest(text=TEXT, decoding=decoding)

    def resolved(**asked):
        found = resolve_decoding(common_pb2.Decoding(**asked), default, WIDTHS, 0)
        return found.max_new_tokens, found.min_new_tokens

    verify_default(default, WIDTHS)
    assert (8, 5) == resolved()
    assert (8, 0) == resolved(min_new_tokens=0)
    assert (6, 5) == resolved(max_new_tokens=6)
    assert (3, 3) == resolved(max_new_tokens=3)
    with pytest.raises(InvalidRequest, match=r"decoding\.min_new_tokens must be at most max_new_tokens, 3, not 4"):
        resolved(max_new_tokens=3, min_new_tokens=4)
