"""One run of a decoder whose caches lie in blocks: the tokens of many rows, packed."""

from dataclasses import dataclass

from torch import Tensor


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
