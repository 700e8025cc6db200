"""The alignment of a recording: the spectrogram of what was heard, and under it when each word looks."""

from __future__ import annotations

import io
import wave
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from weft._types import Alignment, Recording

# Samples of a short-time spectrum, as seconds.
SPECTRUM_S = 0.032
# All of these are inches.
WIDTH, SPECTROGRAM, ROW = 9.0, 1.6, 0.22
# How far below the loudest the spectrogram goes, in decibels.
DEPTH = 70
# The least power that is taken for the loudest: that of silence is none.
LEAST = 1e-6


class Sound(NamedTuple):
    """Samples of one channel."""

    samples: array[int]
    rate: int


def read_sound(recording: Recording) -> Sound | None:
    """Return the first channel of a WAV of 16 bits. None: it is something else, which Python alone does not read."""
    data = bytes(recording) if isinstance(recording, bytes) else Path(recording).read_bytes()
    try:
        with wave.open(io.BytesIO(data)) as file:
            if file.getsampwidth() != 2:
                return None
            samples = array("h", file.readframes(file.getnframes()))
            return Sound(samples[:: file.getnchannels()], file.getframerate())
    except (wave.Error, EOFError, ValueError):
        return None


def draw_sound(figure: Any, alignment: Alignment, labels: list[str], sound: Sound | None) -> tuple[Any, Any]:
    """Draw into a figure, which becomes as large as it needs. Returns the axes and what colour is which weight."""
    window_s = alignment.column_s * alignment.num_columns
    heights = [SPECTROGRAM] * (sound is not None) + [ROW * len(labels) + 0.2]
    figure.set_size_inches(WIDTH, sum(heights) + 1.5)
    *above, below = figure.subplots(len(heights), sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    if sound is not None:
        window_s = min(window_s, len(sound.samples) / sound.rate)
        _draw_spectrogram(above[0], sound)
    heat = below.imshow(
        alignment.weights,
        cmap="Blues",
        vmin=0.0,
        aspect="auto",
        interpolation="nearest",
        extent=(0, alignment.column_s * alignment.num_columns, len(labels) - 0.5, -0.5),
    )
    below.set_yticks(range(len(labels)), labels, fontsize="small", parse_math=False)
    below.set(xlabel="seconds", ylabel="word", xlim=(0, window_s))
    return below, heat


def _draw_spectrogram(ax: Any, sound: Sound) -> None:
    from matplotlib.colors import LogNorm  # noqa: PLC0415 - only who draws loads it
    from matplotlib.mlab import specgram  # noqa: PLC0415 - same

    size = max(16, round(SPECTRUM_S * sound.rate))
    hop = size - size * 3 // 4
    # A recording may be shorter than one spectrum.
    samples = sound.samples + array("h", bytes(2 * max(0, size + 1 - len(sound.samples))))
    made: Any = specgram(samples, NFFT=size, Fs=sound.rate, noverlap=size - hop, pad_to=2 * size)
    powers, hertz, seconds = made
    loudest = max(float(powers.max()), LEAST)
    around = hop / sound.rate / 2
    ax.imshow(
        powers,
        cmap="magma",
        norm=LogNorm(loudest / 10 ** (DEPTH / 10), loudest, clip=True),
        aspect="auto",
        origin="lower",
        extent=(float(seconds[0]) - around, float(seconds[-1]) + around, float(hertz[0]), float(hertz[-1])),
    )
    ax.set_ylabel("Hz")
