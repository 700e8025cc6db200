"""Beginnings of prompts that a paged lane has read before: blocks that are kept when no row holds them any more.

A row begins with the blocks of its prompt that are kept. It reads them where they lie, beside all others that do. They
are full, and a row writes behind what it holds. So nobody writes them again, and nothing is copied.

To keep a block that a row has filled takes no memory, and no block from any row: see BlockPool. Which one is kept, and
which one goes for it, is as on the host: see PrefixIndex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_server.engine.prefix_index import PrefixIndex, num_marks_of, trail_of

if TYPE_CHECKING:
    from weft_server.engine.paged.paged_runner import PagedRunner
    from weft_server.engine.prefix_index import CachedPiece, Trail
    from weft_server.engine.slots import Slots
    from weft_server.sequence import Sequence
    from weft_server.telemetry.model_metrics import ModelMetrics


class BlockCache:
    """What one lane keeps in the blocks of its device. Only its engine thread calls it."""

    def __init__(self, runner: PagedRunner, slots: Slots, block_bytes: int, metrics: ModelMetrics) -> None:
        """`block_bytes` are those of a block in all caches together."""
        self._runner = runner
        self._pool = runner.pool
        self._slots = slots
        self._block_bytes = block_bytes
        self._index = PrefixIndex(num_marks_of(self._pool.max_kept * block_bytes))
        # Of prompts in prefill.
        self.trails: dict[Sequence, Trail] = {}
        # The one that was looked up last, and its digests. While it waits for blocks, each step looks it up again.
        self.last: tuple[Sequence, Trail] | None = None
        self._metrics = metrics

    def num_known(self, sequence: Sequence, num_to_read: int) -> int:
        """Return with how many blocks a row would begin that has so many tokens to read. At least one is left."""
        return len(self._usable(self._follow(sequence), num_to_read))

    def begin(self, sequence: Sequence, slot: int, num_to_read: int, *, again: bool) -> None:
        """Let the slot of a prompt, which holds nothing, begin with the blocks that are kept of it.

        What it reads behind them is kept if it was seen before. One that was parked and begins `again` keeps nothing:
        it has been seen by itself.
        """
        trail = self._follow(sequence)
        blocks = self._usable(trail, num_to_read)
        self._runner.adopt(slot, blocks)
        if again:
            return
        self._index.note(trail)
        self.trails[sequence] = trail
        # One that is no longer than a block is never found, so it is not looked for.
        if sequence.num_input_tokens > self._block_tokens:
            sequence.num_cached_tokens = self._block_tokens * len(blocks)
            self._metrics.looked_up(sequence.num_cached_tokens)

    def keep(self, sequence: Sequence, slot: int) -> None:
        """Keep the blocks of a prompt in prefill that its last run has filled, if they were seen before."""
        trail = self.trails.get(sequence)
        if trail is None:
            return
        num_full = int(self._slots.past_lengths[slot]) // self._block_tokens
        while trail.wants_more and len(trail.entries) < num_full:
            # Another prompt may have kept it since.
            entry = self._index.match(trail) or self._add(trail, self._pool.tables[slot][len(trail.entries)])
            if entry is None:
                trail.num_wanted = len(trail.entries)
            else:
                trail.entries.append(entry)

    def forget(self, sequence: Sequence) -> None:
        """Forget a sequence whose prompt is read no further. What is kept of it stays."""
        self.trails.pop(sequence, None)
        if self.last is not None and self.last[0] is sequence:
            self.last = None

    def clear(self) -> None:
        """Keep nothing any more."""
        self.trails.clear()
        self.last = None
        for entry in list(self._index.oldest_first()):
            self._drop(entry)

    @property
    def _block_tokens(self) -> int:
        return self._pool.size.block_tokens

    def _follow(self, sequence: Sequence) -> Trail:
        """Find what is kept of a prompt now."""
        if self.last is None or self.last[0] is not sequence:
            size, source = self._block_tokens, sequence.source
            starts = range(0, source.num_tokens - size + 1, size)
            contents = [source.content(start, start + size) for start in starts]
            self.last = sequence, trail_of(contents, sequence.cache_key)
        trail = self.last[1].afresh()
        self._index.find(trail)
        return trail

    def _usable(self, trail: Trail, num_to_read: int) -> list[int]:
        entries = trail.entries[: (num_to_read - 1) // self._block_tokens]
        return [entry.places[0] for entry in entries]

    def _add(self, trail: Trail, block: int) -> CachedPiece | None:
        """Keep the next block of a trail in the place of one that nobody has asked for the longest.

        It is not kept in three cases: the others are no older than its own, those before it are gone, or its digest is
        taken.
        """
        if not self._index.takes(trail):
            return None
        if self._pool.num_kept == self._pool.max_kept:
            oldest = next(self._index.oldest_first())
            if oldest in trail.entries:
                return None
            self._drop(oldest)
            self._metrics.prefix_cache_evictions.inc()
        self._pool.keep(block)
        self._metrics.prefix_cache_bytes.add(self._block_bytes)
        return self._index.add(trail, [block])

    def _drop(self, entry: CachedPiece) -> None:
        self._index.drop(entry)
        self._pool.drop(entry.places[0])
        self._metrics.prefix_cache_bytes.add(-self._block_bytes)

    def check_integrity(self) -> None:
        """Raise AssertionError unless the pool keeps what is found here and nothing else."""
        entries = list(self._index.oldest_first())
        blocks = [entry.places[0] for entry in entries]
        assert sorted(blocks) == self._pool.kept_blocks, f"{self!r} finds {blocks}. This is a bug."
        self._index.check_integrity()

    def __repr__(self) -> str:
        return f"<BlockCache [{len(self._index)}/{self._pool.max_kept} blocks kept]>"
