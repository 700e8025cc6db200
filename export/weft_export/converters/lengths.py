"""How long a text may be, and where a longer one is cut: as the tokenizer's own files say."""

from pathlib import Path

from weft_export.checkpoints.formats import MODULES
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.sentence_files import read_transformer
from weft_export.converters.text.json_file import read_object_if_there
from weft_export.converters.text.settings import CONFIG, length_said
from weft_export.converters.text.side import TextSide, length_of
from weft_export.errors import CheckpointError
from weft_proto.v1 import common_pb2

_SIDES = {"right": common_pb2.TRUNCATION_SIDE_RIGHT, "left": common_pb2.TRUNCATION_SIDE_LEFT}


def bounded(max_tokens: int, said: int | None, hf: HfCheckpoint) -> int:
    """Return how long a text may be: what is chosen, or what files say, as far as the body takes it."""
    return max_tokens if said is None or hf.options.max_tokens is not None else min(said, max_tokens)


def tokenizer_length(directory: Path) -> int | None:
    """Return to how many tokens the pipelines of transformers cut a text, or None where they do not."""
    return length_of(length_said(read_object_if_there(directory / CONFIG)))


def truncation_side(hf: HfCheckpoint, side: TextSide) -> common_pb2.TruncationSide.ValueType:
    """Return where a text that is too long is cut. Without --truncate it is refused.

    Raises:
        CheckpointError: a file names another side, or none.
    """
    if not hf.options.truncate:
        return common_pb2.TRUNCATION_SIDE_UNSPECIFIED
    place, said = CONFIG, None
    if (hf.directory / MODULES).exists():
        transformer = read_transformer(hf.directory)
        place, said = transformer.place, transformer.truncation_side
    if said is None:
        place, said = CONFIG, side.truncation_side
    if not isinstance(said, str) or said not in _SIDES:
        raise CheckpointError(f"{hf.directory / place}: truncation_side is {said!r:.40}, neither left nor right")
    return _SIDES[said]
