"""A decoder whose prompts may hold pictures: LLaVA ("Visual Instruction Tuning", Liu et al. 2023; version 1.5 of 2024).

CLIP's encoder sees a picture. A network of two layers brings what it gives to the width of the words. In the prompt,
these vectors stand where the words' would: no other part of the decoder knows of pictures.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.families.clip_vision import ClipTower, ClipTowerConfig
from weft_export.families.pictured_decoder import PicturedDecoder, PicturedDecoderConfig
from weft_export.families.sizes import require_among
from weft_export.layers.feed_forward import ACTIVATIONS


def check_reading(sight: Any) -> None:
    """Raise ValueError unless a tower has the layers that are read, and the projector's activation is known."""
    require_among("projector_activation", sight.projector_activation, tuple(ACTIVATIONS))
    if max(sight.feature_layers) > sight.num_layers:
        raise ValueError(f"model.feature_layers has {max(sight.feature_layers)}; there are {sight.num_layers} layers")


@dataclass(frozen=True, kw_only=True)
class SightConfig(ClipTowerConfig):
    """What sees a picture, and brings it to the width of the words.

    feature_layers: how many of the tower's layers a picture passes before its places are read. Of several numbers, the
        vectors of a place are put beside each other.
    class_token: whether the class token's place is read too, before those of the patches.
    projector_activation: of ACTIVATIONS.
    """

    feature_layers: tuple[int, ...]
    class_token: bool = False
    projector_activation: str = "gelu"
    projector_bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reading(self)
        if self.d_embedding is not None:
            raise ValueError("model.d_embedding is for a tower whose vectors are compared with those of texts")

    @property
    def num_class_tokens(self) -> int:
        """How many places of a picture are no patches."""
        return int(self.class_token)

    @property
    def num_places(self) -> int:
        """Places of a picture in a prompt."""
        return self.num_class_tokens + self.grid[0] * self.grid[1]


@dataclass(frozen=True, kw_only=True)
class LlavaConfig(PicturedDecoderConfig):
    """A decoder, and what sees pictures for it."""

    sight: SightConfig


class Projector(nn.Module):
    """f(x W1 + b1) W2 + b2, from the tower's width to that of the words."""

    def __init__(self, sight: Any, d_model: int) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[sight.projector_activation]
        self.linear_1 = nn.Linear(len(sight.feature_layers) * sight.d_model, d_model, bias=sight.projector_bias)
        self.linear_2 = nn.Linear(d_model, d_model, bias=sight.projector_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, places, width] to [batch, places, d_model]."""
        out: Tensor = self.linear_2(self.activation(self.linear_1(x)))
        return out


class Llava(PicturedDecoder):
    """CLIP's tower, or another one, and a projector."""

    config: LlavaConfig
    tower_class: type[Any] = ClipTower

    def __init__(self, config: LlavaConfig) -> None:
        super().__init__(config)
        self.tower = self.tower_class(config.sight)
        self.projector = Projector(config.sight, config.d_model)

    def see(self, pixel_values: Tensor) -> Tensor:
        """See Writer."""
        return self._read_tower(pixel_values, 0 if self.config.sight.class_token else 1)

    def _read_tower(self, pixel_values: Tensor, first: int = 0) -> Tensor:
        """Return what the projector makes of the tower's places from `first` on."""
        states = self.tower.hidden_states(pixel_values)
        read = [states[number][:, first:] for number in self.config.sight.feature_layers]
        features: Tensor = self.projector(torch.cat(read, dim=-1) if len(read) > 1 else read[0])
        return features
