"""Which graphs a checkpoint becomes, with the names, example inputs and symbolic sizes of their ports."""

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.sharing import sharing
from weft_export.families.classifier import Classifier
from weft_export.families.writer import KV_CACHE, MEMORY, RECURRENT, State, Writer
from weft_export.graphs.views import (
    ClassifierView,
    CtcView,
    DecoderView,
    EmbedderView,
    EncoderView,
    ExplainView,
    MixedView,
    PackedView,
    ScoreView,
    SightView,
)
from weft_export.layers.feed_forward import merge_feed_forwards
from weft_export.layers.paged_attention import block_tokens
from weft_proto.bundle_rules import (
    CANDIDATE_PORTS,
    FEATURES,
    FLOAT_TYPE,
    HOST_PRECISIONS,
    MASK_POSITIONS,
    POSITION_OFFSETS,
    PROMPT,
    QUESTION_WEIGHTS,
    SCORE_PORTS,
    SCORED_PORTS,
    TARGET_WEIGHTS,
)
from weft_proto.ctc import least_samples, num_frames_of
from weft_proto.paging import PAGED_PORTS
from weft_proto.questions import begins_filled, encoder_asks, picture_places
from weft_proto.sight import NUM_AXES
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2

DEFERRED_PORTS = CANDIDATE_PORTS[2:]
EXPLAIN_PORTS: tuple[str, ...] = ("weights", "source_mass")
_TORCH_TYPES = {
    bundle_pb2.DATA_TYPE_FLOAT32: torch.float32,
    bundle_pb2.DATA_TYPE_FLOAT16: torch.float16,
    bundle_pb2.DATA_TYPE_BFLOAT16: torch.bfloat16,
    bundle_pb2.DATA_TYPE_INT8: torch.int8,
}
# The names of a state's past and present, and of what the encoder writes into it.
_PORTS = {
    KV_CACHE: ("past_key_values", "present", "begun"),
    MEMORY: ("memory", "present_memory", "memory_out"),
    RECURRENT: ("past_recurrent", "present_recurrent", "recurrent_out"),
}
# The file, the module and the output of a graph that answers in one run.
_STATELESS: dict[bundle_pb2.GraphRole.ValueType, tuple[str, Callable[[Classifier], nn.Module], str]] = {
    bundle_pb2.GRAPH_ROLE_CLASSIFIER: ("classifier.onnx", ClassifierView, "probabilities"),
    bundle_pb2.GRAPH_ROLE_TAGGER: ("tagger.onnx", ClassifierView, "probabilities"),
    bundle_pb2.GRAPH_ROLE_MASKED_LM: ("masked_lm.onnx", ClassifierView, "logits"),
    bundle_pb2.GRAPH_ROLE_CTC: ("ctc.onnx", CtcView, "log_probs"),
    bundle_pb2.GRAPH_ROLE_EMBEDDER: ("embedder.onnx", EmbedderView, "embedding"),
    bundle_pb2.GRAPH_ROLE_IMAGE_EMBEDDER: ("image_embedder.onnx", EmbedderView, "embedding"),
}
# What a SCORE graph is made of.
_SCORED = (bundle_pb2.GRAPH_ROLE_ENCODER, bundle_pb2.GRAPH_ROLE_DECODER)
# Sizes to trace with. They all differ, and none is below 2: torch.export would take that for a constant.
_BATCH, _SEQ, _TARGET, _MASKS, _BLOCKS, _TOKENS, _ENDS = 2, 5, 3, 4, 6, 7, 8
_CELLS = {1: "rows", 2: "columns"}
_ROWS = {0: "batch"}


@dataclass(frozen=True)
class Input:
    """An input port: its name, an example, and the names of its symbolic axes."""

    name: str
    example: Tensor
    axes: dict[int, str]


@dataclass(frozen=True)
class Graph:
    """A module to trace and its ports. Of the outputs, those `deferred` are computed in runs that ask for them.

    states are those of a decoder, whose past and present are ports.
    made_of names the files of the graphs that it is made of. Its module is not traced then, but says what is right.
    """

    role: bundle_pb2.GraphRole.ValueType
    file_name: str
    module: nn.Module
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    deferred: tuple[str, ...] = ()
    states: tuple[bundle_pb2.StateTensor, ...] = ()
    made_of: tuple[str, ...] = ()


