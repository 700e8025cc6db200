"""Samples to windows of log-mel energies, as a bundle's AudioSpec says. A long recording is cut where it is quiet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_proto.sound import mel_triangles, window_samples
from weft_server.source import Sound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft_proto.v1 import bundle_pb2

# A window that is cut has at least this share of the longest, and the cut lies amid the quietest such stretch.
_LEAST_SHARE = 0.6
_QUIET_S = 0.2


class Span(NamedTuple):
    """Where a window lies in a recording, in samples."""

    start: int
    end: int


_NOWHERE = Span(0, 0)


def spans_of(samples: NDArray[np.float32], spec: bundle_pb2.AudioSpec) -> list[Span]:
    """Return the windows of a recording, one behind the other. None is longer than the model hears at once."""
    longest, quiet = window_samples(spec), int(_QUIET_S * spec.sample_rate)
    spans, start = [], 0
    while len(samples) - start > longest:
        first = start + int(_LEAST_SHARE * longest)
        energies = np.concatenate(([0.0], np.cumsum(np.square(samples[first : start + longest], dtype=np.float64))))
        width = min(quiet, len(energies) - 1)
        end = first + int(np.argmin(energies[width:] - energies[:-width])) + width // 2
        spans.append(Span(start, end))
        start = end
    return [*spans, Span(start, len(samples))]


def sound_of(
    features: NDArray[np.float32], spec: bundle_pb2.AudioSpec, span: Span = _NOWHERE, num_samples: int = 0
) -> Sound:
    """Return the source that the energies of a window are: `span` of so many samples."""
    start_s, end_s, duration_s = (each / spec.sample_rate for each in (*span, num_samples))
    position_s = window_samples(spec) / spec.sample_rate / spec.num_positions
    return Sound(features, spec.num_positions, position_s, start_s, end_s, duration_s)


class LogMel:
    """Makes log-mel energies (Radford et al. 2022, section 2.2). See AudioSpec for each step."""

    def __init__(self, spec: bundle_pb2.AudioSpec) -> None:
        self._spec = spec
        self._triangles = np.array(mel_triangles(spec)).T
        # Periodic: as if one more sample followed.
        self._hann = np.hanning(spec.fft_size + 1)[:-1]

    def source(self, samples: NDArray[np.float32], span: Span) -> Sound:
        """Return the window of a recording that lies at `span`."""
        return sound_of(self.features(samples[span.start : span.end]), self._spec, span, len(samples))

    def features(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return energies float32 [num_mels, num_frames] of the samples of one window, silence behind them."""
        spec = self._spec
        half = spec.fft_size // 2
        filled = np.zeros(window_samples(spec))
        filled[: len(samples)] = samples
        sound = np.pad(filled, half, mode="reflect")
        # Frames behind the last sample are silent.
        num_frames = min(spec.num_frames, (len(samples) + half) // spec.hop_size + 1)
        frames = np.lib.stride_tricks.sliding_window_view(sound, spec.fft_size)[:: spec.hop_size][:num_frames]
        powers = np.abs(np.fft.rfft(frames * self._hann)) ** 2
        energies = np.full((spec.num_frames, spec.num_mels), 1e-10)
        np.maximum(powers @ self._triangles, 1e-10, out=energies[:num_frames])
        logs = np.log10(energies)
        levels = (np.maximum(logs, logs.max() - 8) + 4) / 4
        return np.ascontiguousarray(levels.T, np.float32)
