"""What ONNX Runtime answers, run as a server runs it: inputs bound, caches written in place."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from weft_export.checkpoints.random_requests import RandomRequest
from weft_export.graphs.answering import Run
from weft_export.graphs.graphs import Graph
from weft_export.verification.session import AdaptedSession, is_paged_session, onnxruntime, open_session
from weft_proto.bundle_rules import READS_ALL
from weft_proto.v1 import bundle_pb2

_NARROW = {"tensor(float16)": np.float16, "tensor(int8)": np.int8}


def value_of(array: NDArray[Any]) -> Any:
    """Return an OrtValue over the memory of an array, which an io_binding can read and write."""
    return onnxruntime().OrtValue.ortvalue_from_numpy(array)


def onnx_run(graphs: Sequence[Graph], directory: Path) -> Run:
    """Return what runs graphs in ONNX Runtime, from their files in a directory. Floats become what a graph takes.

    A graph is opened when it first runs.
    Only a decoder's candidates and states count. What is deferred is not asked for.
    Caches and memories are written in place. They may be given shorter than the graph takes them, and come back whole.
    """
    by_role = {graph.role: graph for graph in graphs}
    sessions: dict[bundle_pb2.GraphRole.ValueType, Any] = {}

    def run(role: bundle_pb2.GraphRole.ValueType, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        graph = by_role[role]
        if role not in sessions:
            sessions[role] = open_session(directory / graph.file_name)
        if is_paged_session(sessions[role]):
            fed = {name: tensor.numpy() for name, tensor in inputs.items()}
            told = run_in_place(sessions[role], fed, graph.states)
            return {name: torch.from_numpy(output) for name, output in told.items()}
        ports = {port.name: port for port in sessions[role].get_inputs()}
        pasts = {state.past for state in graph.states}
        arrays = {}
        for name, tensor in inputs.items():
            array = tensor.numpy()
            array = array.astype(_NARROW.get(ports[name].type, array.dtype), copy=False)
            arrays[name] = _whole(array, ports[name].shape[1:]) if name in pasts else array
        if READS_ALL in ports:
            arrays[READS_ALL] = np.zeros(1, np.int32)  # as a server asks who wants no scores
        outputs = run_in_place(sessions[role], arrays, graph.states)
        return {name: torch.from_numpy(output) for name, output in outputs.items()}

    return run


def run_in_place(
    session: Any,
    arrays: Mapping[str, NDArray[Any]],
    states: Sequence[bundle_pb2.StateTensor] = (),
    names: Sequence[str] = (),
) -> dict[str, NDArray[Any]]:
    """Run on arrays and return the outputs by name: those of `names`, or all.

    The present of a cache or a memory is written over its past, as in a server. That of a recurrent state is not.
    """
    if is_paged_session(session):
        fed = session.packed(arrays, states)
        unpacked: dict[str, NDArray[Any]] = session.unpack(
            fed, _run_bound(session.session, fed, states), arrays, states
        )
        return unpacked
    return _run_bound(session, arrays, states, names)


def _run_bound(
    session: Any,
    arrays: Mapping[str, NDArray[Any]],
    states: Sequence[bundle_pb2.StateTensor],
    names: Sequence[str] = (),
) -> dict[str, NDArray[Any]]:
    binding = session.io_binding()
    bound = session.whole(arrays) if isinstance(session, AdaptedSession) else arrays
    outputs = {}
    over = {state.present: state.past for state in states if state.kind != bundle_pb2.STATE_KIND_RECURRENT}
    for name, array in bound.items():
        binding.bind_ortvalue_input(name, value_of(array))
    asked = names or [port.name for port in session.get_outputs()]
    fresh = [name for name in asked if name not in over]
    for name in fresh:
        binding.bind_output(name)
    for name in over:
        if name:
            outputs[name] = arrays[over[name]]
            binding.bind_ortvalue_output(name, value_of(outputs[name]))
    session.run_with_iobinding(binding)
    return outputs | {name: value.numpy() for name, value in zip(fresh, binding.get_outputs(), strict=False)}


def run_padded(graph: Graph, session: Any, requests: Sequence[RandomRequest]) -> list[NDArray[Any]]:
    """Run all requests as one batch, right-padded to a multiple of 8 as a server pads."""
    feeds = {}
    for index, port in enumerate(graph.inputs):
        rows = [request.source[index] for request in requests]
        if port.name == "input_ids":
            width = -(-max(row.shape[1] for row in rows) // 8) * 8
            rows = [nn.functional.pad(row, (0, width - row.shape[1])) for row in rows]
        feeds[port.name] = torch.cat(rows).numpy()
    outputs: list[NDArray[Any]] = session.run(None, feeds)
    return outputs


def _whole(array: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Return an array whose rows have a shape: itself, or its values before zeros that take no memory."""
    if array.shape[1:] == tuple(shape):
        return np.ascontiguousarray(array)
    whole = np.zeros((len(array), *shape), array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    return whole
