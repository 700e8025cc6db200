"""How many blocks a paged cache has, and what a request may ask of it. What can never fit is refused at once."""

import pytest

from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.config import read_config
from weft_server.engine.paged.block_pool import PoolSize
from weft_server.errors import BundleError, InvalidRequest
from weft_server.loading.paged_lanes import block_bytes, pool_size
from weft_server.models.model import DecodingLimits
from weft_server.requests.decoding_config import resolve_decoding, verify_default

MAX_TOTAL, BLOCK_TOKENS = 100, 16
# Two states of bf16: keys and values of a layer.
BLOCK_BYTES = 2 * BLOCK_TOKENS * 2 * 4 * 2
MANIFEST = bundle_pb2.BundleManifest(
    task=common_pb2.TASK_GENERATE,
    files=[{"size_bytes": 1000}],
    states=[
        {
            "kind": bundle_pb2.STATE_KIND_PAGED_CACHE,
            "data_type": bundle_pb2.DATA_TYPE_BFLOAT16,
            "shape": [BLOCK_TOKENS, 2, 4],
        }
    ]
    * 2,
    text={"max_total_tokens": MAX_TOTAL, "max_new_tokens": MAX_TOTAL, "target_vocab_size": 20},
    decoding={"max_new_tokens": 8},
)


def size(num_blocks, num_lanes=1, **settings):
    """The pool of each lane of a server that gives so many blocks."""
    config = read_config(repository="models", cache_gb=num_blocks * BLOCK_BYTES / 1e9, **settings)
    return pool_size(MANIFEST, config, num_lanes)


def test_a_pool_has_what_it_is_given_and_no_more_than_slots_can_fill():
    """Seven blocks hold the longest sequence, so three slots never hold more than 21."""
    assert BLOCK_BYTES == block_bytes(MANIFEST)
    assert (12, BLOCK_TOKENS) == size(12.5, slots=3)
    assert 21 == size(500, slots=3).num_blocks
    # Of two lanes the larger one has two slots.
    assert 14 == size(500, 2, slots=3).num_blocks
    assert 7 == size(7.5).num_blocks


def test_a_model_whose_longest_sequence_never_fits_is_refused():
    """The sentence says how many tokens there is room for, and what is enough."""
    config = read_config(repository="models", cache_gb=6 * BLOCK_BYTES / 1e9)
    with pytest.raises(BundleError, match=r"holds 96 tokens, and a request may have 100: give 0\.001 or more"):
        pool_size(MANIFEST, config, 1)
    assert 7 <= pool_size(MANIFEST, read_config(repository="models", cache_gb=0.001), 1).num_blocks


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        # 40 tokens fill two blocks, which are shared, and each row holds four to its end.
        ({"num_outputs": 3, "sampling": {}, "max_new_tokens": 60}, r"num_outputs must be less, or .*: 3 times 60 new"),
        (
            {"beams": {"num_beams": 3}, "max_new_tokens": 60},
            r"beams\.num_beams must be less, .* behind 40 fill 17 blocks",
        ),
        ({"num_outputs": 3, "alternatives": {}, "max_new_tokens": 25}, None),
        ({"num_outputs": 2, "sampling": {}, "max_new_tokens": 60}, None),
        ({"max_new_tokens": 60}, None),
    ],
)
def test_rows_that_never_fit_together_are_refused(asked, refusal):
    """Even alone in the server they could not all come to their ends. The field and the numbers are named."""
    widths = DecodingLimits(4, 4, 16, PoolSize(12, BLOCK_TOKENS))

    def resolve():
        return resolve_decoding(common_pb2.Decoding(**asked), MANIFEST, widths, 40)

    if refusal is None:
        resolve()
    else:
        with pytest.raises(InvalidRequest, match=refusal):
            resolve()


def test_a_default_that_never_fits_refuses_the_model():
    """A request that asks for nothing is never the first to meet it."""
    wide = bundle_pb2.BundleManifest()
    wide.CopyFrom(MANIFEST)
    wide.decoding.CopyFrom(common_pb2.Decoding(max_new_tokens=100, beams={"num_beams": 4}))
    with pytest.raises(BundleError, match=r"4 times 99 new tokens behind 1 fill 28 blocks of the cache, which has 12"):
        verify_default(wide, DecodingLimits(4, 4, 16, PoolSize(12, BLOCK_TOKENS)))