def states_of(
    model: nn.Module, precision: bundle_pb2.Precision.ValueType, *, paged: bool = False
) -> list[bundle_pb2.StateTensor]:
    """Return the state tensors of a decoder in the order of its inputs, perhaps in blocks; none for a classifier."""
    states = [_state(state, precision) for state in model.states] if isinstance(model, Writer) else []
    return [_in_blocks(state) for state in states] if paged else states


def zeros_of(state: bundle_pb2.StateTensor, batch: int) -> Tensor:
    """Return an empty state of so many slots or blocks, [batch, *shape].

    It takes no memory before something is written into it.
    """
    dtype, shape = _TORCH_TYPES[state.data_type], (batch, *state.shape)
    # The system gives these zeros without touching them. torch.zeros writes them, and numpy asks for huge pages: a few
    # tokens of each head would take those of all.
    pages = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # of Linux
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(pages, dtype=dtype).view(shape)


def graphs_of(
    checkpoint: Checkpoint, precision: bundle_pb2.Precision.ValueType, *, mixed_runs: bool = False, scores: bool = False
) -> list[Graph]:
    """Return the graphs of a checkpoint, over its weights; in another precision than float32 over a copy of them.

    mixed_runs asks for a graph of GRAPH_ROLE_MIXED too, which only a model that `mixes` has. scores asks for one of
    GRAPH_ROLE_SCORE, if the model has one at this precision.
    """
    if TASKS[checkpoint.task].matches:
        return [graph for tower in checkpoint.towers for graph in graphs_of(tower, precision)]
    model = sharing(checkpoint.model, _TORCH_TYPES[FLOAT_TYPE[precision]])
    runs_on_cpu = precision in HOST_PRECISIONS
    if not runs_on_cpu:
        merge_feed_forwards(model)
    graphs = []
    if not isinstance(model, Writer):
        (role,) = TASKS[checkpoint.task].needs
        name, view, output = _STATELESS[role]
        graphs.append(Graph(role, name, view(model), _source(checkpoint, _BATCH), (output,)))
    else:
        states = states_of(model, precision, paged=checkpoint.paged)
        encoded = tuple(state.encoder_output for state in states if state.encoder_output)
        if encoded:
            source = _source(checkpoint, _BATCH)
            graphs.append(Graph(bundle_pb2.GRAPH_ROLE_ENCODER, "encoder.onnx", EncoderView(model), source, encoded))
        if model.sees:
            role, pixels = bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER, _pixels(checkpoint, _BATCH)
            graphs.append(Graph(role, "image_encoder.onnx", SightView(model), pixels, (FEATURES,)))
        # At other precisions, a run of several tokens has other bits than runs of one.
        verifies = model.verifies and precision == bundle_pb2.PRECISION_INT8 and _may_copy(checkpoint)
        decoders = [
            _paged(model, states) if checkpoint.paged else _decoder(checkpoint, model, states, verifies=verifies)
        ]
        if mixed_runs:
            decoders.append(_mixed(checkpoint, model, states, verifies=verifies))
        # On a device a condition would wait for the host, and CUDA's captured graphs know none.
        if runs_on_cpu and not _steps(model) and not checkpoint.paged:
            decoders = [replace(graph, deferred=DEFERRED_PORTS) for graph in decoders]
        graphs += [*decoders, *_bidirectional(checkpoint, model, states)]
    if checkpoint.explained_heads:
        graphs.append(_explain(checkpoint, model))
    if scores and isinstance(model, Writer) and model.scores:
        made_of = tuple(graph.file_name for graph in graphs if graph.role in _SCORED)
        graphs.append(_score(checkpoint, model, tuple(states_of(model, precision)), made_of))
    return graphs


