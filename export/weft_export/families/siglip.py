"""SigLIP's image encoder ("Sigmoid Loss for Language Image Pre-Training", Zhai et al. 2023): labels, or vectors."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.families.classifier import SCORINGS, SIGMOID, SOFTMAX, Classifier
from weft_export.families.clip import Clip, ClipConfig
from weft_export.families.sizes import require_among, require_divisible, require_sizes
from weft_export.layers.attention_pooling import AttentionPooling
from weft_export.layers.encoder import Encoder
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.feed_forward import ACTIVATIONS
from weft_export.layers.patches import PatchEmbedding
from weft_export.layers.pooling import ATTENTION, mean_over_positions
from weft_export.layers.style import Style


@dataclass(frozen=True, kw_only=True)
class SiglipSizes:
    """Sizes. Image sizes are in pixels; what is left of a picture beside whole patches is not read."""

    channels: int
    image_height: int
    image_width: int
    patch_size: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    norm_eps: float = 1e-6
    activation: str = "gelu_tanh"  # of ACTIVATIONS

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("activation", self.activation, tuple(ACTIVATIONS))
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)
        if not all(self.grid):
            raise ValueError("patch_size is larger than the picture")

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.image_height // self.patch_size, self.image_width // self.patch_size


@dataclass(frozen=True, kw_only=True)
class MergedSightConfig:
    """What sees a picture, or a tile of it.

    cell: so many patches down and across become one place.
    """

    tower: SiglipSizes
    cell: int

    def __post_init__(self) -> None:
        require_sizes(self)
        for count in self.tower.grid:
            require_divisible("the patches of a side", count, "cell", self.cell)

    @property
    def channels(self) -> int:
        """Of a picture."""
        return self.tower.channels

    @property
    def image_height(self) -> int:
        """In pixels."""
        return self.tower.image_height

    @property
    def image_width(self) -> int:
        """In pixels."""
        return self.tower.image_width

    @property
    def grid(self) -> tuple[int, int]:
        """Places of a picture down and across."""
        return self.tower.grid[0] // self.cell, self.tower.grid[1] // self.cell

    @property
    def num_places(self) -> int:
        """Places of a picture in a prompt."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True, kw_only=True)
class SiglipVisionConfig(SiglipSizes):
    """An encoder under a head of num_labels. scoring: of SCORINGS."""

    num_labels: int
    scoring: str = SOFTMAX

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("scoring", self.scoring, SCORINGS)


@dataclass(frozen=True, kw_only=True)
class SiglipEmbedderConfig(SiglipSizes):
    """An encoder whose vector is what a learned query reads. normalized: vectors have the length 1."""

    normalized: bool = True

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return self.d_model

    @property
    def pooling(self) -> str:
        """A query attends to all patches."""
        return ATTENTION


class SiglipEncoder(Classifier):
    """Patches with learned positions, without a class token, and a pre-norm encoder."""

    def __init__(self, config: SiglipSizes) -> None:
        super().__init__()
        self.config = config
        self.style = Style(norm_eps=config.norm_eps, activation=config.activation)
        sizes = (config.d_model, config.num_heads, config.d_ff)
        self.patches = PatchEmbedding(config.channels, config.patch_size, config.d_model)
        self.positions = nn.Parameter(torch.randn(config.grid[0] * config.grid[1], config.d_model) * 0.02)
        self.encoder = Encoder(config.num_layers, *sizes, 0.0, self.style)
        self.attention_heads = (config.num_heads,) * config.num_layers

    def encoded(self, pixel_values: Tensor) -> Tensor:
        """Encode pixel_values [batch, channels, height, width]: [batch, patches, d_model]."""
        encoded: Tensor = self.encoder(self._embed(pixel_values), None)
        return encoded

    def flow(self, layer: Tensor, head: Tensor, *source: Tensor) -> Tensor:
        """Return what each patch read of each, [patches, patches]: rolled out, or of one layer."""
        return pick_flow(self.encoder.attentions(self._embed(*source)), layer, head)

    def _embed(self, pixel_values: Tensor) -> Tensor:
        height, width = (count * self.config.patch_size for count in self.config.grid)
        patches: Tensor = self.patches(pixel_values[:, :, :height, :width])
        return patches + self.positions


class SiglipTower(SiglipEncoder):
    """The encoder for who reads what is between its layers. There is no norm behind the last."""

    def __init__(self, config: SiglipSizes) -> None:
        super().__init__(config)
        self.encoder.norm = nn.Identity()

    def hidden_states(self, pixel_values: Tensor) -> list[Tensor]:
        """Return what goes into the first layer, and what comes out of each: [batch, patches, d_model]."""
        states = [self._embed(pixel_values)]
        for layer in self.encoder.layers:
            states.append(layer(states[-1], None))
        return states


class SiglipVision(SiglipEncoder):
    """A linear head on the mean of the patches."""

    def __init__(self, config: SiglipVisionConfig) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.d_model, config.num_labels)

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for pixel_values [batch, channels, height, width]."""
        logits: Tensor = self.head(mean_over_positions(self.encoded(*source)))
        return logits

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return the mean of the patches' rows over the patches, [1, patches]: rolled out, or of one layer."""
        return over_source(self.flow(layer, head, *source).mean(dim=0, keepdim=True))


class SiglipEmbedder(SiglipEncoder):
    """A picture's vector: what a learned query reads of its patches."""

    def __init__(self, config: SiglipEmbedderConfig) -> None:
        super().__init__(config)
        self.pooling = AttentionPooling(config.d_model, config.num_heads, config.d_ff, self.style)

    def forward(self, *source: Tensor) -> Tensor:
        """Return vectors [batch, d_model] for pixel_values [batch, channels, height, width]."""
        pooled = self.pooling(self.encoded(*source))
        # In float32 at any precision: squares of float16 overflow soon.
        return functional.normalize(pooled.float(), dim=-1) if self.config.normalized else pooled

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return over the patches, [1, patches], what the query read of them, through the layers or through one."""
        return over_source(self.pooling.weights(self.encoded(*source)) @ self.flow(layer, head, *source))


@dataclass(frozen=True, kw_only=True)
class SiglipConfig(ClipConfig):
    """Both towers, as CLIP's."""

    pictures: SiglipEmbedderConfig  # type: ignore[assignment]  # another tower of the same use


class Siglip(Clip):
    """Two towers, and the scale and the bias of what is between them. Each label is right or not by itself."""

    picture_family, picture_tower = "siglip_embedder", SiglipEmbedder

    def __init__(self, config: SiglipConfig) -> None:
        super().__init__(config)
        self.score_bias = nn.Parameter(torch.tensor(-10.0))  # b, which begins there in the paper

    @property
    def scoring(self) -> str:
        """The sigmoid of each logit (section 3.2)."""
        return SIGMOID

    @property
    def bias(self) -> float:
        """b, which is added to scaled cosines."""
        return float(self.score_bias.detach())

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [pictures, texts], as Clip does."""
        return super().forward(*source) + self.score_bias
