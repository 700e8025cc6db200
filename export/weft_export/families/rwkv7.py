"""RWKV 7: a decoder without attention, each layer of which keeps a memory that tokens correct, and the position before.

"RWKV-7 'Goose' with Expressive Dynamic State Evolution" (Peng et al. 2025). What a sequence keeps is of constant size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.families.sizes import require_sizes
from weft_export.families.writer import RECURRENT, State, Writer, flat
from weft_export.layers.embeddings import Embeddings, EmbeddingStyle
from weft_export.layers.feed_forward import FeedForward
from weft_export.layers.pooling import last_position
from weft_export.layers.run import Run
from weft_export.layers.time_mix import TimeMix, TimeMixSizes
from weft_export.layers.token_shift import SHIFTED, shifted


@dataclass(frozen=True, kw_only=True)
class Rwkv7Config:
    """Sizes and choices. max_tokens is prompt and continuation together: these layers have no such bound.

    d_ff: how wide networks are inside.
    time_mix: of each layer. Its heads together must be d_model wide.
    """

    vocab_size: int
    max_tokens: int
    d_model: int
    d_ff: int
    num_layers: int
    time_mix: TimeMixSizes
    norm_eps: float = 1e-5
    embeddings: EmbeddingStyle = field(default_factory=lambda: EmbeddingStyle(tied=False))
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        if self.time_mix.inner != self.d_model:
            raise ValueError(
                f"model.d_model ({self.d_model}) must be time_mix.num_state_heads * time_mix.d_state_head"
                f" ({self.time_mix.inner})"
            )


class ChannelMix(nn.Module):
    """y = W_2 max(0, W_1 (x + (b - x) m))^2, where b is the position before."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.mixing = nn.Parameter(torch.zeros(d_model))
        self.feed_forward = FeedForward(d_model, d_ff, activation="relu2", bias=False)
        self.state_shapes = {"fed": (SHIFTED, d_model)}

    def step(self, x: Tensor, past: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Map the next positions x [batch, seq, d_model], of which lengths int32 [batch] are real; see shifted."""
        before, seen = shifted(x, past, lengths)
        return self.feed_forward(x + (before - x) * self.mixing), seen


class Rwkv7Layer(nn.Module):
    """x + time_mix(norm(x)), and then x + channel_mix(norm(x))."""

    def __init__(self, config: Rwkv7Config, *, is_first: bool) -> None:
        super().__init__()
        self.time_norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.time_mix = TimeMix(config.time_mix, is_first=is_first)
        self.channel_norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.channel_mix = ChannelMix(config.d_model, config.d_ff)
        self.dropout = nn.Dropout(config.dropout)
        self.state_shapes = {**self.time_mix.state_shapes, **self.channel_mix.state_shapes}

    def step(
        self, x: Tensor, past: tuple[Tensor, ...], lengths: Tensor, first: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Map the next positions x [batch, seq, d_model]; see TimeMix for the rest."""
        mixed, present, value = self.time_mix.step(self.time_norm(x), past[:-1], lengths, first)
        x = x + self.dropout(mixed)
        fed, seen = self.channel_mix.step(self.channel_norm(x), past[-1], lengths)
        return x + self.dropout(fed), (*present, seen), value


class Rwkv7(Writer):
    """Layers of a memory each, and a last norm."""

    max_candidates = 64  # as of others that go on from a prompt
    reads_pieces = True
    scores = True

    config: Rwkv7Config

    def __init__(self, config: Rwkv7Config) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config.vocab_size, config.max_tokens, config.d_model, config.embeddings)
        layers = [Rwkv7Layer(config, is_first=not index) for index in range(config.num_layers)]
        # Any: torch does not type the items of a ModuleList.
        self.layers: Any = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.states = tuple(
            State(RECURRENT, f"{index}.{part}", shape)
            for index, layer in enumerate(layers)
            for part, shape in layer.state_shapes.items()
        )

    @property
    def unpaged(self) -> str | None:
        """See Writer."""
        return "its layers keep a state of constant size, which has no blocks"

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab] for input_ids [batch, seq]; padding may only follow a row's tokens."""
        batch, seq = input_ids.shape
        x = self.embeddings(input_ids)
        past = [torch.zeros(batch, *state.shape, dtype=x.dtype) for state in self.states]
        out, _ = self._through(self.dropout(x), past, torch.full((batch,), seq, dtype=torch.int32))
        return self.embeddings.logits(self.norm(out))

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:  # noqa: ARG002 - there is no source
        """See Writer."""
        return self.forward(target_ids)

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """See Writer."""
        x, presents = self._through(self.embeddings(run.input_ids, run.past_lengths), states, run.lengths)
        logits: Tensor = self.embeddings.logits(self.norm(last_position(x, run.lengths)))
        return logits, presents

    def _through(self, x: Tensor, states: Sequence[Tensor], lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Take positions x [batch, seq, d_model] through all layers; returns them, and the present of each state."""
        presents: list[tuple[Tensor, ...]] = []
        of_layer = len(states) // len(self.layers)
        first: Tensor | None = None
        for index, layer in enumerate(self.layers):
            past = tuple(states[index * of_layer : (index + 1) * of_layer])
            x, present, value = layer.step(x, past, lengths, first)
            first = value if first is None else first
            presents.append(present)
        return x, list(flat(presents))
