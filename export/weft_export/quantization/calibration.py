"""How large keys and values get, when a model answers requests in float32. That fixes the scales of rounded caches."""

from collections.abc import Sequence

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.errors import CheckpointError
from weft_export.families.writer import KV_CACHE, RECURRENT, Writer
from weft_export.layers.run import Run
from weft_export.quantization.requests import random_targets, sensible_requests

MARGIN = 1.5
"""A channel may become this many times larger than it ever was here, before it is clipped."""
MAX_EXAMPLES = 64
"""How many held-out examples are used: the first ones. Their references are the targets."""


def cache_ranges(checkpoint: Checkpoint, examples: Sequence[Example]) -> list[Tensor]:
    """Return for each state of keys or values MARGIN times the largest magnitudes of its channels, [heads, head_dim].

    The requests are random ones, and held-out examples or texts of our own.

    Raises:
        CheckpointError: a key or value is NaN or infinite.
    """
    model = checkpoint.model
    assert isinstance(model, Writer)
    kept = [index for index, state in enumerate(model.states) if state.kind != RECURRENT]
    shapes = [model.states[index].shape for index in kept]
    ranges = [torch.zeros(shape[0], shape[2]) for shape in shapes]
    with torch.inference_mode():
        for source, tokens in (*random_targets(checkpoint), *sensible_requests(checkpoint, examples, MAX_EXAMPLES)):
            states = _states_after(model, source, tokens)
            for largest, index in zip(ranges, kept, strict=True):
                torch.maximum(largest, states[index][0].abs().amax(dim=1), out=largest)
    for index, largest in zip(kept, ranges, strict=True):
        if not bool(largest.isfinite().all()):
            raise CheckpointError(
                f"state {model.states[index].name} is not finite for some request: the model overflows"
            )
    return [largest * MARGIN for largest in ranges]


def _states_after(model: Writer, source: tuple[Tensor, ...], tokens: list[int]) -> list[Tensor]:
    """Return the states of one request after all its tokens; keys and values are [1, heads, length, head_dim]."""
    encoded = iter(model.encode_states(*source) if source and not model.sees else ())
    states, memory_length, begun = [], None, 0
    for state in model.states:
        if state.kind == RECURRENT:
            states.append(torch.zeros(1, *state.shape))
            continue
        written = next(encoded) if state.encoded else torch.zeros(1, state.shape[0], 0, state.shape[2])
        if state.kind == KV_CACHE:
            begun = written.shape[2]
            empty = torch.zeros(1, state.shape[0], state.shape[1] - begun, state.shape[2])
            written = torch.cat((written, empty), dim=2)
        else:
            memory_length = written.shape[2]
        states.append(written)
    ids = torch.tensor([tokens])
    run = Run(
        input_ids=ids,
        past_lengths=torch.tensor([begun], dtype=torch.int32),
        lengths=torch.tensor([len(tokens)], dtype=torch.int32),
        total_length=torch.tensor([_capacity(model)], dtype=torch.int32),
        memory_lengths=None if memory_length is None else torch.tensor([memory_length], dtype=torch.int32),
        features=model.placed(ids, model.see(*source) if source else None) if model.sees else None,
        position_offsets=model.offsets(ids, *source)[:, :-1] if model.offsets_positions else None,
    )
    return model.step(run, states)[1]


def _capacity(model: Writer) -> int:
    """Return how many tokens its caches hold."""
    return next(state.shape[1] for state in model.states if state.kind == KV_CACHE)
