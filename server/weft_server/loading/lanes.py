"""Makes the lanes of a model's engines, and says how one is made in the place of one that has failed."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import structlog

from weft_proto.sound import longest_prefix
from weft_proto.tasks import TASKS
from weft_proto.token_vectors import has_token_vectors
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.graphs import attends_with_bias
from weft_server.config import MEBIBYTE, flag_name
from weft_server.engine.classify_lane import ClassifyLane
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.mixed_check import verify_mixed
from weft_server.engine.prefill_chunks import PREFILL_BUCKETS
from weft_server.engine.prefix_reader import PrefixReader, prefix_cache_of
from weft_server.engine.run_shapes import DEVICE_RUN_COST, EXACT, UNPADDED, RunShapes
from weft_server.engine.score_lane import ScoreLane
from weft_server.engine.slots import Slots
from weft_server.engine.speculation import Speculation
from weft_server.engine.stretch_runner import StretchRunner
from weft_server.errors import BundleError
from weft_server.loading.exact_drafts import exact_drafts, has_memory, may_draft_mixed
from weft_server.loading.joined_prompts import may_join
from weft_server.loading.limit_checks import verify_classifier, verify_decoder, verify_scorer, verify_stretches
from weft_server.loading.lone_rows import keep_lone_decodes, keep_lone_rows
from weft_server.loading.longest_inputs import longest_source, takes_picture
from weft_server.process.failpoints import POINTS
from weft_server.runtime.adapter_stack import AdapterStack
from weft_server.runtime.cuda.best_only import Decoder, open_decoder
from weft_server.runtime.graph_sandbox import verify_opening
from weft_server.runtime.halt import Halt
from weft_server.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from weft_server.bundle.load import Bundle
    from weft_server.config import ServerConfig
    from weft_server.engine.lane import Lane
    from weft_server.engine.prefix_cache import PrefixCache
    from weft_server.runtime.device import Device
    from weft_server.source import Source
    from weft_server.telemetry.model_metrics import ModelMetrics

_log = structlog.get_logger(__name__)


class Graphs:
    """Opens the graphs of a bundle with the same number of threads, on the devices that its model has.

    The host has all lanes. Elsewhere each lane has a device of its own. `device` is the first, and all are of its kind.
    """

    def __init__(self, bundle: Bundle, devices: list[Device], threads: int, halt: Halt | None = None) -> None:
        """`halt` ends what is opened, and the runs of all that was."""
        self.bundle = bundle
        self.manifest = bundle.manifest
        self.device = devices[0]
        self._devices = devices
        self._threads = threads
        self._halt = halt or Halt()

    @property
    def places(self) -> range:
        """The devices, counted from 0. The lane of an index is at this index, modulo their number."""
        return range(len(self._devices))

    def is_unpadded(self, role: bundle_pb2.GraphRole.ValueType) -> bool:
        """Whether the bundle has such a graph, and it computes no padding."""
        graph = self.bundle.graph(role)
        return graph is not None and graph.unpadded

    def open(self, role: bundle_pb2.GraphRole.ValueType, place: int = 0, *, packs: bool = True) -> Session | None:
        """A session of the graph on a device, or None if the bundle has no such graph."""
        has_graph = self.bundle.graph(role) is not None
        return self.open_needed(role, place, packs=packs) if has_graph else None

    def open_needed(self, role: bundle_pb2.GraphRole.ValueType, place: int = 0, *, packs: bool = True) -> Session:
        """A session of a graph without which the bundle would have been refused."""
        path, device = self._path(role), self._devices[place]
        if device.in_place:
            device = replace(device, row_multiple=max(1, self.bundle.needed_graph(role).row_multiple))
        session = Session(path, self._threads, device, packs=packs, halt=self._halt)
        self._wire(session, role)
        return session

    def open_decoder(self, place: int) -> Decoder:
        """The decoder on a device. On the host, it is open_needed's."""
        role, device = bundle_pb2.GRAPH_ROLE_DECODER, self._devices[place]
        if device.in_place:
            return Decoder(self.open_needed(role, place))
        # Of a greedy row, no end token may come before its least length.
        num_best = 1 + len(self.manifest.text.end_ids)
        decoder = open_decoder(self._path(role), self._threads, device, self._halt, num_best=num_best)
        for session in filter(None, decoder):
            self._wire(session, role)
        return decoder

    def attend_with_bias(self, role: bundle_pb2.GraphRole.ValueType) -> bool:
        """Whether the graph of a role adds something to the scores of its attention over a cache."""
        graph = self.bundle.graph(role)
        return graph is not None and attends_with_bias(self.bundle.path(graph.path))

    def _path(self, role: bundle_pb2.GraphRole.ValueType) -> Path:
        """Where a graph lies. One that is costly to open has been opened once, in a process of its own."""
        graph = self.bundle.needed_graph(role)
        path = self.bundle.path(graph.path)
        if graph.path in self.bundle.costly:
            verify_opening(path, self._halt)
        return path

    def _wire(self, session: Session, role: bundle_pb2.GraphRole.ValueType) -> None:
        if POINTS:
            name = bundle_pb2.GraphRole.Name(role).removeprefix("GRAPH_ROLE_").lower()
            POINTS.wire(session, "run", f"{self.bundle.name}.{name}")


