"""One run of a decoder: the tokens of each row, and how far each row has come."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Run:
    """What one run of a decoder is given besides the states.

    input_ids: int64 [batch, seq], right-padded. With a RECURRENT state, seq is 1 unless the family reads_pieces.
    past_lengths: int32 [batch], how many tokens came before.
    lengths: int32 [batch], how many of seq are real. Of a run that `verifies`, see last_positions.
    total_length: int32 [1], the capacity of the caches.
    memory_lengths: int32 [batch], how much of each row's memory is real. None without a MEMORY state.
    verifies: whether it may be asked for the logits behind several tokens of a row.
    features: float32 [batch, seq, width], what is read at the places of pictures. None: the model sees none.
    position_offsets: int64 [batch, seq, 3], what is added to a token's place for each of its positions. None: its place
        is the only one.
    bidirectional: whether each token sees those behind it too, as far as the run goes.
    """

    input_ids: Tensor
    past_lengths: Tensor
    lengths: Tensor
    total_length: Tensor
    memory_lengths: Tensor | None
    verifies: bool = False
    features: Tensor | None = None
    position_offsets: Tensor | None = None
    bidirectional: bool = False

    @property
    def positions(self) -> Tensor:
        """The positions of each token, int64 [batch, seq, 3], of a decoder that is told offsets."""
        assert self.position_offsets is not None, "a run without position offsets. This is a bug."
        places = self.past_lengths.long()[:, None] + torch.arange(self.input_ids.shape[1])
        return places[..., None] + self.position_offsets

    @property
    def lengths_of_memory(self) -> Tensor:
        """How much of each row's memory is real, of a decoder that reads one."""
        assert self.memory_lengths is not None, "this decoder reads no memory. This is a bug."
        return self.memory_lengths

    @property
    def last_index(self) -> Tensor:
        """The cache index of each row's last token of this run, int32 [batch].

        Padding counts as written: causality hides it from real tokens, and the next run overwrites it.

        The tokens are counted, and not read from the shape. A shape lies on the host. So for a device, ONNX Runtime
        would also add on the host. It would then read past_lengths there once, when the memory is bound, and never
        again.
        """
        return self.past_lengths + (self.input_ids >= 0).sum(dim=1, dtype=torch.int32) - 1


@dataclass(frozen=True)
class PackedRun:
    """What such a run is given besides the caches; GRAPH_ROLE_DECODER of bundle.proto says what is padding.

    input_ids: int64 [tokens], row behind row.
    positions: int64 [tokens], each token's place in its sequence.
    cumulative_lengths: int32 [rows + 1], where each row's tokens begin, and where the last row's end.
    past_lengths: int32 [rows], how many tokens came before.
    block_table: int32 [rows, blocks], the blocks of each row.
    slot_mapping: int32 [tokens], where each token is written, -1 for nowhere.
    bounds: int32 [3] on the host, see attention_bounds there.
    """

    input_ids: Tensor
    positions: Tensor
    cumulative_lengths: Tensor
    past_lengths: Tensor
    block_table: Tensor
    slot_mapping: Tensor
    bounds: Tensor

    @property
    def last_index(self) -> Tensor:
        """Where each row's last token of this run is, int64 [rows]."""
        return self.cumulative_lengths[1:].long() - 1
