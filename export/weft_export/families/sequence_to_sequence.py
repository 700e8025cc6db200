"""What translation and captioning share: a source is encoded once, then a Transformer decoder writes the target."""

from torch import Tensor, nn

from weft_export.cached_attention import KeyValue
from weft_export.decoder import Decoder


class SequenceToSequence(nn.Module):
    """An encoder of some source and a decoder over its memory; `source` is whatever the family's encoder takes."""

    decoder: Decoder
    max_memory: int
    """How many source positions there can be: the memory's capacity."""

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoded source [batch, source, d_model] and its mask, bool [batch, 1, 1, source]."""
        raise NotImplementedError

    def project(self, *source: Tensor) -> list[KeyValue]:
        """Return each decoder layer's memory, keys and values [batch, h, source, head_dim]."""
        return self.decoder.project(self.encode(*source)[0])

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return logits [batch, target, vocab] of the whole target, teacher-forced."""
        encoded, mask = self.encode(*source)
        logits: Tensor = self.decoder(target_ids, self.decoder.project(encoded), mask)
        return logits

    def alignment(self, layer: int, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return cross-attention weights [batch, target, source] of one decoder layer, averaged over its heads."""
        encoded, mask = self.encode(*source)
        return self.decoder.alignment(target_ids, self.decoder.project(encoded), mask, layer)
