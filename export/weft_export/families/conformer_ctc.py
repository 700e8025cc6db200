"""Log-mel energies to a label for each moment: a Fast Conformer (Rekesh et al. 2023) under CTC, as Parakeet is."""

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from weft_export.families.classifier import Classifier
from weft_export.families.sizes import require_divisible, require_sizes
from weft_export.layers.conformer import ConformerLayer, offset_vectors
from weft_export.layers.style import Style

_KERNEL = 3


@dataclass(frozen=True, kw_only=True)
class ConformerCtcConfig:
    """Sizes and choices.

    num_labels: the blank's among them.
    num_frames: how many labels a window has at most.
    num_mels: energies of a moment.
    frame_size: how far apart two such moments are, in samples.
    num_halvings: convolutions that each halve moments and mels.
    convolution_width: their channels.
    convolution_kernel: of the convolution in each layer, in labels; odd.
    convolution_bias: the products around that one have biases.
    scale_input: what layers read is multiplied by sqrt(d_model).
    style: of the layers.
    """

    num_labels: int
    num_frames: int
    num_mels: int
    frame_size: int
    num_halvings: int
    convolution_width: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    convolution_kernel: int
    convolution_bias: bool = True
    scale_input: bool = True
    style: Style = field(default_factory=Style)
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)
        require_divisible("d_model", self.d_model, "a sine and a cosine", 2)
        require_divisible("num_mels", self.num_mels, "what num_halvings leave one of", 2**self.num_halvings)
        if self.convolution_kernel % 2 == 0:
            raise ValueError(f"model.convolution_kernel must be odd, not {self.convolution_kernel}")

    @property
    def hop_size(self) -> int:
        """How far apart two labels are, in samples."""
        return self.frame_size << self.num_halvings

    @property
    def min_samples(self) -> int:
        """How many samples a label is made of at least: one moment."""
        return self.frame_size


class ConformerCtc(Classifier):
    """Convolutions that halve energies, a Conformer over what is left, one linear layer to the labels.

    A row has no padding.
    """

    offsets: Tensor

    def __init__(self, config: ConformerCtcConfig) -> None:
        super().__init__()
        self.config = config
        width = config.convolution_width
        self.convolutions = nn.ModuleList(Halving(width, is_first=index == 0) for index in range(config.num_halvings))
        self.projection = nn.Linear(width * (config.num_mels >> config.num_halvings), config.d_model)
        sizes = (config.d_model, config.num_heads, config.d_ff, config.convolution_kernel, config.style)
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(
            ConformerLayer(*sizes, bias=config.convolution_bias) for _ in range(config.num_layers)
        )
        self.labels = nn.Linear(config.d_model, config.num_labels)
        self.register_buffer("offsets", offset_vectors(config.num_frames, config.d_model), persistent=False)

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [batch, labels' moments, labels] of (energies [batch, frames, mels],)."""
        (energies,) = source
        x = energies[:, None].to(self.offsets.dtype)
        for convolution in self.convolutions:
            x = convolution(x)
        x = self.projection(x.transpose(1, 2).flatten(2))
        if self.config.scale_input:
            x = x * math.sqrt(self.config.d_model)
        seq, most = x.shape[1], self.config.num_frames
        offsets = self.offsets[most - seq : most + seq - 1]
        for layer in self.layers:
            x = layer(x, offsets)
        logits: Tensor = self.labels(x)
        return logits


class Halving(nn.Module):
    """A convolution of stride 2 both ways, then a ReLU. All but the first convolve each channel by itself, then mix."""

    def __init__(self, width: int, *, is_first: bool) -> None:
        super().__init__()
        channels, groups = (1, 1) if is_first else (width, width)
        self.convolution = nn.Conv2d(channels, width, _KERNEL, 2, padding=_KERNEL // 2, groups=groups)
        self.mixing = nn.Identity() if is_first else nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, frames, mels] to [batch, width, frames / 2, mels / 2], rounded up."""
        return functional.relu(self.mixing(self.convolution(x)))
