"""What a graph's role demands of its ports, as bundle.proto states it at GraphRole."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from weft_proto.bundle_rules import (
    ADAPTER_PORTS,
    FEATURES,
    MASK_POSITIONS,
    MAX_TOP_TOKENS,
    POSITION_OFFSETS,
    PROMPT,
    QUESTION_WEIGHTS,
    READS_ALL,
    SCORE_PORTS,
    SCORED_PORTS,
    TARGET_WEIGHTS,
    adapter_ports,
)
from weft_proto.paging import is_paged
from weft_proto.questions import encoder_asks, picture_places
from weft_proto.sight import NUM_AXES, feature_width, offsets_positions
from weft_proto.tasks import TASKS
from weft_proto.token_vectors import has_token_vectors, row_width
from weft_proto.v1 import bundle_pb2
from weft_server.errors import BundleError, require

_OPTIONAL = {READS_ALL, TARGET_WEIGHTS}
_BIDIRECTIONAL = bundle_pb2.GRAPH_ROLE_BIDIRECTIONAL
_DECODERS = {bundle_pb2.GRAPH_ROLE_DECODER, bundle_pb2.GRAPH_ROLE_MIXED}


class Demand(NamedTuple):
    """Element type and shape of one port. A None is a size that may be symbolic or fixed, and so may a 1."""

    data_type: int
    shape: Sequence[int | None]


def verify_ports(manifest: bundle_pb2.BundleManifest) -> None:
    """Refuse a graph that lacks a port of its role, has one too many, or one of the wrong type or shape."""
    for graph in manifest.graphs:
        inputs, outputs = _demands(graph.role, manifest)
        _verify(graph, "input", graph.inputs, inputs | _adapters(graph, manifest))
        _verify(graph, "output", graph.outputs, outputs)
    decoders = [graph for graph in manifest.graphs if graph.role in _DECODERS]
    widths = {_candidates(graph) for graph in manifest.graphs if graph.role in {*_DECODERS, _BIDIRECTIONAL}}
    require(len(widths) <= 1, "the MIXED or BIDIRECTIONAL graph has another number of candidates than the DECODER")
    asking = {any(port.name == READS_ALL for port in graph.inputs) for graph in decoders}
    require(len(asking) <= 1, f"of the DECODER and the MIXED graph, only one has an input {READS_ALL!r}")


def _candidates(graph: bundle_pb2.Graph) -> str:
    """How many of the best tokens a run gives of each row."""
    widths = {port.shape[1] for port in graph.outputs if port.name in {"topk_logits", "topk_ids"}}
    fixed = len(widths) == 1 and all(width.isdecimal() and int(width) > 0 for width in widths)
    require(fixed, f"{graph.path}: topk_logits and topk_ids are not of one fixed width")
    return widths.pop()


def _verify(graph: bundle_pb2.Graph, side: str, ports: Iterable[bundle_pb2.Port], demands: dict[str, Demand]) -> None:
    names = [port.name for port in ports]
    for name in demands.keys() - {*names, *_OPTIONAL}:
        require(False, f"{graph.path} has no {side} {name!r}")
    require(len(set(names)) == len(names), f"{graph.path} has an {side} twice")
    for port in ports:
        require(port.name in demands, f"{graph.path} has an {side} {port.name!r} that its role does not know")
        demand = demands[port.name]
        require(port.data_type == demand.data_type, f"{graph.path}: {port.name!r} has the wrong data_type")
        fits = len(port.shape) == len(demand.shape) and all(map(_size_fits, port.shape, demand.shape))
        require(fits, f"{graph.path}: {port.name!r} has shape {list(port.shape)}, which does not fit the manifest")


def _size_fits(size: str, demanded: int | None) -> bool:
    # What the manifest states, the graph has to state too. A batch of one may be any batch.
    return demanded is None or size == str(demanded) or (demanded == 1 and not size.isdecimal())


def _demands(role: int, manifest: bundle_pb2.BundleManifest) -> tuple[dict[str, Demand], dict[str, Demand]]:
    if role == bundle_pb2.GRAPH_ROLE_EXPLAIN:
        return _explain(manifest)
    if role == bundle_pb2.GRAPH_ROLE_SCORE:
        return _score(manifest)
    source = _texts() if role == bundle_pb2.GRAPH_ROLE_EMBEDDER else _source(manifest)
    stateless: dict[int, tuple[str, tuple[int | None, ...]]] = {
        bundle_pb2.GRAPH_ROLE_TAGGER: ("probabilities", (None, None, len(manifest.labels))),
        bundle_pb2.GRAPH_ROLE_CLASSIFIER: ("probabilities", (None, len(manifest.labels))),
        bundle_pb2.GRAPH_ROLE_MASKED_LM: ("logits", (None, None, manifest.text.source_vocab_size)),
        bundle_pb2.GRAPH_ROLE_CTC: ("log_probs", (None, None, len(manifest.labels))),
        bundle_pb2.GRAPH_ROLE_EMBEDDER: ("embedding", _vectors(manifest)),
        bundle_pb2.GRAPH_ROLE_IMAGE_EMBEDDER: ("embedding", (None, manifest.embedding.dimensions)),
    }
    if role == bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER:
        # Of cells, as many as a picture has.
        count = None if manifest.image.tiling.max_pixels else picture_places(manifest.image)
        places = (None, count, _width(manifest))
        return _pictures(manifest), {FEATURES: Demand(bundle_pb2.DATA_TYPE_FLOAT32, places)}
    if role in stateless:
        name, shape = stateless[role]
        return source, {name: Demand(bundle_pb2.DATA_TYPE_FLOAT32, shape)}
    if role == bundle_pb2.GRAPH_ROLE_ENCODER:
        return source, {s.encoder_output: _stacked(s, grows=True) for s in manifest.states if s.encoder_output}
    decoders: dict[int, Callable[[bundle_pb2.BundleManifest], tuple[dict[str, Demand], dict[str, Demand]]]]
    decoders = {bundle_pb2.GRAPH_ROLE_MIXED: _mixed, _BIDIRECTIONAL: _bidirectional}
    return decoders.get(role, _decoder)(manifest)


def _adapters(graph: bundle_pb2.Graph, manifest: bundle_pb2.BundleManifest) -> dict[str, Demand]:
    """What a graph takes of adapters: of a layer both matrices, and which rows have what, if it takes any."""
    named = {port.name for port in graph.inputs}
    demands = {}
    for layer in manifest.adapters.layers:
        first, second = adapter_ports(layer.name)
        if first in named or second in named:
            demands[first] = Demand(bundle_pb2.DATA_TYPE_FLOAT32, (None, layer.inputs, layer.rank))
            demands[second] = Demand(bundle_pb2.DATA_TYPE_FLOAT32, (None, layer.rank, layer.outputs))
    if not demands:
        return {}
    members, *others = ADAPTER_PORTS
    demands[members] = Demand(bundle_pb2.DATA_TYPE_INT64, (None, None))
    return demands | dict.fromkeys(others, Demand(bundle_pb2.DATA_TYPE_INT64, (None,)))


def _source(manifest: bundle_pb2.BundleManifest, batch: int | None = None) -> dict[str, Demand]:
    if TASKS[manifest.task].takes_image:
        return _pictures(manifest, batch) | (_texts(batch) if encoder_asks(manifest.text) else {})
    if manifest.audio.ctc.HasField("mel"):
        frames = (batch, None, manifest.audio.ctc.mel.num_mels)
        return {"input_features": Demand(bundle_pb2.DATA_TYPE_FLOAT32, frames)}
    if TASKS[manifest.task].labels_frames or manifest.audio.min_samples:
        return {"waveform": Demand(bundle_pb2.DATA_TYPE_FLOAT32, (batch, None))}
    if TASKS[manifest.task].takes_audio:
        window = (batch, manifest.audio.num_mels, manifest.audio.num_frames)
        return {"input_features": Demand(bundle_pb2.DATA_TYPE_FLOAT32, window)}
    masks = {MASK_POSITIONS: Demand(bundle_pb2.DATA_TYPE_INT64, (batch, None))}
    return _texts(batch) | (masks if TASKS[manifest.task].fills_masks else {})


def _pictures(manifest: bundle_pb2.BundleManifest, batch: int | None = None) -> dict[str, Demand]:
    image = manifest.image
    cells = (None, None) if image.tiling.max_pixels else ()
    shape = (batch, *cells, image.channels, image.height, image.width)
    return {"pixel_values": Demand(bundle_pb2.DATA_TYPE_FLOAT32, shape)}


def _offsets(manifest: bundle_pb2.BundleManifest, batch: int | None) -> dict[str, Demand]:
    """What a decoder takes whose places of a picture have several positions."""
    if not offsets_positions(manifest):
        return {}
    return {POSITION_OFFSETS: Demand(bundle_pb2.DATA_TYPE_INT64, (batch, None, NUM_AXES))}


def _width(manifest: bundle_pb2.BundleManifest) -> int:
    try:
        return feature_width(manifest)
    except ValueError as error:
        raise BundleError(str(error)) from error


def _vectors(manifest: bundle_pb2.BundleManifest) -> tuple[int | None, ...]:
    width = row_width(manifest.embedding)
    return (None, None, width) if has_token_vectors(manifest) else (None, width)


def _texts(batch: int | None = None) -> dict[str, Demand]:
    return {
        "input_ids": Demand(bundle_pb2.DATA_TYPE_INT64, (batch, None)),
        "lengths": Demand(bundle_pb2.DATA_TYPE_INT32, (batch,)),
    }


def _explain(manifest: bundle_pb2.BundleManifest) -> tuple[dict[str, Demand], dict[str, Demand]]:
    inputs = _source(manifest, batch=1)
    if width := _width(manifest):
        inputs[FEATURES] = Demand(bundle_pb2.DATA_TYPE_FLOAT32, (1, None, width))
        inputs |= _offsets(manifest, 1)
    task = TASKS[manifest.task]
    if task.writes_text:
        inputs["target_ids"] = Demand(bundle_pb2.DATA_TYPE_INT64, (1, None))
    inputs["layer"] = inputs["head"] = Demand(bundle_pb2.DATA_TYPE_INT64, (1,))
    rows = None if task.writes_text or task.labels_tokens or task.fills_masks else 1
    image, asks = manifest.image, encoder_asks(manifest.text)
    source = image.grid_rows * image.grid_columns or image.num_class_tokens if task.takes_image else None
    if task.takes_audio and not manifest.audio.min_samples:
        source = manifest.audio.num_positions
    outputs = {
        "weights": Demand(bundle_pb2.DATA_TYPE_FLOAT32, (rows, source)),
        "source_mass": Demand(bundle_pb2.DATA_TYPE_FLOAT32, (rows,)),
    }
    if asks:
        outputs[QUESTION_WEIGHTS] = Demand(bundle_pb2.DATA_TYPE_FLOAT32, (rows, None))
    elif task.takes_question:
        outputs[TARGET_WEIGHTS] = Demand(bundle_pb2.DATA_TYPE_FLOAT32, (rows, None))
    return inputs, outputs


def _score(manifest: bundle_pb2.BundleManifest) -> tuple[dict[str, Demand], dict[str, Demand]]:
    task = TASKS[manifest.task]
    ids = Demand(bundle_pb2.DATA_TYPE_INT64, (None, None))
    inputs = {"input_ids": ids} if task.takes_prompt else {**_source(manifest), "target_ids": ids}
    num_top = min(MAX_TOP_TOKENS, manifest.text.target_vocab_size)
    log_probs, top_ids, top_log_probs = SCORE_PORTS
    return inputs | dict.fromkeys(SCORED_PORTS, ids), {
        log_probs: Demand(bundle_pb2.DATA_TYPE_FLOAT32, (None, None)),
        top_ids: Demand(bundle_pb2.DATA_TYPE_INT64, (None, None, num_top)),
        top_log_probs: Demand(bundle_pb2.DATA_TYPE_FLOAT32, (None, None, num_top)),
    }


def _decoder(manifest: bundle_pb2.BundleManifest) -> tuple[dict[str, Demand], dict[str, Demand]]:
    vocab = manifest.text.target_vocab_size
    length = Demand(bundle_pb2.DATA_TYPE_INT32, (None,))
    packed = Demand(bundle_pb2.DATA_TYPE_INT64, (None,))
    slotted = {
        "input_ids": Demand(bundle_pb2.DATA_TYPE_INT64, (None, None)),
        "past_lengths": length,
        "lengths": length,
        "total_length": Demand(bundle_pb2.DATA_TYPE_INT32, (1,)),
    }
    paged = {
        "input_ids": packed,
        "positions": packed,
        "cumulative_lengths": length,
        "past_lengths": length,
        "block_table": Demand(bundle_pb2.DATA_TYPE_INT32, (None, None)),
        "slot_mapping": length,
        "attention_bounds": Demand(bundle_pb2.DATA_TYPE_INT32, (3,)),
    }
    inputs = paged if is_paged(manifest.states) else slotted
    inputs[READS_ALL] = Demand(bundle_pb2.DATA_TYPE_INT32, (1,))
    if any(state.kind == bundle_pb2.STATE_KIND_MEMORY for state in manifest.states):
        inputs["memory_lengths"] = length
    if width := _width(manifest):
        inputs[FEATURES] = Demand(bundle_pb2.DATA_TYPE_FLOAT32, (None, None, width))
        inputs |= _offsets(manifest, None)
    outputs = {
        "topk_logits": Demand(bundle_pb2.DATA_TYPE_FLOAT32, (None, None)),
        "topk_ids": Demand(bundle_pb2.DATA_TYPE_INT64, (None, None)),
        "logsumexp": Demand(bundle_pb2.DATA_TYPE_FLOAT32, (None,)),
        "logits": Demand(bundle_pb2.DATA_TYPE_FLOAT32, (None, vocab)),
    }
    return (
        inputs | {state.past: _stacked(state) for state in manifest.states},
        outputs | {state.present: _stacked(state) for state in manifest.states if state.present},
    )


def _bidirectional(manifest: bundle_pb2.BundleManifest) -> tuple[dict[str, Demand], dict[str, Demand]]:
    inputs, outputs = _decoder(manifest)
    del inputs[READS_ALL]
    return inputs, outputs


def _mixed(manifest: bundle_pb2.BundleManifest) -> tuple[dict[str, Demand], dict[str, Demand]]:
    inputs, outputs = _decoder(manifest)
    del inputs["lengths"]
    inputs["prompt_ids"] = Demand(bundle_pb2.DATA_TYPE_INT64, (1, None))
    inputs["prompt_past_lengths"] = inputs["prompt_lengths"] = Demand(bundle_pb2.DATA_TYPE_INT32, (1,))
    for state in manifest.states:
        lone = Demand(state.data_type, (1, *state.shape))
        inputs[PROMPT + state.past] = lone
        outputs[PROMPT + state.present] = lone
    return inputs, outputs


def _stacked(state: bundle_pb2.StateTensor, *, grows: bool = False) -> Demand:
    """A state of all slots. With `grows`, it is as long as the batch's longest source, if it has places."""
    shape: list[int | None] = [None, *state.shape]
    if grows and state.kind != bundle_pb2.STATE_KIND_RECURRENT:
        shape[1 + state.length_axis] = None
    return Demand(state.data_type, shape)
