"""The proofs of a model that writes: its encoder, its decoder in many ways, and the graphs that are made of it."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.random_requests import NUM_REQUESTS, RandomRequest, random_pictures
from weft_export.graphs.graphs import Graph, states_of
from weft_export.verification.decode_parity import DecodeParity, Encoded, head
from weft_export.verification.end_parity import check_end
from weft_export.verification.runtime import run_padded
from weft_export.verification.session import is_paged_session
from weft_export.verification.tolerance import Tolerance
from weft_proto.questions import decoder_asks
from weft_proto.v1 import bundle_pb2


def check_writer(
    tolerance: Tolerance,
    checkpoint: Checkpoint,
    graphs: Mapping[bundle_pb2.GraphRole.ValueType, Graph],
    opened: Callable[[bundle_pb2.GraphRole.ValueType], Any],
    requests: list[RandomRequest],
    precision: bundle_pb2.Precision.ValueType,
) -> int:
    """Compare all graphs but EXPLAIN with their modules, and return how many steps the decoder went.

    opened gives the session of a role.

    Raises:
        ParityError: as of check_parity.
    """
    is_bf16 = precision == bundle_pb2.PRECISION_BF16
    states = states_of(checkpoint.model, bundle_pb2.PRECISION_FP32 if is_bf16 else precision)
    vocab_size = checkpoint.text_spec.target_vocab_size
    role = bundle_pb2.GRAPH_ROLE_ENCODER
    encoded = _check_encoder(tolerance, graphs[role], opened(role), states, requests) if role in graphs else []
    role = bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER
    if role in graphs:
        _check_sight(tolerance, graphs[role], opened(role), checkpoint)
    role = bundle_pb2.GRAPH_ROLE_DECODER
    reads_prefix = decoder_asks(checkpoint.task, checkpoint.text_spec)
    other = bundle_pb2.GRAPH_ROLE_BIDIRECTIONAL
    both_ways = (graphs[other], opened(other)) if other in graphs else None
    run = DecodeParity(
        tolerance, graphs[role], opened(role), states, requests, reads_prefix=reads_prefix, both_ways=both_ways
    )
    num_steps = run.check(encoded)
    if is_paged_session(run.session):
        from weft_export.verification.packed_parity import check_packs  # noqa: PLC0415 - late: for such bundles alone

        check_packs(run, vocab_size)
    # The stand-in of a bf16 graph has no caches in place, which this proof is about.
    if not is_bf16:
        check_end(run, encoded, vocab_size)
    else:
        run.close()
    run.check_greedy(checkpoint.model)
    if bundle_pb2.GRAPH_ROLE_MIXED in graphs:
        from weft_export.verification.mixed_parity import check_mixed  # noqa: PLC0415 - same

        check_mixed(opened, checkpoint, states)
    role = bundle_pb2.GRAPH_ROLE_SCORE
    if role in graphs:
        from weft_export.verification.score_parity import check_score  # noqa: PLC0415 - same

        check_score(tolerance, graphs[role], opened(role), requests)
    return num_steps


def _check_sight(tolerance: Tolerance, graph: Graph, session: Any, checkpoint: Checkpoint) -> None:
    assert checkpoint.image is not None
    generator = torch.Generator().manual_seed(2)
    # Of cells, each batch is of another size.
    for _ in range(NUM_REQUESTS if checkpoint.image.tiling.max_pixels else 1):
        pictures = random_pictures(checkpoint.image, NUM_REQUESTS, generator)
        outputs = run_padded(graph, session, [RandomRequest((each[None],)) for each in pictures])
        for picture, features in zip(pictures, outputs[0], strict=True):
            tolerance.compare(f"{graph.file_name} output {graph.outputs[0]}", graph.module(picture[None])[0], features)


def _check_encoder(
    tolerance: Tolerance,
    graph: Graph,
    session: Any,
    states: list[bundle_pb2.StateTensor],
    requests: list[RandomRequest],
) -> Encoded:
    if graph.inputs[0].name == "waveform":
        # Recordings of other lengths never share a run.
        rows = [[output[0] for output in run_padded(graph, session, [request])] for request in requests]
    else:
        rows = [list(row) for row in zip(*run_padded(graph, session, requests), strict=True)]
    written = [state for state in states if state.encoder_output]
    encoded: Encoded = []
    for outputs, request in zip(rows, requests, strict=True):
        expected = [tensor[0] for tensor in graph.module(*request.source)]
        actual = [head(output, s, request.memory_length) for output, s in zip(outputs, written, strict=True)]
        for name, tensor, array in zip(graph.outputs, expected, actual, strict=True):
            tolerance.compare(f"{graph.file_name} output {name}", tensor, array)
        encoded.append((expected, actual))
    return encoded
