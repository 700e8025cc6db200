"""The file of a picture or a recording as a checkpoint's model takes it. What reads each is imported when one comes."""

import torch
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint


def read_media(what: str, data: bytes, checkpoint: Checkpoint) -> Tensor:
    """Return pixel_values [C, H, W], or input_features [mels, frames].

    Raises:
        CheckpointError: it begins with `what`, and says what a server would not take.
    """
    if checkpoint.image is not None:
        from weft_export.checkpoints.picture import read_picture  # noqa: PLC0415 - late: for models that take pictures

        return torch.from_numpy(read_picture(what, data, checkpoint.image))
    from weft_export.checkpoints.sound import read_recording  # noqa: PLC0415 - late: for models that hear

    assert checkpoint.audio is not None, "this model takes texts alone. This is a bug."
    return read_recording(what, data, checkpoint.audio)
