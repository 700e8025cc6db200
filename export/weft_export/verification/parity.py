"""Torch against ONNX Runtime on random requests: every output and state, prefill and each step, and the greedy tokens.

The reference is torch in float32 whatever the bundle's precision. Requests are admitted one step
apart into neighbouring slots, so that decode batches grow and are ragged.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.random_requests import RandomRequest, random_requests
from weft_export.families.classifier import IDENTITY
from weft_export.graphs.graphs import Graph, graphs_of
from weft_export.verification.runtime import run_padded
from weft_export.verification.session import Pairs, open_session
from weft_export.verification.tolerance import Figures, Tolerance
from weft_export.verification.tolerances import (
    attention_tolerance_of,
    bounds_of,
    share_tolerance_of,
    tolerance_of,
    vector_tolerance_of,
)
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2

# What is compared of an output, by whether its last number is a weight. That has a size of its own, which is up to
# some 30 times that of the numbers of a vector.
_PARTS = {False: {"": slice(None)}, True: {", vectors": slice(-1), ", weights": slice(-1, None)}}


def check_parity(
    checkpoint: Checkpoint,
    directory: Path,
    precision: bundle_pb2.Precision.ValueType,
    *,
    mixed_runs: bool = False,
    scores: bool = False,
    adapter: Pairs | None = None,
    figures: Figures | None = None,
) -> bundle_pb2.Parity:
    """Compare the graphs in a directory with a checkpoint's modules. The graphs are given an adapter, if there is one.

    figures get each comparison, the one that fails too.

    Raises:
        ParityError: There are five cases:
            1. An output or a state differs by more than tolerance_of allows.
            2. A probability differs by more than share_tolerance_of allows, a vector by more than vector_tolerance_of
               does, or an attention weight by more than attention_tolerance_of does.
            3. A greedy token differs.
            4. A mixed run gives other bits than two runs.
            5. A log-probability of a finished answer differs by more than tolerance_of allows.
        ExportError: onnxruntime is not installed.
    """
    if TASKS[checkpoint.task].matches:
        return _worst([check_parity(tower, directory, precision, figures=figures) for tower in checkpoint.towers])
    exact = bundle_pb2.PRECISION_FP32
    # Whether caches lie in blocks or in slots shows in no answer: torch keeps slots.
    checkpoint = replace(checkpoint, paged=False)
    graphs = {graph.role: graph for graph in graphs_of(checkpoint, exact, mixed_runs=mixed_runs, scores=scores)}

    def opened(role: bundle_pb2.GraphRole.ValueType) -> Any:
        """Open a graph's session. No two are kept at a time: each holds the weights in memory of its own."""
        return open_session(directory / graphs[role].file_name, adapter=adapter)

    figures = figures or Figures()
    tolerance, shares, vectors, explained = (
        replace(held_to(bounds_of(precision, checkpoint.model), checkpoint.model), figures=figures)
        for held_to in (tolerance_of, share_tolerance_of, vector_tolerance_of, attention_tolerance_of)
    )
    of_labels = tolerance if getattr(checkpoint.model, "scoring", "") == IDENTITY else shares
    stateless = {
        bundle_pb2.GRAPH_ROLE_CLASSIFIER: of_labels,
        bundle_pb2.GRAPH_ROLE_TAGGER: of_labels,
        bundle_pb2.GRAPH_ROLE_MASKED_LM: tolerance,
        bundle_pb2.GRAPH_ROLE_CTC: tolerance,
        bundle_pb2.GRAPH_ROLE_EMBEDDER: vectors,
        bundle_pb2.GRAPH_ROLE_IMAGE_EMBEDDER: vectors,
    }
    requests = random_requests(checkpoint)
    num_steps = 0
    with torch.inference_mode():
        for role, held_to in stateless.items():
            if role in graphs:
                parts = _PARTS[getattr(checkpoint.model.config, "weighs", None) is not None]
                _check_classifier(held_to, graphs[role], opened(role), requests, parts)
        if bundle_pb2.GRAPH_ROLE_DECODER in graphs:
            from weft_export.verification.writer_parity import check_writer  # noqa: PLC0415 - late: others have no decoder

            num_steps = check_writer(tolerance, checkpoint, graphs, opened, requests, precision)
        role = bundle_pb2.GRAPH_ROLE_EXPLAIN
        if role in graphs:
            from weft_export.verification.explain_parity import ExplainParity  # noqa: PLC0415 - late: some explain nothing

            ExplainParity(explained, graphs[role], checkpoint, requests, adapter).check(
                directory / graphs[role].file_name
            )
    # A share of a size and a difference of probabilities cannot be one figure. The one that counts is of what answers
    # are made of: logits and states for a writer, and else probabilities or vectors.
    reported = next((stateless[role] for role in stateless if role in graphs), tolerance)
    return bundle_pb2.Parity(
        max_abs_error=reported.worst,
        tolerance=reported.tolerance,
        num_steps=num_steps,
        num_requests=len(requests),
    )


def _worst(parities: list[bundle_pb2.Parity]) -> bundle_pb2.Parity:
    worst = max(parities, key=lambda parity: parity.max_abs_error)
    worst.num_requests = sum(parity.num_requests for parity in parities)
    return worst


def _check_classifier(
    tolerance: Tolerance,
    graph: Graph,
    session: Any,
    requests: list[RandomRequest],
    parts: dict[str, slice],
) -> None:
    outputs: Any
    if graph.role == bundle_pb2.GRAPH_ROLE_CTC:
        # Recordings of other lengths never share a run.
        outputs = [run_padded(graph, session, [request])[0][0] for request in requests]
    else:
        (outputs,) = run_padded(graph, session, requests)
    for row, request in enumerate(requests):
        expected = graph.module(*request.source)[0]
        # A tagger has a row for each token, padding included; a masked language model one for each mask.
        actual = outputs[row][: len(expected)] if expected.dim() > 1 else outputs[row]
        for part, columns in parts.items():
            what = f"{graph.file_name} output {graph.outputs[0]}{part}"
            tolerance.compare(what, expected[..., columns], actual[..., columns])
