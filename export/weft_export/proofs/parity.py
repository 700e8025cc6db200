"""Torch against ONNX Runtime on random requests: every output and state, prefill and each step, and the greedy tokens.

The reference is torch in float32 whatever the bundle's precision. Requests are admitted one step
apart into neighbouring slots, so that decode batches grow and are ragged.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.random_requests import RandomRequest, random_requests
from weft_export.graphs.graphs import Graph, graphs_of, states_of
from weft_export.proofs.decode_parity import Array, DecodeParity, Encoded, head
from weft_export.proofs.explain_parity import check_explain
from weft_export.proofs.gauge import BY_SPREAD, Gauge, SpreadGauge
from weft_export.proofs.mixed_parity import check_mixed
from weft_export.proofs.runtime import open_session
from weft_proto.v1 import bundle_pb2

# How far logits and states may be from torch. What lies in [0, 1] has bounds of its own, below.
#
# - fp16: for logits of trained models, which have values of some tens.
# - bf16: a share of the spread, because the error goes with the model's scale. Four trained models were 0.013 to 0.034
#   of it off. No CPU has kernels for bf16. The graph that is run is a stand-in (widening.py).
# - int8: a share of the spread too. The products agree to the last bit, and all between them agrees as at fp32. But a
#   value may lie halfway between two levels. If it differs in its last bit, it is rounded to the other level, which is
#   1/127 of the largest value of its row. How far that carries goes with the model's scale. Two roundings of one large
#   model differ by 0.04 to 0.11 of the spread, and the mildest wrong wiring that was tried by 0.375.
TOLERANCE = {
    bundle_pb2.PRECISION_FP32: 1e-4,
    bundle_pb2.PRECISION_FP16: 1e-1,
    bundle_pb2.PRECISION_BF16: 1e-1,
    bundle_pb2.PRECISION_INT8: 1.5e-1,
}
SHARE_TOLERANCE = {
    bundle_pb2.PRECISION_FP32: 1e-4,
    bundle_pb2.PRECISION_FP16: 1e-2,
    bundle_pb2.PRECISION_BF16: 5e-2,
    bundle_pb2.PRECISION_INT8: 5e-2,
}
# At int8 and bf16, a deep layer's attention sums up what all layers before it rounded otherwise. In a lively random
# model of twelve layers at int8 the difference is 0.054 in the tenth and 0.12 in the last. In one of two layers at bf16
# it is 0.11 in the last. The states that attention is made of have their own bound.
EXPLAIN_SPREAD_TOLERANCE = 2.5e-1


def check_parity(
    checkpoint: Checkpoint,
    directory: Path,
    precision: bundle_pb2.Precision.ValueType,
    *,
    mixed_runs: bool = False,
) -> bundle_pb2.Parity:
    """Compare the graphs in a directory with a checkpoint's modules.

    Raises:
        ParityError: There are four cases:
            1. An output or a state differs by more than TOLERANCE; at int8 and bf16 as SpreadGauge says.
            2. A probability or an attention weight differs by more than SHARE_TOLERANCE; for attention at int8 and bf16
               it is EXPLAIN_SPREAD_TOLERANCE.
            3. A greedy token differs.
            4. A mixed run gives other bits than two runs.
        ExportError: onnxruntime is not installed.
    """
    graphs = {graph.role: graph for graph in graphs_of(checkpoint, bundle_pb2.PRECISION_FP32, mixed_runs=mixed_runs)}

    def opened(role: bundle_pb2.GraphRole.ValueType) -> Any:
        """Open a graph's session. No two are kept at a time: each holds the weights in memory of its own."""
        return open_session(directory / graphs[role].file_name)

    by_spread = precision in BY_SPREAD
    gauge = gauge_of(precision)
    shares = Gauge(SHARE_TOLERANCE[precision])
    requests = random_requests(checkpoint)
    num_steps = 0
    with torch.inference_mode():
        for role in (bundle_pb2.GRAPH_ROLE_CLASSIFIER, bundle_pb2.GRAPH_ROLE_TAGGER):
            if role in graphs:
                _check_classifier(shares, graphs[role], opened(role), requests)
        role = bundle_pb2.GRAPH_ROLE_DECODER
        if role in graphs:
            is_bf16 = precision == bundle_pb2.PRECISION_BF16
            states = states_of(checkpoint.model, bundle_pb2.PRECISION_FP32 if is_bf16 else precision)
            role = bundle_pb2.GRAPH_ROLE_ENCODER
            encoded = _check_encoder(gauge, graphs[role], opened(role), states, requests) if role in graphs else []
            role = bundle_pb2.GRAPH_ROLE_DECODER
            run = DecodeParity(gauge, graphs[role], opened(role), states, requests)
            num_steps = run.check(encoded)
            run.close()
            run.check_greedy(checkpoint.model)
            if mixed_runs:
                check_mixed(opened, checkpoint, states)
        role = bundle_pb2.GRAPH_ROLE_EXPLAIN
        if role in graphs:
            explained = Gauge(EXPLAIN_SPREAD_TOLERANCE) if by_spread else shares
            check_explain(explained, graphs[role], opened(role), checkpoint, requests)
    # A share of the spread and a difference of probabilities cannot be one figure. The one that counts is of what
    # answers are made of: logits and states for a writer, and else probabilities.
    reported = gauge if bundle_pb2.GRAPH_ROLE_DECODER in graphs else shares
    return bundle_pb2.Parity(
        max_abs_error=reported.worst if by_spread else max(gauge.worst, shares.worst),
        tolerance=reported.tolerance,
        num_steps=num_steps,
        num_requests=len(requests),
    )


