"""The EXPLAIN graph in torch beside the same in ONNX Runtime: all layers' attentions, and what is picked from them.

Each request takes one pass in torch and one in ONNX Runtime, however many layers there are.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.random_requests import RandomRequest
from weft_export.families.writer import Writer
from weft_export.graphs.graphs import EXPLAIN_PORTS, Graph
from weft_export.graphs.onnx_graph import INNER
from weft_export.layers.explaining import over_source
from weft_export.verification.session import Pairs, open_session
from weft_export.verification.tolerance import AttentionTolerance, Tolerance
from weft_proto.bundle_rules import EXPLAIN_SUM_TOLERANCE
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2

_ATTENTION = INNER[bundle_pb2.GRAPH_ROLE_EXPLAIN]


@dataclass(frozen=True)
class ExplainParts:
    """Two .onnx files with the nodes of an EXPLAIN graph, beside it because they read its weights.

    whole has all of them. Its outputs are also the attentions, whose names are `attentions`.
    picking has those behind the attentions, which are inputs of it. Another layer then needs no other pass.
    """

    whole: Path
    picking: Path
    attentions: tuple[str, ...]


@contextmanager
def explain_parts(path: Path) -> Iterator[ExplainParts]:
    """Yield the parts of the graph in a file, which are removed afterwards."""
    model = onnx.load(path, load_external_data=False)
    inner = [info for info in model.graph.value_info if info.name.startswith(_ATTENTION)]
    inner.sort(key=lambda info: int(info.name.removeprefix(_ATTENTION)))
    parts = ExplainParts(
        path.with_suffix(".whole.onnx"), path.with_suffix(".picking.onnx"), tuple(info.name for info in inner)
    )
    try:
        onnx.save(_behind(model, inner), parts.picking)
        model.graph.output.extend(inner)
        onnx.save(model, parts.whole)
        yield parts
    finally:
        parts.whole.unlink(missing_ok=True)
        parts.picking.unlink(missing_ok=True)


def _behind(model: onnx.ModelProto, inner: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    """Return what of a model stands between inner values and its outputs. The values are inputs of it."""
    graph = model.graph
    given = {info.name for info in inner}
    wanted = {output.name for output in graph.output}
    nodes = []
    for node in reversed(graph.node):
        made = wanted.intersection(node.output) - given
        if made:
            nodes.append(node)
            wanted.update(_read_by(node))
    behind = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    behind.graph.CopyFrom(
        helper.make_graph(
            nodes[::-1],
            graph.name,
            [*(port for port in graph.input if port.name in wanted), *inner],
            graph.output,
            [tensor for tensor in graph.initializer if tensor.name in wanted],
            value_info=[info for info in graph.value_info if info.name in wanted - given],
        )
    )
    return behind


def _read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of what a node reads, in its subgraphs too."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read_by(inner)


# Measured at int8 and bf16: 0.004 to 0.07 in trained and small random models. In lively random ones of two and of
# twelve layers it was 0.13 and 0.19. Uniform rows would have 1.
ATTENTION_TOLERANCE = 0.5

Feeds = dict[str, NDArray[Any]]
Reading = tuple[int, int]
"""A layer and a head, or -1 for the summary of all layers and for the average over heads."""


class ExplainParity:
    """Compares the outputs for requests, whose tokens hold a finished answer."""

    def __init__(
        self,
        tolerance: Tolerance,
        graph: Graph,
        checkpoint: Checkpoint,
        requests: list[RandomRequest],
        adapter: Pairs | None = None,
    ) -> None:
        """The file's graph is given an adapter, if there is one."""
        self.tolerance, self.graph, self.checkpoint, self.requests = tolerance, graph, checkpoint, requests
        self.adapter = adapter
        self.sums = Tolerance(EXPLAIN_SUM_TOLERANCE)
        self.shapes = AttentionTolerance(ATTENTION_TOLERANCE)

    def check(self, path: Path) -> None:
        """Compare the graph in a file with its module.

        Raises:
            ParityError: There are three cases:
                1. A value differs by more than the tolerance. The attentions of all heads of all layers are values.
                2. A row differs by more than ATTENTION_TOLERANCE.
                3. A row does not sum to 1 within EXPLAIN_SUM_TOLERANCE.
        """
        with explain_parts(path) as parts:
            given = [self._feeds(index) for index in range(len(self.requests))]
            session = open_session(parts.whole, adapter=self.adapter)
            attentions = [self._check_whole(session, feeds, parts.attentions) for feeds in given]
            del session
            session = open_session(parts.picking, adapter=self.adapter)
            for index, (feeds, seen) in enumerate(zip(given, attentions, strict=True)):
                self._check_picking(session, feeds | seen, self._readings(index))

    def _feeds(self, index: int) -> Feeds:
        """Return a request's inputs, and its default reading."""
        inputs = (*_inputs(self.checkpoint, self.requests[index], shortest=index == 0), *_tensors([self._default()]))
        return {port.name: value.numpy() for port, value in zip(self.graph.inputs, inputs, strict=True)}

    def _default(self) -> Reading:
        layer = self.checkpoint.attention_layer
        return (-1 if layer is None else layer), -1

    def _readings(self, index: int) -> list[Reading]:
        heads = self.checkpoint.explained_heads
        averages = [(layer, -1) for layer in range(len(heads))]
        # Each request reads another head of each layer.
        return [self._default(), *averages, *((layer, index % num_heads) for layer, num_heads in enumerate(heads))]

    def _check_whole(self, session: Any, feeds: Feeds, attentions: Sequence[str]) -> Feeds:
        """Compare the default reading and all attentions, and return those of ONNX Runtime."""
        names, num_picked = (*self.graph.outputs, *attentions), len(self.graph.outputs)
        outputs = session.run(names, feeds)
        expected = self.graph.module(*map(torch.from_numpy, feeds.values()))
        compared = list(zip(names, expected, outputs, strict=True))
        # What was picked comes last: an attention says better what is wrong.
        for name, tensor, array in compared[num_picked:] + compared[:num_picked]:
            self.tolerance.compare(f"{self.graph.file_name} output {name}", tensor, array)
        self._check_rows(self._default(), expected[:num_picked], outputs[:num_picked])
        return dict(zip(attentions, outputs[num_picked:], strict=True))

    def _check_picking(self, session: Any, feeds: Feeds, readings: Sequence[Reading]) -> None:
        """Compare what each reading picks. Torch picks all of them out of one pass."""
        taken = {port.name for port in session.get_inputs()}
        given = [torch.from_numpy(feeds[port.name]) for port in self.graph.inputs[:-2]]
        explain = torch.vmap(lambda layer, head: self.graph.module(*given, layer, head)[: len(self.graph.outputs)])
        expected = zip(*explain(*_tensors(readings, each=1)), strict=True)
        for reading, tensors in zip(readings, expected, strict=True):
            layer, head = (np.array([index]) for index in reading)
            inputs = {name: array for name, array in {**feeds, "layer": layer, "head": head}.items() if name in taken}
            outputs = session.run(self.graph.outputs, inputs)
            for name, tensor, array in zip(self.graph.outputs, tensors, outputs, strict=True):
                self.tolerance.compare(f"{self.graph.file_name} output {name} of layer {reading[0]}", tensor, array)
            self._check_rows(reading, tensors, outputs)

    def _check_rows(self, reading: Reading, expected: Sequence[Tensor], actual: Sequence[NDArray[Any]]) -> None:
        weights, what = actual[0], f"{self.graph.file_name} output {{}} of layer {reading[0]}"
        self.shapes.compare(what.format("weights"), expected[0], weights)
        self.sums.compare(f"{self.graph.file_name} sum of weights", torch.ones(len(weights)), weights.sum(axis=1))
        if len(actual) > len(EXPLAIN_PORTS):
            right, rows = over_source(expected[-1])[0], over_source(torch.from_numpy(actual[-1]))[0].numpy()
            self.shapes.compare(what.format(self.graph.outputs[-1]), right, rows)


