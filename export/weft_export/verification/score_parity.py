"""The SCORE graph in ONNX Runtime beside a full recomputation in torch, on finished answers of different lengths."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft_export.checkpoints.random_requests import RandomRequest
from weft_export.graphs.graphs import Graph
from weft_export.verification.tolerance import Tolerance, allowed, both_allowed
from weft_proto.bundle_rules import SCORE_PORTS, SCORED_PORTS

# Positions in one turn of the graph.
_SIZE = 16


def check_score(tolerance: Tolerance, graph: Graph, session: Any, requests: Sequence[RandomRequest]) -> None:
    """Compare log-probabilities of all tokens of the requests that another one precedes, and of the best there.

    ONNX Runtime reads all requests as one batch, but for recordings of other lengths, and torch each by itself.

    Raises:
        ParityError: a log-probability differs by more than the tolerance allows of the logits that it is made of, or a
            token among the best has not the log-probability that stands beside it.
    """
    if graph.inputs[0].name == "waveform" and len(requests) > 1:
        for request in requests:
            check_score(tolerance, graph, session, [request])
        return
    rows = [torch.tensor([request.tokens]) for request in requests]
    outputs = session.run(SCORE_PORTS, _feeds(graph, requests, rows))
    log_probs, top_ids, top_log_probs = (array.reshape(-1, *array.shape[2:]) for array in outputs)
    first = 0
    for request, tokens in zip(requests, rows, strict=True):
        logits = graph.module.model.decode(tokens[:, :-1], *request.source)[0].float()  # type: ignore[operator, union-attr]
        expected = logits.log_softmax(dim=-1)
        own = slice(first, first + len(expected))
        first = own.stop
        name = f"{graph.file_name} output"
        chosen = expected.gather(1, tokens[0, 1:, None])[:, 0]
        like = allowed(logits)
        tolerance.compare(f"{name} log_probs", chosen, log_probs[own], like)
        best = expected.topk(top_ids.shape[1], dim=-1).values
        named = expected.gather(1, torch.from_numpy(top_ids[own]))
        for what, right in (("topk_log_probs", best), ("topk_log_probs of topk_ids", named)):
            tolerance.compare(f"{name} {what}", *both_allowed(f"{name} {what}", right, top_log_probs[own]), like)


def _feeds(graph: Graph, requests: Sequence[RandomRequest], rows: Sequence[Tensor]) -> dict[str, NDArray[Any]]:
    fed = [tokens[0, :-1] for tokens in rows]
    values = [_stacked([request.source[index] for request in requests]) for index in range(len(requests[0].source))]
    values.append(_padded(fed))
    width = values[-1].shape[1]
    places = [row * width + place for row, ids in enumerate(fed) for place in range(len(ids))]
    scored = [token for tokens in rows for token in tokens[0, 1:].tolist()]
    missing = -len(places) % _SIZE
    given = (np.array([*ids, *ids[-1:] * missing]).reshape(-1, _SIZE) for ids in (places, scored))
    names = [port.name for port in graph.inputs]
    assert names[-len(SCORED_PORTS) :] == list(SCORED_PORTS)
    return dict(zip(names, (*(value.numpy() for value in values), *given), strict=True))


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    """Return ids, or what needs no padding, of all requests."""
    return _padded([part[0] for part in parts]) if parts[0].dim() == 2 else torch.cat(tuple(parts))


def _padded(rows: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
