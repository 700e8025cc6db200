"""How many blocks a sequence takes, and which row holds which: pure policy."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class PoolSize(NamedTuple):
    """So many blocks, each of so many tokens."""

    num_blocks: int
    block_tokens: int

    def blocks_of(self, num_tokens: int) -> int:
        """Return how many blocks hold so many tokens of one row."""
        return -(-num_tokens // self.block_tokens)

    def most(self, num_prompt: int, max_new: int, width: int) -> int:
        """Return how many blocks a sequence holds at most, if its answers are as long as they may be.

        Its rows share what its prompt has filled. The last token of an answer is not read, so it is in no block.
        """
        shared = num_prompt // self.block_tokens
        return shared + width * (self.blocks_of(num_prompt + max_new - 1) - shared)

    def to_begin(self, num_tokens: int, width: int, most: int) -> int:
        """Return how many blocks must be free for rows that begin with so many tokens: theirs, and one more.

        Each row has a block of its own to write in. None needs more than it will ever hold.
        """
        return min(most, num_tokens // self.block_tokens + width + 1)


class Copy(NamedTuple):
    """A block whose content another one needs."""

    source: int
    target: int


class BlockPool:
    """The blocks of the rows 0 to num_rows - 1. Each block is free, held by one or more rows, or kept, or both.

    Who keeps blocks has `max_kept` more than the rows. So rows never lack one because others are kept: what a kept
    block is to the rows that hold it, is none of theirs.
    """

    def __init__(self, size: PoolSize, num_rows: int, max_kept: int = 0) -> None:
        self.size = size
        self.max_kept = max_kept
        # Of each row, in the order of its tokens.
        self.tables: list[list[int]] = [[] for _ in range(num_rows)]
        # The last one is taken next.
        self._free = list(range(self.num_blocks))
        # How many rows hold each block.
        self.holders = [0] * self.num_blocks
        # They stay when no row holds them.
        self._kept: set[int] = set()

    @property
    def num_blocks(self) -> int:
        """All blocks."""
        return self.size.num_blocks + self.max_kept

    @property
    def num_free(self) -> int:
        """Blocks that rows may take now."""
        return self.size.num_blocks - self.num_held

    @property
    def num_held(self) -> int:
        """Blocks that rows hold and nobody keeps, those of several rows once."""
        return self.num_blocks - len(self._free) - len(self._kept)

    @property
    def num_kept(self) -> int:
        """Blocks that are kept, whoever holds them."""
        return len(self._kept)

    @property
    def kept_blocks(self) -> list[int]:
        """Which those are, ascending."""
        return sorted(self._kept)

    def lacks(self, row: int, num_tokens: int) -> int:
        """Return how many blocks a row needs more to hold so many tokens."""
        return max(0, self.size.blocks_of(num_tokens) - len(self.tables[row]))

    def grow(self, row: int, num_tokens: int) -> None:
        """Give a row the blocks that it lacks to hold so many tokens. They must be free."""
        for _ in range(self.lacks(row, num_tokens)):
            self.tables[row].append(self._take())

    def release(self, row: int) -> None:
        """Take all blocks from a row."""
        for block in self.tables[row]:
            self.holders[block] -= 1
            self._free_unless_used(block)
        self.tables[row] = []

    def adopt(self, row: int, blocks: list[int]) -> None:
        """Let a row that has none begin with kept blocks. They are full, so nobody writes them any more."""
        assert not self.tables[row], f"row {row} holds {self.tables[row]}. This is a bug."
        assert self._kept.issuperset(blocks), f"row {row} adopts {blocks}, not all of them kept. This is a bug."
        for block in blocks:
            self.holders[block] += 1
        self.tables[row] = list(blocks)

    def keep(self, block: int) -> None:
        """Let a block that a row holds stay when no row holds it any more."""
        assert self.holders[block], f"block {block} is nobody's, and is to be kept. This is a bug."
        assert block not in self._kept, f"block {block} is kept twice. This is a bug."
        assert len(self._kept) < self.max_kept, f"{self!r} keeps no more. This is a bug."
        self._kept.add(block)

    def drop(self, block: int) -> None:
        """Keep a block no longer. Rows that hold it go on to."""
        self._kept.remove(block)
        self._free_unless_used(block)

    def move(self, source: int, target: int) -> None:
        """Give the blocks of a row to another, which has none."""
        assert not self.tables[target], f"row {target} holds {self.tables[target]}. This is a bug."
        self.tables[target], self.tables[source] = self.tables[source], []

    def share(self, source: int, target: int, num_tokens: int) -> Copy | None:
        """Let a row begin with the tokens that another holds, in place of its own blocks.

        It shares those that are full. Returns which block it needs a copy of, if one is not: its own copy is written
        next.
        """
        num_full, rest = divmod(num_tokens, self.size.block_tokens)
        self.release(target)
        table = self.tables[source][:num_full]
        for block in table:
            self.holders[block] += 1
        self.tables[target] = table
        if not rest:
            return None
        table.append(self._take())
        return Copy(self.tables[source][num_full], table[-1])

    def check_integrity(self) -> None:
        """Raise AssertionError unless each block is free, kept, or held as often as rows have it."""
        held = Counter(block for table in self.tables for block in table)
        for row, table in enumerate(self.tables):
            assert len(set(table)) == len(table), f"row {row} holds a block twice: {table}. This is a bug."
        counted = {block: number for block, number in enumerate(self.holders) if number}
        assert held == counted, f"rows hold {dict(held)}, and {counted} is counted. This is a bug."
        free = sorted([*self._free, *held.keys() | self._kept])
        assert free == list(range(self.num_blocks)), f"free, held and kept are {free}. This is a bug."
        assert self.num_kept <= self.max_kept, f"{self!r} keeps too many. This is a bug."
        assert self.num_free >= 0, f"{self!r} has given more than it has. This is a bug."

    def _take(self) -> int:
        assert self.num_free, f"{self!r} has no free block. This is a bug."
        block = self._free.pop()
        self.holders[block] = 1
        return block

    def _free_unless_used(self, block: int) -> None:
        if not self.holders[block] and block not in self._kept:
            self._free.append(block)

    def __repr__(self) -> str:
        return f"<BlockPool [{self.num_held}/{self.size.num_blocks} held | {self.num_kept}/{self.max_kept} kept]>"