def _tensors(readings: Sequence[Reading], *, each: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the layers and the heads of readings, int64 [readings], or [readings, each]."""
    layers, heads = torch.tensor(readings).unbind(dim=1)
    return (layers, heads) if each is None else (layers[:, None], heads[:, None])


def _inputs(checkpoint: Checkpoint, request: RandomRequest, *, shortest: bool) -> tuple[Tensor, ...]:
    if not TASKS[checkpoint.task].writes_text:
        return request.source
    source = request.source
    first = 0
    if TASKS[checkpoint.task].takes_prompt:
        prompt = torch.tensor([request.tokens[: request.num_given]])
        beside = _beside(checkpoint, prompt, source) if checkpoint.sees else ()
        source, first = (prompt, torch.tensor([prompt.shape[1]], dtype=torch.int32), *beside), request.num_given
    # The shortest answer is one token, which leaves a generator no produced token to attend from.
    last = request.num_given if shortest else len(request.tokens) - 1
    return (*source, torch.tensor([request.tokens[first:last]], dtype=torch.int64))


def _beside(checkpoint: Checkpoint, prompt: Tensor, pictures: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return what a prompt reads beside its tokens: [1, seq, width], and perhaps position offsets."""
    model = checkpoint.model
    assert isinstance(model, Writer), "what sees writes no text. This is a bug."
    placed = model.placed(prompt, model.shown(*pictures) if pictures else None)
    return (placed, model.offsets(prompt, *pictures)[:, :-1]) if model.offsets_positions else (placed,)