def _state(state: State, precision: bundle_pb2.Precision.ValueType) -> bundle_pb2.StateTensor:
    past, present, encoder_output = _PORTS[state.kind]
    data_type = bundle_pb2.DATA_TYPE_INT8 if state.rounded else FLOAT_TYPE[precision]
    return bundle_pb2.StateTensor(
        kind=state.kind,
        past=f"{past}.{state.name}",
        present=f"{present}.{state.name}" if state.returned else "",
        data_type=data_type,
        shape=state.shape,
        length_axis=state.length_axis,
        encoder_output=f"{encoder_output}.{state.name}" if state.encoded else "",
    )


def _may_copy(checkpoint: Checkpoint) -> bool:
    """Whether an answer may repeat tokens of what it was asked."""
    task = TASKS[checkpoint.task]
    if task.takes_prompt or not task.takes_language:
        return task.takes_prompt
    from weft_export.graphs.one_vocabulary import has_one_vocabulary  # noqa: PLC0415 - late: for translators

    return has_one_vocabulary(checkpoint)


def _steps(model: Writer) -> bool:
    """Whether each run reads one token of a row."""
    return any(state.kind == RECURRENT for state in model.states) and not model.reads_pieces


def _in_blocks(state: bundle_pb2.StateTensor) -> bundle_pb2.StateTensor:
    """Return a cache of a slot as one of a block. Its ports keep their names."""
    heads, _, head_dim = state.shape
    paged = bundle_pb2.StateTensor()
    paged.CopyFrom(state)
    paged.kind, paged.length_axis = bundle_pb2.STATE_KIND_PAGED_CACHE, 0
    paged.shape[:] = [block_tokens(head_dim), heads, head_dim]
    return paged


def _source(checkpoint: Checkpoint, batch: int) -> tuple[Input, ...]:
    rows = _ROWS if batch > 1 else {}
    if TASKS[checkpoint.task].takes_image and checkpoint.image is not None:
        asked = checkpoint.text is not None and encoder_asks(checkpoint.text)
        return (*_pixels(checkpoint, batch), *(_text(checkpoint, batch) if asked else ()))
    if checkpoint.audio is not None and (checkpoint.audio.HasField("ctc") or checkpoint.audio.min_samples):
        # Long enough for several labels.
        num_samples = least_samples(checkpoint.audio) + _SEQ * checkpoint.audio.hop_size
        if checkpoint.audio.ctc.HasField("mel"):
            mel = checkpoint.audio.ctc.mel
            frames = torch.zeros(batch, num_frames_of(mel, num_samples), mel.num_mels)
            return (Input("input_features", frames, {**rows, 1: "frames"}),)
        waveform = torch.zeros(batch, num_samples)
        return (Input("waveform", waveform, {**rows, 1: "samples"}),)
    if checkpoint.audio is not None:
        features = torch.zeros(batch, checkpoint.audio.num_mels, checkpoint.audio.num_frames)
        return (Input("input_features", features, rows),)
    text = _text(checkpoint, batch)
    if not TASKS[checkpoint.task].fills_masks:
        return text
    return (*text, Input(MASK_POSITIONS, torch.zeros(batch, _MASKS, dtype=torch.int64), {**rows, 1: "masks"}))


def _text(checkpoint: Checkpoint, batch: int) -> tuple[Input, Input]:
    rows = _ROWS if batch > 1 else {}
    # Of several blocks: a graph that was traced with one would have one.
    seq = _SEQ + 2 * getattr(checkpoint.model, "blocks_of", 0)
    return (
        Input("input_ids", torch.zeros(batch, seq, dtype=torch.int64), {**rows, 1: "seq"}),
        Input("lengths", torch.full((batch,), seq, dtype=torch.int32), rows),
    )


def _pixels(checkpoint: Checkpoint, batch: int) -> tuple[Input, ...]:
    image = checkpoint.image
    assert image is not None, "this model takes no pictures. This is a bug."
    cells = (_SEQ, _TARGET) if image.tiling.max_pixels else ()
    pixels = torch.zeros(batch, *cells, image.channels, image.height, image.width)
    return (Input("pixel_values", pixels, {**(_ROWS if batch > 1 else {}), **(_CELLS if cells else {})}),)


