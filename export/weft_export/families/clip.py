"""CLIP ("Learning Transferable Visual Models ...", Radford et al. 2021): pictures and texts as vectors of one space.

Its two towers are families of their own: `clip_embedder` and `text_embedder`. Labels come with a request.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.families.classifier import Classifier
from weft_export.families.clip_vision import ClipEmbedder, ClipEmbedderConfig
from weft_export.families.sizes import require_sizes
from weft_export.families.text_embedder import TextEmbedder, TextEmbedderConfig
from weft_export.layers.explaining import Explanation


@dataclass(frozen=True, kw_only=True)
class ClipConfig:
    """Both towers. Their vectors have one length in numbers, d_e, and are normalized."""

    pictures: ClipEmbedderConfig
    texts: TextEmbedderConfig

    def __post_init__(self) -> None:
        require_sizes(self)
        if self.pictures.dimensions != self.texts.dimensions:
            raise ValueError(
                f"model.texts gives {self.texts.dimensions} numbers, and model.pictures {self.pictures.dimensions}"
            )
        if not (self.pictures.normalized and self.texts.normalized):
            raise ValueError("model.pictures and model.texts must be normalized")

    @property
    def num_layers(self) -> int:
        """Of both towers."""
        return self.pictures.num_layers + self.texts.num_layers

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return self.pictures.dimensions

    @property
    def pooling(self) -> str:
        """That of the pictures."""
        return self.pictures.pooling

    @property
    def normalized(self) -> bool:
        """Vectors have the length 1."""
        return True


class Clip(Classifier):
    """Two towers, and the scale of what is between them."""

    picture_family: str = "clip_embedder"
    picture_tower: type[Classifier] = ClipEmbedder

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.config = config
        self.pictures = self.picture_tower(config.pictures)
        self.texts = TextEmbedder(config.texts)
        # t, of which the paper's temperature is exp(-t). It begins at 1 / 0.07 there.
        self.log_scale = nn.Parameter(torch.tensor(2.6592))
        self.attention_heads = self.pictures.attention_heads

    @property
    def towers(self) -> dict[str, Classifier]:
        """What embeds one kind of input, by its family: first pictures, then texts."""
        return {self.picture_family: self.pictures, "text_embedder": self.texts}

    @property
    def scale(self) -> float:
        """exp(t), which cosines are multiplied by."""
        return float(self.log_scale.detach().exp())

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [pictures, texts] for pixel_values [pictures, ...], input_ids [texts, seq] and lengths."""
        pixel_values, *text = source
        logits: Tensor = self.log_scale.exp() * self.pictures(pixel_values) @ self.texts(*text).t()
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return what the picture's vector was read from."""
        return self.pictures.explain(layer, head, *source)
