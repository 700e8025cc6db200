"""Golden requests: one that a person gives in the place of a checkpoint's, and a text that fits."""

import os
from dataclasses import replace
from pathlib import Path

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.files import read_file
from weft_export.checkpoints.framing import frame_of
from weft_export.checkpoints.tokenizer import encode_source, read_tokenizer
from weft_export.errors import CheckpointError
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2


def with_golden(checkpoint: Checkpoint, given: str) -> Checkpoint:
    """Return a checkpoint whose golden request asks what is given.

    - A model that takes pictures or recordings is asked a file.
    - One that answers questions, or sees, is asked a file's picture, or else this question about its own.
    - Any other is asked a text: that of a file, if it is the path of one that ends in .txt.

    Raises:
        CheckpointError: the file cannot be read, or a server would not take what is in it. The file is named.
    """
    row, golden = TASKS[checkpoint.task], bundle_pb2.Golden()
    golden.CopyFrom(checkpoint.golden)
    is_file = os.path.isfile(given)  # noqa: PTH113 - Path.is_file fails for what is too long to be a path
    if (row.takes_question or checkpoint.sees) and not is_file:
        golden.question = given
        return replace(checkpoint, golden=golden)
    if not (row.takes_image or row.takes_audio or checkpoint.sees):
        golden.text = _text_of(Path(given)) if is_file and given.endswith(".txt") else given
        return replace(checkpoint, golden=golden)
    path = Path(given)
    content = read_file(path)
    name = f"golden{path.suffix.lower()}"
    files = {key: value for key, value in checkpoint.files.items() if key != golden.image_path + golden.audio_path}
    checkpoint.read_media(given, content)
    setattr(golden, "audio_path" if row.takes_audio else "image_path", name)
    return replace(checkpoint, golden=golden, files={**files, name: content})


def fitting(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose golden text is the longest beginning of it, by words, that the model takes.

    For a text of the exporter's own: nobody gave it, so nobody can be told that it is too long. It stays as it is if
    no beginning can be asked.
    """
    row, golden, text = TASKS[checkpoint.task], bundle_pb2.Golden(), checkpoint.text
    if not row.takes_text or text is None or checkpoint.sees:
        return checkpoint
    golden.CopyFrom(checkpoint.golden)
    tokenizer = read_tokenizer(checkpoint, text.source_tokenizer)
    frame = frame_of(checkpoint, golden.source_language, golden.target_language)
    words = golden.text.split(" ")
    for count in range(len(words), 0, -1):
        golden.text = " ".join(words[:count])
        try:
            ids = encode_source(checkpoint, tokenizer, golden.text, frame)
        except CheckpointError:
            continue
        if not row.fills_masks or text.mask_id in ids:
            return checkpoint if count == len(words) else replace(checkpoint, golden=golden)
    return checkpoint


def _text_of(path: Path) -> str:
    try:
        return read_file(path).decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8: {error.reason}") from error
