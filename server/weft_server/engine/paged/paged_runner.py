"""Runs a decoder whose caches lie in blocks: decoding rows and pieces of prompts, packed into one run.

It has arrays and no policy. Which row may have which block is the lane's to say, and the pool's to remember.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_proto.paging import block_tokens
from weft_server.engine.full_logits import FullLogits
from weft_server.engine.paged.block_pool import BlockPool, PoolSize
from weft_server.engine.paged.packing import PackedShapes, Packing
from weft_server.runtime.cuda.device_states import PagedStates
from weft_server.runtime.next_tokens import NextTokens, candidates_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence as Many

    from weft_proto.v1 import bundle_pb2
    from weft_server.engine.paged.packing import Shape
    from weft_server.engine.slots import Slots
    from weft_server.runtime.session import BoundSession, Session
    from weft_server.sampling.candidates import Candidates
    from weft_server.source import Source


class PagedPromptPiece(NamedTuple):
    """The next tokens of a prompt, the slot that it is read in, and whether it ends with them."""

    slot: int
    token_ids: np.ndarray
    ends: bool


class PagedRunner:
    """A decoder bound to one lane's blocks. Which of them a slot holds stands in a table."""

    def __init__(
        self,
        manifest: bundle_pb2.BundleManifest,
        decoder: Session,
        slots: Slots,
        num_blocks: int,
        *,
        best: Session | None = None,
        max_kept: int = 0,
    ) -> None:
        """`best` is as in FullLogits, `max_kept` as in BlockPool."""
        self._slots = slots
        self._device = device = decoder.device
        size = PoolSize(num_blocks, block_tokens(manifest.states))
        self.pool = BlockPool(size, slots.num_slots, max_kept)
        self.states = PagedStates(manifest.states, self.pool.num_blocks, device)
        self._max_total = manifest.text.max_total_tokens
        self._pad_id = manifest.text.pad_id
        # The pool's tables, as runs read them: 0 behind the last block of a row.
        self.table = np.zeros((slots.num_slots, size.blocks_of(self._max_total)), np.int32)

        self._asking = FullLogits(manifest, decoder, best, candidates_of(manifest))
        self._next = NextTokens(slots.num_slots, self._asking, manifest.text.target_vocab_size, device)
        self.shapes = PackedShapes(device.batches(slots.num_slots), self._max_total)
        self._packings: dict[Shape, Packing] = {}
        self.bound: dict[tuple[Shape, bool], BoundSession] = {}

    @property
    def largest_piece(self) -> int:
        """The most tokens of prompts that a run reads."""
        return self.shapes.largest_piece

    def num_begun(self, source: Source) -> int:  # noqa: ARG002
        """See Pasts. Prompts are read by the decoder alone."""
        return 0

    def begin(self, slot: int) -> None:
        """See Pasts. The lane then gives the slot its blocks."""
        assert not self.pool.tables[slot], f"slot {slot} begins and holds blocks. This is a bug."

    def adopt(self, slot: int, blocks: list[int]) -> None:
        """Let a slot that has just begun hold what kept blocks hold. What follows is read behind that."""
        self.pool.adopt(slot, blocks)
        self._slots.past_lengths[slot] = len(blocks) * self.pool.size.block_tokens
        self._note(slot)

    def grow(self, slot: int, num_tokens: int) -> None:
        """Give a slot what it lacks to hold so many tokens. It must be free."""
        self.pool.grow(slot, num_tokens)
        self._note(slot)

    def end(self, slot: int) -> None:
        """See Pasts."""
        self.pool.release(slot)
        self._note(slot)

    def move(self, source: int, target: int) -> None:
        """See Pasts. No cache is touched."""
        self.pool.move(source, target)
        self._note(source)
        self._note(target)

    def share(self, source: int, target: int) -> None:
        """See Pasts. Full blocks are shared, and the one that is written next is copied."""
        copy = self.pool.share(source, target, int(self._slots.past_lengths[source]))
        if copy is not None:
            self.states.copy(*copy)
        self._note(target)

    def fork(self, sources: np.ndarray, targets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:  # noqa: ARG002
        """See Pasts. Each pair takes as many blocks as the target lets go of, or fewer: both are equally long."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self.share(source, target)

    def run(self, num_rows: int, pieces: Many[PagedPromptPiece]) -> tuple[int, Candidates]:
        """Feed each of the first `num_rows` slots its input id, and read pieces of prompts. Only the last may not end.

        Returns the number of prompt tokens computed, padding included, and candidates: of each row, and of each prompt
        that has ended.
        """
        slots = np.array([*range(num_rows), *(piece.slot for piece in pieces)])
        token_ids = np.concatenate([self._slots.input_ids[:num_rows, 0], *(piece.token_ids for piece in pieces)])
        lengths = np.array([1] * num_rows + [len(piece.token_ids) for piece in pieces])
        shape = self.shapes.of(num_rows, int(lengths[num_rows:].sum()), len(pieces))
        num_read = num_rows + sum(piece.ends for piece in pieces)
        reads_all = self._asking.reads_all(self._slots, slots[:num_read]) or (
            bool(pieces) and self._asking.prompts_read_all
        )
        packing = self._packing(shape)
        packing.temperatures[: len(slots)] = self._slots.sampling.divisors(slots)
        packing.fill(token_ids, lengths, self._slots.past_lengths[slots], self.table[slots])
        self._bind(shape, reads_all=reads_all).run()
        self._slots.past_lengths[slots] += lengths.astype(np.int32)
        padded = shape.num_tokens - shape.num_rows if pieces else 0
        return padded, self._next.read(shape.num_rows, num_read, reads_all=reads_all)

    def first_runs(self) -> Iterator[None]:
        """Run each shape, a run a turn: once with candidates alone, and once with all logits.

        Runs without prompts are captured, if the session captures: later ones of their size replay them. Large ones go
        first. Small ones then find room in what these leave, and the device gives less memory.
        """
        for reads_all in self._asking.readings:
            for shape in self.shapes.all():
                if not reads_all and not shape.decodes and self._asking.prompts_read_all:
                    continue
                self._packing(shape).rehearse(self._max_total)
                bound = self._bind(shape, reads_all=reads_all)
                (bound.capture if shape.decodes else bound.run)()
                if reads_all:
                    # On a device a row is fetched by a graph of its own, which takes memory the first time.
                    np.asarray(self._next.read(shape.num_rows, 1, reads_all=True).logits[0])
                yield

    def _packing(self, shape: Shape) -> Packing:
        if shape not in self._packings:
            # A row has one token, and no more than the longest has. How few the longest of them has is not known.
            fixed = (1, self._max_total, 0) if self._device.captures and shape.decodes else None
            self._packings[shape] = Packing(
                shape,
                self.table.shape[1],
                self.pool.size.block_tokens,
                self._pad_id,
                self._device,
                fixed_bounds=fixed,
                weighs=self._asking.weighs,
            )
        return self._packings[shape]

    def _bind(self, shape: Shape, *, reads_all: bool) -> BoundSession:
        key = (shape, reads_all)
        if key not in self.bound:
            inputs, written = self.states.ports()
            columns = self._asking.columns(self._packing(shape).ports(), reads_all=reads_all)
            inputs = inputs | columns | self._asking.told(reads_all=reads_all)
            written = written | self._next.blocks(shape.num_rows, reads_all=reads_all)
            self.bound[key] = self._asking.session(reads_all=reads_all).bind(inputs, written)
        return self.bound[key]

    def _note(self, slot: int) -> None:
        """Write a slot's blocks into the table that runs read."""
        held = self.pool.tables[slot]
        self.table[slot, : len(held)] = held
        self.table[slot, len(held) :] = 0
