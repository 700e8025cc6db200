"""Tiles of a picture: what they become in the prompt that holds it, as TilingSpec says ("LLaVA-OneVision", Li 2024)."""

from math import isqrt

import torch
from torch import Tensor
from torch.nn import functional


def arranged(features: Tensor, arrangement: Tensor) -> Tensor:
    """Return the features of a picture [1, places, d_model], given those of its tiles [tiles, places, d_model].

    arrangement: of a Tiled, the grid, what is kept and what that becomes: int64 [8].
    """
    rows, columns, top, left, bottom, right, *pooled = arrangement.tolist()
    places, ends = features[:, :-1], features[0, -1:]
    side = isqrt(places.shape[1])
    laid = places[1:].reshape(rows, columns, side, side, -1)
    laid = laid.permute(0, 2, 1, 3, 4).flatten(2, 3).flatten(0, 1)[top:bottom, left:right]
    if list(laid.shape[:2]) != pooled:
        channels = laid.permute(2, 0, 1)[None]
        laid = functional.interpolate(channels, pooled, mode="bilinear")[0].permute(1, 2, 0)
    lines = torch.cat((laid, ends.expand(len(laid), 1, -1)), dim=1)
    return torch.cat((places[0], lines.flatten(0, 1)))[None]
