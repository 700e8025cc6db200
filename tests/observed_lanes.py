"""Lanes that decode, whose prefill and encoder runs are written down."""

from functools import partial
from operator import attrgetter

import numpy as np

from toy import MAX_SOURCE, START, Toy
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.run_shapes import EXACT, RunShapes
from weft_server.engine.scheduler import Scheduler
from weft_server.engine.slots import Slots
from weft_server.runtime.device import HOST
from weft_server.runtime.session import Session
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics

BUDGET = 16


class Watched:
    """A lane over a tiny generator, whose prefill runs are written down: (step, padded length)."""

    def __init__(self, directory, num_slots, budget=BUDGET, *, mixes=False, joins=False, device=HOST):
        bundle = load_bundle(directory)
        session = Session(bundle.path(bundle.graph(bundle_pb2.GRAPH_ROLE_DECODER).path), 1, device)
        mixed = Session(bundle.path(bundle.graph(bundle_pb2.GRAPH_ROLE_MIXED).path), 1) if mixes else None
        self.slots = Slots(num_slots, bundle.manifest.text.max_new_tokens)
        self.runner = DecodeRunner(bundle.manifest, None, session, self.slots, mixed)
        self.metrics = Metrics().for_model("m", 1, "generate")
        ends = tuple(bundle.manifest.text.end_ids)
        self.lane = DecodeLane(
            self.slots,
            self.runner,
            start_id=None,
            end_ids=ends,
            prefill_budget=budget,
            metrics=self.metrics,
            joins=joins,
        )
        self.waiting, self.num_steps, self.runs = [], 0, []
        prefill = self.runner.prefill

        def watched(*piece):
            padded, candidates = prefill(*piece)
            self.runs.append((self.num_steps, padded))
            return padded, candidates

        self.runner.prefill = watched
        join = self.runner.join

        def watched_join(slot, prompts):
            padded, candidates = join(slot, prompts)
            self.joined.append([len(prompt) for prompt in prompts])
            return padded, candidates

        self.runner.join, self.joined = watched_join, []
        together = self.runner.mixed

        def watched_together(num_rows, token_ids, *, ends):
            padded, candidates = together(num_rows, token_ids, ends=ends)
            self.mixed_runs.append((num_rows, padded))
            return padded, candidates

        self.runner.mixed, self.mixed_runs, self.answers = watched_together, [], {}

    def ask(self, num_tokens, num_new, *, streams=True):
        """Let a prompt wait."""
        ids, decoding = np.arange(3, 3 + num_tokens) % 200, Decoding(num_new, num_new)
        sequence = Sequence("r", Ids(ids), decoding, wants_tokens=streams, wants_scores=len(self.answers) % 2 == 0)
        self.answers[sequence] = []
        self.waiting.append(sequence)

    def step(self):
        """Let the lane step; the padded tokens of prompts that it read."""
        self.num_steps += 1
        self.runs.clear()
        take = lambda intake: [self.waiting.pop(0) for _ in range(min(intake.most, len(self.waiting)))]  # noqa: E731
        for delivery in self.lane.step(take):
            # Who wants no scores has whatever the run had.
            log_probs = delivery.log_probs if delivery.sequence.wants_scores else [None] * len(delivery.log_probs)
            self.answers[delivery.sequence] += zip(delivery.token_ids, log_probs, strict=True)
        return sum(padded for _, padded in self.runs)


class Admitting:
    """A lane over the toy, which encodes; how many sources each of its runs had."""

    def __init__(self, folder, num_slots=12, device=HOST):
        toy = Toy(folder)
        self.slots = Slots(num_slots, 24)
        encoder, decoder = (Session(path, 1, device) for path in (toy.encoder_path, toy.path))
        longest = {"input_ids": Ids(np.zeros(MAX_SOURCE, np.int64))}
        shapes = RunShapes(device, attrgetter("width"), longest, most=num_slots, budget=512)
        runner = DecodeRunner(toy.manifest, encoder, decoder, self.slots, shapes=EXACT if device.in_place else shapes)
        metrics = Metrics().for_model("toy", 1, "translate")
        self.lane = DecodeLane(self.slots, runner, start_id=START, end_ids=(2,), prefill_budget=8, metrics=metrics)
        self.scheduler, self.runs = Scheduler(1, 99, 1000), []
        encode = runner.encode

        def watched(inputs, slots):
            self.runs.append(len(inputs))
            encode(inputs, slots)

        runner.encode = watched

    def ask(self, num, *, streams=False, length=6):
        """Let so many sources wait."""
        for _ in range(num):
            self.scheduler.reserve()
            decoding = Decoding(20, 20)
            self.scheduler.enqueue(Sequence("r", Ids(np.arange(3, 3 + length)), decoding, wants_tokens=streams))

    def step(self):
        """Let the lane step; how many sources each encoder run of the step had."""
        self.runs.clear()
        self.lane.step(partial(self.scheduler.take, 0))
        return list(self.runs)
