"""Laws of the blocks of a cache: none is lost, none is written by two, whoever comes, grows, forks and goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_server.engine.paged.block_pool import BlockPool, PoolSize

NUM_ROWS, NUM_BLOCKS, MAX_KEPT, BLOCK_TOKENS = 5, 12, 3, 4
SIZE = PoolSize(NUM_BLOCKS, BLOCK_TOKENS)


class Tokens:
    """Rows whose tokens are written down twice: in blocks, by the pool's tables, and in lists."""

    def __init__(self):
        self.pool = BlockPool(SIZE, NUM_ROWS, MAX_KEPT)
        self.blocks = [[None] * BLOCK_TOKENS for _ in range(NUM_BLOCKS + MAX_KEPT)]
        # Beginnings of rows of which each block was kept, the newest last: their blocks, and their tokens.
        self.kept = []
        self.rows = [[] for _ in range(NUM_ROWS)]
        self.num_written = 0

    def write(self, row, number):
        """Let a row grow by so many tokens, if there are blocks."""
        if self.pool.lacks(row, len(self.rows[row]) + number) > self.pool.num_free:
            return
        self.pool.grow(row, len(self.rows[row]) + number)
        for _ in range(number):
            block, place = divmod(len(self.rows[row]), BLOCK_TOKENS)
            self.num_written += 1
            self.blocks[self.pool.tables[row][block]][place] = self.num_written
            self.rows[row].append(self.num_written)

    def end(self, row, _):
        """Let go of a row."""
        self.pool.release(row)
        self.rows[row] = []

    def fork(self, row, number):
        """Let another row go on from this one's past, if there is a block for it."""
        target = (row + 1 + number) % NUM_ROWS
        held_before = self.pool.num_free + sum(self.pool.holders[block] == 1 for block in self.pool.tables[target])
        if target == row or not held_before:
            return
        copy = self.pool.share(row, target, len(self.rows[row]))
        if copy:
            self.blocks[copy.target] = self.blocks[copy.source].copy()
        self.rows[target] = self.rows[row].copy()

    def move(self, row, number):
        """Move a row into a hole."""
        hole = (row + 1 + number) % NUM_ROWS
        if not self.rows[hole] and hole != row:
            self.pool.move(row, hole)
            self.rows[row], self.rows[hole] = self.rows[hole], self.rows[row]

    def keep(self, row, _):
        """Keep a row's first full block that is not, and drop another if there are as many as may be."""
        full = self.pool.tables[row][: len(self.rows[row]) // BLOCK_TOKENS]
        kept = set(self.pool.kept_blocks)
        index = next((index for index, block in enumerate(full) if block not in kept), None)
        if index is None:
            return
        if len(kept) == MAX_KEPT:
            self._drop(min(kept))
        self.pool.keep(full[index])
        self.kept.append((full[: index + 1], self.rows[row][: (index + 1) * BLOCK_TOKENS]))

    def drop(self, _, number):
        """Keep one of the blocks no longer, if rows that hold it may have it for their own."""
        kept = self.pool.kept_blocks
        if kept and self.pool.num_free:
            self._drop(kept[number % len(kept)])

    def _drop(self, block):
        self.pool.drop(block)
        self.kept = [each for each in self.kept if block not in each[0]]

    def adopt(self, row, number):
        """Let a row that holds nothing begin with what was kept of another, if all of that is."""
        if self.kept and not self.rows[row]:
            blocks, tokens = self.kept[number % len(self.kept)]
            self.pool.adopt(row, blocks)
            self.rows[row] = list(tokens)

    def read(self, row):
        """What stands in a row's blocks."""
        places = (divmod(index, BLOCK_TOKENS) for index in range(len(self.rows[row])))
        return [self.blocks[self.pool.tables[row][block]][place] for block, place in places]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [Tokens.write] * 3 + [Tokens.end, Tokens.fork, Tokens.move, Tokens.keep, Tokens.drop, Tokens.adopt]
        ),
        st.integers(0, NUM_ROWS - 1),
        st.integers(0, 9),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_row_reads_what_it_wrote(steps):
    """Over any order of growing, forking, moving, keeping, adopting and ending: no block is another's, and none leaks.

    What is kept stays as it was, whoever reads it and goes on behind it. Rows have as many blocks as without it.
    """
    tokens = Tokens()
    for change, row, number in steps:
        change(tokens, row, number)
        tokens.pool.check_integrity()
        assert NUM_BLOCKS == tokens.pool.num_free + tokens.pool.num_held
        for each in range(NUM_ROWS):
            assert tokens.rows[each] == tokens.read(each)
        for blocks, written in tokens.kept:
            assert written == [token for block in blocks for token in tokens.blocks[block]]
    for row in range(NUM_ROWS):
        tokens.end(row, 0)
    tokens.pool.check_integrity()
    assert NUM_BLOCKS == tokens.pool.num_free
    for block in tokens.pool.kept_blocks:
        tokens.pool.drop(block)
    tokens.pool.check_integrity()
    assert NUM_BLOCKS == tokens.pool.num_free


