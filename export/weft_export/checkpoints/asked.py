"""A golden request that a person gives in the place of a checkpoint's: a text, or a file of what the model takes."""

import os
from dataclasses import replace
from pathlib import Path

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.files import read_file
from weft_export.checkpoints.picture import read_picture
from weft_export.checkpoints.sound import read_recording
from weft_export.errors import CheckpointError
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2


def with_golden(checkpoint: Checkpoint, given: str) -> Checkpoint:
    """Return a checkpoint whose golden request asks what is given.

    - A model that takes pictures or recordings is asked a file.
    - One that answers questions is asked a file's picture, or else this question.
    - Any other is asked a text: that of a file, if it is the path of one that ends in .txt.

    Raises:
        CheckpointError: the file cannot be read, or a server would not take what is in it. The file is named.
    """
    row, golden = TASKS[checkpoint.task], bundle_pb2.Golden()
    golden.CopyFrom(checkpoint.golden)
    is_file = os.path.isfile(given)  # noqa: PTH113 - Path.is_file fails for what is too long to be a path
    if row.takes_question and not is_file:
        golden.question = given
        return replace(checkpoint, golden=golden)
    if not (row.takes_image or row.takes_audio):
        golden.text = _text_of(Path(given)) if is_file and given.endswith(".txt") else given
        return replace(checkpoint, golden=golden)
    path = Path(given)
    content = read_file(path)
    name = f"golden{path.suffix.lower()}"
    files = {key: value for key, value in checkpoint.files.items() if key != golden.image_path + golden.audio_path}
    if checkpoint.image is not None:
        read_picture(given, content, checkpoint.image)
        golden.image_path = name
    else:
        assert checkpoint.audio is not None, "it takes a recording, and says nothing about it. This is a bug."
        read_recording(given, content, checkpoint.audio)
        golden.audio_path = name
    return replace(checkpoint, golden=golden, files={**files, name: content})


def _text_of(path: Path) -> str:
    try:
        return read_file(path).decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8: {error.reason}") from error