def _decoder(checkpoint: Checkpoint, model: Writer, states: list[bundle_pb2.StateTensor], *, verifies: bool) -> Graph:
    view = DecoderView(model, verifies=verifies)
    seq, axes = (1, _ROWS) if _steps(model) else (_TARGET, {**_ROWS, 1: "seq"})
    ends = {0: "rows"} if verifies else _ROWS
    # No decoder counts its tokens from before a picture that its caches begin with.
    begun = picture_places(checkpoint.image) if checkpoint.image is not None and begins_filled(states) else 0
    inputs = [
        Input("input_ids", torch.zeros(_BATCH, seq, dtype=torch.int64), axes),
        Input("past_lengths", torch.full((_BATCH,), begun, dtype=torch.int32), _ROWS),
        Input("lengths", torch.full((_ENDS if verifies else _BATCH,), seq, dtype=torch.int32), ends),
        Input("total_length", torch.tensor([checkpoint.text_spec.max_total_tokens], dtype=torch.int32), {}),
    ]
    if view.has_memory:
        inputs.append(Input("memory_lengths", torch.ones(_BATCH, dtype=torch.int32), _ROWS))
    if model.sees:
        inputs.append(Input(FEATURES, torch.zeros(_BATCH, seq, model.feature_width), axes))
    if model.offsets_positions:
        inputs.append(Input(POSITION_OFFSETS, _no_offsets(_BATCH, seq), axes))
    inputs += [Input(state.past, zeros_of(state, _BATCH), _ROWS) for state in states]
    outputs = (*CANDIDATE_PORTS, *(state.present for state in states if state.present))
    return Graph(bundle_pb2.GRAPH_ROLE_DECODER, "decoder.onnx", view, tuple(inputs), outputs, states=tuple(states))


def _bidirectional(checkpoint: Checkpoint, model: Writer, states: list[bundle_pb2.StateTensor]) -> list[Graph]:
    """Return the graph that reads stretches of prompts in both directions, of a model that has such."""
    if not model.bidirectional:
        return []
    one, axes = torch.zeros(1, dtype=torch.int32), {1: "seq"}
    inputs = [
        Input("input_ids", torch.zeros(1, _SEQ, dtype=torch.int64), axes),
        Input("past_lengths", one, {}),
        Input("lengths", one + _SEQ, {}),
        Input("total_length", torch.tensor([checkpoint.text_spec.max_total_tokens], dtype=torch.int32), {}),
        Input(FEATURES, torch.zeros(1, _SEQ, model.feature_width), axes),
    ]
    inputs += [Input(state.past, zeros_of(state, 1), {}) for state in states]
    outputs = (*CANDIDATE_PORTS, *(state.present for state in states))
    role, view = bundle_pb2.GRAPH_ROLE_BIDIRECTIONAL, DecoderView(model, bidirectional=True)
    return [Graph(role, "bidirectional.onnx", view, tuple(inputs), outputs, states=tuple(states))]


def _no_offsets(batch: int, seq: int) -> Tensor:
    return torch.zeros(batch, seq, NUM_AXES, dtype=torch.int64)


def _paged(model: Writer, states: list[bundle_pb2.StateTensor]) -> Graph:
    # The sizes of cumulative_lengths and past_lengths have names of their own: what one says of the other has none.
    examples: dict[str, tuple[tuple[int, ...], torch.dtype, dict[int, str]]] = {
        "input_ids": ((_TOKENS,), torch.int64, {0: "tokens"}),
        "positions": ((_TOKENS,), torch.int64, {0: "tokens"}),
        "cumulative_lengths": ((_BATCH + 1,), torch.int32, {0: "ends"}),
        "past_lengths": ((_BATCH,), torch.int32, {0: "rows"}),
        "block_table": ((_BATCH, _SEQ), torch.int32, {0: "rows", 1: "blocks_of_a_row"}),
        "slot_mapping": ((_TOKENS,), torch.int32, {0: "tokens"}),
        "attention_bounds": ((3,), torch.int32, {}),
    }
    ports = ((name, *examples[name]) for name in PAGED_PORTS)
    inputs = [Input(name, torch.zeros(shape, dtype=dtype), axes) for name, shape, dtype, axes in ports]
    inputs += [Input(state.past, zeros_of(state, _BLOCKS), {0: "blocks"}) for state in states]
    outputs = (*CANDIDATE_PORTS, *(state.present for state in states))
    role, view = bundle_pb2.GRAPH_ROLE_DECODER, PackedView(model)
    return Graph(role, "decoder.onnx", view, tuple(inputs), outputs, states=tuple(states))


