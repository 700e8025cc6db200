"""How large keys and values get, when a model answers requests in float32. That fixes the scales of rounded caches."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.checkpoints.random_requests import random_requests
from weft_export.errors import CheckpointError
from weft_export.families.state import KV_CACHE
from weft_export.families.writer import Writer
from weft_export.graphs.answering import reference_ids, row_of, target_tokenizer
from weft_export.layers.run import Run

MARGIN = 1.5
"""A channel may become this many times larger than it ever was here, before it is clipped."""
NUM_REQUESTS = 16
"""How many random requests there are. Each has one random target of up to MAX_TARGET tokens."""
MAX_TARGET = 128
MAX_EXAMPLES = 64
"""How many held-out examples are used: the first ones. Their references are the targets."""

Request = tuple[tuple[Tensor, ...], list[int]]
"""A pair: what the encoder takes (a batch of one, or nothing), and all tokens, start or prompt included."""


def cache_ranges(checkpoint: Checkpoint, examples: Sequence[Example]) -> list[Tensor]:
    """Return for each state of keys or values MARGIN times the largest magnitudes of its channels, [heads, head_dim].

    The requests are random ones, and held-out examples if there are any.

    Raises:
        CheckpointError: a key or value is NaN or infinite.
    """
    model = checkpoint.model
    assert isinstance(model, Writer)
    ranges = [torch.zeros(state.shape[0], state.shape[2]) for state in model.states]
    with torch.inference_mode():
        for source, tokens in (*_random(checkpoint), *_held_out(checkpoint, examples[:MAX_EXAMPLES])):
            for largest, values in zip(ranges, _states_after(model, source, tokens), strict=True):
                torch.maximum(largest, values[0].abs().amax(dim=1), out=largest)
    for state, largest in zip(model.states, ranges, strict=True):
        if not bool(largest.isfinite().all()):
            raise CheckpointError(f"state {state.name} is not finite for some request: the model overflows")
    return [largest * MARGIN for largest in ranges]


def _states_after(model: Writer, source: tuple[Tensor, ...], tokens: list[int]) -> list[Tensor]:
    """Return the states of one request after all its tokens, [1, heads, length, head_dim] each."""
    encoded = iter(model.encode_states(*source) if source else ())
    states = [torch.zeros(1, *state.shape) if state.kind == KV_CACHE else next(encoded) for state in model.states]
    memory_length = next((value.shape[2] for value, s in zip(states, model.states, strict=True) if s.encoded), None)
    run = Run(
        input_ids=torch.tensor([tokens]),
        past_lengths=torch.zeros(1, dtype=torch.int32),
        lengths=torch.tensor([len(tokens)], dtype=torch.int32),
        total_length=torch.tensor([model.states[0].shape[1]], dtype=torch.int32),
        memory_lengths=None if memory_length is None else torch.tensor([memory_length], dtype=torch.int32),
    )
    return model.step(run, states)[1]


def _random(checkpoint: Checkpoint) -> Iterator[Request]:
    generator = torch.Generator().manual_seed(1)
    text = checkpoint.text
    assert text is not None
    for request in random_requests(checkpoint, NUM_REQUESTS):
        longest = min(MAX_TARGET, text.max_total_tokens - len(request.tokens))
        length = int(torch.randint(longest + 1, (1,), generator=generator))
        target = torch.randint(text.target_vocab_size, (length,), generator=generator).tolist()
        yield request.source, request.tokens + target


def _held_out(checkpoint: Checkpoint, examples: Sequence[Example]) -> Iterator[Request]:
    assert checkpoint.text is not None
    tokenizer = target_tokenizer(checkpoint)
    for example in examples:
        row = row_of(checkpoint, example)
        wanted = reference_ids(checkpoint, tokenizer, example)
        tokens = (row.tokens + wanted)[: checkpoint.text.max_total_tokens]
        source: tuple[Tensor, ...] = () if row.source is None else (row.source[None],)
        if row.source is not None and row.source.dim() == 1:
            source = (*source, torch.tensor([len(row.source)], dtype=torch.int32))
        yield source, tokens