def gauge_of(precision: bundle_pb2.Precision.ValueType) -> Gauge:
    """Return what logits and states of a precision are held to."""
    kind = SpreadGauge if precision in BY_SPREAD else Gauge
    return kind(TOLERANCE[precision])


def _check_classifier(gauge: Gauge, graph: Graph, session: Any, requests: list[RandomRequest]) -> None:
    (outputs,) = _run_padded(graph, session, requests)
    for row, request in enumerate(requests):
        expected = graph.module(*request.source)[0]
        # A tagger has a row for each token, padding included.
        actual = outputs[row][: len(expected)] if expected.dim() > 1 else outputs[row]
        gauge.compare(f"{graph.file_name} output probabilities", expected, actual)


def _check_encoder(
    gauge: Gauge,
    graph: Graph,
    session: Any,
    states: list[bundle_pb2.StateTensor],
    requests: list[RandomRequest],
) -> Encoded:
    outputs = _run_padded(graph, session, requests)
    written = [state for state in states if state.encoder_output]
    encoded: Encoded = []
    for row, request in enumerate(requests):
        expected = [tensor[0] for tensor in graph.module(*request.source)]
        actual = [head(output[row], s, request.memory_length) for output, s in zip(outputs, written, strict=True)]
        for name, tensor, array in zip(graph.outputs, expected, actual, strict=True):
            gauge.compare(f"{graph.file_name} output {name}", tensor, array)
        encoded.append((expected, actual))
    return encoded


def _run_padded(graph: Graph, session: Any, requests: list[RandomRequest]) -> list[Array]:
    """Run all requests as one batch, right-padded to a multiple of 8 as a server pads."""
    feeds = {}
    for index, port in enumerate(graph.inputs):
        rows = [request.source[index] for request in requests]
        if port.name == "input_ids":
            width = -(-max(row.shape[1] for row in rows) // 8) * 8
            rows = [nn.functional.pad(row, (0, width - row.shape[1])) for row in rows]
        feeds[port.name] = torch.cat(rows).numpy()
    outputs: list[Array] = session.run(None, feeds)
    return outputs
