"""How Transformer layers are built, beyond their sizes: where the norms stand, and what the parts are."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from weft_export.layers.feed_forward import FeedForward, GatedFeedForward
from weft_export.layers.norms import RmsNorm


@dataclass(frozen=True)
class Style:
    """The choices that papers differ in. The default is ViT's: pre-norm, GELU, biases (Dosovitskiy et al. 2021).

    post_norm: Norm(x + Sublayer(x)) (Vaswani et al. 2017) instead of x + Sublayer(Norm(x)).
    rms_norm: RMSNorm instead of LayerNorm, both with norm_eps.
    activation, gated: see FeedForward and GatedFeedForward.
    bias, scale, head_dim: see SelfAttention.
    """

    post_norm: bool = False
    rms_norm: bool = False
    norm_eps: float = 1e-5
    activation: str = "gelu"
    gated: bool = False
    bias: bool = True
    scale: float | None = None
    head_dim: int | None = None

    def norm(self, d_model: int) -> nn.Module:
        """Make the norm of a sublayer."""
        return RmsNorm(d_model, self.norm_eps) if self.rms_norm else nn.LayerNorm(d_model, self.norm_eps)

    def last_norm(self, d_model: int) -> nn.Module:
        """Make the norm after the last layer, which post-norm layers need not."""
        return nn.Identity() if self.post_norm else self.norm(d_model)

    def feed_forward(self, d_model: int, d_ff: int) -> nn.Module:
        """Make a position-wise network."""
        kind = GatedFeedForward if self.gated else FeedForward
        return kind(d_model, d_ff, activation=self.activation)

    @property
    def attention(self) -> dict[str, Any]:
        """The options of SelfAttention and CrossAttention."""
        return {"bias": self.bias, "scale": self.scale, "head_dim": self.head_dim}


DEFAULT_STYLE = Style()


class StyledLayer(nn.Module):
    """A layer whose sublayers each have a residual connection, dropout and a norm of their own."""

    def __init__(self, style: Style, dropout: float) -> None:
        super().__init__()
        self.post_norm = style.post_norm
        self.dropout = nn.Dropout(dropout)

    def before(self, norm: nn.Module, x: Tensor) -> Tensor:
        """Return what a sublayer is given."""
        given: Tensor = x if self.post_norm else norm(x)
        return given

    def after(self, norm: nn.Module, x: Tensor, out: Tensor) -> Tensor:
        """Add a sublayer's output to what it stands beside."""
        x = x + self.dropout(out)
        return norm(x) if self.post_norm else x