def test_a_kept_block_is_taken_from_no_row():
    """It costs those that hold it nothing, stays when none does, and is whoever's was it when it is dropped."""
    pool = BlockPool(PoolSize(3, BLOCK_TOKENS), 2, 1)
    pool.grow(0, 12)
    assert 0 == pool.num_free
    pool.keep(pool.tables[0][0])
    assert (1, 2) == (pool.num_free, pool.num_held)
    pool.adopt(1, pool.tables[0][:1])
    pool.release(0)
    assert (3, 0, 1) == (pool.num_free, pool.num_held, pool.num_kept)
    pool.drop(pool.tables[1][0])
    assert (2, 1, 0) == (pool.num_free, pool.num_held, pool.num_kept)
    pool.release(1)
    assert 3 == pool.num_free
    pool.check_integrity()


def test_blocks_that_are_nobodys_and_not_kept_are_not_adopted():
    """A row that began with a block that may go to another would read the other's tokens."""
    pool = BlockPool(SIZE, 2, MAX_KEPT)
    pool.grow(0, 10)
    with pytest.raises(AssertionError, match=r"not all of them kept. This is a bug."):
        pool.adopt(1, pool.tables[0][:1])


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 4))
def test_a_sequence_holds_no_more_than_its_most(num_prompt, max_new, width):
    """Read, forked into its rows and grown to its end, it holds as many blocks as were counted, and no fewer."""
    most = SIZE.most(num_prompt, max_new, width)
    pool = BlockPool(PoolSize(most, BLOCK_TOKENS), width)
    pool.grow(0, num_prompt)
    for row in range(1, width):
        pool.share(0, row, num_prompt)
    assert pool.num_held <= SIZE.to_begin(num_prompt, width, most) <= most
    for total in range(num_prompt + 1, num_prompt + max_new):
        for row in range(width):
            pool.grow(row, total)
    assert most == pool.num_held
    pool.check_integrity()


def test_a_full_block_is_shared_and_one_that_is_written_is_not():
    """Two rows of ten tokens hold two full blocks together, and each a third of its own."""
    pool = BlockPool(SIZE, 2)
    pool.grow(0, 10)
    copy = pool.share(0, 1, 10)
    assert (pool.tables[0][2], pool.tables[1][2]) == copy
    assert (pool.tables[0][:2], 4) == (pool.tables[1][:2], pool.num_held)
    pool.release(0)
    assert 3 == pool.num_held


def test_blocks_that_are_not_there_are_a_bug():
    """Whoever takes asks before, so an empty pool that is asked is loud."""
    pool = BlockPool(PoolSize(1, 4), 1)
    with pytest.raises(AssertionError, match=r"\[1/1 held \| 0/0 kept\]> has no free block. This is a bug."):
        pool.grow(0, 5)


def test_a_block_that_is_counted_wrongly_is_found():
    """What rows hold and what is counted must agree."""
    pool = BlockPool(SIZE, 2)
    pool.grow(0, 10)
    pool.tables[1] = pool.tables[0][:1]
    with pytest.raises(AssertionError, match=r"is counted. This is a bug."):
        pool.check_integrity()
