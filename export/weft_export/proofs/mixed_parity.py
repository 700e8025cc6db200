"""A mixed run beside the two runs that it stands for, in ONNX Runtime: rows and prompt get the same bits."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.errors import ParityError
from weft_export.graphs.graphs import DEFERRED_PORTS
from weft_proto.bundle_rules import CANDIDATE_PORTS, PROMPT, READS_ALL
from weft_proto.v1 import bundle_pb2

SIZES = ((1, 8), (3, 5), (8, 16))
"""Pairs: how many rows, and how many tokens the prompt's piece has. The cache holds as many tokens before them."""

Array = NDArray[Any]


def check_mixed(decoder: Any, mixed: Any, checkpoint: Checkpoint, states: Sequence[bundle_pb2.StateTensor]) -> None:
    """Compare two runs with one: random rows and a piece of a prompt, apart in `decoder` and together in `mixed`.

    Raises:
        ParityError: a candidate, a logit or a valid entry of a state differs in a bit.
    """
    rng = np.random.default_rng(0)
    for num_rows, num_tokens in SIZES:
        _check(rng, decoder, mixed, checkpoint, states, num_rows, num_tokens)


def _check(
    rng: np.random.Generator,
    decoder: Any,
    mixed: Any,
    checkpoint: Checkpoint,
    states: Sequence[bundle_pb2.StateTensor],
    num_rows: int,
    num_tokens: int,
) -> None:
    text = checkpoint.text
    assert text is not None
    capacity = text.max_total_tokens
    num_tokens = min(num_tokens, capacity // 2)
    total = np.array([capacity], np.int32)
    past = rng.integers(0, capacity - 1, num_rows).astype(np.int32)
    prompt_past = np.array([num_tokens if capacity > 2 * num_tokens else 0], np.int32)
    ids = rng.integers(0, text.target_vocab_size, (num_rows, 1))
    prompt_ids = rng.integers(0, text.target_vocab_size, (1, num_tokens))
    own, other = _filled(rng, states, num_rows), _filled(rng, states, 1)

    lengths = np.ones(num_rows, np.int32)
    rows = _run(decoder, {"input_ids": ids, "past_lengths": past, "lengths": lengths, "total_length": total} | own)
    given = {"input_ids": prompt_ids, "past_lengths": prompt_past, "lengths": np.array([num_tokens], np.int32)}
    prompt = _run(decoder, given | {"total_length": total} | other)
    feeds = {"input_ids": ids, "past_lengths": past, "total_length": total, **own}
    feeds |= {"prompt_ids": prompt_ids, "prompt_past_lengths": prompt_past, "prompt_lengths": given["lengths"]}
    feeds |= {PROMPT + name: array for name, array in other.items()}
    together = _run(mixed, feeds)

    less = _run(mixed, feeds, reads_all=0)
    for name in set(less) - set(DEFERRED_PORTS):
        _same(name, together[name], less[name])
    for name in CANDIDATE_PORTS:
        _same(name, np.concatenate((rows[name], prompt[name])), together[name])
    for state in states:
        for row, length in enumerate((past + 1).tolist()):
            _same(state.present, rows[state.present][row, :, :length], together[state.present][row, :, :length])
        name, length = PROMPT + state.present, int(prompt_past[0]) + num_tokens
        _same(name, prompt[state.present][:, :, :length], together[name][:, :, :length])


def _filled(rng: np.random.Generator, states: Sequence[bundle_pb2.StateTensor], batch: int) -> dict[str, Array]:
    filled: dict[str, Array] = {}
    for state in states:
        values = rng.standard_normal((batch, *state.shape))
        rounded = state.data_type == bundle_pb2.DATA_TYPE_INT8
        filled[state.past] = (values * 40).clip(-127, 127).astype(np.int8) if rounded else values.astype(np.float32)
    return filled


def _run(session: Any, feeds: Mapping[str, Any], reads_all: int = 1) -> dict[str, Array]:
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, {**feeds, READS_ALL: np.array([reads_all], np.int32)}), strict=True))


def _same(name: str, expected: Array, actual: Array) -> None:
    if not np.array_equal(expected, actual):
        raise ParityError(f"mixed.onnx output {name} has other bits than decoder.onnx gives in two runs")
