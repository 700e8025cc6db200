"""The graphs of a bundle as modules: one for each GraphRole of bundle.proto, all over the same weights."""

from collections.abc import Sequence

from torch import Tensor, nn

from weft_export.cached_attention import KeyValue
from weft_export.families.causal_lm import CausalLm
from weft_export.families.sequence_to_sequence import SequenceToSequence

# How many of the most probable tokens a decoder returns; a sampler that needs more reads the logits. For 32 rows of
# 1268 logits ONNX Runtime's TopK takes 45 us with 32 candidates and 300 us with 64. Translations and captions are
# mostly greedy; generation mostly samples, often from the best 40 or 50.
_MEMORY_CANDIDATES = 32
_CAUSAL_CANDIDATES = 64


class EncoderView(nn.Module):
    """A source to the memory of each decoder layer."""

    def __init__(self, model: SequenceToSequence) -> None:
        super().__init__()
        self.model = model

    def forward(self, *source: Tensor) -> tuple[Tensor, ...]:
        """Return key and value [batch, heads, source, head_dim] of each layer."""
        return _flat(self.model.project(*source))


class MemoryDecoderView(nn.Module):
    """One run of a decoder over caches and memories."""

    def __init__(self, model: SequenceToSequence) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the candidates and the present states.

        inputs are input_ids, past_lengths, lengths, total_length, memory_lengths, then all caches, then all memories.
        """
        input_ids, past_lengths, lengths, total_length, memory_lengths, *states = inputs
        pairs = _pairs(states)
        caches, memories = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
        logits, presents, kept = self.model.decoder.step(
            input_ids, past_lengths, lengths, total_length, caches, memories, memory_lengths
        )
        return (*candidates(logits, _MEMORY_CANDIDATES), *_flat(presents), *_flat(kept))


class CausalDecoderView(nn.Module):
    """One run of a decoder-only model over caches."""

    def __init__(self, model: CausalLm) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the candidates and the present states.

        inputs are input_ids, past_lengths, lengths, total_length, then all caches.
        """
        input_ids, past_lengths, lengths, total_length, *states = inputs
        logits, presents = self.model.step(input_ids, past_lengths, lengths, total_length, _pairs(states))
        return (*candidates(logits, _CAUSAL_CANDIDATES), *_flat(presents))


class ClassifierView(nn.Module):
    """A text or an image to probabilities."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *source: Tensor) -> Tensor:
        """Return probabilities float32 [batch, labels]."""
        logits: Tensor = self.model(*source)
        return logits.float().softmax(dim=-1)


class ExplainView(nn.Module):
    """A source and a finished answer to what the answer looked at."""

    def __init__(self, model: SequenceToSequence, alignment_layer: int) -> None:
        super().__init__()
        self.model = model
        self.alignment_layer = alignment_layer

    def forward(self, *source_and_target: Tensor) -> Tensor:
        """Return weights float32 [target, source] for a batch of one."""
        *source, target_ids = source_and_target
        return self.model.alignment(self.alignment_layer, target_ids, *source)[0]


def candidates(logits: Tensor, max_candidates: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the best of logits [batch, vocab], their ids, logsumexp and the logits, in float32 at any precision."""
    logits = logits.float()
    best, ids = logits.topk(min(max_candidates, logits.shape[-1]), dim=-1)
    # x - log_softmax(x) is logsumexp(x) at every token. ONNX Runtime's ReduceLogSumExp takes ten times as long, and its
    # ReduceSum of exponentials does not give the same bits in every batch.
    logsumexp = logits[:, 0] - logits.log_softmax(dim=-1)[:, 0]
    return best, ids, logsumexp, logits


def _pairs(tensors: Sequence[Tensor]) -> list[KeyValue]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _flat(pairs: Sequence[KeyValue]) -> tuple[Tensor, ...]:
    return tuple(tensor for pair in pairs for tensor in pair)
