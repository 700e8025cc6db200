"""What a family of models that write text gives the exporter: an encoder, a step over states, and itself whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from weft_export.cached_attention import KeyValue
from weft_export.explaining import Explanation
from weft_proto.v1 import bundle_pb2

KV_CACHE, MEMORY, RECURRENT = (
    bundle_pb2.STATE_KIND_KV_CACHE,
    bundle_pb2.STATE_KIND_MEMORY,
    bundle_pb2.STATE_KIND_RECURRENT,
)


@dataclass(frozen=True)
class State:
    """One state tensor of a sequence; across sequences it is [batch, *shape].

    length_axis is the axis of shape that grows with the sequence (KV_CACHE) or the source (MEMORY).
    encoded: the encoder writes it at admission; true for every MEMORY.
    returned: a step returns it; only a MEMORY that no operator hands on may say no.
    rounded: it holds the levels of a CacheRounding, int8, whatever the rest of the model is in.
    """

    kind: bundle_pb2.StateKind.ValueType
    name: str
    shape: tuple[int, ...]
    length_axis: int = 0
    encoded: bool = False
    returned: bool = True
    rounded: bool = False


@dataclass(frozen=True)
class Run:
    """What one run of a decoder is given besides the states.

    input_ids is int64 [batch, seq], right-padded; past_lengths and lengths are int32 [batch], how many tokens came
    before and how many of seq are real; total_length is int32 [1], the caches' capacity; memory_lengths is int32
    [batch], how much of each row's memory is real, and None without a MEMORY state. With a RECURRENT state, seq is 1.
    """

    input_ids: Tensor
    past_lengths: Tensor
    lengths: Tensor
    total_length: Tensor
    memory_lengths: Tensor | None

    @property
    def last_index(self) -> Tensor:
        """The cache index of each row's last token of this run, int32 [batch].

        Padding counts as written: causality hides it from real tokens, and the next run overwrites it.
        Counted and not read from the shape, which lies on the host: for a device, ONNX Runtime would add there too, and
        then it reads past_lengths on the host, once, when the memory is bound.
        """
        return self.past_lengths + (self.input_ids >= 0).sum(dim=1, dtype=torch.int32) - 1


class Writer(nn.Module):
    """A model that writes text, token by token; `source` is whatever its encoder takes, nothing without an encoder.

    Text: input_ids int64 [batch, seq] right-padded and lengths int32 [batch]. Image: pixel_values [batch, C, H, W].
    """

    config: Any
    states: tuple[State, ...] = ()
    """In the order of the decoder's inputs."""
    max_candidates: int = 16
    """How many of the most probable tokens a decoder returns; a sampler that needs more reads the logits.

    Translations and captions are mostly greedy, and ONNX Runtime finds 16 in a fifth of the time of 32.
    """
    attention_heads: tuple[int, ...] = ()
    """Heads of each layer that can explain, in order; empty when nothing attends to the source."""
    mixes: bool = False
    """Whether a step can read a piece of a prompt beside its rows."""
    summarises: bool = False
    """Whether explain has a summary of all layers; without one, the checkpoint names the layer that explains."""

    @property
    def cached_attentions(self) -> Sequence[nn.Module]:
        """The attention behind each pair of states that are keys and values, in order; those are all states, or none.

        A recurrent family has none: what its attention looks at is no keys and values of several heads.
        """
        return ()

    def encode_states(self, *source: Tensor) -> tuple[Tensor, ...]:
        """Return what the encoder writes: one [batch, ...] tensor for each encoded state, in order."""
        raise NotImplementedError

    def step(self, run: Run, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return logits [batch, vocab] after each row's last real token, and the present of each returned state."""
        raise NotImplementedError

    def mixed_step(
        self, run: Run, states: Sequence[Tensor], prompt: Run, prompt_states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Do a step of rows and one of a prompt at once: each product is made of all their tokens together.

        run has seq 1; prompt is of batch 1, with states of its own. Returns logits [batch + 1, vocab], the prompt's
        last, and the present states of both.
        """
        raise NotImplementedError

    def decode(self, target_ids: Tensor, *source: Tensor) -> Tensor:
        """Return logits [batch, target, vocab] of the whole target, teacher-forced and without states."""
        raise NotImplementedError

    def explain(self, layer: Tensor, head: Tensor, target_ids: Tensor, *source: Tensor) -> Explanation:
        """Return what each produced token attended to, for a batch of one; layer and head are int64 [1].

        A model with an encoder has a row for each of target_ids [1, target]. One without takes the prompt as source and
        has a row for the prompt's last token and each of target_ids, the produced tokens but the last.
        """
        raise NotImplementedError


def pairs(tensors: Sequence[Tensor]) -> list[KeyValue]:
    """Return states that alternate between keys and values as pairs of both."""
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def flat(layers: Sequence[KeyValue]) -> tuple[Tensor, ...]:
    """Return pairs of keys and values as the states that they are."""
    return tuple(tensor for pair in layers for tensor in pair)
