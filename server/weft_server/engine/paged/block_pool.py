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
    """Blocks 0 to num_blocks - 1 of the rows 0 to num_rows - 1. Each is free, or held by one or more rows."""

    def __init__(self, size: PoolSize, num_rows: int) -> None:
        self.size = size
        # Of each row, in the order of its tokens.
        self.tables: list[list[int]] = [[] for _ in range(num_rows)]
        # The last one is taken next.
        self._free = list(range(size.num_blocks))
        # How many rows hold each block.
        self.holders = [0] * size.num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    @property
    def num_held(self) -> int:
        """Blocks that somebody holds, those of several rows once."""
        return self.size.num_blocks - len(self._free)

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
            if not self.holders[block]:
                self._free.append(block)
        self.tables[row] = []

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
        """Raise AssertionError unless each block is free, or held as often as rows have it."""
        held = Counter(block for table in self.tables for block in table)
        for row, table in enumerate(self.tables):
            assert len(set(table)) == len(table), f"row {row} holds a block twice: {table}. This is a bug."
        counted = {block: number for block, number in enumerate(self.holders) if number}
        assert held == counted, f"rows hold {dict(held)}, and {counted} is counted. This is a bug."
        free = sorted([*self._free, *held])
        assert free == list(range(self.size.num_blocks)), f"free and held are {free}. This is a bug."

    def _take(self) -> int:
        assert self._free, f"{self!r} has no free block. This is a bug."
        block = self._free.pop()
        self.holders[block] = 1
        return block

    def __repr__(self) -> str:
        return f"<BlockPool [{self.num_held}/{self.size.num_blocks} held]>"
