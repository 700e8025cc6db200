"""The requests that rounding is measured with: held-out ones, else texts of our own, and random ones."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.held_out import Example
from weft_export.checkpoints.masks import masked, positions_of
from weft_export.checkpoints.random_requests import random_requests
from weft_export.checkpoints.tokenizer import encode, read_tokenizer
from weft_export.errors import CheckpointError
from weft_export.families.writer import Writer
from weft_export.graphs.answering import reference_ids, row_of, target_tokenizer
from weft_export.quantization.own_texts import OWN_TEXTS
from weft_proto.tasks import TASKS

NUM_RANDOM = 16
"""How many random requests there are. Each has one random target of up to MAX_TARGET tokens."""
MAX_TARGET = 128

Request = tuple[tuple[Tensor, ...], list[int]]
"""A pair: what the encoder or classifier takes (a batch of one, or nothing), and all tokens of a model that writes.

The tokens begin with the start or the prompt. A classifier has none.
"""


def sensible_requests(checkpoint: Checkpoint, examples: Sequence[Example], most: int) -> list[Request]:
    """Return at most `most` requests that are like what the model is for, as far as that is known.

    There are three cases:

    1. With examples, these, and their references as targets.
    2. A model of texts without examples: texts of our own, as sources and as targets.
    3. Pictures without examples: random ones.
    """
    if examples:
        requests = list(held_out_requests(checkpoint, examples[:most]))
    elif checkpoint.text is not None and (TASKS[checkpoint.task].takes_text or isinstance(checkpoint.model, Writer)):
        requests = list(own_requests(checkpoint))[:most]
    else:
        requests = []
    return requests or list(random_targets(checkpoint))[:most]


def random_targets(checkpoint: Checkpoint) -> Iterator[Request]:
    """Yield NUM_RANDOM random requests, with random targets if the model writes."""
    generator = torch.Generator().manual_seed(1)
    for request in random_requests(checkpoint, NUM_RANDOM):
        target: list[int] = []
        if isinstance(checkpoint.model, Writer):
            assert checkpoint.text is not None
            longest = min(MAX_TARGET, checkpoint.text.max_total_tokens - len(request.tokens))
            length = int(torch.randint(longest + 1, (1,), generator=generator))
            target = torch.randint(checkpoint.text.target_vocab_size, (length,), generator=generator).tolist()
        yield request.source, request.tokens + target


def held_out_requests(checkpoint: Checkpoint, examples: Sequence[Example]) -> Iterator[Request]:
    """Yield a request for each example, with its reference as the target if the model writes."""
    if not isinstance(checkpoint.model, Writer):
        for example in examples:
            source = _batch_of(example.source)
            if checkpoint.text is not None and TASKS[checkpoint.task].fills_masks:
                source = (*source, positions_of(example.source, checkpoint.text.mask_id)[None])
            yield source, []
        return
    assert checkpoint.text is not None
    tokenizer = target_tokenizer(checkpoint)
    for example in examples:
        row = row_of(checkpoint, example)
        wanted = reference_ids(checkpoint, tokenizer, example)
        tokens = (row.tokens + wanted)[: checkpoint.text.max_total_tokens]
        yield () if row.source is None else _batch_of(row.source), tokens


def own_requests(checkpoint: Checkpoint) -> Iterator[Request]:
    """Yield a request for each of OWN_TEXTS that the tokenizers can read. Pictures and recordings are random."""
    text = checkpoint.text
    assert text is not None
    pictures = None if TASKS[checkpoint.task].takes_text else random_requests(checkpoint, len(OWN_TEXTS))
    for index, words in enumerate(OWN_TEXTS):
        tokens: list[int] = []
        if isinstance(checkpoint.model, Writer):
            target = _ids(checkpoint, text.target_tokenizer, words, text.target_vocab_size)
            start = [text.start_id] if text.HasField("start_id") else []
            tokens = (start + target)[: min(MAX_TARGET, text.max_total_tokens)]
        source: tuple[Tensor, ...] = ()
        if pictures is not None:
            source = pictures[index].source
        elif text.max_source_tokens:
            ids = _ids(checkpoint, text.source_tokenizer, words, text.source_vocab_size)
            if not ids:
                continue
            source = _batch_of(torch.tensor(ids[: min(MAX_TARGET, text.max_source_tokens)]))
            if TASKS[checkpoint.task].fills_masks:
                chosen, positions = masked(source[0][0], text.mask_id)
                source = chosen[None], source[1], positions[None]
        if source or tokens:
            yield source, tokens


def _ids(checkpoint: Checkpoint, name: str, words: str, vocab_size: int) -> list[int]:
    """Return a text in tokens that the model has; none if the tokenizer knows no word of it."""
    try:
        ids = encode(read_tokenizer(checkpoint, name), words).ids
    except CheckpointError:
        return []
    return [token for token in ids if token < vocab_size]


def _batch_of(source: Tensor) -> tuple[Tensor, ...]:
    """Make a batch of one of pixels [C, H, W], or of ids [seq], which have a length beside them."""
    if source.dim() > 1:
        return (source[None],)
    return source[None], torch.tensor([len(source)], dtype=torch.int32)
