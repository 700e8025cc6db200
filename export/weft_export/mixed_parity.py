"""A mixed run beside the two runs that it stands for, in ONNX Runtime: rows and prompt get the same bits."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft_export.checkpoint import Checkpoint
from weft_export.errors import ParityError
from weft_export.graphs import CANDIDATE_PORTS, PROMPT
from weft_proto.v1 import bundle_pb2

NUM_ROWS = 3
NUM_TOKENS = 5
"""Of the prompt's piece; of as many more the cache holds already."""

Array = NDArray[Any]


def check_mixed(decoder: Any, mixed: Any, checkpoint: Checkpoint, states: Sequence[bundle_pb2.StateTensor]) -> None:
    """Run random rows and a piece of a prompt by the decoder's session, apart, and by the mixed one's, together.

    Raises:
        ParityError: a candidate, a logit or a valid entry of a state differs in a bit.
    """
    rng = np.random.default_rng(0)
    text = checkpoint.text
    assert text is not None
    capacity = text.max_total_tokens
    num_tokens = min(NUM_TOKENS, capacity // 2)
    total = np.array([capacity], np.int32)
    past = rng.integers(0, capacity - 1, NUM_ROWS).astype(np.int32)
    prompt_past = np.array([num_tokens if capacity > 2 * num_tokens else 0], np.int32)
    ids = rng.integers(0, text.target_vocab_size, (NUM_ROWS, 1))
    prompt_ids = rng.integers(0, text.target_vocab_size, (1, num_tokens))
    own, other = _filled(rng, states, NUM_ROWS), _filled(rng, states, 1)

    lengths = np.ones(NUM_ROWS, np.int32)
    rows = _run(decoder, {"input_ids": ids, "past_lengths": past, "lengths": lengths, "total_length": total} | own)
    given = {"input_ids": prompt_ids, "past_lengths": prompt_past, "lengths": np.array([num_tokens], np.int32)}
    prompt = _run(decoder, given | {"total_length": total} | other)
    feeds = {"input_ids": ids, "past_lengths": past, "total_length": total, **own}
    feeds |= {"prompt_ids": prompt_ids, "prompt_past_lengths": prompt_past, "prompt_lengths": given["lengths"]}
    together = _run(mixed, feeds | {PROMPT + name: array for name, array in other.items()})

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


def _run(session: Any, feeds: Mapping[str, Any]) -> dict[str, Array]:
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(feeds)), strict=True))


def _same(name: str, expected: Array, actual: Array) -> None:
    if not np.array_equal(expected, actual):
        raise ParityError(f"mixed.onnx output {name} has other bits than decoder.onnx gives in two runs")
