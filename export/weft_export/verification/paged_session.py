"""A session over a decoder whose caches lie in blocks, told in slots: proofs hold both kinds to the same."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft_proto.v1 import bundle_pb2

Array = NDArray[Any]

# What stands around the rows of each run: blocks that are nobody's, a row without tokens, tokens of no row.
_SPARE_BLOCKS, _SPARE_ROWS, _SPARE_TOKENS = 2, 1, 3
# What a cache is of, and what stands where nobody has written: float32 and NaN, unless it is of these.
_MEMORY: dict[str, tuple[type[np.generic], float]] = {
    "tensor(float16)": (np.float16, np.nan),
    "tensor(int8)": (np.int8, 127),
}


class PagedSession:
    """An InferenceSession whose runs are told in slots, as those of other decoders.

    Before a run the tokens of each slot are put into blocks, in a random order. Elsewhere is NaN, or the largest level.
    """

    def __init__(self, session: Any) -> None:
        self.session = session
        self._ports = {port.name: port for port in session.get_inputs()}
        self._rng = np.random.default_rng(0)

    def get_inputs(self) -> list[Any]:
        """Return the ports of the graph itself."""
        return list(self._ports.values())

    def packed(self, arrays: Mapping[str, Array], states: Sequence[bundle_pb2.StateTensor]) -> dict[str, Array]:
        """Return what the graph is fed for a run over slots.

        arrays are input_ids [batch, seq], past_lengths [batch], lengths [batch] and a cache of each state,
        [batch, kv_heads, at least past, head_dim].
        """
        ids, past, lengths = (arrays[name] for name in ("input_ids", "past_lengths", "lengths"))
        block_tokens = int(self._ports[states[0].past].shape[1])
        total = past + lengths
        num_blocks = -(-total // block_tokens)
        table = np.zeros((len(ids) + _SPARE_ROWS, int(num_blocks.max())), np.int32)
        order = self._rng.permutation(int(num_blocks.sum()) + _SPARE_BLOCKS).astype(np.int32)
        first = 0
        for row, number in enumerate(num_blocks):
            table[row, :number] = order[first : first + number]
            first += number
        places = [np.arange(before, stop) for before, stop in zip(past, total, strict=True)]
        slots = [_slots(table[row], place, block_tokens) for row, place in enumerate(places)]
        spare = np.zeros(_SPARE_TOKENS, np.int64)
        fed = {
            "input_ids": np.concatenate([*(row[:own] for row, own in zip(ids, lengths, strict=True)), spare]),
            "positions": np.concatenate([*places, spare]),
            "cumulative_lengths": np.cumsum([0, *lengths, *[0] * _SPARE_ROWS]).astype(np.int32),
            "past_lengths": np.concatenate((past, [0] * _SPARE_ROWS)).astype(np.int32),
            "block_table": table,
            "slot_mapping": np.concatenate([*slots, spare - 1]).astype(np.int32),
            "attention_bounds": np.array([lengths.max(), total.max(), 0], np.int32),
        }
        for state in states:
            cache = arrays[state.past]
            port = self._ports[state.past]
            data_type, unwritten = _MEMORY.get(port.type, (np.float32, np.nan))
            blocks = np.full((len(order), *port.shape[1:]), unwritten, data_type)
            flat = blocks.reshape(-1, *blocks.shape[2:])
            for row, before in enumerate(past):
                flat[_slots(table[row], np.arange(before), block_tokens)] = cache[row, :, :before].swapaxes(0, 1)
            fed[state.past] = blocks
        return fed

    def unpack(
        self,
        fed: Mapping[str, Array],
        outputs: Mapping[str, Array],
        arrays: Mapping[str, Array],
        states: Sequence[bundle_pb2.StateTensor],
    ) -> dict[str, Array]:
        """Return a run's outputs as those of a run over slots, in whose arrays the caches are."""
        num_rows = len(arrays["input_ids"])
        total = arrays["past_lengths"] + arrays["lengths"]
        told = {name: array[:num_rows] for name, array in outputs.items()}
        for state in states:
            blocks = outputs[state.present]
            flat = blocks.reshape(-1, *blocks.shape[2:])
            told[state.present] = arrays[state.past]
            for row, stop in enumerate(total):
                slots = _slots(fed["block_table"][row], np.arange(stop), blocks.shape[1])
                told[state.present][row, :, :stop] = flat[slots].swapaxes(0, 1)
        return told


def _slots(table: Array, places: Array, block_tokens: int) -> Array:
    """Return where in all blocks, laid end to end, the places of a row are."""
    slots: Array = table[places // block_tokens].astype(np.int64) * block_tokens + places % block_tokens
    return slots
