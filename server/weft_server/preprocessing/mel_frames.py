"""Samples to frames of log-mel energies, as a bundle's MelSpec says; each mel is normed over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.ctc import LEAST_DEVIATION, LEAST_ENERGY, mel_audio, num_frames_of
from weft_proto.sound import mel_triangles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft_proto.v1 import bundle_pb2


class MelFrames:
    """Makes energies of samples. See MelSpec for each step."""

    def __init__(self, spec: bundle_pb2.AudioSpec) -> None:
        self._mel = mel = spec.ctc.mel
        self._triangles = np.array(mel_triangles(mel_audio(spec))).T
        before = (mel.fft_size - mel.window_size) // 2
        behind = mel.fft_size - mel.window_size - before
        self._hann = np.pad(np.hanning(mel.window_size), (before, behind))

    def energies(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return energies float32 [frames, num_mels] of the samples of one window, of at least one frame."""
        mel = self._mel
        sound = samples.astype(np.float64)
        sound[1:] -= mel.preemphasis * sound[:-1]
        sound = np.pad(sound, mel.fft_size // 2)
        num_frames = num_frames_of(mel, len(samples))
        frames = np.lib.stride_tricks.sliding_window_view(sound, mel.fft_size)[:: mel.hop_size][:num_frames]
        powers = np.abs(np.fft.rfft(frames * self._hann)) ** 2
        logs = np.log(powers @ self._triangles + LEAST_ENERGY)
        logs -= logs.mean(axis=0)
        # A single frame is its own mean.
        deviation = np.sqrt(np.square(logs).sum(axis=0) / max(1, num_frames - 1))
        energies: NDArray[np.float32] = (logs / (deviation + LEAST_DEVIATION)).astype(np.float32)
        return energies
