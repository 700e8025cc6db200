"""A recording's file, by what it begins with."""

# A WAV's kind stands eight bytes behind its beginning.
_FLAC, _RIFF, _WAVE = b"fLaC", b"RIFF", b"WAVE"


def is_recording(data: bytes) -> bool:
    """Whether a file begins as a WAV or a FLAC does."""
    return data.startswith(_FLAC) or (data.startswith(_RIFF) and data[8:12] == _WAVE)
