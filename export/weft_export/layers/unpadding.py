"""Texts of a batch without their padding: only attention needs rows of one length.

What a token goes through by itself is computed for tokens alone, and not for padding ("ByteTransformer: A
High-Performance Transformer Boosted for Variable-Length Inputs", Zhai et al. 2023).
"""

import torch
from torch import Tensor
from torch.nn import functional


class Unpadding:
    """Where the tokens of a padded batch stand in it, and where the places of the batch stand among the tokens."""

    def __init__(self, lengths: Tensor, seq: int) -> None:
        """Of each row the first lengths [batch] places of `seq` hold tokens, one at least."""
        # Two at least are computed: a product of one row may have a kernel of its own, which gives other last bits.
        computed = lengths.long()[:, None].clamp(2, seq)
        place = torch.arange(seq)
        self._tokens = (place < computed).flatten().nonzero()[:, 0]
        # Padding is what the row's last token is. Nobody reads it, but it has to be finite.
        self._places = computed.cumsum(0) - computed + torch.minimum(place, computed - 1)
        self._thirds = [3 * self._places + third for third in range(3)]

    def tokens(self, x: Tensor) -> Tensor:
        """Return the tokens [tokens, 1, width] of a batch [batch, seq, width]."""
        return functional.embedding(self._tokens, x.flatten(0, 1))[:, None]

    def padded(self, x: Tensor, num_read: int | None = None) -> Tensor:
        """Return the batch [batch, seq, width] of tokens [tokens, 1, width], or of each row the first num_read."""
        return functional.embedding(self._places[:, :num_read], x[:, 0])

    def thirds(self, x: Tensor) -> list[Tensor]:
        """Return three batches [batch, seq, width] of tokens [tokens, 1, 3 width]."""
        # Rows of a third are looked up: to cut and then to look up would copy twice.
        rows = x.reshape(-1, x.shape[2] // 3)
        return [functional.embedding(places, rows) for places in self._thirds]


def unpadding_of(x: Tensor, lengths: Tensor | None) -> Unpadding | None:
    """Return how an exported graph leaves out the padding of x [batch, seq, width]; None where it does not.

    Float32 is computed on a CPU. On a device the number of tokens would have to be known beforehand. Adapters are for
    rows of a batch.
    """
    if lengths is None or x.dtype != torch.float32 or not torch.onnx.is_in_onnx_export():
        return None
    from weft_export.layers.adapted_linear import is_adapting  # noqa: PLC0415 - late: what is not exported needs none

    return None if is_adapting() else Unpadding(lengths, x.shape[1])
