"""What translation and captioning share: a source is encoded once, then a Transformer decoder writes the target."""

from collections.abc import Sequence

from torch import Tensor, nn

from weft_export.families.writer import KV_CACHE, MEMORY, State, Writer, flat, pairs
from weft_export.layers.decoder import Decoder
from weft_export.layers.explaining import Explanation, over_source, pick
from weft_export.layers.run import Run


class SequenceToSequence(Writer):
    """An encoder of some source and a Transformer decoder over its memory; a family says how it encodes.

    States: each layer's keys and values of the target so far, then each layer's keys and values of the source.
    """

    decoder: Decoder
    scores = True
    verifies = True
    num_class_tokens: int = 0
    """How many places of the memory stand before those of the source. An explanation leaves them out."""

    def _write_with(self, decoder: Decoder, max_memory: int) -> None:
        """Take the decoder; max_memory is how many source positions there can be."""
        self.decoder = decoder
        heads, max_tokens, head_dim = decoder.cache_shape
        names = [f"{layer}.{part}" for layer in range(len(decoder.layers)) for part in ("key", "value")]
        self.states = (
            *(State(KV_CACHE, name, (heads, max_tokens, head_dim), 1) for name in names),
            *(State(MEMORY, name, (heads, max_memory, head_dim), 1, encoded=True) for name in names),
        )
        self.attention_heads = (heads,) * len(decoder.layers)

    @property
    def cached_attentions(self) -> list[nn.Module]:
        """See Writer."""
        layers = self.decoder.layers
        return [layer.self_attention for layer in layers] + [layer.cross_attention for layer in layers]

    def encode(self, *source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoded source [batch, source, d_model] and its mask, bool [batch, 1, 1, source]."""
        raise NotImplementedError

    def encode_states(self, *source: Tensor) -> tuple[Tensor, ...]:
        """Return each decoder layer's memory, keys and values [batch, h, source, head_dim]."""
        return flat(self.decoder.cross_attention_cache(self.encode(*source)[0]))

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits [batch, vocab] of each row's last real token, the present caches and the memories."""
        layers = pairs(states)
        caches, memories = layers[: len(layers) // 2], layers[len(layers) // 2 :]
        logits, presents, kept = self.decoder.step(run, caches, memories)
        return logits, [*flat(presents), *flat(kept)]

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return logits [batch, target, vocab] of the whole target, teacher-forced."""
        encoded, mask = self.encode(*source)
        logits: Tensor = self.decoder(target_ids, self.decoder.project(encoded), mask)
        return logits

    def explain(self, layer: Tensor, head: Tensor, target_ids: Tensor, *source: Tensor) -> Explanation:
        """Return the cross-attention weights [target, source] of one layer and head, or of the average of its heads.

        source_mass is what lay on the source, and not on class tokens.
        """
        encoded, mask = self.encode(*source)
        layers = self.decoder.attentions(target_ids, self.decoder.project(encoded), mask)
        return self._over_memory(pick(layers, layer, head))

    def _over_memory(self, weights: Tensor) -> Explanation:
        """Leave class tokens out of weights [target, memory]."""
        return over_source(weights[:, self.num_class_tokens :] if self.num_class_tokens else weights)

    def alignment(self, layer: int, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return cross-attention weights [batch, target, source] of one layer, averaged over heads, to train on."""
        encoded, mask = self.encode(*source)
        return self.decoder.attentions(target_ids, self.decoder.project(encoded), mask)[layer].mean(dim=1)


class AskedDecoder(SequenceToSequence):
    """A question stands behind the start token, and is read by the decoder as the beginning of its own text."""

    # ScoreService takes no question.
    scores = False
    explains_target = True

    def explain(self, layer: Tensor, head: Tensor, target_ids: Tensor, *source: Tensor) -> Explanation:
        """Return as SequenceToSequence does, and the self-attention weights [target, target] of the same choice."""
        if not self.explains_target:
            return super().explain(layer, head, target_ids, *source)
        encoded, mask = self.encode(*source)
        layers, self_layers = self.decoder.both_attentions(target_ids, self.decoder.project(encoded), mask)
        return *self._over_memory(pick(layers, layer, head)), pick(self_layers, layer, head)
