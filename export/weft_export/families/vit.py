"""Vision Transformer for classifying and embedding images ("An Image is Worth 16x16 Words", Dosovitskiy et al. 2021).

With distillation it is DeiT ("Training data-efficient image transformers & distillation through attention", Touvron et
al. 2021): a second token whose head learns from a teacher.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from weft_export.families.classifier import SCORINGS, SOFTMAX, Classifier
from weft_export.families.sizes import require_among, require_divisible, require_sizes
from weft_export.layers.encoder import Encoder
from weft_export.layers.explaining import Explanation, over_source, pick_flow
from weft_export.layers.feed_forward import ACTIVATIONS
from weft_export.layers.patches import PatchEmbedding
from weft_export.layers.pooling import FIRST, MEAN, mean_over_positions
from weft_export.layers.style import Style


@dataclass(frozen=True, kw_only=True)
class VitSizes:
    """Sizes; the papers' symbols stand beside them. Image sizes are in pixels."""

    channels: int  # C
    image_height: int  # H
    image_width: int  # W
    patch_size: int  # P
    d_model: int  # D
    num_heads: int  # h
    d_ff: int
    num_layers: int  # L
    dropout: float = 0.0  # in training only
    norm_eps: float = 1e-5
    activation: str = "gelu"  # of ACTIVATIONS
    qkv_bias: bool = True

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
class VitConfig(VitSizes):
    """A body under one head of num_labels, or under two."""

    num_labels: int
    distillation: bool = False  # DeiT's second token and head
    mean_of_logits: bool = False  # how distillation's two answers become one: see Vit.forward
    scoring: str = SOFTMAX  # of SCORINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("scoring", self.scoring, SCORINGS)
        if self.distillation and not self.mean_of_logits and self.scoring != SOFTMAX:
            raise ValueError("distillation adds probabilities that sum to 1: scoring needs mean_of_logits")


class VitBody(Classifier):
    """z_0 = [x_class; x_p E] + E_pos (eq. 1), and a pre-norm encoder (eqs. 2-4).

    With distillation, its token stands behind the class token.
    """

    def __init__(self, config: VitSizes, *, distillation: bool = False, num_registers: int = 0) -> None:
        super().__init__()
        self.config = config
        self.num_tokens = 1 + distillation + num_registers  # before the patches
        num_positions = config.grid[0] * config.grid[1] + self.num_tokens
        self.patches = PatchEmbedding(config.channels, config.patch_size, config.d_model)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.d_model))
        self.distillation_token = nn.Parameter(torch.zeros(1, 1, config.d_model)) if distillation else None
        self.registers = nn.Parameter(torch.randn(1, num_registers, config.d_model) * 0.02) if num_registers else None
        self.positions = nn.Parameter(torch.randn(num_positions, config.d_model) * 0.02)
        style = Style(norm_eps=config.norm_eps, activation=config.activation, qkv_bias=config.qkv_bias)
        self.encoder = Encoder(config.num_layers, config.d_model, config.num_heads, config.d_ff, config.dropout, style)
        self.attention_heads = (config.num_heads,) * config.num_layers

    def encoded(self, pixel_values: Tensor, num_read: int | None = None) -> Tensor:
        """Encode pixel_values [batch, channels, height, width]: [batch, positions, d_model], or the first num_read."""
        encoded: Tensor = self.encoder(self._embed(pixel_values), None, num_read)
        return encoded

    def flow(self, layer: Tensor, head: Tensor, *source: Tensor) -> Tensor:
        """Return what each position read of each, [positions, positions]: rolled out, or of one layer."""
        return pick_flow(self.encoder.attentions(self._embed(*source)), layer, head)

    def _embed(self, pixel_values: Tensor) -> Tensor:
        patches = self.patches(pixel_values)
        tokens = (self.class_token, self.distillation_token, self.registers)
        rows = [token.expand(patches.shape[0], -1, -1) for token in tokens if token is not None]
        return torch.cat((*rows, patches), dim=1) + self.positions


class Vit(VitBody):
    """The body, and a linear head on x_class.

    DeiT puts a distillation token behind the class token, with a head of its own (section 4).
    """

    config: VitConfig

    def __init__(self, config: VitConfig) -> None:
        super().__init__(config, distillation=config.distillation)
        self.head = nn.Linear(config.d_model, config.num_labels)
        if config.distillation:
            self.distillation_head = nn.Linear(config.d_model, config.num_labels)

    def forward(self, *source: Tensor) -> Tensor:
        """Return class logits [batch, labels] for pixel_values [batch, channels, height, width].

        With distillation they are the logarithm of the mean of both heads' softmax. This is the late fusion of the
        paper's section 4, which adds probabilities. With mean_of_logits they are the mean of both heads' logits, as in
        the authors' code.
        """
        logits = self.head_logits(*source)
        if len(logits) == 1:
            return logits[0]
        if self.config.mean_of_logits:
            return (logits[0] + logits[1]) / 2
        classified, distilled = (each.float().log_softmax(dim=-1) for each in logits)
        # log(p + q) is log p - log_softmax((log p, log q))[0]. There is no Log in it: ONNX Runtime's Log rounds a
        # row by its place in a batch.
        pair = torch.stack((classified, distilled), dim=-1)
        return classified - pair.log_softmax(dim=-1)[..., 0] - math.log(2)

    def head_logits(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        """Return the logits [batch, labels] of the class head, and of the distillation head if there is one.

        This is what is trained: the first against the true labels, the second against the teacher's.
        """
        encoded = self.encoded(pixel_values, self.num_tokens)
        if not self.config.distillation:
            return (self.head(encoded[:, 0]),)
        return self.head(encoded[:, 0]), self.distillation_head(encoded[:, 1])

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return the class token's row over the patches, [1, patches]: rolled out, or of one layer."""
        return over_source(self.flow(layer, head, *source)[:1, self.num_tokens :])


@dataclass(frozen=True, kw_only=True)
class VitEmbedderConfig(VitSizes):
    """A body. pooling: the vector of the class token, FIRST, or the MEAN of the patches'. normalized: of length 1.

    num_registers: so many further tokens stand before the patches ("Vision Transformers Need Registers", Darcet et al.
    2024). What is embedded does not read them. None: none.
    """

    pooling: str = FIRST
    normalized: bool = True
    num_registers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_among("pooling", self.pooling, (FIRST, MEAN))

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return self.d_model


class VitEmbedder(VitBody):
    """Turns a picture into a vector."""

    config: VitEmbedderConfig

    def __init__(self, config: VitEmbedderConfig) -> None:
        super().__init__(config, num_registers=config.num_registers or 0)

    def forward(self, *source: Tensor) -> Tensor:
        """Return vectors [batch, d_model] for pixel_values [batch, channels, height, width]."""
        (pixel_values,) = source
        if self.config.pooling == FIRST:
            pooled = self.encoded(pixel_values, num_read=1)[:, 0]
        else:
            pooled = mean_over_positions(self.encoded(pixel_values)[:, self.num_tokens :])
        # In float32 at any precision: squares of float16 overflow soon.
        return functional.normalize(pooled.float(), dim=-1) if self.config.normalized else pooled

    def explain(self, layer: Tensor, head: Tensor, *source: Tensor) -> Explanation:
        """Return over the patches, [1, patches], the row that is read: the class token's, or the mean of all."""
        flow = self.flow(layer, head, *source)[:, self.num_tokens :]
        read = flow[:1] if self.config.pooling == FIRST else flow[self.num_tokens :].mean(dim=0, keepdim=True)
        return over_source(read)
