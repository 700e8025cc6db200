"""Builds a model from its bundle: opens its graphs, tries them, and makes the lanes of its engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from weft_proto.paging import is_paged
from weft_proto.prompts import spelling_fault
from weft_proto.sight import sees
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2
from weft_server.engine.engine import Engine
from weft_server.engine.failure import FailureBudget
from weft_server.engine.scheduler import Scheduler
from weft_server.errors import BundleError
from weft_server.loading.adapter_loader import AdapterLoader
from weft_server.loading.lanes import Graphs, classify_lanes, decode_lanes, score_lanes, sight_lanes, stack_of
from weft_server.loading.limit_checks import verify_explainer
from weft_server.loading.memory_check import lane_memory_needs, verify_memory
from weft_server.loading.paged_lanes import paged_lanes, pool_size
from weft_server.models.adapters import Adapters
from weft_server.models.explainer import Explainer
from weft_server.models.label_embeddings import LabelEmbeddings
from weft_server.models.model import DecodingLimits, Model, worker_name
from weft_server.models.picture_features import PictureFeatures
from weft_server.models.placement import Placement
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.models.seeing import Seeing
from weft_server.models.worker_pool import WorkerPool
from weft_server.models.worker_queue import ConstraintQueue, WorkerQueue
from weft_server.preprocessing.chat_template import Chat
from weft_server.preprocessing.inputs import InputReader
from weft_server.preprocessing.tokenizer import Tokenizer, truncation_of
from weft_server.requests.decoding_config import default_width
from weft_server.runtime.cpus import cpu_quota, share_cpus
from weft_server.runtime.device import devices_of, verify_adapters, verify_caches, verify_precision
from weft_server.runtime.next_tokens import candidates_of
from weft_server.sampling.beam_search import most_beams
from weft_server.structured_output.grammars import Grammars

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from weft_server.bundle.load import Bundle
    from weft_server.config import ServerConfig
    from weft_server.loading.lanes import Lanes
    from weft_server.models.placement import Claim
    from weft_server.runtime.device import Device
    from weft_server.runtime.halt import Halt
    from weft_server.telemetry.model_metrics import ModelMetrics

_log = structlog.get_logger(__name__)
# Parameters of a model that does not pack its weights for explanations too: they would take their size once more, and
# a start as long again. An explanation takes longer instead.
_LARGE = 1 << 28


def build_model(
    bundle: Bundle,
    config: ServerConfig,
    metrics: ModelMetrics,
    loop: asyncio.AbstractEventLoop,
    placement: Placement | None = None,
    halt: Halt | None = None,
) -> Model:
    """Return a model whose engine has not started. Raises BundleError when a graph is not what it should be.

    Building takes seconds. Answers arrive on `loop`. Without a `placement` the model has the devices for itself.
    `halt` ends what it runs.
    """
    manifest = bundle.manifest
    placement = placement or Placement(devices_of(config))
    device = placement.devices[0]
    verify_precision(manifest.precision, device)
    verify_caches(manifest, device)
    verify_adapters(manifest, device)
    num_lanes, threads = _share(manifest, config, device)
    if device.kind == "cpu":
        verify_memory(bundle, config)
    claim = placement.claim(bundle.name, sizes_of(bundle, config, device))
    with claim.loading():
        return _build(Graphs(bundle, claim.devices, threads, halt), num_lanes, config, metrics, loop, claim)


def sizes_of(bundle: Bundle, config: ServerConfig, device: Device) -> list[int]:
    """Return how many bytes a model takes of each device that it needs. The host has all of its lanes."""
    if device.kind == "cpu":
        return [0]
    return lane_memory_needs(bundle, config, _share(bundle.manifest, config, device)[0])


def _build(
    graphs: Graphs,
    num_lanes: int,
    config: ServerConfig,
    metrics: ModelMetrics,
    loop: asyncio.AbstractEventLoop,
    claim: Claim,
) -> Model:
    bundle, manifest = graphs.bundle, graphs.manifest
    source_tokenizer = _source_tokenizer(bundle)
    target = manifest.text.target_tokenizer
    target_tokenizer = Tokenizer(bundle.path(target)) if target else None
    reader = InputReader(
        manifest,
        source_tokenizer,
        _chat(bundle, source_tokenizer),
        max_image_bytes=config.max_image_bytes,
        max_image_pixels=config.max_image_pixels,
        max_audio_bytes=config.max_audio_bytes,
        max_audio_s=config.max_audio_s,
    )

    failure_budget = FailureBudget(config.max_restarts)
    explainer = _explainer(graphs, config, metrics, failure_budget)
    lanes = _make_lanes_of(manifest)(graphs, num_lanes, config, metrics)
    scoring = score_lanes(graphs, num_lanes, config, metrics)
    seeing = sight_lanes(graphs, num_lanes, config, metrics)

    pictures = Seeing(weights=config.weights)
    grammars = Grammars(
        target_tokenizer,
        manifest.text.target_vocab_size,
        manifest.text.end_ids,
        model=bundle.name,
        thread_name=f"{worker_name(bundle)}-constraint",
    )
    grammars.open()
    model = Model(
        bundle=bundle,
        metrics=metrics,
        source_tokenizer=source_tokenizer,
        target_tokenizer=target_tokenizer,
        reader=reader,
        engine=_engine(lanes, config, metrics, loop, failure_budget, pictures.wait_s),
        explainer=explainer,
        tokenizing=_tokenizing(bundle, config, metrics, failure_budget),
        scorer=_engine(scoring, config, metrics, loop, failure_budget) if scoring else None,
        widths=widths_of(manifest, config),
        grammars=grammars,
        adapters=Adapters(
            bundle,
            config.max_adapters,
            metrics,
            max_requests=_max_beside(config),
            weights=config.weights,
        ),
        label_vectors=LabelEmbeddings(metrics),
        sight=_engine(seeing, config, metrics, loop, failure_budget) if seeing else None,
        picture_features=PictureFeatures(metrics),
        seeing=pictures,
        building=_building(bundle, config, metrics, failure_budget),
        failure_budget=failure_budget,
        claim=claim,
    )
    model.adapters.begin_loading = AdapterLoader(model).begin
    return model


def _make_lanes_of(
    manifest: bundle_pb2.BundleManifest,
) -> Callable[[Graphs, int, ServerConfig, ModelMetrics], Lanes]:
    if is_paged(manifest.states):
        return paged_lanes
    return decode_lanes if TASKS[manifest.task].writes_text else classify_lanes


def _chat(bundle: Bundle, tokenizer: Tokenizer | None) -> Chat | None:
    text = bundle.manifest.text
    if not text.HasField("chat"):
        return None
    token = tokenizer.vocabulary.tokens[text.image_id] if tokenizer and sees(bundle.manifest) else ""
    chat = Chat(text.chat, bundle.path(text.chat.template), token)
    if token and not chat.takes_pictures:
        _log.warning("the chat template has no place for a picture: messages hold none", model=bundle.name, token=token)
    return chat


def _source_tokenizer(bundle: Bundle) -> Tokenizer | None:
    text = bundle.manifest.text
    if not text.source_tokenizer:
        return None
    tokenizer = Tokenizer(bundle.path(text.source_tokenizer), truncation_of(text))
    if tokenizer.num_ids > text.source_vocab_size:
        raise BundleError(f"{text.source_tokenizer} has ids beyond text.source_vocab_size {text.source_vocab_size}")
    if text.HasField("image_id") and text.image_id not in tokenizer.vocabulary.tokens:
        raise BundleError(f"{text.source_tokenizer} has no token of text.image_id {text.image_id}")
    if text.HasField("question") and text.question.image_id not in tokenizer.vocabulary.tokens:
        raise BundleError(f"{text.source_tokenizer} has no token of text.question.image_id {text.question.image_id}")
    if text.HasField("mask_id") and text.mask_id not in tokenizer.vocabulary.tokens:
        raise BundleError(f"{text.source_tokenizer} has no token of text.mask_id {text.mask_id}")
    try:
        fault = spelling_fault(text, tokenizer.encode_framed)
    except ValueError as error:
        raise BundleError(f"{text.source_tokenizer} cannot read one of text.prompts: {error}") from error
    if fault:
        raise BundleError(fault)
    return tokenizer


def _share(manifest: bundle_pb2.BundleManifest, config: ServerConfig, device: Device) -> tuple[int, int]:
    """How many lanes the model gets, and how many threads each of its sessions."""
    # On CUDA each lane has a device of its own.
    lanes = max(1, config.lanes) if device.kind == "cuda" else config.lanes
    num_lanes, threads = share_cpus(lanes, config.threads, cpu_quota())
    if TASKS[manifest.task].writes_text and num_lanes > (most := _most_lanes(manifest, config)):
        num_lanes, threads = share_cpus(most, config.threads, cpu_quota())
    return num_lanes, capped_threads(threads, manifest)


def _most_lanes(manifest: bundle_pb2.BundleManifest, config: ServerConfig) -> int:
    """How many lanes have slots enough for a request that asks for nothing. One that is too narrow would never run."""
    return max(1, config.slots // default_width(manifest))


def has_lone_threads(manifest: bundle_pb2.BundleManifest, config: ServerConfig) -> bool:
    """Whether the model's sessions start no threads of their own."""
    device = devices_of(config)[0]
    return device.kind == "cpu" and _share(manifest, config, device)[1] == 1


