"""Texts of a kind that a model reads in its own way: queries, which may be filled up, and documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.errors import InvalidRequest
from weft_server.source import FilledIds

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2


def filled(ids: list[int], side: bundle_pb2.TextSide, field: str) -> FilledIds:
    """Return a text that is filled up as its side says. Raises InvalidRequest for one that is too long for it."""
    if len(ids) > side.max_tokens:
        why = f"is {len(ids)} tokens long; the model takes {side.max_tokens} of a {side.prompt_name!r:.40}"
        raise InvalidRequest(field, why, "INPUT_TOO_LONG")
    filling = [side.fill_id] * (side.fill_to - len(ids))
    whole = np.array([*ids, *filling], np.int64)
    num_seen = len(whole) if side.sees_filling else len(ids)
    return FilledIds(whole, num_seen, len(whole), tuple(side.skipped_ids))
