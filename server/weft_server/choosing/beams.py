"""Beam search as transformers does it (GenerationMixin._beam_search), without arrays of a model."""

from __future__ import annotations


def num_kept(width: int, num_end_ids: int) -> int:
    """Return how many candidates a search of `width` beams looks at in a step, so that `width` of them can go on."""
    return max(2, 1 + num_end_ids) * width
