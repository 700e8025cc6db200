"""A lane over a toy decoder whose cache lies in blocks, with a real queue; and requests of all kinds to ask it."""

import random
from functools import partial

import numpy as np

from paged_toy import END, MAX_TOTAL, VOCAB, WIDTH
from weft_server.engine.paged.block_cache import BlockCache
from weft_server.engine.paged.paged_lane import PagedLane
from weft_server.engine.paged.paged_runner import PagedRunner
from weft_server.engine.scheduler import Scheduler
from weft_server.engine.slots import Slots
from weft_server.logits_processors.penalties import RepetitionPenalty
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Decoding, Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics

# Other tokens that end some answers, so that rows of one request end apart.
STOPS = frozenset({5, 6, 7, 8})
LARGE, BLOCK_TOKENS = 400, 4
BLOCK_BYTES = BLOCK_TOKENS * WIDTH * 4
# What one sequence of the longest length takes.
LEAST = MAX_TOTAL // BLOCK_TOKENS


class Served:
    """A lane over the toy and a real queue, and all that it has handed over."""

    def __init__(self, toy, num_blocks=LARGE, num_slots=6, most_read=None, max_kept=0):
        """A run reads `most_read` tokens of prompts, or as many as it may. So many blocks are kept of them."""
        self.metrics = Metrics().for_model("toy", 1, "generate")
        self.slots = Slots(num_slots, MAX_TOTAL)
        self.runner = PagedRunner(toy.manifest, toy.session, self.slots, num_blocks, max_kept=max_kept)
        if most_read:
            self.runner.shapes.piece_sizes = [most_read]
        self.cache = BlockCache(self.runner, self.slots, BLOCK_BYTES, self.metrics) if max_kept else None
        self.lane = PagedLane(
            self.slots,
            self.runner,
            end_ids=(END,),
            prefill_budget=8,
            metrics=self.metrics,
            block_cache=self.cache,
        )
        self.scheduler = Scheduler(1, 10_000, 1_000_000)
        self.given, self.outcomes, self.outputs = {}, {}, {}
        self.now = 0.0
        # In which step each has ended.
        self.num_steps, self.ended_in = 0, {}

    def ask(self, prompt, decoding, **more):
        """Let a prompt wait."""
        sequence = Sequence(str(len(self.given)), Ids(np.array(prompt)), decoding, **more)
        self.given[sequence] = []
        self.scheduler.reserve()
        self.scheduler.enqueue(sequence)
        return sequence

    def step(self):
        """Let the lane step, and check all books after it."""
        self.num_steps += 1
        take = partial(self.scheduler.take, 0, now=self.now)
        for delivery in self.lane.step(take):
            self.note(delivery)
        self.check()

    def note(self, delivery):
        """Take what a lane hands over, as an engine does."""
        assert delivery.sequence not in self.outcomes, "something came behind an end"
        self.given[delivery.sequence] += zip(delivery.token_ids, delivery.log_probs, strict=True)
        if delivery.num_freed:
            self.scheduler.free(0, delivery.num_freed)
        if delivery.outcome is not None:
            self.outcomes[delivery.sequence] = delivery.outcome
            self.outputs[delivery.sequence] = delivery.outputs
            self.ended_in[delivery.sequence] = self.num_steps

    def check(self):
        """Blocks and slots are whole, and full rows hold what they need and no more."""
        self.slots.check_integrity()
        self.runner.pool.check_integrity()
        if self.cache:
            self.cache.check_integrity()
            assert self.runner.pool.num_kept * BLOCK_BYTES == self.metrics.prefix_cache_bytes.value
        for slot, sequence in enumerate(self.slots.sequences):
            table = self.runner.pool.tables[slot]
            assert bool(table) == (sequence is not None)
            assert table == self.runner.table[slot, : len(table)].tolist()
            assert not self.runner.table[slot, len(table) :].any()

    def run(self):
        """Step until everybody has ended."""
        while self.lane.is_busy or self.scheduler.waiting:
            self.step()
        assert 0 == self.runner.pool.num_held == self.slots.num_used == self.scheduler.loads[0]
        return self

    @property
    def answers(self):
        """The tokens that each has been given, and how all ended."""
        return [[token for token, _ in given] for given in self.given.values()]


def mixture(seed, num=40):
    """Prompts of all lengths, each with how it decodes."""
    rng = random.Random(seed)
    for index in range(num):
        prompt = [rng.randrange(3, VOCAB) for _ in range(rng.randrange(1, MAX_TOTAL * 2 // 3))]
        max_new = rng.randrange(1, MAX_TOTAL - len(prompt) + 1)
        kind = index % 7
        more = {}
        if kind == 1:
            more["sampling"] = Sampling(5.0, 0, 1.0, seed=index)
        elif kind == 2:
            more["rules"] = (RepetitionPenalty(3.0),)
        elif kind == 3:
            more |= {"sampling": Sampling(9.0, 0, 1.0, seed=index), "num_outputs": rng.randrange(1, 4)}
            more["stop_ids"] = STOPS
        elif kind == 4:
            more["beams"] = Beams(rng.randrange(1, 4))
        elif kind == 5:
            more |= {"alternatives": True, "num_outputs": rng.randrange(1, 4), "stop_ids": STOPS}
        yield prompt, Decoding(max_new, **more), kind == 0


def needs(prompt, decoding):
    """How many blocks a request takes at most."""
    shared = len(prompt) // BLOCK_TOKENS
    longest = -(-(len(prompt) + decoding.max_new_tokens - 1) // BLOCK_TOKENS)
    return shared + decoding.width * (longest - shared)


async def served(toy, num_blocks, requests, num_slots=6, most_read=None):
    """All of these at once."""
    lane = Served(toy, num_blocks, num_slots, most_read)
    for prompt, decoding, streams in requests:
        lane.ask(prompt, decoding, wants_tokens=streams, wants_scores=True)
    return lane.run()
