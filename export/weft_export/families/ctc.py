"""Speech to a label for each moment: wav2vec 2.0 (Baevski et al. 2020) and HuBERT (Hsu et al. 2021) under CTC.

"Connectionist Temporal Classification" (Graves et al. 2006): one of the labels is a blank, and what is said is what is
left when repeated labels are one, and blanks are none.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from weft_export.families.classifier import Classifier
from weft_export.families.sizes import require_among, require_divisible, require_sizes
from weft_export.layers.encoder import Encoder
from weft_export.layers.feed_forward import ACTIVATIONS
from weft_export.layers.style import Style

GROUP, LAYER = "group", "layer"
_NORMS = (GROUP, LAYER)


@dataclass(frozen=True, kw_only=True)
class CtcConfig:
    """Sizes and choices. Kernels and strides are in samples of what a convolution reads.

    num_frames: how many labels a window has at most.
    convolution_widths, convolution_kernels, convolution_strides: of the convolutions over the sound, in their order.
    convolution_norm: "group": each channel of the first one is normed over the whole sound. "layer": the channels of
        each moment are normed, behind every convolution.
    projection_norm: what the convolutions give is normed before it is brought to d_model.
    position_kernel, position_groups: of the convolution that says where a moment stands.
    style: of the encoder. Post-norm layers have a norm before the first.
    """

    num_labels: int
    num_frames: int
    convolution_widths: tuple[int, ...]
    convolution_kernels: tuple[int, ...]
    convolution_strides: tuple[int, ...]
    convolution_norm: str = GROUP
    convolution_bias: bool = False
    convolution_activation: str = "gelu"
    projection_norm: bool = True
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    position_kernel: int
    position_groups: int
    style: Style = field(default_factory=lambda: Style(residual="post"))
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        require_among("convolution_norm", self.convolution_norm, _NORMS)
        require_among("convolution_activation", self.convolution_activation, tuple(ACTIVATIONS))
        require_among("style.residual", self.style.residual, ("pre", "post"))
        require_divisible("d_model", self.d_model, "num_heads", self.num_heads)
        require_divisible("d_model", self.d_model, "position_groups", self.position_groups)
        counts = {len(self.convolution_widths), len(self.convolution_kernels), len(self.convolution_strides)}
        if len(counts) > 1:
            raise ValueError("convolution_widths, _kernels and _strides must have one number for each convolution")

    @property
    def hop_size(self) -> int:
        """How far apart two labels are, in samples."""
        return math.prod(self.convolution_strides)

    @property
    def min_samples(self) -> int:
        """How many samples a label is made of, positions and attention aside. Of fewer there is none."""
        return samples_of_one(self.convolution_kernels, self.convolution_strides)


def samples_of_one(kernels: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return how many samples one output of convolutions over a sound is made of, positions and attention aside."""
    samples = 1
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        samples = (samples - 1) * stride + kernel
    return samples


class Ctc(Classifier):
    """Convolutions over the sound, an encoder over their outputs, one linear layer to the labels.

    A row has no padding: what is normed over time, or attended to, is the whole row.
    """

    def __init__(self, config: CtcConfig) -> None:
        super().__init__()
        self.config = config
        last = config.convolution_widths[-1]
        steps = enumerate(zip(config.convolution_kernels, config.convolution_strides, strict=True))
        widths = (1, *config.convolution_widths)
        self.convolutions = nn.ModuleList(
            Listening(config, widths[index], widths[index + 1], kernel, stride, is_first=index == 0)
            for index, (kernel, stride) in steps
        )
        self.projection_norm = config.style.plain_norm(last) if config.projection_norm else nn.Identity()
        self.projection = nn.Linear(last, config.d_model)
        self.positions = Position(config)
        is_post = config.style.residual == "post"
        self.norm = config.style.plain_norm(config.d_model) if is_post else nn.Identity()
        sizes = (config.d_model, config.num_heads, config.d_ff, config.dropout, config.style)
        self.encoder = Encoder(config.num_layers, *sizes)
        self.labels = nn.Linear(config.d_model, config.num_labels)

    def forward(self, *source: Tensor) -> Tensor:
        """Return logits [batch, frames, labels] of (waveform [batch, samples],)."""
        (waveform,) = source
        x = waveform[:, None].to(self.positions.convolution.weight.dtype)
        for convolution in self.convolutions:
            x = convolution(x)
        x = self.projection(self.projection_norm(x.transpose(1, 2)))
        x = self.norm(x + self.positions(x))
        logits: Tensor = self.labels(self.encoder(x, None))
        return logits


class Listening(nn.Module):
    """One convolution over a sound, perhaps a norm, and an activation."""

    def __init__(
        self, config: CtcConfig, channels: int, width: int, kernel: int, stride: int, *, is_first: bool
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(channels, width, kernel, stride, bias=config.convolution_bias)
        self.by_moment = config.convolution_norm == LAYER
        norm: Any = nn.Identity()
        if self.by_moment:
            norm = nn.LayerNorm(width)
        elif is_first:
            norm = nn.GroupNorm(width, width)
        self.norm = norm
        self.activation = ACTIVATIONS[config.convolution_activation]

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, channels, samples] to [batch, width, fewer samples]."""
        x = self.convolution(x)
        x = self.norm(x.transpose(1, 2)).transpose(1, 2) if self.by_moment else self.norm(x)
        return self.activation(x)


class Position(nn.Module):
    """A convolution whose output tells where in a sound a moment is, by what is around it."""

    def __init__(self, config: CtcConfig) -> None:
        super().__init__()
        kernel = config.position_kernel
        self.convolution = nn.Conv1d(
            config.d_model, config.d_model, kernel, padding=kernel // 2, groups=config.position_groups
        )
        self.activation = ACTIVATIONS[config.convolution_activation]

    def forward(self, x: Tensor) -> Tensor:
        """Map x [batch, frames, d_model] to the same shape."""
        # An even kernel gives one output more than there are inputs.
        out = self.convolution(x.transpose(1, 2))[..., : x.shape[1]]
        return self.activation(out).transpose(1, 2)
