"""How large a pool of blocks is, and how much of it a sequence takes: to begin, and at most."""

from __future__ import annotations

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
