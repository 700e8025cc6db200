"""BEiT for image classification ("BEiT: BERT Pre-Training of Image Transformers", Bao et al. 2022)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.families.classifier import SCORINGS, SOFTMAX, Classifier
from weft_export.families.sizes import require_among, require_divisible, require_sizes
from weft_export.layers.encoder import EncoderLayer
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.feed_forward import ACTIVATIONS
from weft_export.layers.grid_positions import ClassGridBias
from weft_export.layers.patches import PatchEmbedding
from weft_export.layers.pooling import mean_over_positions
from weft_export.layers.style import Style


@dataclass(frozen=True)
class BeitConfig:
    """Sizes; the papers' symbols stand beside them. Image sizes are in pixels."""

    num_labels: int
    channels: int  # C
    image_height: int  # H
    image_width: int  # W
    patch_size: int  # P
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int  # L
    mean_pooling: bool = True  # the head reads the mean of the patches, and not the class token
    layer_biases: bool = True  # each layer has relative biases of its own
    shared_biases: bool = False  # all layers have the same ones, beside their own if they have these too
    absolute_positions: bool = False
    norm_eps: float = 1e-12
    activation: str = "gelu"  # of ACTIVATIONS
    scoring: str = SOFTMAX  # of SCORINGS

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("scoring", self.scoring, SCORINGS)
        require_among("activation", self.activation, tuple(ACTIVATIONS))
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)
        require_divisible("image_height", self.image_height, "patch_size", self.patch_size)
        require_divisible("image_width", self.image_width, "patch_size", self.patch_size)

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.image_height // self.patch_size, self.image_width // self.patch_size


class Beit(Classifier):
    """A class token and patches, pre-norm layers with a bias for each offset, and a linear head.

    Layer scale is part of the weights of each sublayer's last product.
    """

    def __init__(self, config: BeitConfig) -> None:
        super().__init__()
        self.config = config
        width, eps = config.d_model, config.norm_eps
        style = Style(norm_eps=eps, activation=config.activation)
        self.patches = PatchEmbedding(config.channels, config.patch_size, width)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        if config.absolute_positions:
            self.positions = nn.Parameter(torch.randn(1 + config.grid[0] * config.grid[1], width) * 0.02)
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(
            EncoderLayer(width, config.num_heads, config.d_ff, 0.0, style) for _ in range(config.num_layers)
        )
        if config.layer_biases:
            self.biases: Any = nn.ModuleList(
                ClassGridBias(*config.grid, config.num_heads) for _ in range(config.num_layers)
            )
        if config.shared_biases:
            self.shared_bias = ClassGridBias(*config.grid, config.num_heads)
        self.norm = nn.LayerNorm(width, eps)
        self.head = nn.Linear(width, config.num_labels)
        self.attention_heads = (config.num_heads,) * config.num_layers

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for pixel_values [batch, channels, height, width]."""
        x = self._embed(*source)
        for layer, bias in zip(self.layers, self._biases(), strict=True):
            x = layer(x, None, bias)
        pooled = mean_over_positions(x[:, 1:]) if self.config.mean_pooling else x[:, 0]
        logits: Tensor = self.head(self.norm(pooled))
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return over the patches, [1, patches], the row that the head reads: the mean of all, or the class token's.

        It is rolled out, or of one layer.
        """
        x = self._embed(*source)
        everything = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        attentions = []
        for each, bias in zip(self.layers, self._biases(), strict=True):
            attentions.append(each.weights(x, everything, bias))
            x = each(x, None, bias)
        flow = pick_flow(attentions, layer, head)[:, 1:]
        return over_source(flow[1:].mean(dim=0, keepdim=True) if self.config.mean_pooling else flow[:1])

    def _embed(self, pixel_values: Tensor) -> Tensor:
        patches = self.patches(pixel_values)
        embedded = torch.cat((self.class_token.expand(patches.shape[0], -1, -1), patches), dim=1)
        return embedded + self.positions if self.config.absolute_positions else embedded

    def _biases(self) -> list[Tensor | None]:
        """Return the bias of each layer, [1, h, 1 + patches, 1 + patches]."""
        shared = self.shared_bias() if self.config.shared_biases else None
        if not self.config.layer_biases:
            return [shared] * len(self.layers)
        own = [bias() for bias in self.biases]
        return own if shared is None else [bias + shared for bias in own]
