"""A decode loop with nothing around it: the most tokens a bundle can give here, to hold the server against."""

import asyncio
import threading
import time

import numpy as np

from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.slots import Slots
from weft_server.runtime.cpus import cpu_quota, share_cpus
from weft_server.runtime.cuda.best_only import open_decoder
from weft_server.runtime.device import HOST
from weft_server.runtime.halt import Halt
from weft_server.runtime.session import Session
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics


class Bare:
    """One bundle's decoder (and encoder), opened as the server opens it."""

    def __init__(self, directory, num_lanes, num_threads, device=HOST):
        self.bundle = load_bundle(directory)
        self.manifest = self.bundle.manifest
        self.num_threads = num_threads
        self.num_lanes = num_lanes
        self.device = device
        self.encoder = self._open(bundle_pb2.GRAPH_ROLE_ENCODER)
        if device.in_place:
            self.decoder, self.best = self._open(bundle_pb2.GRAPH_ROLE_DECODER), None
        else:
            path = self._path(bundle_pb2.GRAPH_ROLE_DECODER)
            self.decoder, self.best = open_decoder(
                path, num_threads, device, Halt(), num_best=1 + len(self.manifest.text.end_ids)
            )

    def _path(self, role):
        graph = self.bundle.graph(role)
        return graph and self.bundle.path(graph.path)

    def _open(self, role):
        path = self._path(role)
        return path and Session(path, self.num_threads, self.device)

    def opened(self, num_rows):
        """(slots, runner) with nothing in them."""
        slots = Slots(num_rows, self.manifest.text.max_new_tokens)
        return slots, DecodeRunner(self.manifest, self.encoder, self.decoder, slots, best=self.best)

    def filled(self, num_rows, source):
        """(slots, runner) with every row past the same source or prompt, its next input being that source's last id."""
        slots, runner = self.opened(num_rows)
        slots.memory_lengths[:] = len(source)
        slots.input_ids[:] = self.manifest.text.start_id if self.encoder else source[-1]
        self.read(slots, runner, source)
        return slots, runner

    def read(self, slots, runner, source):
        """Encode the source or prefill the prompt of every row, as admission does."""
        slots.past_lengths[:] = 0
        if self.encoder:
            runner.encode([Ids(np.array(source))] * slots.num_slots, range(slots.num_slots))
            return
        for slot in range(slots.num_slots):
            runner.prefill(slot, np.array(source))

    def tokens_per_s(self, num_rows, source, num_new, seconds, *, reads):
        """Greedy decoding of `num_rows` rows over all lanes, again and again; `reads` source or prompt each time."""
        counts = [0] * self.num_lanes

        def loop(lane):
            slots, runner = self.filled(num_rows // self.num_lanes, source)
            first, past = slots.input_ids.copy(), slots.past_lengths.copy()
            runner.decode(slots.num_slots, captures=True)
            start.wait()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if reads:
                    self.read(slots, runner, source)
                slots.input_ids[:], slots.past_lengths[:] = first, past
                for _ in range(num_new):
                    candidates = runner.decode(slots.num_slots)
                    slots.input_ids[:, 0] = candidates.topk_ids[:, 0]
                counts[lane] += num_new * slots.num_slots

        start = threading.Barrier(self.num_lanes + 1)
        threads = [threading.Thread(target=loop, args=(lane,)) for lane in range(self.num_lanes)]
        for thread in threads:
            thread.start()
        start.wait()
        started = time.monotonic()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.monotonic() - started)

    def host_us_per_step(self, num_rows, source, num_new, rounds):
        """Microseconds of a lane's step beside the model's run: sampling, bookkeeping, hand-over. Median of steps."""
        slots, runner = self.opened(num_rows)
        lane = DecodeLane(
            slots,
            runner,
            start_id=self.manifest.text.start_id if self.encoder else None,
            end_ids=tuple(self.manifest.text.end_ids),
            prefill_budget=100_000,
            metrics=Metrics().for_model("bench", 1, "bench"),
        )
        run, spent = runner.decode, []

        def timed(rows):
            started = time.perf_counter()
            candidates = run(rows)
            spent.append(time.perf_counter() - started)
            return candidates

        runner.decode = timed
        host, waiting = [], []

        def take(intake):
            return [waiting.pop() for _ in range(min(intake.most, len(waiting)))]

        async def steps():
            for _ in range(rounds):
                decoding = Decoding(num_new, num_new - 1)
                waiting.extend(Sequence("r", Ids(np.array(source)), decoding) for _ in range(num_rows))
                lane.step(take)
                for _ in range(num_new - 2):
                    started = time.perf_counter()
                    lane.step(lambda _: [])
                    host.append(time.perf_counter() - started - spent[-1])
                while lane.slots.num_running:
                    lane.step(lambda _: [])

        asyncio.run(steps())
        return float(np.median(host)) * 1e6


def shares():
    """(lanes, threads) as the server would choose them."""
    return share_cpus(0, 0, cpu_quota())
