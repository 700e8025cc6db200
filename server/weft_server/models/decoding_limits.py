"""How many rows and candidates a request may ask a model for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weft_server.engine.pool_size import PoolSize


class DecodingLimits(NamedTuple):
    """How many rows a request may take, 0 where it may not at all, and how many candidates each row has.

    pool: the blocks that all rows of a request have to fit into, if the model's cache is paged.
    """

    max_beams: int
    max_outputs: int
    num_candidates: int
    pool: PoolSize | None = None
