"""A decode lane's step: how much admission it allows itself while others wait for their next token."""

import asyncio

import numpy as np
import pytest

from weft_proto.v1 import bundle_pb2
from weft_server.bundle import load_bundle
from weft_server.decode_lane import UNWATCHED_BUDGET, DecodeLane
from weft_server.metrics import Metrics
from weft_server.runner import PREFILL_BUCKETS, DecodeRunner
from weft_server.sequence import Decoding, Sequence
from weft_server.session import Session
from weft_server.slots import Slots

BUDGET = 16


class Watched:
    """A lane over a tiny generator, whose prefill runs are written down: (step, padded length)."""

    def __init__(self, directory, num_slots):
        bundle = load_bundle(directory)
        session = Session(bundle.path(bundle.graph(bundle_pb2.GRAPH_ROLE_DECODER).path), 1)
        self.slots = Slots(num_slots, bundle.manifest.text.max_new_tokens)
        self.runner = DecodeRunner(bundle.manifest, None, session, self.slots)
        metrics = Metrics().for_model("m", 1, "generate")
        ends = tuple(bundle.manifest.text.end_ids)
        self.lane = DecodeLane(
            self.slots, self.runner, start_id=None, end_ids=ends, prefill_budget=BUDGET, metrics=metrics
        )
        self.waiting, self.num_steps, self.runs = [], 0, []
        prefill = self.runner.prefill

        def watched(slot, token_ids):
            padded, candidates = prefill(slot, token_ids)
            self.runs.append((self.num_steps, padded))
            return padded, candidates

        self.runner.prefill = watched

    def ask(self, num_tokens, num_new):
        """Let a prompt wait."""
        decoding = Decoding(num_new, num_new)
        self.waiting.append(Sequence("r", np.arange(3, 3 + num_tokens) % 200, num_tokens, decoding))

    def step(self):
        """Let the lane step; the padded tokens of prompts that it read."""
        self.num_steps += 1
        self.runs.clear()
        self.lane.step(lambda num, _: [self.waiting.pop(0) for _ in range(min(num, len(self.waiting)))])
        return sum(padded for _, padded in self.runs)


@pytest.fixture
def watched(tiny_repository):
    """A lane of 4 slots."""
    return Watched(tiny_repository / "tiny-generate" / "1", 4)


def test_a_lane_that_decodes_reads_no_more_of_a_prompt_than_its_budget(watched):
    """While a row runs, a step's prefill is one bucket of the budget, until the long prompt has been read."""

    async def run():
        watched.ask(4, 40)
        watched.step()
        watched.ask(44, 2)
        return [watched.step() for _ in range(4)]

    assert [16, 16, 16, 0] == asyncio.run(run())
    assert BUDGET in PREFILL_BUCKETS


def test_a_lane_where_nobody_decodes_reads_a_whole_prompt(watched):
    """The first prompt makes nobody wait, so that one step reads it and starts to decode."""

    async def run():
        watched.ask(44, 4)
        return watched.step()

    assert 44 <= asyncio.run(run()) <= UNWATCHED_BUDGET
    assert 1 == watched.slots.num_running


def test_the_budget_grows_with_the_rows_that_decode(tiny_repository):
    """With 40 rows a step may read 40 tokens of prompts: admission keeps up with what ends."""
    watched = Watched(tiny_repository / "tiny-generate" / "1", 48)

    async def run():
        for _ in range(40):
            watched.ask(1, 30)
        while watched.waiting:
            watched.step()
        watched.ask(44, 2)
        return watched.step()

    assert 32 <= asyncio.run(run()) <= 48
