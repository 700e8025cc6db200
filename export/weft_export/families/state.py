"""What a decoder keeps of each sequence from step to step."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from weft_export.layers.cached_attention import KeyValue
from weft_proto.v1 import bundle_pb2

KV_CACHE, MEMORY, RECURRENT = (
    bundle_pb2.STATE_KIND_KV_CACHE,
    bundle_pb2.STATE_KIND_MEMORY,
    bundle_pb2.STATE_KIND_RECURRENT,
)


@dataclass(frozen=True)
class State:
    """One state tensor of a sequence; across sequences it is [batch, *shape].

    length_axis: the axis of shape that grows with the sequence (KV_CACHE) or with the source (MEMORY).
    encoded: the encoder writes it at admission. This is true for every MEMORY.
    returned: a step returns it. Only a MEMORY that no operator hands on may say no.
    rounded: it holds the levels of a CacheRounding, in int8. The rest of the model may be in another type.
    """

    kind: bundle_pb2.StateKind.ValueType
    name: str
    shape: tuple[int, ...]
    length_axis: int = 0
    encoded: bool = False
    returned: bool = True
    rounded: bool = False


def pairs(tensors: Sequence[Tensor]) -> list[KeyValue]:
    """Return states that alternate between keys and values as pairs of both."""
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def flat(layers: Sequence[KeyValue]) -> tuple[Tensor, ...]:
    """Return pairs of keys and values as the states that they are."""
    return tuple(tensor for pair in layers for tensor in pair)
