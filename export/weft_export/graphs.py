"""Which graphs a checkpoint becomes, with the names, example inputs and symbolic sizes of their ports."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from weft_export.checkpoint import Checkpoint
from weft_export.families.causal_lm import CausalLm
from weft_export.families.sequence_to_sequence import SequenceToSequence
from weft_export.views import CausalDecoderView, ClassifierView, EncoderView, ExplainView, MemoryDecoderView
from weft_proto.v1 import bundle_pb2

CANDIDATE_PORTS = ("topk_logits", "topk_ids", "logsumexp", "logits")
_DTYPES = {bundle_pb2.PRECISION_FP32: torch.float32, bundle_pb2.PRECISION_FP16: torch.float16}
# Sizes to trace with: all different and none below 2, which torch.export would take for a constant.
_BATCH, _SEQ, _TARGET = 2, 5, 3


@dataclass(frozen=True)
class Input:
    """An input port: its name, an example, and the names of its symbolic axes."""

    name: str
    example: Tensor
    axes: dict[int, str]


@dataclass(frozen=True)
class Graph:
    """A module to trace and its ports."""

    role: bundle_pb2.GraphRole.ValueType
    file_name: str
    module: nn.Module
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]


def states_of(model: nn.Module, precision: bundle_pb2.Precision.ValueType) -> list[bundle_pb2.StateTensor]:
    """Return the state tensors of a decoder in the order of its inputs: caches by layer, then memories by layer."""
    if isinstance(model, SequenceToSequence):
        heads, _, head_dim = model.decoder.cache_shape
        memory_shape = (heads, model.max_memory, head_dim)
        return [
            *_states(bundle_pb2.STATE_KIND_KV_CACHE, len(model.decoder.layers), model.decoder.cache_shape, precision),
            *_states(bundle_pb2.STATE_KIND_MEMORY, len(model.decoder.layers), memory_shape, precision),
        ]
    if isinstance(model, CausalLm):
        return _states(bundle_pb2.STATE_KIND_KV_CACHE, len(model.layers), model.cache_shape, precision)
    return []


def graphs_of(checkpoint: Checkpoint, precision: bundle_pb2.Precision.ValueType) -> list[Graph]:
    """Return the graphs of a checkpoint, over a copy of its weights in the given precision."""
    model = copy.deepcopy(checkpoint.model).eval().to(_DTYPES[precision])
    states = states_of(model, precision)
    if isinstance(model, CausalLm):
        return [_decoder(CausalDecoderView(model), states, with_memory=False)]
    if not isinstance(model, SequenceToSequence):
        classify = Graph(
            bundle_pb2.GRAPH_ROLE_CLASSIFIER,
            "classifier.onnx",
            ClassifierView(model),
            _source(checkpoint, _BATCH),
            ("probabilities",),
        )
        return [classify]
    assert checkpoint.alignment_layer is not None
    target = Input("target_ids", torch.zeros(1, _TARGET, dtype=torch.int64), {1: "target"})
    return [
        Graph(
            bundle_pb2.GRAPH_ROLE_ENCODER,
            "encoder.onnx",
            EncoderView(model),
            _source(checkpoint, _BATCH),
            tuple(state.encoder_output for state in states if state.encoder_output),
        ),
        _decoder(MemoryDecoderView(model), states, with_memory=True),
        Graph(
            bundle_pb2.GRAPH_ROLE_EXPLAIN,
            "explain.onnx",
            ExplainView(model, checkpoint.alignment_layer),
            (*_source(checkpoint, 1), target),
            ("weights",),
        ),
    ]


def _states(
    kind: bundle_pb2.StateKind.ValueType,
    num_layers: int,
    shape: tuple[int, int, int],
    precision: bundle_pb2.Precision.ValueType,
) -> list[bundle_pb2.StateTensor]:
    half = precision == bundle_pb2.PRECISION_FP16
    is_memory = kind == bundle_pb2.STATE_KIND_MEMORY
    past, present = ("memory", "present_memory") if is_memory else ("past_key_values", "present")
    return [
        bundle_pb2.StateTensor(
            kind=kind,
            past=f"{past}.{layer}.{part}",
            present=f"{present}.{layer}.{part}",
            data_type=bundle_pb2.DATA_TYPE_FLOAT16 if half else bundle_pb2.DATA_TYPE_FLOAT32,
            shape=shape,
            length_axis=1,
            encoder_output=f"memory_out.{layer}.{part}" if is_memory else "",
        )
        for layer in range(num_layers)
        for part in ("key", "value")
    ]


def _source(checkpoint: Checkpoint, batch: int) -> tuple[Input, ...]:
    rows = {0: "batch"} if batch > 1 else {}
    if checkpoint.image is not None:
        image = checkpoint.image
        pixels = torch.zeros(batch, image.channels, image.height, image.width)
        return (Input("pixel_values", pixels, rows),)
    return (
        Input("input_ids", torch.zeros(batch, _SEQ, dtype=torch.int64), {**rows, 1: "seq"}),
        Input("lengths", torch.full((batch,), _SEQ, dtype=torch.int32), rows),
    )


def _decoder(view: nn.Module, states: list[bundle_pb2.StateTensor], *, with_memory: bool) -> Graph:
    rows = {0: "batch"}
    lengths = torch.full((_BATCH,), _TARGET, dtype=torch.int32)
    half = states[0].data_type == bundle_pb2.DATA_TYPE_FLOAT16
    inputs = [
        Input("input_ids", torch.zeros(_BATCH, _TARGET, dtype=torch.int64), {**rows, 1: "seq"}),
        Input("past_lengths", torch.zeros(_BATCH, dtype=torch.int32), rows),
        Input("lengths", lengths, rows),
        Input("total_length", torch.tensor([states[0].shape[1]], dtype=torch.int32), {}),
    ]
    if with_memory:
        inputs.append(Input("memory_lengths", torch.ones(_BATCH, dtype=torch.int32), rows))
    for state in states:
        empty = torch.zeros(_BATCH, *state.shape, dtype=torch.float16 if half else torch.float32)
        inputs.append(Input(state.past, empty, rows))
    outputs = (*CANDIDATE_PORTS, *(state.present for state in states))
    return Graph(bundle_pb2.GRAPH_ROLE_DECODER, "decoder.onnx", view, tuple(inputs), outputs)
