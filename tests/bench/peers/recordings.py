"""What those who write recordings down share: samples, and the words of a text."""

import re
import wave

import numpy as np


def samples_of(folder, request):
    """The samples of `folder`/sounds/<name> as float32."""
    with wave.open(str(folder / "sounds" / request["sound"])) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(32_768)


def words_of(text):
    """The words in lower case, without marks."""
    return re.findall(r"[a-z0-9']+", text.lower())
