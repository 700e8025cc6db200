"""The seeded random requests that parity is checked with, and that caches are calibrated with."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint

NUM_REQUESTS = 4


@dataclass
class RandomRequest:
    """A source, which is a batch of one for an encoder or classifier, and the tokens so far.

    The tokens are the start or the prompt, then those that were produced.

    The source is empty for a model without an encoder, which is given a prompt instead.
    """

    source: tuple[Tensor, ...]
    tokens: list[int] = field(default_factory=list)
    memory_length: int = 0
    past: int = 0
    """How many of the tokens are in the cache."""
    num_given: int = field(init=False)
    """How many of the tokens were given: the start, or the prompt."""

    def __post_init__(self) -> None:
        """Count what was given."""
        self.num_given = len(self.tokens)


def random_requests(checkpoint: Checkpoint, num_requests: int = NUM_REQUESTS) -> list[RandomRequest]:
    """Return requests of different lengths, the longest and the shortest possible among them."""
    generator = torch.Generator().manual_seed(0)
    text, image = checkpoint.text, checkpoint.image

    def ids(vocab_size: int, length: int) -> Tensor:
        return torch.randint(vocab_size, (1, length), generator=generator)

    if image is not None:
        shape = (1, image.channels, image.height, image.width)
        pixels = [torch.randn(shape, generator=generator) for _ in range(num_requests)]
        memory_length = image.num_class_tokens + image.grid_rows * image.grid_columns
        start = [text.start_id] if text is not None else []
        return [RandomRequest((values,), list(start), memory_length=memory_length) for values in pixels]
    assert text is not None
    longest = text.max_source_tokens or max(1, text.max_total_tokens // 2)
    lengths = [longest, 1, *torch.randint(1, longest + 1, (num_requests - 2,), generator=generator).tolist()]
    sources = [ids(text.source_vocab_size, length) for length in lengths]
    if not text.HasField("start_id") and not text.max_source_tokens:
        return [RandomRequest((), source[0].tolist()) for source in sources]
    start = [text.start_id] if text.HasField("start_id") else []
    return [
        RandomRequest((source, torch.tensor([length], dtype=torch.int32)), list(start), memory_length=length)
        for source, length in zip(sources, lengths, strict=True)
    ]