def _mixed(checkpoint: Checkpoint, model: Writer, states: list[bundle_pb2.StateTensor], *, verifies: bool) -> Graph:
    one = torch.zeros(1, dtype=torch.int32)
    ends = torch.full((_ENDS,), _SEQ, dtype=torch.int32) if verifies else one + _SEQ
    inputs = [
        Input("input_ids", torch.zeros(_BATCH, 1, dtype=torch.int64), _ROWS),
        Input("past_lengths", torch.zeros(_BATCH, dtype=torch.int32), _ROWS),
        Input("prompt_ids", torch.zeros(1, _SEQ, dtype=torch.int64), {1: "seq"}),
        Input("prompt_past_lengths", one, {}),
        Input("prompt_lengths", ends, {0: "ends"} if verifies else {}),
        Input("total_length", torch.tensor([checkpoint.text_spec.max_total_tokens], dtype=torch.int32), {}),
    ]
    inputs += [Input(state.past, zeros_of(state, _BATCH), _ROWS) for state in states]
    inputs += [Input(PROMPT + state.past, zeros_of(state, 1), {}) for state in states]
    presents = [state.present for state in states]
    outputs = (*CANDIDATE_PORTS, *presents, *(PROMPT + name for name in presents))
    return Graph(bundle_pb2.GRAPH_ROLE_MIXED, "mixed.onnx", MixedView(model), tuple(inputs), outputs)


def _explain(checkpoint: Checkpoint, model: Writer | Classifier) -> Graph:
    inputs = [*_source(checkpoint, 1)]
    if isinstance(model, Writer) and model.sees:
        inputs.append(Input(FEATURES, torch.zeros(1, _SEQ, model.feature_width), {1: "seq"}))
    if isinstance(model, Writer) and model.offsets_positions:
        inputs.append(Input(POSITION_OFFSETS, _no_offsets(1, _SEQ), {1: "seq"}))
    if isinstance(model, Writer):
        inputs.append(Input("target_ids", torch.zeros(1, _TARGET, dtype=torch.int64), {1: "target"}))
    one = torch.zeros(1, dtype=torch.int64)
    inputs += [Input("layer", one, {}), Input("head", one.clone(), {})]
    outputs = EXPLAIN_PORTS
    if isinstance(model, Writer) and (model.explains_target or model.reads_question):
        outputs = (*outputs, QUESTION_WEIGHTS if model.reads_question else TARGET_WEIGHTS)
    return Graph(bundle_pb2.GRAPH_ROLE_EXPLAIN, "explain.onnx", ExplainView(model), tuple(inputs), outputs)


def _score(
    checkpoint: Checkpoint, model: Writer, states: tuple[bundle_pb2.StateTensor, ...], made_of: tuple[str, ...]
) -> Graph:
    ids = torch.zeros(_BATCH, _TARGET, dtype=torch.int64)
    if len(made_of) > 1:
        inputs = [*_source(checkpoint, _BATCH), Input("target_ids", ids, {**_ROWS, 1: "target"})]
    else:
        inputs = [Input("input_ids", ids, {**_ROWS, 1: "seq"})]
    inputs += [Input(name, ids, {0: "runs", 1: "size"}) for name in SCORED_PORTS]
    view = ScoreView(model)
    role = bundle_pb2.GRAPH_ROLE_SCORE
    return Graph(role, "score.onnx", view, tuple(inputs), SCORE_PORTS, states=states, made_of=made_of)
