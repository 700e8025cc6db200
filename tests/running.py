"""The engine over the toy: all of it, or the rows of a lane alone, whose candidates a test makes up."""

import asyncio
import time

import numpy as np

from toy import START
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.engine import Engine
from weft_server.engine.failure import FailureBudget
from weft_server.engine.rows import Rows
from weft_server.engine.scheduler import Scheduler
from weft_server.engine.slots import Slots
from weft_server.sampling.candidates import Candidates
from weft_server.sequence import Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics


class Running:
    """An engine over the toy, started; stopped at the end of the block, with nothing left in it."""

    def __init__(self, toy, num_slots=4, num_lanes=2, max_queued=1000, max_restarts=10):
        self.metrics = Metrics().for_model("toy", 1, "translate")
        # Those of lanes that have failed stay in these lists.
        self.slots, self.runners = [], []
        self.failure_budget = FailureBudget(max_restarts)

        def make_lane(_):
            self.slots.append(slots := Slots(num_slots, toy.manifest.text.max_new_tokens, 3))
            self.runners.append(runner := DecodeRunner(toy.manifest, toy.encoder, toy.decoder, slots))
            return DecodeLane(slots, runner, start_id=START, end_ids=(2,), prefill_budget=64, metrics=self.metrics)

        # What makes a lane in the place of one that has failed. A test may have another one.
        self.make_lane = make_lane
        self.scheduler = Scheduler(num_lanes, max_queued, 10_000)
        self.engine = Engine(
            self.scheduler,
            [make_lane(index) for index in range(num_lanes)],
            self.metrics,
            asyncio.get_running_loop(),
            make_lane=lambda index: self.make_lane(index),  # noqa: PLW0108 - looked up when it is called
            failure_budget=self.failure_budget,
        )

    async def __aenter__(self):
        """Lanes are warm, or have failed to be, when `warm` has ended."""
        self.warm = self.engine.start()
        return self

    async def __aexit__(self, *_):
        assert await asyncio.to_thread(self.engine.stop, 30)
        for slots in self.slots:
            slots.check_integrity()
            assert 0 == slots.num_used
        stats = self.engine.stats()
        assert (0, 0, 0, 0) == (stats.queued, stats.running, stats.held.slots_used, stats.queued_tokens)
        assert not any(self.scheduler.loads)

    def submit(self, source, decoding, **more):
        """Submit as the servicer does."""
        self.engine.reserve()
        sequence = Sequence("r", Ids(np.array(source, np.int64)), decoding, **more)
        sequence.times.accepted = time.monotonic()
        self.engine.submit(sequence)
        return sequence


def rows_of(opened, num_slots=6, *, end_ids=(2,)):
    """Rows over the toy's states, nobody in them; 2 ends an answer, and a prefix has at most 3 ids."""
    toy, session = opened
    slots = Slots(num_slots, 24, 3)
    metrics = Metrics().for_model("toy", 1, "generate")
    runner = DecodeRunner(toy.manifest, None, session, slots)
    return Rows(slots, runner, end_ids=end_ids, metrics=metrics)


def best(*token_ids):
    """Candidates that give each row one of these tokens."""
    ids = np.array(token_ids)[:, None]
    return Candidates(np.zeros(ids.shape, np.float32), ids, np.zeros(len(ids), np.float32), np.zeros((len(ids), 50)))


def given_to(rows):
    """What there is to hand over: (who, tokens, outcome)."""
    return [(one.sequence.request_id, one.token_ids, one.outcome) for one in rows.hand_over()]
