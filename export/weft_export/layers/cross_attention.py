"""Multi-head attention of a decoder to an encoder's memory ("Attention Is All You Need", section 3.2)."""

from torch import Tensor, nn

from weft_export.layers.attention import attention_weights
from weft_export.layers.cache_rounding import CacheRounding
from weft_export.layers.cached_attention import KeyValue, attend, attend_memory, split_heads


class CrossAttention(nn.Module):
    """Attention of a decoder to an encoder's memory, whose keys and values are projected once for each request.

    bias, output_bias, head_dim and scale are as in SelfAttention. With a rounding, a request's memory holds its levels.
    d_memory is the width of what the encoder gives, d_model unless given.
    """

    rounding: CacheRounding | None

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        bias: bool = True,
        output_bias: bool | None = None,
        head_dim: int | None = None,
        scale: float | None = None,
        d_memory: int | None = None,
    ) -> None:
        super().__init__()
        self.rounding = None
        self.num_heads = num_heads
        self.scale = scale
        width = num_heads * (head_dim or d_model // num_heads)
        self.query = nn.Linear(d_model, width, bias=bias)
        self.key = nn.Linear(d_memory or d_model, width, bias=bias)
        self.value = nn.Linear(d_memory or d_model, width, bias=bias)
        self.output = nn.Linear(width, d_model, bias=bias if output_bias is None else output_bias)

    def cross_attention_cache(self, encoded: Tensor) -> KeyValue:
        """Project encoded [batch, source, d_model] to the memory of a step [batch, h, source, head_dim]."""
        memory = split_heads(self.key(encoded), self.num_heads), split_heads(self.value(encoded), self.num_heads)
        return memory if self.rounding is None else self.rounding.levels(*memory)

    def project(self, encoded: Tensor) -> KeyValue:
        """Project encoded [batch, source, d_model] to keys and values [batch, h, source, head_dim] for forward."""
        memory = self.cross_attention_cache(encoded)
        return memory if self.rounding is None else self.rounding.widened(*memory)

    def forward(self, x: Tensor, memory: KeyValue, mask: Tensor) -> Tensor:
        """Attend from x [batch, seq, d_model] to memory where mask [rows, 1, 1, source] is True.

        memory: keys and values [rows, h, source, head_dim]. Each row is what batch / rows texts beside each other
        attend to. So several questions about one picture share it, in fewer and larger products.
        """
        query = self.query(x)
        query = split_heads(query.view(memory[0].shape[0], -1, query.shape[-1]), self.num_heads)
        attended = attend(query, *memory, mask, scale=self.scale)
        out: Tensor = self.output(attended.view(*x.shape[:2], -1))
        return out

    def weights(self, x: Tensor, memory: KeyValue, mask: Tensor) -> Tensor:
        """Return the attention weights, float32 [batch, h, seq, source], that forward uses."""
        return attention_weights(split_heads(self.query(x), self.num_heads), memory[0], mask, scale=self.scale)

    def step(self, x: Tensor, memory: KeyValue, memory_lengths: Tensor) -> tuple[Tensor, KeyValue]:
        """Attend from x [batch, seq, d_model] to the first memory_lengths [batch] positions; returns the memory too."""
        query = self.query(x)
        out, memory = attend_memory(
            query, memory, memory_lengths, num_heads=self.num_heads, scale=self.scale, rounding=self.rounding
        )
        return self.output(out), memory
