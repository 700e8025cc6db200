"""A mixed run beside the two runs that it stands for, in ONNX Runtime: rows and prompt get the same bits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.random_requests import MAX_PROMPT
from weft_export.errors import ParityError
from weft_export.graphs.graphs import DEFERRED_PORTS, zeros_of
from weft_export.layers.block_linear import BlockLinear, goes_in_pairs
from weft_export.verification.runtime import run_in_place
from weft_proto.bundle_rules import CANDIDATE_PORTS, PROMPT, READS_ALL
from weft_proto.v1 import bundle_pb2

SIZES = ((1, 8), (3, 5), (8, 16))
"""Pairs: how many rows, and how many tokens the prompt's piece has. The cache holds as many tokens before them.

A lone row stands at the end of its context. Of several, each has MAX_PROMPT tokens before it at most.
"""

PAIRED_SIZES = ((2, 8), (4, 6), (8, 16))
"""The same where runs have even numbers of rows."""

Array = NDArray[Any]


@dataclass
class _Example:
    """Random rows, and a piece of a prompt to read beside them, each with the used part of states of its own."""

    ids: Array
    past: Array
    states: dict[str, Array]
    prompt_ids: Array
    prompt_past: Array
    prompt_states: dict[str, Array]
    total: Array


def check_mixed(
    opened: Callable[[bundle_pb2.GraphRole.ValueType], Any],
    checkpoint: Checkpoint,
    states: Sequence[bundle_pb2.StateTensor],
) -> None:
    """Compare two runs with one: random rows and a piece of a prompt, apart in the decoder and together in MIXED.

    opened gives the session of a role. The decoder's session is let go before the other one is opened.

    Raises:
        ParityError: a candidate, a logit or a valid entry of a state differs in a bit.
    """
    rng = np.random.default_rng(0)
    sizes = PAIRED_SIZES if _goes_in_pairs(checkpoint) else SIZES
    examples = [_drawn(rng, checkpoint, states, num_rows, num_tokens) for num_rows, num_tokens in sizes]

    session = opened(bundle_pb2.GRAPH_ROLE_DECODER)
    apart = [_run_apart(session, example, states) for example in examples]
    del session

    session = opened(bundle_pb2.GRAPH_ROLE_MIXED)
    for example, (rows, prompt) in zip(examples, apart, strict=True):
        _check(session, example, rows, prompt, states)


def _goes_in_pairs(checkpoint: Checkpoint) -> bool:
    """See row_multiple in bundle.proto."""
    products = (module.blocks for module in checkpoint.model.modules() if isinstance(module, BlockLinear))
    return any(goes_in_pairs(blocks.bits, blocks.size) for blocks in products)


def _drawn(
    rng: np.random.Generator,
    checkpoint: Checkpoint,
    states: Sequence[bundle_pb2.StateTensor],
    num_rows: int,
    num_tokens: int,
) -> _Example:
    text = checkpoint.text_spec
    capacity = text.max_total_tokens
    num_tokens = min(num_tokens, capacity // 2)
    past = rng.integers(0, min(capacity - 1, MAX_PROMPT), num_rows) if num_rows > 1 else np.array([capacity - 1])
    prompt_past = num_tokens if capacity > 2 * num_tokens else 0
    return _Example(
        past=past.astype(np.int32),
        prompt_past=np.array([prompt_past], np.int32),
        ids=rng.integers(0, text.target_vocab_size, (num_rows, 1)),
        prompt_ids=rng.integers(0, text.target_vocab_size, (1, num_tokens)),
        states=_filled(rng, states, num_rows, int(past.max()) + 1),
        prompt_states=_filled(rng, states, 1, prompt_past + num_tokens),
        total=np.array([capacity], np.int32),
    )


def _run_apart(
    decoder: Any, example: _Example, states: Sequence[bundle_pb2.StateTensor]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return what the decoder makes of the rows, and what of the prompt."""
    rows = {
        "input_ids": example.ids,
        "past_lengths": example.past,
        "lengths": np.ones(len(example.ids), np.int32),
        "total_length": example.total,
    }
    prompt = {
        "input_ids": example.prompt_ids,
        "past_lengths": example.prompt_past,
        "lengths": np.array([example.prompt_ids.shape[1]], np.int32),
        "total_length": example.total,
    }
    return (
        _run(decoder, rows, states, {"": example.states}),
        _run(decoder, prompt, states, {"": example.prompt_states}),
    )


def _check(
    mixed: Any,
    example: _Example,
    rows: Mapping[str, Array],
    prompt: Mapping[str, Array],
    states: Sequence[bundle_pb2.StateTensor],
) -> None:
    num_tokens = example.prompt_ids.shape[1]
    feeds = {
        "input_ids": example.ids,
        "past_lengths": example.past,
        "total_length": example.total,
        "prompt_ids": example.prompt_ids,
        "prompt_past_lengths": example.prompt_past,
        "prompt_lengths": np.array([num_tokens], np.int32),
    }
    given = {"": example.states, PROMPT: example.prompt_states}
    together = _run(mixed, feeds, states, given)

    less = _run(mixed, feeds, states, given, reads_all=0)
    for name in set(less) - set(DEFERRED_PORTS):
        _same(name, together[name], less[name])
    for name in CANDIDATE_PORTS:
        _same(name, np.concatenate((rows[name], prompt[name])), together[name])
    for state in states:
        for row, length in enumerate((example.past + 1).tolist()):
            _same(state.present, rows[state.present][row, :, :length], together[state.present][row, :, :length])
        name, length = PROMPT + state.present, int(example.prompt_past[0]) + num_tokens
        _same(name, prompt[state.present][:, :, :length], together[name][:, :, :length])


def _filled(
    rng: np.random.Generator, states: Sequence[bundle_pb2.StateTensor], batch: int, length: int
) -> dict[str, Array]:
    filled: dict[str, Array] = {}
    for state in states:
        heads, _, width = state.shape
        values = rng.standard_normal((batch, heads, length, width), np.float32)
        rounded = state.data_type == bundle_pb2.DATA_TYPE_INT8
        filled[state.past] = (values * 40).clip(-127, 127).astype(np.int8) if rounded else values
    return filled


def _run(
    session: Any,
    feeds: Mapping[str, Array],
    states: Sequence[bundle_pb2.StateTensor],
    given: Mapping[str, Mapping[str, Array]],
    reads_all: int = 1,
) -> dict[str, Array]:
    """Run over the used parts of states, by what stands before their ports' names; return these parts too."""
    whole: dict[str, Array] = {}
    ports = []
    for before, parts in given.items():
        for state in states:
            used = parts[state.past]
            array = whole[before + state.past] = zeros_of(state, len(used)).numpy()
            array[:, :, : used.shape[2]] = used
            ports.append(bundle_pb2.StateTensor(past=before + state.past, present=before + state.present))
    outputs = run_in_place(session, {**feeds, **whole, READS_ALL: np.array([reads_all], np.int32)}, ports)
    lengths = {before + state.present: given[before][state.past].shape[2] for before in given for state in states}
    # A copy lets go of the rest.
    return {name: array[:, :, : lengths[name]].copy() if name in lengths else array for name, array in outputs.items()}


def _same(name: str, expected: Array, actual: Array) -> None:
    if not np.array_equal(expected, actual):
        raise ParityError(f"mixed.onnx output {name} has other bits than decoder.onnx gives in two runs")
