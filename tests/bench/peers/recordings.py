"""What those who write recordings down share: samples, and the words of a text."""

import re
import wave

import numpy as np


def samples_of(folder, request):
    """The samples of `folder`/sounds/<name> as float32."""
    with wave.open(str(folder / "sounds" / request["sound"])) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(32_768)


def batches_of(folder, requests, size=1):
    """Batches of (index, request) of like lengths, the longest first, and the samples of each."""
    rows = sorted(enumerate(requests), key=lambda row: -row[1]["seconds"])
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [(batch, [samples_of(folder, request) for _, request in batch]) for batch in batches]


def words_of(text):
    """The words in lower case, without marks."""
    return re.findall(r"[a-z0-9']+", text.lower())
