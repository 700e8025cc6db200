"""A decoder-only Transformer for generation, whose every choice is a word of its config: Llama, GPT-NeoX, Gemma, BLOOM.

`gpt` and `causal_lm` are two of its kind, each as its paper has it. This one is what checkpoints of others become.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft_export.families.causal import CausalTransformer
from weft_export.families.sizes import require_divisible, require_each_layer, require_head, require_sizes
from weft_export.layers.cached_attention import KeyValue
from weft_export.layers.embeddings import Embeddings, EmbeddingStyle
from weft_export.layers.positions import Rope, rope_tables
from weft_export.layers.run import Run
from weft_export.layers.score_bias import Alibi
from weft_export.layers.style import Style

ALL, NONE = 0, -1


@dataclass(frozen=True)
class DecoderOnlyConfig:
    """Sizes and choices. max_tokens is prompt and continuation together.

    rotations: the tables that turn queries and keys; most models have one or none.
    rotation_of: which of them each layer takes, by its number, NONE for none. Empty: all layers take the first, if any.
    windows: how many positions each layer attends to, its own included, ALL for all before. Empty: all layers ALL.
    alibi: the scores get BLOOM's bias times this number. 0: none.
    coarse_alibi: that bias is rounded to bfloat16 first, as Falcon's is.
    sinks: heads have one each: see shares_of.
    norms_turned: heads are normed after they are turned, and not before. Their norm is that of style.qk_norm.
    padding: so many numbers of each head are 0 in all weights, because a checkpoint's heads are shorter than the
        attention operator takes. style.scale must be that of its heads then.
    """

    vocab_size: int
    max_tokens: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    d_ff: int
    num_layers: int
    style: Style = field(default_factory=Style)
    embeddings: EmbeddingStyle = field(default_factory=EmbeddingStyle)
    rotations: tuple[Rope, ...] = ()
    rotation_of: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    alibi: float = 0.0
    coarse_alibi: bool = False
    sinks: bool = False
    norms_turned: bool = False
    padding: int | None = None
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        require_sizes(self)
        multiple = 16 if self.rotations else 8
        if self.style.head_dim is None:
            require_head("d_model / num_heads", self.d_model, self.num_heads, multiple)
        else:
            require_head("head_dim", self.style.head_dim, 1, multiple)
        require_divisible("num_heads", self.num_heads, "num_kv_heads", self.num_kv_heads)
        require_each_layer("windows", self.windows, self.num_layers, ALL, self.max_tokens)
        require_each_layer("rotation_of", self.rotation_of, self.num_layers, NONE, len(self.rotations) - 1)
        if self.padding and (self.padding >= self.head_dim or self.style.scale is None):
            raise ValueError(f"model.padding ({self.padding}) must be below a head's {self.head_dim} and have a scale")
        if self.norms_turned and (not self.style.qk_norm or self.style.whole_qk_norm):
            raise ValueError("model.norms_turned is of style.qk_norm, of each head: it stands with that")
        for rotation in self.rotations:
            if len(rotation.frequencies) != self.head_dim // 2:
                raise ValueError(
                    f"a rotation has {len(rotation.frequencies)} frequencies; half of a head is {self.head_dim // 2}"
                )

    @property
    def head_dim(self) -> int:
        """Numbers of a head."""
        return self.style.head_dim or self.d_model // self.num_heads


class DecoderOnly(CausalTransformer):
    """Layers in a style, under words in a style."""

    def __init__(self, config: DecoderOnlyConfig) -> None:
        super().__init__(
            config.num_layers,
            config.d_model,
            config.num_heads,
            config.num_kv_heads,
            config.d_ff,
            config.dropout,
            config.style,
            max_tokens=config.max_tokens,
            # A window as long as the cache would only cost the operator work.
            windows=[size if ALL < size < config.max_tokens else None for size in config.windows],
            score_bias=_alibi(config) if config.alibi else None,
        )
        self.config = config
        # What turns heads of many rows at once norms none behind.
        self.mixes = self.mixes and not config.norms_turned
        for layer in self.layers:
            attention = layer.attention
            if config.sinks:
                attention.sinks = nn.Parameter(torch.zeros(config.num_heads))
            if config.norms_turned:
                attention.turned_norm, attention.qk_norm = attention.qk_norm, None
        self.embeddings = Embeddings(config.vocab_size, config.max_tokens, config.d_model, config.embeddings)
        # A graph is traced with more tokens than the shortest model takes.
        num_positions = -(-config.max_tokens // 8) * 8
        for index, rotation in enumerate(config.rotations):
            cos, sin = rope_tables(num_positions, rotation)
            self.register_buffer(f"cos_{index}", cos, persistent=False)
            self.register_buffer(f"sin_{index}", sin, persistent=False)

    @property
    def unpaged(self) -> str | None:
        """See Writer."""
        if self.config.norms_turned:
            return "it norms heads after they are turned, and the operator for blocks before"
        return (
            "its heads have sinks, which the operator for blocks is not given" if self.config.sinks else super().unpaged
        )

    @property
    def rotary(self) -> Sequence[KeyValue | None]:
        """See CausalTransformer."""
        first = 0 if self.config.rotations else NONE
        chosen = self.config.rotation_of or (first,) * len(self.layers)
        return [None if index == NONE else self._tables(index) for index in chosen]

    def rotary_of(self, run: Run) -> Sequence[KeyValue | None]:
        """See CausalTransformer. The operator that attends would turn heads behind their norm."""
        if not self.config.norms_turned:
            return self.rotary
        places = run.past_lengths.long()[:, None] + torch.arange(run.input_ids.shape[1])
        return [tables and (tables[0][places], tables[1][places]) for tables in self.rotary]

    def _tables(self, index: int) -> tuple[Tensor, Tensor]:
        cos, sin = getattr(self, f"cos_{index}"), getattr(self, f"sin_{index}")
        assert isinstance(cos, torch.Tensor)
        assert isinstance(sin, torch.Tensor)
        return cos, sin

    def embed(self, ids: Tensor, past_lengths: Tensor | None = None) -> Tensor:
        """See CausalTransformer."""
        embedded: Tensor = self.embeddings(ids, past_lengths)
        return embedded

    def logits(self, x: Tensor) -> Tensor:
        """See CausalTransformer."""
        return self.embeddings.logits(x)


def _alibi(config: DecoderOnlyConfig) -> Alibi:
    return Alibi(config.num_heads, config.max_tokens, config.alibi, coarse=config.coarse_alibi)
