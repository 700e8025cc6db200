"""The EXPLAIN graph in torch beside the same in ONNX Runtime: its default, the average over heads, and single heads."""

from typing import Any

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.random_requests import RandomRequest
from weft_export.graphs.graphs import Graph
from weft_export.proofs.gauge import AttentionGauge, Gauge
from weft_proto.bundle_rules import EXPLAIN_SUM_TOLERANCE
from weft_proto.tasks import TASKS

# Measured at int8 and bf16: 0.004 to 0.07 in trained and small random models. In lively random ones of two and of
# twelve layers it was 0.13 and 0.19. Uniform rows would have 1.
ATTENTION_TOLERANCE = 0.5


def check_explain(
    gauge: Gauge, graph: Graph, session: Any, checkpoint: Checkpoint, requests: list[RandomRequest]
) -> None:
    """Compare weights and source_mass of each request, whose tokens hold a finished answer.

    Raises:
        ParityError: There are three cases:
            1. A value differs by more than the gauge allows.
            2. A row differs by more than ATTENTION_TOLERANCE.
            3. A row does not sum to 1 within EXPLAIN_SUM_TOLERANCE.
    """
    heads = checkpoint.model.attention_heads
    default = -1 if checkpoint.attention_layer is None else checkpoint.attention_layer
    sums = Gauge(EXPLAIN_SUM_TOLERANCE)
    shapes = AttentionGauge(ATTENTION_TOLERANCE)
    for index, request in enumerate(requests):
        given = _inputs(checkpoint, request, shortest=index == 0)
        averages = [(default, -1), *((layer, -1) for layer in range(len(heads)))]
        # Each request reads another head of each layer.
        single = [(layer, index % num_heads) for layer, num_heads in enumerate(heads)]
        for layer, head in (*averages, *single):
            inputs = (*given, torch.tensor([layer]), torch.tensor([head]))
            feeds = {port.name: value.numpy() for port, value in zip(graph.inputs, inputs, strict=True)}
            expected, actual = graph.module(*inputs), session.run(None, feeds)
            for name, tensor, array in zip(graph.outputs, expected, actual, strict=True):
                gauge.compare(f"{graph.file_name} output {name} of layer {layer}", tensor, array)
            shapes.compare(f"{graph.file_name} output weights of layer {layer}", expected[0], actual[0])
            sums.compare(f"{graph.file_name} sum of weights", torch.ones(len(actual[0])), actual[0].sum(axis=1))


def _inputs(checkpoint: Checkpoint, request: RandomRequest, *, shortest: bool) -> tuple[Tensor, ...]:
    if not TASKS[checkpoint.task].writes_text:
        return request.source
    source = request.source
    first = 0
    if not source:
        prompt = torch.tensor([request.tokens[: request.num_given]])
        source, first = (prompt, torch.tensor([prompt.shape[1]], dtype=torch.int32)), request.num_given
    # The shortest answer is one token, which leaves a generator no produced token to attend from.
    last = request.num_given if shortest else len(request.tokens) - 1
    return (*source, torch.tensor([request.tokens[first:last]], dtype=torch.int64))