class Lanes(NamedTuple):
    """An engine's lanes, and how the one of an index is made anew: its buffers, and what is bound to them.

    Sessions are the model's. They are opened once on each device, and hold nothing of a run.
    """

    ready: list[Lane]
    make: Callable[[int], Lane]


def classify_lanes(graphs: Graphs, num_lanes: int, config: ServerConfig, metrics: ModelMetrics) -> Lanes:
    """Return lanes that classify, tag or embed. Raises BundleError when the graph is not what it should be."""
    sessions, longest = [], {}
    for place in graphs.places:
        here = []
        for role in sorted(TASKS[graphs.manifest.task].needs):
            session = graphs.open_needed(role, place)
            verify_classifier(session, graphs.manifest, role)
            keep_lone_rows(session, graphs.bundle, role)
            here.append(session)
            source = longest_source(graphs.manifest, takes_image=takes_picture(graphs.manifest, role))
            longest[source.port] = source
        sessions.append(here)
    return _batching(ClassifyLane, sessions, longest, graphs, num_lanes, config, metrics)


def sight_lanes(graphs: Graphs, num_lanes: int, config: ServerConfig, metrics: ModelMetrics) -> Lanes | None:
    """Return lanes that encode the pictures of prompts, if the bundle has a graph for it. Raises as classify_lanes."""
    role = bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER
    if graphs.bundle.graph(role) is None:
        return None
    sessions = []
    for place in graphs.places:
        session = graphs.open_needed(role, place)
        verify_classifier(session, graphs.manifest, role)
        keep_lone_rows(session, graphs.bundle, role)
        sessions.append([session])
    source = longest_source(graphs.manifest, takes_image=True)
    return _batching(ClassifyLane, sessions, {source.port: source}, graphs, num_lanes, config, metrics, "sight_")


def score_lanes(graphs: Graphs, num_lanes: int, config: ServerConfig, metrics: ModelMetrics) -> Lanes | None:
    """Return lanes that score given answers, if the bundle has a graph for it. It has not been tried on devices.

    Few models are asked for scores. Packed weights would take as much memory again as those of the decoder. Without
    them a run takes a seventh to a quarter more, and that of a lone short answer twice as long. A recurrent model packs
    them: its products have a row for each answer, and one row alone has other bits than several, unless packed.
    """
    packs = any(state.kind == bundle_pb2.STATE_KIND_RECURRENT for state in graphs.manifest.states)
    session = graphs.open(bundle_pb2.GRAPH_ROLE_SCORE, packs=packs) if graphs.device.kind == "cpu" else None
    if session is None:
        return None
    verify_scorer(session, graphs.manifest)
    return _batching(ScoreLane, [[session]], {}, graphs, num_lanes, config, metrics, "score_")


