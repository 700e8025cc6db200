"""A recording's file to samples: WAV or FLAC, one channel, at the rate of a model. Runs in worker threads."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import soundfile
import soxr

from weft_proto.recordings import is_recording
from weft_proto.sound import MAX_CHANNELS, MAX_RATE, MIN_RATE
from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from weft_server.preprocessing.wanted import Wanted

FIELD = "audio.data"
# What soundfile calls them. WAVEX is a WAV with a longer header.
_FORMATS = {"WAV", "WAVEX", "FLAC"}
# The length of a FLAC whose header does not say it: a program wrote it into a pipe.
_UNKNOWN = (1 << 63) - 1
# Full scale is 1. So it is for most files of floats, and this for the others: those of integers that were not divided.
# Beyond it a mean of channels could overflow.
_LOUDEST = 2.0**31
# Seconds that are decoded at once. Between them it is asked whether somebody still waits.
_BLOCK_S = 1


class _Onward(soundfile.SoundFile):  # type: ignore[misc]
    """A file that is read onward alone. After each block the other one seeks, which fails where no length is known."""

    def seekable(self) -> bool:
        """Say that it is not."""
        return False


def load_samples(
    data: bytes,
    rate: int,
    max_bytes: int,
    max_s: int,
    wanted: Wanted,
    check_length: Callable[[float], None] = lambda _: None,
) -> NDArray[np.float32]:
    """Return the samples of a WAV or FLAC file, float32 [samples], most of them in [-1, 1], at `rate` Hz.

    Channels are averaged. A WAV that is shorter than its header says has what is there, and so has a FLAC whose header
    does not say: programs that write into a pipe do not know the length before.

    `check_length` is told the seconds as soon as they are known, and may refuse them: by the header before anything is
    decoded, and where it does not say, after each second.

    Raises:
        InvalidRequest: the file is too large or, by its header, too long; or it cannot be decoded.
        DeadlineExpired: it is not wanted any more.
    """

    def check(seconds: float) -> None:
        if seconds > max_s:
            raise InvalidRequest(FIELD, f"is {seconds:.1f} s long; at most {max_s} s are taken", "AUDIO_TOO_LONG")
        check_length(seconds)

    if not data:
        raise InvalidRequest(FIELD, "must not be empty", "EMPTY_INPUT")
    if len(data) > max_bytes:
        raise InvalidRequest(FIELD, f"has {len(data)} bytes; at most {max_bytes} are taken", "AUDIO_TOO_LARGE")
    if not is_recording(data):
        raise InvalidRequest(FIELD, "is not a WAV or FLAC file", "BAD_AUDIO")
    try:
        with _Onward(io.BytesIO(data)) as file:
            _check_header(file, check)
            samples = _decoded(file, rate, check, wanted)
    except soundfile.SoundFileError as error:
        raise _broken() from error
    if not len(samples):
        raise InvalidRequest(FIELD, "has no samples", "EMPTY_INPUT")
    return samples


def _check_header(file: soundfile.SoundFile, check: Callable[[float], None]) -> None:
    if file.format not in _FORMATS:
        raise InvalidRequest(FIELD, "is not a WAV or FLAC file", "BAD_AUDIO")
    if not MIN_RATE <= file.samplerate <= MAX_RATE:
        why = f"has {file.samplerate} samples a second; from {MIN_RATE} to {MAX_RATE} are taken"
        raise InvalidRequest(FIELD, why, "BAD_AUDIO")
    if file.channels > MAX_CHANNELS:
        raise InvalidRequest(FIELD, f"has {file.channels} channels; at most {MAX_CHANNELS} are taken", "BAD_AUDIO")
    if file.frames != _UNKNOWN:
        check(file.frames / file.samplerate)


def _decoded(
    file: soundfile.SoundFile, rate: int, check: Callable[[float], None], wanted: Wanted
) -> NDArray[np.float32]:
    """Decode second by second, so that no more than one of them has all its channels in memory."""
    resampling = soxr.ResampleStream(file.samplerate, rate, 1, np.float32) if file.samplerate != rate else None
    parts, num_read = [np.zeros(0, np.float32)], 0
    while True:
        wanted.check()
        block = file.read(_BLOCK_S * file.samplerate, np.float32, always_2d=True)
        num_read += len(block)
        # A header may not know the length.
        check(num_read / file.samplerate)
        if not (np.abs(block) <= _LOUDEST).all():  # said this way round, NaN fails
            raise InvalidRequest(FIELD, "has a sample that is not a number in [-2^31, 2^31]", "BAD_AUDIO")
        mono, is_last = block.mean(axis=1, dtype=np.float32), len(block) < _BLOCK_S * file.samplerate
        parts.append(mono if resampling is None else resampling.resample_chunk(mono, last=is_last))
        if is_last:
            break
    if file.format == "FLAC" and num_read < file.frames != _UNKNOWN:
        raise _broken()
    return np.concatenate(parts)


def _broken() -> InvalidRequest:
    return InvalidRequest(FIELD, "is truncated or corrupt, or of a kind that cannot be decoded", "BAD_AUDIO")