def widths_of(manifest: bundle_pb2.BundleManifest, config: ServerConfig) -> DecodingLimits:
    """Return how many rows a request may take: no more than the narrowest lane has slots.

    A beam search must also be decided by the candidates of its rows. See sampling/beam_search.py.
    """
    if not TASKS[manifest.task].writes_text:
        return DecodingLimits(0, 0, 0)
    text = manifest.text
    device = devices_of(config)[0]
    num_lanes, _ = _share(manifest, config, device)
    num_slots = config.slots // num_lanes
    num_candidates = candidates_of(manifest)
    # Each alternative begins with another token, and none with an end token.
    max_outputs = min(num_slots, max(1, text.target_vocab_size - len(text.end_ids)))
    max_beams = min(num_slots, most_beams(num_candidates, len(text.end_ids)))
    pool = pool_size(manifest, config, num_lanes) if is_paged(manifest.states) and not device.in_place else None
    return DecodingLimits(max_beams, max_outputs, num_candidates, pool)


def capped_threads(threads: int, manifest: bundle_pb2.BundleManifest) -> int:
    """`threads`, but no more than one for each head of attention over a cache, if there is one.

    With more threads, some have no head to work on. ONNX Runtime then splits the keys of a row of over 512 tokens among
    them. Whether there are such threads depends on the other rows. So the row's bits would depend on them too.

    A model that takes adapters gets one: the products with A and B are small. With more threads, ONNX Runtime cuts them
    where the number of rows says, and a row's bits would depend on its company.
    """
    if manifest.adapters.layers:
        return 1
    caches = [state for state in manifest.states if state.kind == bundle_pb2.STATE_KIND_KV_CACHE]
    # A manifest may not say how many heads there are. Then there are at least those of keys and values.
    heads = manifest.attention.heads or [state.shape[0] for state in caches]
    return min(threads, *heads) if caches else threads


