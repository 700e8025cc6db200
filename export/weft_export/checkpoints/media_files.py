"""Whether a file begins as a picture or as a recording does, without torch. Whether it is whole, it is tried later."""

import wave
from typing import BinaryIO

from weft_proto.bundle_rules import PICTURE_FORMATS


def is_picture(file: BinaryIO) -> bool:
    """Whether it is a PNG, JPEG or WebP."""
    from PIL import Image  # noqa: PLC0415 - late: `weft up` refuses without it

    try:
        with Image.open(file, formats=PICTURE_FORMATS):
            return True
    except Exception:  # noqa: BLE001 - a broken picture makes Pillow raise nearly anything
        return False


def is_recording(file: BinaryIO) -> bool:
    """Whether it is a WAV."""
    try:
        with wave.open(file):
            return True
    except (wave.Error, EOFError):
        return False
