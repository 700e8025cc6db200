"""What a bundle may give a request that asks for nothing. What a request may ask for: see test_completion."""

import pytest

from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.errors import BundleError
from weft_server.serving.decoding import verify_default

TEXT = bundle_pb2.TextSpec(max_total_tokens=16, max_new_tokens=8)


def manifest(**sampling):
    """A manifest whose default draws tokens."""
    decoding = common_pb2.Decoding(max_new_tokens=8, sampling=common_pb2.Sampling(**sampling))
    return bundle_pb2.BundleManifest(text=TEXT, decoding=decoding)


def test_a_default_that_a_request_may_ask_for_is_taken():
    """Numbers in their ranges raise nothing."""
    verify_default(manifest(temperature=0.7, top_p=0.9))


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
        verify_default(manifest(**sampling))
