"""Vision Transformer for image classification ("An Image is Worth 16x16 Words", Dosovitskiy et al. 2021)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.classifier import Classifier
from weft_export.encoder import Encoder
from weft_export.explaining import Explanation, over_source, pick_flow
from weft_export.families.sizes import require_divisible, require_fraction, require_positive
from weft_export.vision import PatchEmbedding


@dataclass(frozen=True)
class VitConfig:
    """Sizes; the papers' symbols stand beside them. Image sizes are in pixels."""

    num_labels: int
    channels: int  # C
    image_height: int  # H
    image_width: int  # W
    patch_size: int  # P
    d_model: int  # D
    num_heads: int  # h
    d_ff: int
    num_layers: int  # L
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_positive(**{name: size for name, size in vars(self).items() if name != "dropout"})
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)
        require_divisible("image_height", self.image_height, "patch_size", self.patch_size)
        require_divisible("image_width", self.image_width, "patch_size", self.patch_size)
        require_fraction("dropout", self.dropout)

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.image_height // self.patch_size, self.image_width // self.patch_size


class Vit(Classifier):
    """z_0 = [x_class; x_p E] + E_pos (eq. 1), a pre-norm encoder (eqs. 2-4), and a linear head on x_class."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = config
        side = config.patch_size
        num_positions = config.grid[0] * config.grid[1] + 1
        self.patches = PatchEmbedding(config.channels, side, config.d_model)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.d_model))
        self.positions = nn.Parameter(torch.randn(num_positions, config.d_model) * 0.02)
        self.encoder = Encoder(config.num_layers, config.d_model, config.num_heads, config.d_ff, config.dropout)
        self.head = nn.Linear(config.d_model, config.num_labels)
        self.attention_heads = (config.num_heads,) * config.num_layers

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for pixel_values [batch, channels, height, width]."""
        logits: Tensor = self.head(self.encoder(self._embed(*source), None)[:, 0])
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return the class token's row over the patches, [1, patches]: rolled out, or of one layer."""
        flow = pick_flow(self.encoder.attentions(self._embed(*source)), layer, head)
        return over_source(flow[:1, 1:])

    def _embed(self, pixel_values: Tensor) -> Tensor:
        patches = self.patches(pixel_values)
        return torch.cat((self.class_token.expand(patches.shape[0], -1, -1), patches), dim=1) + self.positions
