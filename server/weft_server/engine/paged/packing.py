"""The arrays of runs of one shape over a paged cache: the tokens of many rows, packed, and where their pasts are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.engine.prefill_chunks import DEVICE_BUCKETS
from weft_server.runtime.blocks import block_of
from weft_server.runtime.buffers import Columns
from weft_server.runtime.cuda.drawing import TEMPERATURES

if TYPE_CHECKING:
    from weft_server.runtime.blocks import Block
    from weft_server.runtime.device import Device

# How many rows a run has that reads pieces of prompts. Others are padded to the next larger size. So are the tokens of
# the pieces, as those of chunks are. So there are few shapes, and each is known before the first request.
_ROW_SIZES = (8, 32, 128)
# What a run writes of a token that is nobody's.
_NOWHERE = -1


class Shape(NamedTuple):
    """How many tokens and rows a run has, padding included."""

    num_tokens: int
    num_rows: int

    @property
    def decodes(self) -> bool:
        """Whether it has a token for each row and no pieces of prompts."""
        return self.num_tokens == self.num_rows


class PackedShapes:
    """The shapes of the runs of a lane. On a device each new one costs much, and padding costs little."""

    def __init__(self, batches: list[int], max_total: int) -> None:
        """`batches` are how many rows a decode run has for each number of running ones."""
        self._batches = batches
        num_slots = len(batches) - 1
        self._row_sizes = [*(size for size in _ROW_SIZES if size < num_slots), num_slots]
        most = min(DEVICE_BUCKETS[-1], num_slots * max_total)
        enough = next(size for size in DEVICE_BUCKETS if size >= most)
        self.piece_sizes = [size for size in DEVICE_BUCKETS if size <= enough]

    def of(self, num_rows: int, num_piece_tokens: int, num_pieces: int) -> Shape:
        """Return the shape of a run of decoding rows, a token each, and of pieces of prompts, a row each."""
        if not num_pieces:
            return Shape(self._batches[num_rows], self._batches[num_rows])
        rows = next(size for size in self._row_sizes if size >= num_rows + num_pieces)
        return Shape(rows + next(size for size in self.piece_sizes if size >= num_piece_tokens), rows)

    @property
    def largest_piece(self) -> int:
        """The most tokens of prompts that a run reads."""
        return self.piece_sizes[-1]

    def all(self) -> list[Shape]:
        """Return every shape that `of` returns, from the largest to the smallest."""
        alone = [Shape(rows, rows) for rows in set(self._batches) - {0}]
        return sorted([*alone, *(Shape(rows + size, rows) for rows in self._row_sizes for size in self.piece_sizes)])[
            ::-1
        ]


class Packing:
    """What runs of one shape read. It is filled anew for each."""

    def __init__(
        self,
        shape: Shape,
        table_width: int,
        block_tokens: int,
        pad_id: int,
        device: Device,
        *,
        fixed_bounds: tuple[int, int, int] | None = None,
        weighs: bool = False,
    ) -> None:
        """`fixed_bounds` are told to each run, whatever it has. They hold for all, as a captured run keeps its own.

        `weighs` is as in FullLogits.
        """
        num_tokens, num_rows = shape
        self._block_tokens = block_tokens
        self._input_ids = np.full(num_tokens, pad_id, np.int64)
        self._positions = np.zeros(num_tokens, np.int64)
        self._slot_mapping = np.full(num_tokens, _NOWHERE, np.int32)
        self._cumulative = np.zeros(num_rows + 1, np.int32)
        self._past_lengths = np.zeros(num_rows, np.int32)
        self._table = np.zeros((num_rows, table_width), np.int32)
        self._bounds = np.zeros(3, np.int32)
        self._fixed_bounds = fixed_bounds
        self._pad_id = pad_id
        arrays: dict[str, np.ndarray] = {
            "input_ids": self._input_ids,
            "positions": self._positions,
            "cumulative_lengths": self._cumulative,
            "past_lengths": self._past_lengths,
            "block_table": self._table,
            "slot_mapping": self._slot_mapping,
        }
        # At which temperature each row is drawn.
        self.temperatures = np.ones(num_rows, np.float32)
        if weighs:
            arrays[TEMPERATURES] = self.temperatures
        self._columns = Columns(arrays, device)

    def ports(self) -> dict[str, Block]:
        """Where runs read what they are given. The bounds stay on the host."""
        return self._columns.whole() | {"attention_bounds": block_of(self._bounds)}

    def fill(self, token_ids: np.ndarray, lengths: np.ndarray, pasts: np.ndarray, table: np.ndarray) -> None:
        """Take the tokens of n rows, row behind row, and send all to the device.

        token_ids: int64 [tokens]. lengths and pasts: how many of them each row has, and how many it holds, [n].
        table: the blocks of each row, int32 [n, width], 0 behind its last.
        """
        num_rows, num_tokens = len(lengths), len(token_ids)
        ends = lengths.cumsum()
        rows = np.arange(num_rows).repeat(lengths)
        places = np.arange(num_tokens) + (pasts - ends + lengths)[rows]
        self._input_ids[:num_tokens] = token_ids
        self._input_ids[num_tokens:] = self._pad_id
        self._positions[:num_tokens] = places
        self._positions[num_tokens:] = 0
        block, place = np.divmod(places, self._block_tokens)
        self._slot_mapping[:num_tokens] = table[rows, block] * self._block_tokens + place
        self._slot_mapping[num_tokens:] = _NOWHERE
        self._cumulative[1 : num_rows + 1] = ends
        self._cumulative[num_rows + 1 :] = num_tokens
        self._past_lengths[:num_rows] = pasts
        self._past_lengths[num_rows:] = 0
        self._table[:num_rows] = table
        self._table[num_rows:] = 0
        longest = int((pasts + lengths).max())
        self._bounds[:] = self._fixed_bounds or (int(lengths.max()), longest, longest)
        self._columns.send()

    def rehearse(self, max_total: int) -> None:
        """Take tokens of rows that hold nothing, as many as fit. Nothing of them is written."""
        num_tokens, num_rows = len(self._input_ids), len(self._past_lengths)
        lengths = np.minimum(max_total, 1 + _even(num_tokens - num_rows, num_rows))
        token_ids = np.full(int(lengths.sum()), self._pad_id)
        self.fill(token_ids, lengths, np.zeros(num_rows, np.int64), np.zeros_like(self._table))
        self._slot_mapping[:] = _NOWHERE
        self._columns.send()


def _even(num: int, num_parts: int) -> np.ndarray:
    """Divide a number into as many parts that differ by one at most."""
    return num // num_parts + (np.arange(num_parts) < num % num_parts)