def _explainer(
    graphs: Graphs, config: ServerConfig, metrics: ModelMetrics, failure_budget: FailureBudget
) -> Explainer | None:
    packs = graphs.manifest.provenance.num_parameters < _LARGE
    session = graphs.open(bundle_pb2.GRAPH_ROLE_EXPLAIN, packs=packs)
    if session is None:
        return None
    explainer = Explainer(
        graphs.manifest,
        session,
        metrics,
        max_asking=config.max_queued_requests,
        worker=WorkerPool(1, f"{worker_name(graphs.bundle)}-explain", metrics, failure_budget),
        stack=stack_of(graphs.manifest, 1),
        weights=config.weights,
        asking=lambda: REQUEST_CONTEXT.get().standing,
    )
    verify_explainer(explainer, graphs.manifest)
    return explainer


def _tokenizing(
    bundle: Bundle, config: ServerConfig, metrics: ModelMetrics, failure_budget: FailureBudget
) -> WorkerQueue:
    worker = WorkerPool(1, f"{worker_name(bundle)}-tokens", metrics, failure_budget)
    return WorkerQueue(worker, _max_beside(config), config.weights)


def _building(
    bundle: Bundle, config: ServerConfig, metrics: ModelMetrics, failure_budget: FailureBudget
) -> ConstraintQueue:
    worker = WorkerPool(1, f"{worker_name(bundle)}-builder", metrics, failure_budget)
    return ConstraintQueue(worker, metrics, _max_beside(config), config.weights)


def _max_beside(config: ServerConfig) -> int:
    """How many requests may wait for something else than their turn in the engine."""
    return max(1, config.max_queued_requests // 4)


def _engine(
    lanes: Lanes,
    config: ServerConfig,
    metrics: ModelMetrics,
    loop: asyncio.AbstractEventLoop,
    failure_budget: FailureBudget,
    unready_s: Callable[[], float] = float,
) -> Engine:
    bounds = config.max_queued_requests, config.max_queued_tokens
    scheduler = Scheduler(len(lanes.ready), *bounds, config.weights, unready_s)
    return Engine(scheduler, lanes.ready, metrics, loop, make_lane=lanes.make, failure_budget=failure_budget)
