"""How many blocks the cache of a paged model has: what the settings give it, and no more than could be used."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft_proto.paging import block_tokens
from weft_proto.v1 import bundle_pb2
from weft_server.config import flag_name
from weft_server.engine.pool_size import PoolSize
from weft_server.errors import BundleError

if TYPE_CHECKING:
    from weft_server.config import ServerConfig

_GIGABYTE = 10**9
# Of the types that a paged cache may have. numpy has no bfloat16, so it cannot be asked.
_ITEM_BYTES = {bundle_pb2.DATA_TYPE_FLOAT32: 4, bundle_pb2.DATA_TYPE_FLOAT16: 2, bundle_pb2.DATA_TYPE_BFLOAT16: 2}


def pool_size(manifest: bundle_pb2.BundleManifest, config: ServerConfig, num_lanes: int) -> PoolSize:
    """Return the size of the pool of each of a model's lanes.

    Raises:
        BundleError: one sequence of the longest length would not fit. It could never be answered.
    """
    tokens = block_tokens(manifest.states)
    each = block_bytes(manifest)
    longest = -(-manifest.text.max_total_tokens // tokens)
    num_blocks = min(int(config.cache_gb * _GIGABYTE) // each, -(-config.slots // num_lanes) * longest)
    if num_blocks < longest:
        # Rounded up, so that what is named is enough.
        wanted = math.ceil(longest * each * 1000 / _GIGABYTE) / 1000
        raise BundleError(
            f"{flag_name('cache_gb')} {config.cache_gb:g} holds {num_blocks * tokens:,} tokens, and a request may have "
            f"{manifest.text.max_total_tokens:,}: give {wanted:g} or more"
        )
    return PoolSize(num_blocks, tokens)


def block_bytes(manifest: bundle_pb2.BundleManifest) -> int:
    """Return what a block takes, in all caches of a paged model together."""
    return sum(math.prod(state.shape) * _ITEM_BYTES[state.data_type] for state in manifest.states)
