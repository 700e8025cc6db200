"""Builds a model from its bundle: opens its graphs, tries them, and makes the lanes of its engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import structlog

from weft_proto.languages import Languages
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2
from weft_server.choosing.beams import most_beams
from weft_server.config import MEBIBYTE, flag_name
from weft_server.content.chat import Chat
from weft_server.content.grammars import Grammars
from weft_server.content.inputs import InputReader
from weft_server.content.tokenizer import Tokenizer
from weft_server.engine.chunks import PREFILL_BUCKETS
from weft_server.engine.classify_lane import ClassifyLane
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.engine import Engine
from weft_server.engine.mixed_proof import verify_mixed
from weft_server.engine.recall import Recall, prefix_cache_of
from weft_server.engine.runner import DecodeRunner, candidates_of
from weft_server.engine.scheduler import Scheduler
from weft_server.engine.score_lane import ScoreLane
from weft_server.engine.slots import Slots
from weft_server.errors import BundleError
from weft_server.runtime.cpus import cpu_quota, share_cpus
from weft_server.runtime.device import device_of, verify_precision
from weft_server.runtime.session import Session
from weft_server.serving.decoding import Widths, default_width
from weft_server.serving.explainer import Explainer
from weft_server.serving.extremes import verify_classifier, verify_decoder, verify_explainer, verify_scorer
from weft_server.serving.model import Model, worker_name
from weft_server.serving.room import verify_room

if TYPE_CHECKING:
    import asyncio

    from weft_server.bundle.load import Bundle
    from weft_server.config import ServerConfig
    from weft_server.engine.lane import Lane
    from weft_server.engine.prefix_cache import PrefixCache
    from weft_server.runtime.device import Device
    from weft_server.telemetry.metrics import ModelMetrics

_log = structlog.get_logger(__name__)
# Parameters of a model that does not pack its weights for explanations too: they would take their size once more, and
# a start as long again. An explanation takes longer instead.
_LARGE = 1 << 28


def build_model(bundle: Bundle, config: ServerConfig, metrics: ModelMetrics, loop: asyncio.AbstractEventLoop) -> Model:
    """Return a model whose engine has not started. Raises BundleError when a graph is not what it should be.

    Building takes seconds. Answers arrive on `loop`.
    """
    manifest = bundle.manifest
    source_tokenizer = _source_tokenizer(bundle)
    target = manifest.text.target_tokenizer
    target_tokenizer = Tokenizer(bundle.path(target)) if target else None
    reader = InputReader(
        manifest,
        source_tokenizer,
        Chat(manifest.text.chat, bundle.path(manifest.text.chat.template)) if manifest.text.HasField("chat") else None,
        max_image_bytes=config.max_image_bytes,
        max_image_pixels=config.max_image_pixels,
    )

    device = device_of(config)
    verify_precision(manifest.precision, device)
    num_lanes, threads = _share(manifest, config, device)
    if device.kind == "cpu":
        verify_room(bundle, config)
    graphs = _Graphs(bundle, device, threads)
    explainer = _explainer(graphs, config, metrics)
    make_lanes = _decode_lanes if TASKS[manifest.task].writes_text else _classify_lanes
    lanes = make_lanes(graphs, num_lanes, config, metrics)
    scheduler = Scheduler(num_lanes, config.max_queued_requests, config.max_queued_tokens, config.weights)
    score_lanes = _score_lanes(graphs, num_lanes, config, metrics)

    grammars = Grammars(
        target_tokenizer,
        manifest.text.target_vocab_size,
        manifest.text.end_ids,
        model=bundle.name,
        thread_name=f"{worker_name(bundle)}-constraint",
    )
    grammars.open()
    return Model(
        bundle=bundle,
        metrics=metrics,
        source_tokenizer=source_tokenizer,
        target_tokenizer=target_tokenizer,
        reader=reader,
        engine=Engine(scheduler, lanes, metrics, loop),
        explainer=explainer,
        scorer=_scorer(score_lanes, config, metrics, loop) if score_lanes else None,
        widths=widths_of(manifest, config),
        grammars=grammars,
        max_building=max(1, config.max_queued_requests // 4),
    )


class _Graphs:
    """Opens the graphs of a bundle, all on one device and with the same number of threads."""

    def __init__(self, bundle: Bundle, device: Device, threads: int) -> None:
        self.bundle = bundle
        self.manifest = bundle.manifest
        self.device = device
        self._threads = threads

    def open(
        self, role: bundle_pb2.GraphRole.ValueType, *, captures: bool = False, packs: bool = True
    ) -> Session | None:
        """A session of the graph, or None if the bundle has no such graph."""
        graph = self.bundle.graph(role)
        if graph is None:
            return None
        return Session(self.bundle.path(graph.path), self._threads, self.device, captures=captures, packs=packs)


def _source_tokenizer(bundle: Bundle) -> Tokenizer | None:
    text = bundle.manifest.text
    if not text.source_tokenizer:
        return None
    tokenizer = Tokenizer(bundle.path(text.source_tokenizer))
    if tokenizer.num_ids > text.source_vocab_size:
        raise BundleError(f"{text.source_tokenizer} has ids beyond text.source_vocab_size {text.source_vocab_size}")
    return tokenizer


def _share(manifest: bundle_pb2.BundleManifest, config: ServerConfig, device: Device) -> tuple[int, int]:
    """How many lanes the model gets, and how many threads each of its sessions."""
    num_lanes, threads = share_cpus(config.lanes, config.threads, cpu_quota())
    if TASKS[manifest.task].writes_text and num_lanes > (most := _most_lanes(manifest, config)):
        num_lanes, threads = share_cpus(most, config.threads, cpu_quota())
    if device.kind == "cuda":
        num_lanes = 1
    return num_lanes, capped_threads(threads, manifest)


def _most_lanes(manifest: bundle_pb2.BundleManifest, config: ServerConfig) -> int:
    """How many lanes have slots enough for a request that asks for nothing. One that is too narrow would never run."""
    return max(1, config.slots // default_width(manifest))


def widths_of(manifest: bundle_pb2.BundleManifest, config: ServerConfig) -> Widths:
    """Return how many rows a request may take: no more than the narrowest lane has slots.

    A beam search must also be decided by the candidates of its rows. See choosing/beams.py.
    """
    if not TASKS[manifest.task].writes_text:
        return Widths(0, 0, 0)
    text = manifest.text
    num_slots = config.slots // _share(manifest, config, device_of(config))[0]
    num_candidates = candidates_of(manifest)
    # Each alternative begins with another token, and none with an end token.
    max_outputs = min(num_slots, max(1, text.target_vocab_size - len(text.end_ids)))
    max_beams = min(num_slots, most_beams(num_candidates, len(text.end_ids)))
    return Widths(max_beams, max_outputs, num_candidates)


def capped_threads(threads: int, manifest: bundle_pb2.BundleManifest) -> int:
    """`threads`, but no more than one for each head of attention over a cache, if there is one.

    With more threads, some have no head to work on. ONNX Runtime then splits the keys of a row of over 512 tokens among
    them. Whether there are such threads depends on the other rows. So the row's bits would depend on them too.
    """
    caches = [state for state in manifest.states if state.kind == bundle_pb2.STATE_KIND_KV_CACHE]
    # A manifest may not say how many heads there are. Then there are at least those of keys and values.
    heads = manifest.attention.heads or [state.shape[0] for state in caches]
    return min(threads, *heads) if caches else threads


def _explainer(graphs: _Graphs, config: ServerConfig, metrics: ModelMetrics) -> Explainer | None:
    packs = graphs.manifest.provenance.num_parameters < _LARGE
    session = graphs.open(bundle_pb2.GRAPH_ROLE_EXPLAIN, packs=packs)
    if session is None:
        return None
    explainer = Explainer(
        graphs.manifest,
        session,
        metrics,
        max_asking=config.max_queued_requests,
        thread_name=f"{worker_name(graphs.bundle)}-explain",
    )
    verify_explainer(explainer, graphs.manifest)
    return explainer


def _score_lanes(graphs: _Graphs, num_lanes: int, config: ServerConfig, metrics: ModelMetrics) -> list[Lane]:
    """Lanes that score given answers, if the bundle has a graph for it. It has not been tried on devices.

    Few models are asked for scores. Packed weights would take as much memory again as those of the decoder. Without
    them a run takes a seventh to a quarter more, and that of a lone short answer twice as long. A recurrent model packs
    them: its products have a row for each answer, and one row alone has other bits than several, unless packed.
    """
    packs = any(state.kind == bundle_pb2.STATE_KIND_RECURRENT for state in graphs.manifest.states)
    session = graphs.open(bundle_pb2.GRAPH_ROLE_SCORE, packs=packs) if graphs.device.kind == "cpu" else None
    if session is None:
        return []
    verify_scorer(session, graphs.manifest)
    return [
        ScoreLane(
            session,
            per_token=False,
            pad_id=graphs.manifest.text.pad_id,
            max_batch=config.max_batch,
            batch_tokens=config.batch_tokens,
            metrics=metrics,
        )
        for _ in range(num_lanes)
    ]


def _scorer(lanes: list[Lane], config: ServerConfig, metrics: ModelMetrics, loop: asyncio.AbstractEventLoop) -> Engine:
    scheduler = Scheduler(len(lanes), config.max_queued_requests, config.max_queued_tokens, config.weights)
    return Engine(scheduler, lanes, metrics, loop)


def _decode_lanes(graphs: _Graphs, num_lanes: int, config: ServerConfig, metrics: ModelMetrics) -> list[Lane]:
    manifest = graphs.manifest
    text = manifest.text
    encoder = graphs.open(bundle_pb2.GRAPH_ROLE_ENCODER)
    decoder = graphs.open(bundle_pb2.GRAPH_ROLE_DECODER, captures=graphs.device.captures)
    assert decoder is not None, "a bundle without its decoder was accepted. This is a bug."
    # A MIXED graph is a second copy of the weights. It is of no use in two cases:
    # 1. The device does not compute in place: it has not been tried there.
    # 2. Each lane has one slot: beside its row there is none for a prompt.
    may_mix = graphs.device.in_place and config.slots > num_lanes
    mixed = graphs.open(bundle_pb2.GRAPH_ROLE_MIXED) if may_mix else None

    cache = _prefix_cache(graphs, config, metrics)
    max_prefix = Languages(text).longest_prefix
    lanes: list[Lane] = []
    for index in range(num_lanes):
        # The slots are divided as evenly as possible.
        num_slots = config.slots // num_lanes + (index < config.slots % num_lanes)
        slots = Slots(num_slots, text.max_new_tokens, max_prefix)
        runner = DecodeRunner(manifest, encoder, decoder, slots, mixed)
        runner.warm()
        if index == 0:
            _verify_runner(runner, slots, manifest)
        lane = DecodeLane(
            slots,
            runner,
            start_id=text.start_id if text.HasField("start_id") else None,
            end_ids=tuple(text.end_ids),
            prefill_budget=config.prefill_budget,
            metrics=metrics,
            recall=Recall(cache, runner.host_states, slots, metrics) if cache and runner.host_states else None,
        )
        lanes.append(lane)
    return lanes


def _prefix_cache(graphs: _Graphs, config: ServerConfig, metrics: ModelMetrics) -> PrefixCache | None:
    """The cache that the lanes share, if there is to be one. Pictures have none: their requests carry no salt."""
    num_bytes = config.prefix_cache_mb * MEBIBYTE
    if not num_bytes or TASKS[graphs.manifest.task].takes_image:
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
    """Try what the first lane runs. The other lanes run the same sessions."""
    text = manifest.text
    if runner.mixes:
        length = min(PREFILL_BUCKETS[0], text.max_total_tokens - 1)
        verify_mixed(runner, slots, np.arange(length) % text.target_vocab_size)
    verify_decoder(runner, slots, manifest)


def _classify_lanes(graphs: _Graphs, num_lanes: int, config: ServerConfig, metrics: ModelMetrics) -> list[Lane]:
    manifest = graphs.manifest
    session = graphs.open(bundle_pb2.GRAPH_ROLE_CLASSIFIER) or graphs.open(bundle_pb2.GRAPH_ROLE_TAGGER)
    assert session is not None, "a bundle without its classifier or tagger was accepted. This is a bug."
    verify_classifier(session, manifest)
    return [
        ClassifyLane(
            session,
            per_token=TASKS[manifest.task].labels_tokens,
            pad_id=manifest.text.pad_id,
            max_batch=config.max_batch,
            batch_tokens=config.batch_tokens,
            metrics=metrics,
        )
        for _ in range(num_lanes)
    ]
