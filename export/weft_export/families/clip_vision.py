"""CLIP's image encoder ("Learning Transferable Visual Models ...", Radford et al. 2021): fixed labels, or vectors."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.families.classifier import SCORINGS, SOFTMAX, Classifier
from weft_export.families.sizes import require_among, require_divisible, require_sizes
from weft_export.layers.encoder import EncoderLayer
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.feed_forward import ACTIVATIONS
from weft_export.layers.patches import PatchEmbedding
from weft_export.layers.pooling import mean_over_positions
from weft_export.layers.style import Style


@dataclass(frozen=True, kw_only=True)
class ClipTowerConfig:
    """Sizes; the papers' symbols stand beside them. Image sizes are in pixels."""

    channels: int
    image_height: int
    image_width: int
    patch_size: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    d_embedding: int | None = None  # d_e, of the space that pictures and texts share; none: a plain linear head
    norm_eps: float = 1e-5
    activation: str = "quick_gelu"  # of ACTIVATIONS

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("activation", self.activation, tuple(ACTIVATIONS))
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)
        require_divisible("image_height", self.image_height, "patch_size", self.patch_size)
        require_divisible("image_width", self.image_width, "patch_size", self.patch_size)

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.image_height // self.patch_size, self.image_width // self.patch_size


@dataclass(frozen=True, kw_only=True)
class ClipVisionConfig(ClipTowerConfig):
    """A tower under a head of num_labels. scoring: of SCORINGS."""

    num_labels: int
    scoring: str = SOFTMAX

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("scoring", self.scoring, SCORINGS)


@dataclass(frozen=True, kw_only=True)
class ClipEmbedderConfig(ClipTowerConfig):
    """A tower alone; d_embedding is required. normalized: vectors have the length 1."""

    normalized: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_embedding is None:
            raise ValueError("model.d_embedding is missing")

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        assert self.d_embedding is not None
        return self.d_embedding

    @property
    def pooling(self) -> str:
        """The class token's vector is read, which is the first."""
        return "first"


class ClipTower(Classifier):
    """A Vision Transformer with a norm before its layers."""

    def __init__(self, config: ClipTowerConfig) -> None:
        super().__init__()
        self.config = config
        width, eps = config.d_model, config.norm_eps
        style = Style(norm_eps=eps, activation=config.activation)
        self.patches = PatchEmbedding(config.channels, config.patch_size, width)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1 + config.grid[0] * config.grid[1], width) * 0.02)
        self.first_norm = nn.LayerNorm(width, eps)
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(
            EncoderLayer(width, config.num_heads, config.d_ff, 0.0, style) for _ in range(config.num_layers)
        )
        if config.d_embedding is not None:
            self.norm = nn.LayerNorm(width, eps)
            self.projection = nn.Linear(width, config.d_embedding, bias=False)  # W_i
        self.attention_heads = (config.num_heads,) * config.num_layers

    def pooled(self, pixel_values: Tensor) -> Tensor:
        """Return x_class W_i [batch, d_embedding] for pixel_values [batch, channels, height, width].

        Without d_embedding, it is the mean of the patches, [batch, d_model].
        """
        x = self.hidden_states(pixel_values)[-1]
        if self.config.d_embedding is None:
            return mean_over_positions(x[:, 1:])
        projected: Tensor = self.projection(self.norm(x[:, 0]))
        return projected

    def hidden_states(self, pixel_values: Tensor) -> list[Tensor]:
        """Return what goes into the first layer, and what comes out of each: [batch, 1 + patches, d_model]."""
        states = [self._embed(pixel_values)]
        for layer in self.layers:
            states.append(layer(states[-1], None))
        return states

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return over the patches, [1, patches], the row that is read: the class token's, or the mean of all.

        It is rolled out, or of one layer.
        """
        x = self._embed(*source)
        everything = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        attentions = []
        for each in self.layers:
            attentions.append(each.weights(x, everything))
            x = each(x, None)
        flow = pick_flow(attentions, layer, head)[:, 1:]
        return over_source(flow[1:].mean(dim=0, keepdim=True) if self.config.d_embedding is None else flow[:1])

    def _embed(self, pixel_values: Tensor) -> Tensor:
        patches = self.patches(pixel_values)
        embedded = torch.cat((self.class_token.expand(patches.shape[0], -1, -1), patches), dim=1) + self.positions
        normed: Tensor = self.first_norm(embedded)
        return normed


class ClipVision(ClipTower):
    """The tower under one of two heads.

    - With d_embedding: logits = exp(t) W_t (x_class W_i / |x_class W_i|) (the paper's figure 3). Each label is a text,
      and its row of `head` is exp(t) times the text's vector of length 1. This is zero-shot classification.
    - Without: a linear head on the mean of the patches, which was trained for its labels.
    """

    def __init__(self, config: ClipVisionConfig) -> None:
        super().__init__(config)
        has_own = config.d_embedding is None
        self.head = nn.Linear(config.d_embedding or config.d_model, config.num_labels, bias=has_own)

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for pixel_values [batch, channels, height, width]."""
        pooled = self.pooled(*source)
        if self.config.d_embedding is not None:
            # CUDA has no such norm in bf16.
            pooled = functional.normalize(pooled.float(), dim=-1).to(pooled.dtype)
        logits: Tensor = self.head(pooled)
        return logits


class ClipEmbedder(ClipTower):
    """The tower's own vector of a picture."""

    def forward(self, *source: Tensor) -> Tensor:
        """Return vectors [batch, d_embedding] for pixel_values [batch, channels, height, width]."""
        pooled = self.pooled(*source)
        # In float32 at any precision: squares of float16 overflow soon.
        return functional.normalize(pooled.float(), dim=-1) if self.config.normalized else pooled
