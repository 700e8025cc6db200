"""How Transformer layers are built, beyond their sizes: where the norms stand, and what the parts are."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.layers.experts import Experts
from weft_export.layers.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward

RESIDUALS = ("pre", "post", "parallel", "sandwich", "inner_post")


@dataclass(frozen=True)
class Style:
    """The choices that papers differ in. The default is ViT's: pre-norm, GELU, biases (Dosovitskiy et al. 2021).

    residual: how a sublayer f, its norm N and what it stands beside come together.
        "pre": x + f(N(x)).
        "post": N(x + f(x)), as Vaswani et al. 2017.
        "parallel": x + attention(N1(x)) + feed_forward(N2(x)), as GPT-NeoX (Black et al. 2022).
        "sandwich": x + N2(f(N1(x))), as Gemma 2.
        "inner_post": x + N(f(x)), as Swin V2 (Liu et al. 2022).
    rms_norm: RMSNorm instead of LayerNorm, both with norm_eps.
    norm_bias: LayerNorm has a bias. RMSNorm never has one.
    activation, gated: see FeedForward and GatedFeedForward.
    bias: linear layers have one. qkv_bias, output_bias (of an attention) and feed_forward_bias may say otherwise.
    scale, head_dim, softcap: see SelfAttention.
    qk_norm: queries and keys pass an RMSNorm with norm_eps; whole_qk_norm: see SelfAttention.
    gate_limit: see GatedFeedForward.
    num_experts, num_chosen_experts, normed_experts: see Experts, whose each is such a network. None: there is one.
    router_bias: the scores of experts have one.
    d_shared: beside the experts stands a network of this width, which every token passes. None: none does.
    residual_scale: what a sublayer adds is multiplied by it, as in Granite.
    """

    residual: str = "pre"
    rms_norm: bool = False
    norm_eps: float = 1e-5
    norm_bias: bool = True
    activation: str = "gelu"
    gated: bool = False
    bias: bool = True
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    feed_forward_bias: bool | None = None
    scale: float | None = None
    head_dim: int | None = None
    softcap: float | None = None
    qk_norm: bool = False
    whole_qk_norm: bool = False
    residual_scale: float = 1.0
    num_experts: int | None = None
    num_chosen_experts: int | None = None
    normed_experts: bool = True
    router_bias: bool = False
    d_shared: int | None = None
    gate_limit: float | None = None

    def __post_init__(self) -> None:
        """Raise ValueError when a word is none that is known."""
        for name, value, known in (
            ("residual", self.residual, RESIDUALS),
            ("activation", self.activation, tuple(ACTIVATIONS)),
        ):
            if value not in known:
                raise ValueError(f"style.{name} must be one of {', '.join(known)}, not {value!r}")
        if (self.num_experts is None) != (self.num_chosen_experts is None):
            raise ValueError("style.num_experts and style.num_chosen_experts stand together, or neither does")
        if self.num_experts is None and not self.normed_experts:
            raise ValueError("style.normed_experts is of a mixture: it stands with style.num_experts")
        if self.num_experts is None and self.router_bias:
            raise ValueError("style.router_bias is of a mixture: it stands with style.num_experts")
        if self.num_experts is None and self.d_shared is not None:
            raise ValueError("style.d_shared is of a mixture: it stands with style.num_experts")
        if self.gate_limit is not None and not self.gated:
            raise ValueError("style.gate_limit is of a gate: it stands with style.gated")
        if self.whole_qk_norm and not self.qk_norm:
            raise ValueError("style.whole_qk_norm is a kind of style.qk_norm: it stands with it")
        if self.num_experts is not None and not 1 <= (self.num_chosen_experts or 0) <= self.num_experts:
            raise ValueError(
                f"style.num_chosen_experts ({self.num_chosen_experts}) must be in [1, num_experts = {self.num_experts}]"
            )

    def norm(self, d_model: int) -> nn.Module:
        """Make the norm of a sublayer: two of them for a sandwich."""
        if self.residual == "sandwich":
            return Sandwich(self.plain_norm(d_model), self.plain_norm(d_model))
        return self.plain_norm(d_model)

    def last_norm(self, d_model: int) -> nn.Module:
        """Make the norm after the last layer, which post-norm layers need not."""
        return nn.Identity() if self.residual == "post" else self.plain_norm(d_model)

    def feed_forward(self, d_model: int, d_ff: int) -> nn.Module:
        """Make a position-wise network, or a mixture of such."""

        def make(d_ff: int = d_ff) -> nn.Module:
            bias = _either(self.feed_forward_bias, self.bias)
            if self.gated:
                return GatedFeedForward(d_model, d_ff, activation=self.activation, bias=bias, limit=self.gate_limit)
            return FeedForward(d_model, d_ff, activation=self.activation, bias=bias)

        if self.num_experts is None or self.num_chosen_experts is None:
            return make()
        shared = None if self.d_shared is None else make(self.d_shared)
        return Experts(
            d_model,
            self.num_experts,
            self.num_chosen_experts,
            make,
            normed=self.normed_experts,
            bias=self.router_bias,
            shared=shared,
        )

    @property
    def attention(self) -> dict[str, Any]:
        """The options of CrossAttention, which SelfAttention has too."""
        return {
            "bias": _either(self.qkv_bias, self.bias),
            "output_bias": _either(self.output_bias, self.bias),
            "scale": self.scale,
            "head_dim": self.head_dim,
        }

    @property
    def self_attention(self) -> dict[str, Any]:
        """The options of SelfAttention."""
        norm_eps = self.norm_eps if self.qk_norm else None
        return {
            **self.attention,
            "softcap": self.softcap,
            "qk_norm_eps": norm_eps,
            "whole_qk_norm": self.whole_qk_norm,
        }

    def plain_norm(self, d_model: int) -> nn.Module:
        """Make one norm, whatever the residual."""
        if self.rms_norm:
            return RmsNorm(d_model, self.norm_eps)
        return nn.LayerNorm(d_model, self.norm_eps, bias=self.norm_bias)


DEFAULT_STYLE = Style()


class Sandwich(nn.Module):
    """The norm before a sublayer, and the one after it."""

    def __init__(self, before: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.before, self.after = before, after


class StyledLayer(nn.Module):
    """A layer whose sublayers each have a residual connection, dropout and norms of their own."""

    def __init__(self, style: Style, dropout: float) -> None:
        super().__init__()
        self.residual = style.residual
        self.residual_scale = style.residual_scale
        self.dropout = nn.Dropout(dropout)

    def before(self, norm: Any, x: Tensor) -> Tensor:
        """Return what a sublayer is given."""
        if self.residual in ("post", "inner_post"):
            return x
        given: Tensor = (norm.before if self.residual == "sandwich" else norm)(x)
        return given

    def after(self, norm: Any, x: Tensor, out: Tensor) -> Tensor:
        """Add a sublayer's output to what it stands beside."""
        if self.residual == "inner_post":
            out = norm(out)
        elif self.residual == "sandwich":
            out = norm.after(out)
        if self.residual_scale != 1.0:
            out = out * self.residual_scale
        x = x + self.dropout(out)
        return norm(x) if self.residual == "post" else x

    def fed(self, norm: Any, feed_forward: nn.Module, x: Tensor, attended: Tensor) -> Tensor:
        """Return a layer's output; x is its input, and attended the same after attention."""
        given = self.before(norm, x if self.residual == "parallel" else attended)
        return self.after(norm, attended, feed_forward(given))


def _either(special: bool | None, general: bool) -> bool:  # noqa: FBT001 - two answers to one question
    return general if special is None else special


class RmsNorm(nn.Module):
    """RMSNorm(x) = x / sqrt(mean(x^2) + eps) * g (Zhang and Sennrich 2019), computed in float32 at any precision."""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., d_model] to the same shape."""
        wide = x.float()
        # Divided by the root, not multiplied by its inverse: this shape of the formula is what ONNX Runtime fuses.
        root = torch.sqrt(wide.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return (wide / root).to(x.dtype) * self.weight