def _batching(
    kind: type[ClassifyLane],
    sessions: list[list[Session]],
    longest: dict[str, Source],
    graphs: Graphs,
    num_lanes: int,
    config: ServerConfig,
    metrics: ModelMetrics,
    name: str = "",
) -> Lanes:
    """Make lanes over the `sessions` of each device. `name` stands before the name of their steps."""
    manifest = graphs.manifest

    def make(index: int) -> Lane:
        lane = kind(
            sessions[index % len(sessions)],
            per_token=TASKS[manifest.task].labels_tokens or has_token_vectors(manifest),
            best_only=TASKS[manifest.task].labels_frames,
            pad_id=manifest.text.pad_id,
            max_batch=config.max_batch,
            batch_tokens=config.batch_tokens,
            metrics=metrics,
            longest=longest,
            unpadded=any(graphs.is_unpadded(role) for role in TASKS[manifest.task].needs),
            stack=stack_of(manifest, config.max_batch),
        )
        if POINTS:
            POINTS.wire(lane, "step", f"{graphs.bundle.name}.{name}step")
        return lane

    return Lanes([make(index) for index in range(num_lanes)], make)


def decode_lanes(graphs: Graphs, num_lanes: int, config: ServerConfig, metrics: ModelMetrics) -> Lanes:
    """Return lanes that produce text. Raises BundleError when a graph is not what it should be.

    On the host they are warm. On a device each has to warm itself, in its own thread.
    """
    manifest = graphs.manifest
    text = manifest.text
    encoders = [graphs.open(bundle_pb2.GRAPH_ROLE_ENCODER, place) for place in graphs.places]
    opened = [graphs.open_decoder(place) for place in graphs.places]
    decoders = [decoder.whole for decoder in opened]
    # A MIXED graph is a second copy of the weights. It is of no use in two cases:
    # 1. The device does not compute in place: it has not been tried there.
    # 2. Each lane has one slot: beside its row there is none for a prompt.
    may_mix = graphs.device.in_place and config.slots > num_lanes
    mixed = graphs.open(bundle_pb2.GRAPH_ROLE_MIXED) if may_mix else None
    # So is this one: unpacked, its runs would take longer, and of some models they read all prompts.
    both_ways = graphs.open(bundle_pb2.GRAPH_ROLE_BIDIRECTIONAL)
    cache = _prefix_cache(graphs, config, metrics)
    max_prefix = longest_prefix(manifest)
    is_biased = not graphs.device.in_place and graphs.attend_with_bias(bundle_pb2.GRAPH_ROLE_DECODER)
    keep_lone_decodes(decoders[0], graphs.bundle)
    filled = decoders[0].device.filled
    max_drafts = exact_drafts(graphs.bundle, decoders[0], config.num_speculative_tokens)
    joins = TASKS[manifest.task].takes_prompt and may_join(graphs.bundle, decoders[0])
    may_draft_beside = mixed is not None and may_draft_mixed(graphs.bundle, decoders[0], mixed, max_drafts)

    def make(index: int) -> DecodeLane:
        # The slots are divided as evenly as possible. A run that is filled up needs one for each of its rows.
        num_slots = filled(config.slots // num_lanes + (index < config.slots % num_lanes))
        slots = Slots(num_slots, text.max_new_tokens, max_prefix, stack_of(manifest, num_slots))
        place = index % len(decoders)
        encoder, decoder = encoders[place], decoders[place]
        shapes = _encoder_shapes(graphs, num_slots, config) if encoder else EXACT
        runner = DecodeRunner(
            manifest,
            encoder,
            decoder,
            slots,
            mixed,
            best=opened[place].best,
            shapes=shapes,
            is_biased=is_biased,
            max_drafts=max_drafts,
        )
        stretches = StretchRunner(manifest, both_ways, slots, runner) if both_ways else None
        lane = DecodeLane(
            slots,
            runner,
            start_id=text.start_id if text.HasField("start_id") else None,
            end_ids=tuple(text.end_ids),
            prefill_budget=config.prefill_budget,
            metrics=metrics,
            prefix_reader=PrefixReader(cache, runner.host_states, slots, metrics, stretches)
            if cache and runner.host_states
            else None,
            speculation=Speculation(
                slots,
                max_total=text.max_total_tokens,
                most=max_drafts,
                metrics=metrics,
                vocab_size=text.target_vocab_size,
                has_memory=has_memory(manifest),
                beside=may_draft_beside,
            )
            if max_drafts
            else None,
            stretches=stretches,
            joins=joins,
        )
        if POINTS:
            for method in ("prefill", "mixed", "decode", "verify"):
                POINTS.wire(runner, method, f"{graphs.bundle.name}.{method}")
            # It too reads prompts.
            POINTS.wire(runner, "join", f"{graphs.bundle.name}.prefill")
            POINTS.wire(lane, "step", f"{graphs.bundle.name}.step")
            if stretches:
                POINTS.wire(stretches, "read", f"{graphs.bundle.name}.read")
        return lane

    lanes: list[Lane] = []
    for index in range(num_lanes):
        lane = make(index)
        if graphs.device.in_place:
            lane.runner.warm()
        if index in graphs.places:
            _verify_runner(lane.runner, lane.slots, manifest)
            if lane.stretches:
                verify_stretches(lane.stretches, lane.slots, manifest)
        lanes.append(lane)
    return Lanes(lanes, make)


def _encoder_shapes(graphs: Graphs, num_slots: int, config: ServerConfig) -> RunShapes:
    """Which shapes the runs of an encoder have."""
    if graphs.device.in_place:
        return UNPADDED if graphs.is_unpadded(bundle_pb2.GRAPH_ROLE_ENCODER) else EXACT
    source = longest_source(graphs.manifest, takes_image=TASKS[graphs.manifest.task].takes_image)
    budget = max(config.prefill_budget, DEVICE_RUN_COST)
    return RunShapes(graphs.device, attrgetter("width"), {source.port: source}, most=num_slots, budget=budget)


def stack_of(manifest: bundle_pb2.BundleManifest, num_places: int) -> AdapterStack | None:
    """Room for the adapters of so many rows, or None if the model takes none."""
    return AdapterStack(manifest.adapters, num_places) if manifest.adapters.layers else None


def _prefix_cache(graphs: Graphs, config: ServerConfig, metrics: ModelMetrics) -> PrefixCache | None:
    """The cache that the lanes share, if there is to be one. Pictures and recordings have none: no salt is theirs."""
    num_bytes = config.prefix_cache_mb * MEBIBYTE
    if not num_bytes or not TASKS[graphs.manifest.task].takes_text:
        return None
    if graphs.manifest.text.bidirectional == bundle_pb2.BIDIRECTIONAL_PROMPT:
        return None  # what is kept of a prompt would be of use to no other
    if not graphs.device.in_place:
        _log.warning("no prefix cache on a device without --paged", model=graphs.bundle.name)
        return None
    try:
        cache = prefix_cache_of(graphs.manifest, num_bytes, metrics)
    except MemoryError as error:
        raise BundleError(f"{flag_name('prefix_cache_mb')} asks for more memory than this machine gives") from error
    if not cache.num_places:
        wanted = -(-cache.place_bytes // MEBIBYTE) + 1
        _log.warning("prefix cache too small, none is used", model=graphs.bundle.name, wanted_mb=wanted)
        return None
    metrics.prefix_cache_max_bytes = num_bytes
    return cache


def _verify_runner(runner: DecodeRunner, slots: Slots, manifest: bundle_pb2.BundleManifest) -> None:
    """Try what the first lane of a device runs. The other lanes there run the same sessions."""
    text = manifest.text
    if runner.mixes:
        length = min(PREFILL_BUCKETS[0], text.max_total_tokens - 1)
        verify_mixed(runner, slots, np.arange(length) % text.target_vocab_size)
    verify_decoder(runner, slots, manifest)
