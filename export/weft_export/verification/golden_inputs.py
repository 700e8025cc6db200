"""What is asked when a golden request has no clear answer: parts of its text and random ones, or made files."""

from collections.abc import Iterator

import torch

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.tokenizer import read_tokenizer
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2

MAX_PARTS = 32
NUM_MADE = 32
MAX_MADE_TOKENS = 8


def parts_of(checkpoint: Checkpoint) -> list[bundle_pb2.Golden]:
    """Return other requests than the golden one: its first words and its last ones, of one word its letters."""
    if not TASKS[checkpoint.task].reads_text:
        return []
    prefix = _prefix(checkpoint)
    rest = (checkpoint.golden.question or checkpoint.golden.text).removeprefix(prefix)
    words = rest.split(" ") if len(rest.split()) > 1 else list(rest)
    joint = " " if len(rest.split()) > 1 else ""
    pieces = [words[:end] for end in range(len(words) - 1, 0, -1)] + [words[start:] for start in range(1, len(words))]
    texts = dict.fromkeys(prefix + joint.join(piece) for piece in pieces)
    return [_asking(checkpoint, text) for text in list(texts)[:MAX_PARTS]]


def made_for(checkpoint: Checkpoint) -> list[bundle_pb2.Golden]:
    """Return requests whose texts are random tokens of the tokenizer, the same ones in every export.

    They are none that people would send. But an answer that is clear proves the same of the graphs.
    """
    if not TASKS[checkpoint.task].reads_text:
        return []
    tokenizer = read_tokenizer(checkpoint, checkpoint.text_spec.source_tokenizer)
    ids = sorted(token for token in tokenizer.get_vocab().values() if token < checkpoint.text_spec.source_vocab_size)
    generator = torch.Generator().manual_seed(0)
    prefix = _prefix(checkpoint)
    made = []
    for _ in range(NUM_MADE):
        length = int(torch.randint(1, MAX_MADE_TOKENS + 1, (1,), generator=generator))
        places = torch.randint(len(ids), (length,), generator=generator).tolist()
        made.append(_asking(checkpoint, prefix + tokenizer.decode([ids[place] for place in places])))
    return made


def made_files(checkpoint: Checkpoint) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of pictures or recordings that the exporter makes, for a model that takes them."""
    from weft_export.checkpoints import made_media  # noqa: PLC0415 - late: a model of texts needs none

    if checkpoint.image is not None:
        for number in range(made_media.NUM_PICTURES):
            yield f"golden-{number}.png", made_media.made_picture(checkpoint.image, number)
    elif checkpoint.audio is not None:
        for number in range(made_media.NUM_SOUNDS):
            yield f"golden-{number}.wav", made_media.made_sound(checkpoint.audio, number)


def _prefix(checkpoint: Checkpoint) -> str:
    """Return the prefix of the model, if it has any, that the golden text begins with."""
    given = checkpoint.golden.text
    return max((each for each in checkpoint.text_spec.prefixes if given.startswith(each)), key=len, default="")


def _asking(checkpoint: Checkpoint, text: str) -> bundle_pb2.Golden:
    golden = bundle_pb2.Golden()
    golden.CopyFrom(checkpoint.golden)
    setattr(golden, "question" if golden.question else "text", text)
    return golden
