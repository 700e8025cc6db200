"""The seeded random requests that parity is checked with, and that caches are calibrated with."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_proto.ctc import least_samples, num_frames_of, num_labels_of
from weft_proto.questions import encoder_asks, picture_places
from weft_proto.sound import spoken_ids, window_samples
from weft_proto.tasks import TASKS
from weft_proto.tiling import most_places
from weft_proto.v1 import bundle_pb2

NUM_REQUESTS = 4
MAX_PROMPT = 96
"""Of a prompt, and of most sources. What costs more with each token does not follow the length of the context."""
MAX_SOURCE = 512
"""Of the longest source."""
MAX_HEARD_S = 4
"""Of the longest recording that is heard moment by moment, in seconds."""
MAX_CELLS = 5
"""Of a picture that is read in cells, down and across."""
NUM_MASKS = 2
"""Of each text with masks, at any of its positions. What is masked there does not matter to what is read."""


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
    """Return requests of different lengths: a long one, the shortest possible, and others between.

    A prompt takes at most half of the context, because an answer follows.
    """
    generator = torch.Generator().manual_seed(0)
    text, image = checkpoint.text, checkpoint.image

    def ids(vocab_size: int, length: int) -> Tensor:
        return torch.randint(vocab_size, (1, length), generator=generator)

    if image is not None and TASKS[checkpoint.task].takes_image:
        return _pictured(checkpoint, image, num_requests, generator)
    if checkpoint.audio is not None and (checkpoint.audio.HasField("ctc") or checkpoint.audio.min_samples):
        longest = min(window_samples(checkpoint.audio), MAX_HEARD_S * checkpoint.audio.sample_rate)
        least = least_samples(checkpoint.audio)
        sizes = torch.randint(least, longest + 1, (num_requests - 2,), generator=generator).tolist()
        return [_heard(checkpoint, size, generator) for size in (longest, least, *sizes)]
    if (audio := checkpoint.audio) is not None:
        window = (1, audio.num_mels, audio.num_frames)
        sounds = [torch.randn(window, generator=generator) for _ in range(num_requests)]
        start = [*_start(text, 0), *_spoken(audio)]
        return [RandomRequest((each,), list(start), memory_length=audio.num_positions) for each in sounds]
    text = checkpoint.text_spec
    # Of an encoder that reads in blocks, so long a source has several.
    most = max(MAX_SOURCE, 2 * getattr(checkpoint.model, "blocks_of", 0) + 1)
    longest = min(text.max_source_tokens, most) or min(max(1, text.max_total_tokens // 2), MAX_PROMPT)
    lengths = _lengths(longest, num_requests, generator)
    sources = [ids(text.source_vocab_size, length) for length in lengths]
    if not text.HasField("start_id") and not text.max_source_tokens:
        if checkpoint.sees:
            return [_seen(checkpoint, source[0].tolist(), generator) for source in sources]
        return [RandomRequest((), source[0].tolist()) for source in sources]
    more: list[tuple[Tensor, ...]] = [() for _ in lengths]
    if TASKS[checkpoint.task].fills_masks:
        more = [(torch.randint(length, (1, NUM_MASKS), generator=generator),) for length in lengths]
    # Of texts that are filled up with what nobody attends to, the first half is seen.
    is_filled = any(side.fill_to and not side.sees_filling for side in text.sides)
    return [
        RandomRequest(
            (sources[index], torch.tensor([-(-length // 2) if is_filled else length], dtype=torch.int32), *more[index]),
            _start(text, index),
            memory_length=length,
        )
        for index, length in enumerate(lengths)
    ]


def _pictured(
    checkpoint: Checkpoint, image: bundle_pb2.ImageSpec, count: int, generator: torch.Generator
) -> list[RandomRequest]:
    """Return pictures, with questions where these are asked: of the encoder, or behind the start."""
    text, places = checkpoint.text, picture_places(image)
    pixels = [random_pictures(image, 1, generator) for _ in range(count)]
    if text is None or not TASKS[checkpoint.task].takes_question:
        return [RandomRequest((each,), _start(text, index), places) for index, each in enumerate(pixels)]
    lengths = _lengths(min(text.max_source_tokens, MAX_PROMPT), count, generator)
    asked = [torch.randint(text.source_vocab_size, (1, length), generator=generator) for length in lengths]
    requests = []
    for index, (values, ids) in enumerate(zip(pixels, asked, strict=True)):
        length = ids.shape[1]
        if encoder_asks(text):
            source = (values, ids, torch.tensor([length], dtype=torch.int32))
            requests.append(RandomRequest(source, _start(text, index), places + length))
        else:
            requests.append(RandomRequest((values,), [*_start(text, index), *ids[0].tolist()], places))
    return requests


def _heard(checkpoint: Checkpoint, num_samples: int, generator: torch.Generator) -> RandomRequest:
    """Return what a model reads of so many samples, which it hears as they are, or has a label for each moment of."""
    audio = checkpoint.audio
    assert audio is not None
    if audio.ctc.HasField("mel"):
        mel = audio.ctc.mel
        return RandomRequest((torch.randn(1, num_frames_of(mel, num_samples), mel.num_mels, generator=generator),))
    source = (torch.randn(1, num_samples, generator=generator),)
    if audio.HasField("ctc"):
        return RandomRequest(source)
    start = [*_start(checkpoint.text_spec, 0), *_spoken(audio)]
    return RandomRequest(source, start, memory_length=num_labels_of(audio, num_samples))


def random_pictures(image: bundle_pb2.ImageSpec, count: int, generator: torch.Generator) -> Tensor:
    """Return pixel values [count, channels, height, width]; of cells, [count, rows, columns, channels, height, width].

    Of cells, there are few rows and columns: others each time.
    """
    cells: list[int] = []
    if image.tiling.max_pixels:
        most = min(MAX_CELLS, math.isqrt(most_places(image)))
        cells = torch.randint(1, most + 1, (2,), generator=generator).tolist()
    return torch.randn(count, *cells, image.channels, image.height, image.width, generator=generator)


def _seen(checkpoint: Checkpoint, ids: list[int], generator: torch.Generator) -> RandomRequest:
    """Return a prompt whose first half is the beginning of a picture. One of a token holds none."""
    assert checkpoint.image is not None
    source = (random_pictures(checkpoint.image, 1, generator),) if len(ids) > 1 else ()
    count = min(len(ids) // 2, picture_places(checkpoint.image))
    if checkpoint.image.tiling.max_pixels and source:
        count = min(len(ids) // 2, math.prod(source[0].shape[1:3]))
    return RandomRequest(source, [checkpoint.text_spec.source_vocab_size] * count + ids[count:])


def _lengths(longest: int, count: int, generator: torch.Generator) -> list[int]:
    usual = min(longest, MAX_PROMPT)
    return [longest, 1, *torch.randint(1, usual + 1, (count - 2,), generator=generator).tolist()]


def _start(text: bundle_pb2.TextSpec | None, index: int) -> list[int]:
    """Return what the decoder of a request is fed first. The prefixes of languages take turns."""
    if text is None or not text.HasField("start_id"):
        return []
    prefixes = [list(language.target_prefix) for language in text.languages if language.target_prefix] or [[]]
    return [text.start_id, *text.prefix_ids, *prefixes[index % len(prefixes)]]


def _spoken(audio: bundle_pb2.AudioSpec) -> tuple[int, ...]:
    return spoken_ids(audio, audio.languages[0].tag if audio.languages else "", to_english=False)
